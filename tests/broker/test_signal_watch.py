"""Signals that arrive on the loop one by one, without memory."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from ottla.broker.signal_watch import SignalWatch

pytestmark = pytest.mark.both_loops


async def test_each_signal_arrives_with_its_number_in_order() -> None:
    came: list[int] = []
    watch = SignalWatch(asyncio.get_running_loop(), [signal.SIGUSR1, signal.SIGUSR2], came.append)
    try:
        for number in (signal.SIGUSR2, signal.SIGUSR1, signal.SIGUSR2):
            os.kill(os.getpid(), number)
        while len(came) < 3:
            await asyncio.sleep(0)
    finally:
        watch.close()
    assert came == [signal.SIGUSR2, signal.SIGUSR1, signal.SIGUSR2]


async def test_a_signal_of_another_handler_is_not_reported() -> None:
    came: list[int] = []
    others: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, _: others.append(number))
    watch = SignalWatch(asyncio.get_running_loop(), [signal.SIGUSR1], came.append)
    try:
        os.kill(os.getpid(), signal.SIGUSR2)
        os.kill(os.getpid(), signal.SIGUSR1)
        while not came:
            await asyncio.sleep(0)
    finally:
        watch.close()
        signal.signal(signal.SIGUSR2, before)
    assert (came, others) == ([signal.SIGUSR1], [signal.SIGUSR2])


async def test_an_error_of_one_signal_loses_no_other() -> None:
    came: list[int] = []
    errors: list[object] = []

    def on_signal(number: int) -> None:
        came.append(number)
        if len(came) == 1:
            raise MemoryError

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: errors.append(type(context["exception"])))
    watch = SignalWatch(loop, [signal.SIGUSR1, signal.SIGUSR2], on_signal)
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR2)
        while len(came) < 2:
            await asyncio.sleep(0)
    finally:
        watch.close()
    assert errors == [MemoryError]


async def test_a_closed_watch_gives_the_handlers_back() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    watch = SignalWatch(asyncio.get_running_loop(), [signal.SIGUSR1], lambda number: None)
    assert signal.getsignal(signal.SIGUSR1) is not before
    watch.close()
    assert signal.getsignal(signal.SIGUSR1) == before
