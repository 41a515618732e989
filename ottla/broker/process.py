"""A broker as a process: its loop, its log on standard error, the signals that stop it, and its exit status.

serving:  "listening on NAME://host:port" for each listener, the only lines on standard output except `ready_line`
stop:     SIGTERM, SIGINT, and SIGHUP (the terminal is closed) unless the parent process ignores that, as nohup does;
          a second SIGTERM or SIGINT waits neither for the connections nor for logs that are not synced yet
"""

from __future__ import annotations

import asyncio
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
from ottla.storage.directories.load_progress import LoadInterrupted

if TYPE_CHECKING:
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
        return loop.run_until_complete(_serve(config, ready_line))
    except (StartError, StorageError, MetadataError, OSError) as error:
        LOG.error("cannot start: %s", error)
        return 1
    finally:
        loop.close()


async def _serve(config: BrokerConfig, ready_line: str | None) -> int:
    loop = asyncio.get_running_loop()
    stop, force = asyncio.Event(), asyncio.Event()

    def on_signal(name: str) -> None:
        if stop.is_set() and name == signal.SIGHUP.name:
            return  # the shell and the terminal send one each
        if stop.is_set():
            LOG.warning("%s again: stopping without waiting", name)
            force.set()
        else:
            LOG.info("%s: stopping", name)
            stop.set()
            server.interrupt_start()

    server = Server(config)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, on_signal, number.name)
    try:
        await server.start()
    except LoadInterrupted:
        LOG.info("stopped during the recovery, which the next start continues (pid %d)", os.getpid())
        return 0
    try:
        _say_addresses(server, ready_line)
    except OSError as error:
        await server.stop()
        raise StartError(f"standard output: {error.strerror}") from error
    reserve = server.node.services.memory_reserve
    reserve.take()
    loop.set_exception_handler(reserve.on_loop_error)
    sys.unraisablehook = reserve.on_unraisable
    notify("READY=1")
    for handler in logging.getLogger("ottla").handlers:
        handler.addFilter(RepeatedLines())
    services = server.node.services
    metrics = services.metrics
    collector = Collector(
        metrics.chore("garbage collection"),
        lambda: metrics.bytes_received,
        loop.call_later,
        wall_ms=services.clock.wall_ms,
    )
    await stop.wait()
    notify("STOPPING=1")
    collector.stop()
    await server.stop(force=force)
    LOG.info("stopped (pid %d)", os.getpid())
    return 0


def _say_addresses(server: Server, ready_line: str | None) -> None:
    """Print the addresses: programs that start a broker wait for them, and read the chosen port. Those that were
    written for another broker wait for `ready_line`. Nothing else is printed on standard output. Raises OSError.
    """
    for name, (host, port) in server.addresses.items():
        sys.stdout.write(f"listening on {name}://{host_and_port(host, port)}\n")
    if ready_line is not None:
        sys.stdout.write(f"{ready_line}\n")
    sys.stdout.flush()
