"""After a shortage of memory the loop plans again what it lost, and tries it until there is memory."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.clock import ManualClock

from ottla.broker import process
from ottla.broker.loop_timers import LoopTimers
from ottla.broker.net.connections import Connections
from ottla.broker.node import Node
from ottla.broker.runtime.memory_reserve import MemoryReserve
from ottla.broker.runtime.timers import Timers
from ottla.broker.server import Server
from ottla.broker.shortage_recovery import PAUSE_S, ShortageRecovery
from ottla.config.broker import BrokerConfig


def config(directory: Path) -> BrokerConfig:
    return BrokerConfig.of(
        {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory), "ottla.http.listener": ""}
    )


class Shell:
    """The recovery of a reserve, on the running loop."""

    def __init__(self) -> None:
        self.rests: list[float] = []
        self.reserve = MemoryReserve(Timers(), ManualClock().monotonic_ms)
        self.recovery = ShortageRecovery(self.reserve, asyncio.get_running_loop(), rest=self.rests.append)


@pytest.mark.both_loops
async def test_it_is_tried_until_there_is_memory_and_then_no_more() -> None:
    shell = Shell()
    calls: list[str] = []

    def plan() -> None:
        calls.append("plan")
        if len(calls) < 4:
            raise MemoryError

    shell.reserve.after_shortage.append(plan)
    shell.reserve.let_go()
    while len(calls) < 4:
        await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(calls) == 4
    assert shell.rests == 3 * [PAUSE_S]
    shell.recovery.stop()


@pytest.mark.both_loops
async def test_a_bug_in_it_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    shell = Shell()
    calls: list[str] = []

    def plan() -> None:
        calls.append("plan")
        raise ZeroDivisionError

    shell.reserve.after_shortage.append(plan)
    shell.reserve.let_go()
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(calls) == 1
    shell.recovery.stop()


@pytest.mark.both_loops
async def test_a_stopped_one_recovers_nothing() -> None:
    shell = Shell()
    calls: list[str] = []
    shell.reserve.after_shortage.append(lambda: calls.append("plan"))
    shell.recovery.stop()
    shell.reserve.let_go()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not calls


class ScantLoop(asyncio.SelectorEventLoop):
    """A loop with no memory for the next `fails` calls of one kind."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = 0
        self.failing_task = ""

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        if self.fails and not self.failing_task:
            self.fails -= 1
            raise MemoryError
        return super().call_later(delay, callback, *args, context=context)

    def create_task(self, coroutine: Coroutine[Any, Any, Any], **keys: Any) -> Any:
        if self.fails and coroutine.__name__ == self.failing_task:
            self.fails -= 1
            raise MemoryError
        return super().create_task(coroutine, **keys)


def test_the_brokers_timers_run_though_the_loop_had_no_memory_to_plan_them(tmp_path: Path) -> None:
    """Every later timer plans nothing, since it is not the earliest: without a recovery no timer ever runs again."""
    loop = ScantLoop()
    node = Node(config(tmp_path))
    timers = LoopTimers(node.services, loop)
    recovery = ShortageRecovery(node.services.memory_reserve, loop)
    ran: list[str] = []
    now_ms = node.services.clock.monotonic_ms()
    loop.fails = 4
    node.services.timers.at(now_ms + 1, lambda: ran.append("early"))
    node.services.timers.at(now_ms + 2, lambda: ran.append("late"))
    node.services.timers.at(now_ms + 3, loop.stop)
    loop.run_forever()
    assert ran == ["early", "late"]
    assert not loop.fails
    recovery.stop()
    timers.stop()
    loop.close()


def test_the_watch_of_the_loop_goes_on_after_it_had_no_memory_to_plan_the_next_look(tmp_path: Path) -> None:
    loop = ScantLoop()
    server = Server(config(tmp_path))

    async def run() -> None:
        await server.start()
        reserve = server.node.services.memory_reserve
        loop.set_exception_handler(reserve.on_loop_error)
        lag = server.node.services.metrics.loop_lag
        loop.fails = 20
        while loop.fails:
            await asyncio.sleep(0)
        count = lag.count
        while lag.count < count + 3:
            await asyncio.sleep(0)
        await server.stop()

    loop.run_until_complete(run())
    loop.close()


@pytest.fixture
def stopped_early(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that gets a SIGTERM as soon as it is ready. Its log and its hooks end with the test."""
    log, hook = logging.getLogger("ottla"), sys.unraisablehook
    before = log.handlers[:], log.level, log.propagate
    monkeypatch.setattr(process, "notify", lambda words: words == "READY=1" and os.kill(os.getpid(), signal.SIGTERM))
    yield
    sys.unraisablehook = hook
    log.handlers[:], log.level, log.propagate = before


@pytest.mark.usefixtures("stopped_early")
def test_a_signal_stops_the_broker_though_there_was_no_memory_for_the_task_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = ScantLoop()
    loop.fails, loop.failing_task = 5, "_stop"
    monkeypatch.setattr(process, "new_event_loop", lambda: loop)
    assert process.run(config(tmp_path)) == 0
    assert not loop.fails
    assert "stopped" in capsys.readouterr().err


@pytest.mark.usefixtures("stopped_early")
def test_the_broker_serves_on_if_its_loop_ended_for_want_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """uvloop ends with the MemoryError that it meets while it reports another error."""

    class EndingLoop(asyncio.SelectorEventLoop):
        ends = 3

        def run_forever(self) -> None:
            if self.ends:
                self.ends -= 1
                self.call_later(0.001, self.stop)
                super().run_forever()
                raise MemoryError
            super().run_forever()

    loop = EndingLoop()
    monkeypatch.setattr(process, "new_event_loop", lambda: loop)
    assert process.run(config(tmp_path)) == 0
    assert loop.ends == 0
    assert "stopped" in capsys.readouterr().err


@pytest.mark.both_loops
async def test_a_client_for_which_there_is_no_memory_costs_no_other_client_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvloop never accepts from a listener again whose protocol could not be made."""
    make, fails = Connections.protocol, [MemoryError()]

    def protocol(connections: Connections, listener: str) -> Any:
        if fails:
            raise fails.pop()
        return make(connections, listener)

    monkeypatch.setattr(Connections, "protocol", protocol)
    server = Server(config(tmp_path))
    await server.start()
    try:
        reader, writer = await asyncio.open_connection(*server.addresses["PLAINTEXT"])
        assert await reader.read() == b""
        writer.close()
        _, other = await asyncio.open_connection(*server.addresses["PLAINTEXT"])
        assert server.connections is not None
        while not len(server.connections):
            await asyncio.sleep(0)
        other.close()
    finally:
        await server.stop()
