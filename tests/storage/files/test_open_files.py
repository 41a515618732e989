"""The bound on open handles: what it costs to open one more, and what goes when."""

from __future__ import annotations

from ottla.storage.files.open_files import LOOKS_PER_ADMISSION, Handle, OpenFiles


def test_opening_beside_many_pinned_handles_looks_at_few_of_them() -> None:
    looked = 0

    class Counted(Handle):
        __slots__ = ()

        @property
        def pinned(self) -> bool:  # type: ignore[override]  # a property in the place of an attribute, to count its uses
            nonlocal looked
            looked += 1
            return True

        @pinned.setter
        def pinned(self, value: bool) -> None:
            """Always."""

    files = OpenFiles(10)
    handles = []
    for _ in range(500):
        handle = Counted(lambda one: None)
        handle.used = False
        handles.append(handle)
        files.admit(handle)
    assert looked <= 500 * LOOKS_PER_ADMISSION
    assert len(files) == 500


def test_what_was_too_many_goes_as_others_are_opened_once_it_may() -> None:
    files = OpenFiles(10)
    dropped: list[Handle] = []
    handles = [Handle(dropped.append) for _ in range(100)]
    for handle in handles:
        handle.pinned = True
        files.admit(handle)
    for handle in handles:
        handle.pinned = handle.used = False
    for _ in range(5):
        handle = Handle(dropped.append)
        handles.append(handle)
        files.admit(handle)
    assert len(files) <= 12
    assert len(dropped) >= 90
