"""How bugs are planted: a registry of patches of the broker's own code, each of which breaks one promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

Patch = Callable[[], Any]
"""Makes a context in which the bug is there. Any: mock's patchers have no common type."""


@dataclass(frozen=True)
class Bug:
    """What it does, the patch, and where it is looked for: in worlds of this theme (None: of any), and in worlds with
    each of the others or without, such as transactional clients, an authorizer, slow workers.
    """

    story: str
    patch: Patch
    theme: str | None
    has_transactions: bool
    has_acls: bool
    has_page_cache: bool
    has_quotas: bool
    has_shared_ids: bool
    has_turns: bool
    has_settings: bool
    has_directories: bool
    has_times: bool
    has_epochs: bool
    has_shortages: bool
    has_shares: bool
    has_letters: bool
    has_streams: bool


_BUGS: dict[str, Bug] = {}


def bug(
    name: str,
    story: str,
    *,
    theme: str | None = None,
    transactions: bool = False,
    acls: bool = False,
    page_cache: bool = False,
    quotas: bool = False,
    shared_ids: bool = False,
    turns: bool = False,
    settings: bool = False,
    directories: bool = False,
    times: bool = False,
    epochs: bool = False,
    descriptors: bool = False,
    shares: bool = False,
    letters: bool = False,
    streams: bool = False,
) -> Callable[[Patch], Patch]:
    """Register a bug; one that shows in worlds of one `theme` only is looked for in these."""

    def register(patch: Patch) -> Patch:
        _BUGS[name] = Bug(
            story,
            patch,
            theme,
            transactions,
            acls,
            page_cache,
            quotas,
            shared_ids,
            turns,
            settings,
            directories,
            times,
            epochs,
            descriptors,
            shares,
            letters,
            streams,
        )
        return patch

    return register


def nothing(*_: object, **__: object) -> None:
    """In the place of a step that is forgotten."""


def yes(*_: object) -> bool:
    """In the place of a check."""
    return True


def no(*_: object) -> bool:
    """In the place of a check that finds nothing."""
    return False


def before(owner: object, name: str, replace: Callable[[Any], Any]) -> Any:
    """Replace `owner.name` by what `replace` makes of it."""
    return mock.patch.object(owner, name, replace(getattr(owner, name)))


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The broker has the bug."""
    with _BUGS[name].patch():
        yield


def bug_of(name: str) -> Bug:
    """A bug by its name."""
    return _BUGS[name]


def stories() -> Mapping[str, str]:
    """What each bug does, by its name."""
    return {name: one.story for name, one in _BUGS.items()}
