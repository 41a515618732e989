"""A node under an event loop: listeners, timers, signals, start-up summary, drain (the shell around `Node`).

    start:  ports are bound, HTTP answers  ->  directories, catalog, logs (in a thread)  ->  listeners accept
            ->  "listening on ..." (standard output; the log is standard error)
    stop:   no new connections  ->  started requests are answered  ->  connections end  ->  logs are synced and closed

SIGTERM and SIGINT stop; a second one does not wait for the connections. One that comes during a recovery ends it: what
was recovered is recovered again by the next start. Whatever happens, what was acknowledged is on
disk, since acknowledging is what waited for it.

Differences from Apache Kafka: a listener with an empty host is one dual-stack socket, so that port 0 is one port.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import gc
import logging
import os
import platform
import resource
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING

from ottla import __version__
from ottla.broker.connections import Connections
from ottla.broker.loop_watch import LoopWatch
from ottla.broker.node import Node
from ottla.broker.notify import notify
from ottla.storage.load_progress import LoadInterrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.broker.http.server import HttpServer
    from ottla.config.broker import BrokerConfig
    from ottla.config.listeners import Listener
    from ottla.storage.clock import Clock
    from ottla.storage.files import Files

LOG = logging.getLogger("ottla.server")

MAX_OPEN_FILES = 1 << 20
"""The soft limit of open files is raised to the hard limit, but not beyond this."""

EXTEND_START_EVERY_S = 10.0
EXTEND_START_USEC = 60_000_000
"""While logs are opened systemd is asked so often for so much more time, or its patience would end a recovery."""

GC_YOUNG_OBJECTS = 20_000
"""New objects after which the garbage collector looks at the young ones."""


class StartError(Exception):
    """The broker cannot start; the message is one line for people."""


class LoopTimers:
    """Runs a node's timers by one `call_later` for the earliest; a timer that fires early just looks again."""

    def __init__(self, node: Node, loop: asyncio.AbstractEventLoop) -> None:
        self._node = node
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None
        self._fires_at_ms = 0.0
        node.timers.on_earlier = self._plan

    def stop(self) -> None:
        """Run nothing more."""
        self._node.timers.on_earlier = None
        if self._handle is not None:
            self._handle.cancel()

    def _plan(self, deadline_ms: float) -> None:
        if self._handle is not None:
            if self._fires_at_ms <= deadline_ms:
                return
            self._handle.cancel()
        self._fires_at_ms = deadline_ms
        delay_ms = max(0.0, deadline_ms - self._node.clock.monotonic_ms())
        self._handle = self._loop.call_later(delay_ms / 1000, self._run)

    def _run(self) -> None:
        self._handle = None
        node = self._node
        now_ms = node.clock.monotonic_ms()
        node.timers.run_due(now_ms)
        next_ms = node.timers.next_deadline_ms()
        if next_ms is not None:
            self._plan(next_ms)


