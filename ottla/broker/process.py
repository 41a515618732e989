"""A broker as a process: its loop, its log on standard error, the signals that stop it, and its exit status.

serving:  "listening on NAME://host:port" for each listener, the only lines on standard output except `ready_line`
stop:     SIGTERM, SIGINT, and SIGHUP (the terminal is closed) unless the parent process ignores that, as nohup does;
          a second SIGTERM or SIGINT waits neither for the connections nor for logs that are not synced yet
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

from ottla.address import host_and_port
from ottla.broker.net.listening import StartError
from ottla.broker.notify import notify
from ottla.broker.runtime.collector import Collector
from ottla.broker.runtime.repeated_lines import RepeatedLines
from ottla.broker.server import Server
from ottla.broker.signal_watch import SignalWatch
from ottla.broker.start_summary import log_configuration_warnings
from ottla.storage.directories.load_progress import LoadInterrupted

if TYPE_CHECKING:
    from ottla.broker.runtime.memory_reserve import MemoryReserve
    from ottla.config.broker import BrokerConfig

LOG = logging.getLogger("ottla.server")


def configure_logging(level: int = logging.INFO) -> None:
    """Log readable lines on standard error: time, level, logger, message."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    root = logging.getLogger("ottla")
    root.handlers[:] = [handler]
    root.setLevel(level)
    root.propagate = False


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's loop where it is installed, else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run(config: BrokerConfig, *, level: int = logging.INFO, ready_line: str | None = None) -> int:
    """Serve until a signal ends it; return the exit status. An error that prevents the start is one line in the log.

    `ready_line` is printed after the addresses, when clients are accepted.
    """
    from ottla.broker.metadata.image import MetadataError
    from ottla.storage.errors import StorageError

    configure_logging(level)
    loop = new_event_loop()
    try:
        return _Process(loop, config, ready_line).run()
    except (StartError, StorageError, MetadataError, OSError) as error:
        LOG.error("cannot start: %s", error)
        return 1
    finally:
        loop.close()


class _Process:
    """The life of one broker: its start, until a signal its service, and its stop.

    While it serves, no task waits for the signal: a task whose wake-up finds no memory would never run again. The
    signal creates the task that stops it; if there is no memory for that, `MemoryReserve.after_shortage` does it later.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, config: BrokerConfig, ready_line: str | None) -> None:
        self._loop = loop
        self._config = config
        self._ready_line = ready_line
        self._server = Server(config)
        self._force = asyncio.Event()
        self._reserve: MemoryReserve | None = None
        self._collector: Collector | None = None
        self._signals: SignalWatch | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._has_signal = False

    def run(self) -> int:
        """Return the exit status. Raises what a start or a stop raises."""
        starting = self._loop.create_task(self._start())
        starting.add_done_callback(self._started)
        try:
            self._run_until_stopped(starting)
        finally:
            if self._signals is not None:
                self._signals.close()
        starting.result()
        if self._stopping is not None:
            self._stopping.result()
        return 0

    def _run_until_stopped(self, starting: asyncio.Task[None]) -> None:
        while not (starting.done() and (self._collector is None or (self._stopping and self._stopping.done()))):
            try:
                self._loop.run_forever()
            except MemoryError:  # uvloop had no memory to report another error, and ended
                self._release_reserve()

    def _started(self, task: asyncio.Task[None]) -> None:
        if self._collector is None:
            self._loop.stop()  # it has failed, or was interrupted

    def _on_signal(self, number: int) -> None:
        """Stop. What must happen comes first; the line in the log needs memory."""
        is_first, self._has_signal = not self._has_signal, True
        if not is_first and number == signal.SIGHUP:
            return  # the shell and the terminal send one each
        if is_first:
            if self._reserve is not None:
                self._reserve.end()  # a stop needs memory
            self._server.interrupt_start()
            self._stop_soon()
        else:
            self._force.set()
        with contextlib.suppress(MemoryError):
            name = signal.Signals(number).name
            if is_first:
                LOG.info("%s: stopping", name)
            else:
                LOG.warning("%s again: stopping without waiting", name)

    def _begin_stop(self) -> None:
        """Begin to stop, if it serves and there was a signal. Raises MemoryError: it has to be called again."""
        if self._has_signal and self._collector is not None and self._stopping is None:
            stop = self._stop()
            try:
                self._stopping = self._loop.create_task(stop)
            except MemoryError:
                stop.close()
                raise

    def _stop_soon(self) -> None:
        try:
            self._begin_stop()
        except MemoryError:
            self._release_reserve()  # after which it is called again

    def _release_reserve(self) -> None:
        if self._reserve is not None:
            self._reserve.let_go()

    async def _start(self) -> None:
        server = self._server
        numbers = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        self._signals = SignalWatch(self._loop, numbers, self._on_signal)
        log_configuration_warnings(self._config)
        try:
            await server.start()
        except LoadInterrupted:
            LOG.info("stopped during the recovery, which the next start continues (pid %d)", os.getpid())
            return
        try:
            _say_addresses(server, self._ready_line)
        except OSError as error:
            await server.stop()
            raise StartError(f"standard output: {error.strerror}") from error
        self._watch()
        self._stop_soon()

    def _watch(self) -> None:
        """Take the reserve, and watch memory and the log from now on."""
        services = self._server.node.services
        reserve = self._reserve = services.memory_reserve
        reserve.take()
        self._loop.set_exception_handler(reserve.on_loop_error)
        sys.unraisablehook = reserve.on_unraisable
        notify("READY=1")
        for handler in logging.getLogger("ottla").handlers:
            handler.addFilter(RepeatedLines())
        metrics = services.metrics
        self._collector = Collector(
            metrics.chore("garbage collection"),
            lambda: metrics.bytes_received,
            self._loop.call_later,
            wall_ms=services.clock.wall_ms,
        )
        assert self._signals is not None
        reserve.after_shortage += (self._signals.watch, self._begin_stop, self._collector.plan_again)

    async def _stop(self) -> None:
        try:
            notify("STOPPING=1")
            if self._collector is not None:
                self._collector.stop()
            await self._server.stop(force=self._force)
            LOG.info("stopped (pid %d)", os.getpid())
        finally:
            self._loop.stop()


def _say_addresses(server: Server, ready_line: str | None) -> None:
    """Print the addresses: programs that start a broker wait for them, and read the chosen port. Those that were
    written for another broker wait for `ready_line`. Nothing else is printed on standard output. Raises OSError.
    """
    for name, (host, port) in server.addresses.items():
        sys.stdout.write(f"listening on {name}://{host_and_port(host, port)}\n")
    if ready_line is not None:
        sys.stdout.write(f"{ready_line}\n")
    sys.stdout.flush()
