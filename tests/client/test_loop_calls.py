"""What a thread waits for in the loop's thread: it gets the result or the error, and no wake is lost."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ottla.client.blocking import loop_calls
from ottla.client.blocking.loop_calls import LoopCall
from ottla.client.blocking.thread_waiter import ThreadWaiter

RUN_LIMIT_S = 60


@pytest.fixture
def loop():
    running = asyncio.new_event_loop()
    thread = threading.Thread(target=running.run_forever)
    thread.start()
    yield running
    running.call_soon_threadsafe(running.stop)
    thread.join(RUN_LIMIT_S)
    running.close()


async def answer(value):
    await asyncio.sleep(0)
    if isinstance(value, BaseException):
        raise value
    return value


def test_the_result_or_the_error_comes_to_the_thread_that_waits(loop):
    for value in (3, None):
        call = LoopCall(answer(value))
        loop.call_soon_threadsafe(call.start)
        assert call.wait() == value
        assert call.done
    call = LoopCall(answer(KeyError("wrong")))
    loop.call_soon_threadsafe(call.start)
    with pytest.raises(KeyError, match="wrong"):
        call.wait()


def test_a_cancelled_call_ends(loop):
    call = LoopCall(asyncio.sleep(RUN_LIMIT_S))
    loop.call_soon_threadsafe(call.start)
    loop.call_soon_threadsafe(call.cancel)  # before its first step
    with pytest.raises(asyncio.CancelledError):
        call.wait()
    loop.call_soon_threadsafe(call.cancel)


def test_a_thread_that_waits_can_be_woken_before_the_end(loop):
    call = LoopCall(answer(1))
    loop.call_soon_threadsafe(call.wake)
    call.wait_for_change()
    assert not call.done
    loop.call_soon_threadsafe(call.start)
    while not call.done:
        call.wait_for_change()
    assert call.result() == 1


def test_the_loop_yields_the_processor_once_the_thread_is_woken(loop, monkeypatch):
    """Else its next steps, such as the next Fetch of a consumer, run before the thread has its result."""
    steps = []
    wake = ThreadWaiter.wake
    monkeypatch.setattr(ThreadWaiter, "wake", lambda waiter: steps.append("wake") or wake(waiter))
    monkeypatch.setattr(loop_calls, "_yield_processor", lambda: steps.append("yield"))
    call = LoopCall(answer(1))
    loop.call_soon_threadsafe(call.start)
    assert call.wait() == 1
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(RUN_LIMIT_S)  # that step has ended
    assert steps == ["wake", "yield"]