class Server:
    """One broker on the running loop. `addresses` maps each listener's name to the (host, port) it is bound to."""

    def __init__(self, config: BrokerConfig, *, clock: Clock | None = None, files: Files | None = None) -> None:
        self.config = config
        self.addresses: dict[str, tuple[str, int]] = {}
        self.http_address: tuple[str, int] | None = None
        self._clock = clock
        self._files = files
        self._node: Node | None = None
        self._connections: Connections | None = None
        self._timers: LoopTimers | None = None
        self._watch: LoopWatch | None = None
        self._servers: list[asyncio.AbstractServer] = []
        self._http: HttpServer | None = None
        self._is_accepting = False

    @property
    def node(self) -> Node:
        """The broker without its sockets; RuntimeError before `start`."""
        if self._node is None:
            raise RuntimeError("the server is not started")
        return self._node

    @property
    def bootstrap(self) -> str:
        """`host:port` of the first listener, as clients want it."""
        return _shown(*next(iter(self.addresses.values())))

    async def start(self) -> None:
        """Open everything and accept. Raises StartError, StorageError, MetadataError, each one line for people, and
        LoadInterrupted after `interrupt_start`.
        """
        started_ns = time.perf_counter_ns()
        loop = asyncio.get_running_loop()
        raise_file_limit()
        sockets = [(listener, bind(listener, self.config)) for listener in self.config.listeners]
        try:
            node = self._node = Node(
                self.config, clock=self._clock, files=self._files, post=lambda step: self._post(loop, step)
            )
            # After every socket that is ready now has been read.
            node.turn.on_work = functools.partial(loop.call_soon, node.turn.looked)
            self._timers = LoopTimers(node, loop)
            await self._start_http()
            await self._open(loop, node)
            node.begin()
            self._watch = LoopWatch(node.metrics.loop_lag, loop.call_later)
        except BaseException:
            for _, bound in sockets:
                bound.close()
            if self._http is not None:
                await self._http.stop()
            raise
        sends_maps = type(loop).__module__.startswith("uvloop")
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._connections = Connections(
            node,
            node.dispatcher,
            sends_maps=sends_maps,
            descriptors=None if descriptors == resource.RLIM_INFINITY else descriptors,
        )
        self._show_pages()
        for listener, bound in sockets:
            self.addresses[listener.name] = bound.getsockname()[:2]
        node.bound_listeners = self.addresses
        self._log_summary((time.perf_counter_ns() - started_ns) // 1_000_000)
        for listener, bound in sockets:
            await self._accept(loop, listener, bound)
        self._is_accepting = True

    async def _open(self, loop: asyncio.AbstractEventLoop, node: Node) -> None:
        """`node.open` in a thread, so that the loop answers signals and probes. Raises what it raises."""
        opened: asyncio.Future[None] = loop.create_future()

        def tell(error: BaseException | None) -> None:
            if not opened.done():
                opened.set_result(None) if error is None else opened.set_exception(error)

        def work() -> None:
            try:
                node.open()
            except BaseException as error:  # it belongs to whoever awaits
                loop.call_soon_threadsafe(tell, error)
            else:
                loop.call_soon_threadsafe(tell, None)

        thread = threading.Thread(target=work, name="start")
        thread.start()
        try:
            while not opened.done():
                await asyncio.wait([opened], timeout=EXTEND_START_EVERY_S)
                if not opened.done():
                    notify(f"EXTEND_TIMEOUT_USEC={EXTEND_START_USEC}\nSTATUS={node.log_manager.loading.words()}")
        except asyncio.CancelledError:
            node.log_manager.loading.stop()
            raise
        finally:
            thread.join()
        opened.result()

    def interrupt_start(self) -> None:
        """End a recovery under way: `start` raises LoadInterrupted. Nothing happens when there is none."""
        if self._node is not None:
            self._node.log_manager.loading.stop()

    async def stop(self, *, force: asyncio.Event | None = None) -> None:
        """Drain and close. `force`, when set, ends the wait for requests under way."""
        self._is_accepting = False
        for server in self._servers:
            server.close()
        self._servers.clear()
        connections, node = self._connections, self._node
        if connections is not None and node is not None:
            connections.drain()
            node.turn.end()
            await self._wait_for_end(connections, force)
        if self._http is not None:
            await self._http.stop()
            self._http = None
        if self._timers is not None:
            self._timers.stop()
        if self._watch is not None:
            self._watch.stop()
        if node is not None:
            node.stop()
            self._node = None

    async def _wait_for_end(self, connections: Connections, force: asyncio.Event | None) -> None:
        """Until every connection has ended, `ottla.shutdown.timeout.ms`, or `force`; what is left is cut off."""
        ended = asyncio.Event()
        connections.on_empty = ended.set
        if not len(connections):
            return
        waits = [asyncio.ensure_future(ended.wait())]
        if force is not None:
            waits.append(asyncio.ensure_future(force.wait()))
        timeout_s = self.config.ottla_shutdown_timeout_ms / 1000
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if len(connections):
            LOG.warning("%d connections are cut off with requests under way", len(connections))
            connections.abort()
            await asyncio.sleep(0)

    def _post(self, loop: asyncio.AbstractEventLoop, step: Callable[[], None]) -> None:
        """From any thread: run `step` on the loop, and end the turn at once: replies wait for it."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: a sync ended after a forced stop
            loop.call_soon_threadsafe(self._run_posted, step)

    def _run_posted(self, step: Callable[[], None]) -> None:
        step()
        if self._node is not None and self._node.turn.has_work:
            self._node.turn.end()

    async def _accept(self, loop: asyncio.AbstractEventLoop, listener: Listener, bound: socket.socket) -> None:
        connections = self._connections
        assert connections is not None
        backlog = self.config.socket_listen_backlog_size
        try:
            server = await loop.create_server(lambda: connections.protocol(listener.name), sock=bound, backlog=backlog)
        except OSError as error:
            # With SO_REUSEADDR a port that somebody has bound is only refused to who listens second.
            await self.stop()
            raise StartError(f"listeners={listener}: {explain(error)}") from error
        self._servers.append(server)
        host, port = self.addresses[listener.name]
        advertised = self.config.advertised(listener.name)
        if advertised is None:
            told = "the address that they connect to"
        else:
            told = f"{advertised.host}:{advertised.port or port}"
        LOG.info("listener %s at %s: clients are told %s", listener.name, _shown(host, port), told)

    async def _start_http(self) -> None:
        address = self.config.ottla_http_listener
        if address is None:
            return
        from ottla.broker.http.pages import starting_pages
        from ottla.broker.http.server import HttpServer

        host, port = address
        http = HttpServer(host, port, starting_pages(self.node.log_manager.loading.words))
        try:
            await http.start()
        except OSError as error:
            raise StartError(f"ottla.http.listener={host}:{port}: {explain(error)}") from error
        self._http = http
        self.http_address = http.address
        where = _shown(*http.address)
        LOG.info("health and metrics at http://%s (/livez /readyz /metrics; for this machine: POST /log/...)", where)

    def _show_pages(self) -> None:
        """The logs are open: what HTTP shows from now on."""
        if self._http is not None:
            from ottla.broker.http.operations import operations_of
            from ottla.broker.http.pages import pages_of

            self._http.replace(pages_of(self.node, lambda: self._is_accepting), operations_of(self.node))

    def _log_summary(self, elapsed_ms: int) -> None:
        node = self.node
        loop = type(asyncio.get_running_loop()).__module__.partition(".")[0]
        python = f"{platform.python_implementation()} {platform.python_version()}"
        identity = f"node {node.catalog.node_id} of cluster {node.catalog.cluster_id}"
        LOG.info("Ottla %s, %s (%s, %s)", __version__, identity, python, loop)
        for warning in self.config.warnings:
            LOG.warning("configuration: %s", warning)
        for directory in node.log_manager.directories:
            clean = "stopped cleanly before" if directory.was_clean else "new, or not stopped cleanly before"
            LOG.info("log directory %s: %s, %s; %s", directory.path, directory.state.value, clean, directory.room)
        logs = list(node.log_manager.logs.values())
        size_bytes = sum(log.size_bytes for log in logs)
        partition_count = sum(len(topic.partitions) for topic in node.catalog.topics.values())
        LOG.info(
            "%d topics, %d partitions, %s in logs, ready after %d ms",
            len(node.catalog.topics),
            partition_count,
            human_bytes(size_bytes),
            elapsed_ms,
        )
        if node.has_groups:
            groups = node.groups
            if group_count := groups.count_by_state().total():
                LOG.info("%d groups with %d committed offsets", group_count, groups.offset_count)
            if groups.loads_under_way:
                LOG.info("%d partitions of groups are still being loaded", groups.loads_under_way)
        recovered = [log for log in logs if log.recovery.scanned_bytes or log.recovery.truncated_bytes]
        if recovered:
            LOG.info(
                "recovered %d logs: %s checked, %s of torn tails cut",
                len(recovered),
                human_bytes(sum(log.recovery.scanned_bytes for log in recovered)),
                human_bytes(sum(log.recovery.truncated_bytes for log in recovered)),
            )


def bind(listener: Listener, config: BrokerConfig) -> socket.socket:
    """A bound socket for a listener. Raises StartError in one line."""
    try:
        family, address = _resolve(listener)
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setblocking(False)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if listener.host == "" else 1)
            for option, size_bytes in (
                (socket.SO_SNDBUF, config.socket_send_buffer_bytes),
                (socket.SO_RCVBUF, config.socket_receive_buffer_bytes),
            ):
                if size_bytes > 0:
                    bound.setsockopt(socket.SOL_SOCKET, option, size_bytes)
            bound.bind(address)
        except BaseException:
            bound.close()
            raise
    except OSError as error:
        raise StartError(f"listeners={listener}: {explain(error)}") from error
    return bound


def _resolve(listener: Listener) -> tuple[socket.AddressFamily, tuple[str, int]]:
    if listener.host == "":
        if socket.has_dualstack_ipv6():
            return socket.AF_INET6, ("::", listener.port)
        return socket.AF_INET, ("0.0.0.0", listener.port)  # an empty host asks for every address
    found = socket.getaddrinfo(listener.host, listener.port, type=socket.SOCK_STREAM)
    family, _, _, _, address = found[0]
    return family, (str(address[0]), int(address[1]))


def explain(error: OSError) -> str:
    """What a failed bind means, for people."""
    if error.errno == errno.EADDRINUSE:
        return "another process uses this port"
    if error.errno == errno.EACCES:
        return "this user may not use this port"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine has no such address"
    return str(error.strerror or error)


def human_bytes(size_bytes: int) -> str:
    """A size for people: `0 bytes`, `1.5 MiB`."""
    size = float(size_bytes)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def raise_file_limit() -> None:
    """Raise the soft limit of open files: each connection, segment and index is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:
            LOG.warning("the limit of open files stays at %d: %s", soft, error)


def configure_logging(level: int = logging.INFO) -> None:
    """Lines a person can read, on standard error: time, level, where, what."""
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


def run(config: BrokerConfig, *, level: int = logging.INFO) -> int:
    """Serve until SIGTERM or SIGINT; the process's exit status. What keeps it from starting is one line in the log."""
    from ottla.broker.metadata.image import MetadataError
    from ottla.storage.manager import StorageError

    configure_logging(level)
    loop = new_event_loop()
    try:
        return loop.run_until_complete(_serve(config))
    except (StartError, StorageError, MetadataError, OSError) as error:
        LOG.error("cannot start: %s", error)
        return 1
    finally:
        loop.close()


async def _serve(config: BrokerConfig) -> int:
    loop = asyncio.get_running_loop()
    stop, force = asyncio.Event(), asyncio.Event()

    def on_signal(name: str) -> None:
        if stop.is_set():
            LOG.warning("%s again: stopping without waiting", name)
            force.set()
        else:
            LOG.info("%s: stopping", name)
            stop.set()
            server.interrupt_start()

    server = Server(config)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number.name)
    try:
        await server.start()
    except LoadInterrupted:
        LOG.info("stopped during the recovery, which the next start begins anew (pid %d)", os.getpid())
        return 0
    # The one thing on standard output: programs that start a broker wait for it, and read the port that was chosen.
    for name, (host, port) in server.addresses.items():
        sys.stdout.write(f"listening on {name}://{_shown(host, port)}\n")
    sys.stdout.flush()
    notify("READY=1")
    # What is there now stays: the collector need not look at it again, and need not look after every 700 objects
    # (a seventh of the CPU of small requests, which make hundreds of objects per turn and no cycles).
    gc.freeze()
    gc.enable()  # the command line began without it
    gc.set_threshold(GC_YOUNG_OBJECTS, 20, 20)
    await stop.wait()
    notify("STOPPING=1")
    await server.stop(force=force)
    LOG.info("stopped (pid %d)", os.getpid())
    return 0
