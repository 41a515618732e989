"""The reserve of memory: let go at a shortage, said once a minute, taken again by a timer."""

from __future__ import annotations

import logging
import mmap
import sys
from types import SimpleNamespace

import pytest
from kit.clock import ManualClock

from ottla.broker.runtime.memory_reserve import AGAIN_MS, RESERVE_BYTES, SAID_EVERY_MS, MemoryReserve
from ottla.broker.runtime.timers import Timer, Timers


class Shell:
    """A reserve whose system has memory while `has_memory`."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = Timers()
        self.has_memory = True
        self.maps: list[mmap.mmap] = []
        self.reserve = MemoryReserve(self.timers, self.clock.monotonic_ms, self._pages)
        self.reserve.take()

    def _pages(self, size_bytes: int) -> mmap.mmap:
        if not self.has_memory:
            raise OSError(12, "Cannot allocate memory")
        assert size_bytes == RESERVE_BYTES
        self.maps.append(mmap.mmap(-1, size_bytes))
        return self.maps[-1]

    def after(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timers.run_due(self.clock.monotonic_ms())


def test_it_is_let_go_at_a_shortage_and_taken_again_once_there_is_memory(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="ottla.memory")
    shell = Shell()
    assert shell.reserve.is_held
    shell.has_memory = False
    shell.reserve.let_go()
    shell.reserve.let_go()
    assert shell.maps[0].closed
    assert not shell.reserve.is_held
    for _ in range(3):
        shell.after(AGAIN_MS)
    assert not shell.reserve.is_held
    shell.has_memory = True
    shell.after(AGAIN_MS)
    assert shell.reserve.is_held
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]


def test_shortages_are_said_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    shell = Shell()
    for _ in range(5):
        shell.reserve.let_go()
        shell.after(AGAIN_MS)
    assert len(caplog.records) == 1
    shell.after(SAID_EVERY_MS)
    shell.reserve.let_go()
    assert len(caplog.records) == 2


def test_a_memory_error_that_reaches_the_loop_lets_it_go_and_any_other_error_is_the_loops() -> None:
    shell, said = Shell(), []
    loop = SimpleNamespace(default_exception_handler=said.append)
    shell.reserve.on_loop_error(loop, {"exception": ValueError()})
    assert shell.reserve.is_held
    assert len(said) == 1
    shell.reserve.on_loop_error(loop, {"exception": MemoryError()})
    assert not shell.reserve.is_held
    assert len(said) == 1


def test_a_loop_that_has_no_memory_to_log_an_error_does_not_end() -> None:
    shell = Shell()

    def fails(_: object) -> None:
        raise MemoryError

    shell.reserve.on_loop_error(SimpleNamespace(default_exception_handler=fails), {"exception": ValueError()})
    assert not shell.reserve.is_held


def test_what_c_code_cannot_raise_lets_it_go() -> None:
    shell = Shell()
    shell.reserve.on_unraisable(SimpleNamespace(exc_type=MemoryError))
    assert not shell.reserve.is_held


def test_an_error_of_c_code_for_whose_message_there_is_no_memory_lets_it_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the loop would meet the same error again and again, without any memory to end it."""
    shell = Shell()
    messages: list[type] = []

    def write(unraisable: SimpleNamespace) -> None:
        messages.append(unraisable.exc_type)
        if len(messages) == 2:
            raise MemoryError

    monkeypatch.setattr(sys, "__unraisablehook__", write)
    shell.reserve.on_unraisable(SimpleNamespace(exc_type=OSError))
    assert shell.reserve.is_held
    shell.reserve.on_unraisable(SimpleNamespace(exc_type=OSError))
    assert messages == [OSError, OSError]
    assert not shell.reserve.is_held


def test_the_reserve_is_taken_again_though_there_was_no_memory_to_plan_that() -> None:
    shell = Shell()
    at, wakes = shell.timers.at, []

    def fails(deadline_ms: float, callback: object) -> Timer:
        raise MemoryError

    shell.reserve.wake = lambda: wakes.append("wake")
    shell.timers.at = fails  # type: ignore[method-assign,assignment]  # there is no memory
    shell.reserve.let_go()
    assert wakes == ["wake"]
    assert not shell.reserve.recover()
    shell.timers.at = at  # type: ignore[method-assign]  # there is memory again
    assert shell.reserve.recover()
    assert shell.reserve.recover()
    assert len(shell.timers) == 1
    shell.after(AGAIN_MS)
    assert shell.reserve.is_held


def test_an_ended_reserve_is_released_and_not_taken_again() -> None:
    shell = Shell()
    shell.reserve.let_go()
    shell.after(AGAIN_MS)
    shell.reserve.end()
    assert shell.maps[-1].closed
    shell.reserve.let_go()
    shell.after(AGAIN_MS)
    assert not shell.reserve.is_held
