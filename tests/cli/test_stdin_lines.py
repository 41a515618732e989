"""The thread that reads standard input: what it does when the event loop ends before the input."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from ottla.cli.stdin_lines import stdin_lines

TIMEOUT_S = 20.0


class Typed:
    """Standard input without a descriptor, as click's CliRunner has it; each chunk comes when the test wants it."""

    def __init__(self) -> None:
        self.buffer = self
        self._chunks: list[bytes] = []
        self._has_more = threading.Semaphore(0)
        self.count_read = 0

    def type(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._has_more.release()

    def read(self, _: int) -> bytes:
        assert self._has_more.acquire(timeout=TIMEOUT_S)
        self.count_read += 1
        return self._chunks.pop(0)


def reading_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "stdin"]


async def first_lines() -> list[bytes]:
    async for lines in stdin_lines():
        return lines
    return []


def after(run: Callable[[Typed], None], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What Python warns of while and after a loop runs that ends before the input; the thread must have ended."""
    before = reading_threads()
    typed = Typed()
    monkeypatch.setattr(sys, "stdin", typed)
    gc.collect()  # what an earlier test has left would be warned of below
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        typed.type(b"first\n")
        run(typed)
        for thread in set(reading_threads()) - set(before):
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()
        gc.collect()
    return [str(one.message) for one in caught]


def test_a_chunk_that_comes_after_the_end_of_the_loop_is_dropped_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(typed: Typed) -> None:
        assert asyncio.run(first_lines()) == [b"first"]
        typed.type(b"second\n")

    assert after(run, monkeypatch) == []


def test_a_chunk_that_nothing_takes_before_the_loop_ends_is_dropped_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread has passed it on, but the loop stops before it runs the callback."""

    def run(typed: Typed) -> None:
        loop = asyncio.new_event_loop()
        lines = stdin_lines()
        assert loop.run_until_complete(anext(lines)) == [b"first"]
        passed_on = threading.Event()
        real = loop.call_soon_threadsafe

        def call_soon_threadsafe(*arguments: object) -> asyncio.Handle:
            handle = real(*arguments)  # type: ignore[arg-type]
            passed_on.set()
            return handle

        monkeypatch.setattr(loop, "call_soon_threadsafe", call_soon_threadsafe)
        typed.type(b"second\n")
        typed.type(b"")
        assert passed_on.wait(TIMEOUT_S)
        monkeypatch.undo()
        loop.close()
        with pytest.raises(StopIteration):  # closed
            lines.aclose().send(None)

    assert after(run, monkeypatch) == []


async def test_the_thread_reads_at_most_two_chunks_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = Typed()
    monkeypatch.setattr(sys, "stdin", typed)
    for number in range(20):
        typed.type(b"%d\n" % number)
    typed.type(b"")
    taken = 0
    async for lines in stdin_lines():
        assert lines == [b"%d" % taken]
        taken += 1
        await asyncio.sleep(0.002)  # the thread may run ahead now
        assert typed.count_read <= taken + 2
    assert taken == 20


async def test_a_long_line_is_searched_once_however_many_chunks_it_comes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = Typed()
    monkeypatch.setattr(sys, "stdin", typed)
    for chunk in [b"short\nlo", *[b"o" * 1000] * 200, b"ng\nnext", b"", b""]:
        typed.type(chunk)
    searched = 0

    def count(frame: FrameType, event: str, called: Any) -> None:
        nonlocal searched
        if event == "c_call" and called.__name__ == "split" and isinstance(called.__self__, bytes):
            searched += len(called.__self__)

    sys.setprofile(count)
    try:
        lines = [line async for chunk in stdin_lines() for line in chunk]
    finally:
        sys.setprofile(None)
    assert lines == [b"short", b"lo" + b"o" * 200_000 + b"ng", b"next"]
    assert searched == len(b"short\nlo") + 200_000 + len(b"ng\nnext")
