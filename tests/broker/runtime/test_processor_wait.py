"""How long a thread had no processor: read from what the kernel says, or not known."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla.broker.runtime import processor_wait
from ottla.broker.runtime.processor_wait import ProcessorWait


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "schedstat"
    monkeypatch.setattr(processor_wait, "PLACE", str(path))
    return path


def test_it_is_the_second_number_since_the_mark(place: Path) -> None:
    place.write_text("900000000 70000000 12\n")
    wait = ProcessorWait()
    mark = wait.mark()
    assert wait.since_ms(mark) == 0
    place.write_text("900000000 85900000 14\n")
    assert wait.since_ms(mark) == 15


@pytest.mark.parametrize("text", ["", "7", "7 -1 2", "seven eight nine"])
def test_what_cannot_be_read_is_no_wait(place: Path, text: str) -> None:
    place.write_text(text)
    wait = ProcessorWait()
    mark = wait.mark()
    place.write_text("900000000 85900000 14\n")
    assert wait.since_ms(mark) == 0
    mark = wait.mark()
    place.write_text(text)
    assert wait.since_ms(mark) == 0


def test_a_system_that_does_not_say_is_an_error_when_it_is_made(place: Path) -> None:
    with pytest.raises(OSError, match="schedstat"):
        ProcessorWait()


def test_its_descriptor_is_closed_with_it(place: Path) -> None:
    place.write_text("1 2 3\n")
    before = set(os.listdir("/proc/self/fd"))
    wait = ProcessorWait()
    assert set(os.listdir("/proc/self/fd")) > before
    del wait
    assert set(os.listdir("/proc/self/fd")) == before
