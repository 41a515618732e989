"""A node on an event loop: listeners, timers, start-up summary, drain (the shell around `Node`).

    start:  directories are locked  ->  ports are bound, HTTP answers  ->  directories, catalog, logs (in a thread)
            ->  configured topics are created  ->  listeners accept
    stop:   no new connections  ->  started requests are answered  ->  connections end  ->  logs are synced and closed

`process.py` calls `stop` at a signal; `interrupt_start` ends a recovery, and the next start continues it. Whatever
happens, acknowledged records are on disk, since the acknowledgement waited for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
import time
from typing import TYPE_CHECKING, Any

from ottla.address import host_and_port
from ottla.broker.accepting import Accepting, Acceptor
from ottla.broker.http_port import HttpPort
from ottla.broker.loop_timers import LoopTimers
from ottla.broker.net.connections import Connections
from ottla.broker.net.listening import StartError, bind, explain, refusal
from ottla.broker.node import Node
from ottla.broker.notify import notify
from ottla.broker.requests.gate import Gate
from ottla.broker.runtime.descriptors import LEAST_DESCRIPTORS, RAISED_BY, descriptor_limit, raise_file_limit
from ottla.broker.runtime.loop_watch import LoopWatch
from ottla.broker.runtime.processor_wait import ProcessorWait
from ottla.broker.runtime.threads import ThreadStarter
from ottla.broker.shortage_recovery import ShortageRecovery
from ottla.broker.start_summary import log_start_summary
from ottla.config.errors import ConfigError
from ottla.hand_over import Posts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.broker.context import ApiServices
    from ottla.broker.http.server import Operations, Pages
    from ottla.broker.runtime.workers import Post
    from ottla.config.broker import BrokerConfig
    from ottla.config.listeners import Listener
    from ottla.storage.files.clock import Clock
    from ottla.storage.files.files import Files

LOG = logging.getLogger("ottla.server")

EXTEND_START_EVERY_S = 10.0
EXTEND_START_USEC = 60_000_000
"""While logs are opened, systemd is asked every 10 s for another 60 s, or its timeout would end a recovery."""

HANGING_DISK_S = 3.0
"""How long a forced stop, or one that is out of time, waits for running syncs."""


def _nothing() -> None:
    """Do nothing: there is no watch to end."""


class Server:
    """One broker on the running loop. `addresses`: the (host, port) of each listener's socket, by listener name.

    `clock`, `files` and `make_gate`: as in `Node`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        make_gate: Callable[[ApiServices], Gate] = Gate,
    ) -> None:
        self.config = config
        self.addresses: dict[str, tuple[str, int]] = {}
        self.http_address: tuple[str, int] | None = None
        self._clock = clock
        self._files = files
        self._make_gate = make_gate
        self._node: Node | None = None
        self.connections: Connections | None = None
        self._timers: LoopTimers | None = None
        self._recovery: ShortageRecovery | None = None
        self._watch: LoopWatch | None = None
        self._accepting = Accepting()
        self._http: HttpPort | None = None
        self._is_accepting = False
        self._is_open = False
        self._unwatch_posts: Callable[[], object] = _nothing

    @property
    def node(self) -> Node:
        """The broker without its sockets; RuntimeError before `start`."""
        if self._node is None:
            raise RuntimeError("the server is not started")
        return self._node

    @property
    def bootstrap(self) -> str:
        """`host:port` of the first listener, for clients."""
        return host_and_port(*next(iter(self.addresses.values())))

    async def start(self) -> None:
        """Open everything and accept. Raises StartError, StorageError, MetadataError, each one line for the user, and
        LoadInterrupted after `interrupt_start`.
        """
        started_ns = time.perf_counter_ns()
        loop = asyncio.get_running_loop()
        raise_file_limit()
        limit = descriptor_limit()
        if limit is not None and limit < LEAST_DESCRIPTORS:
            raise StartError(f"RLIMIT_NOFILE={limit}: a broker needs {LEAST_DESCRIPTORS} at least; {RAISED_BY}")
        self._is_open = False
        node = self._node = Node(
            self.config,
            clock=self._clock,
            files=self._files,
            post=self._watch_posts(loop),
            count_waits=ProcessorWait,
            make_gate=self._make_gate,
        )
        sockets: list[tuple[Listener, socket.socket]] = []
        try:
            try:
                node.prepare()
            except ConfigError as error:
                raise StartError(str(error)) from error
            node.claim()
            for listener in self.config.listeners:
                sockets.append((listener, bind(listener, self.config)))
            self._start_timers(loop, node)
            self._start_http()
            await self._open(loop, node, {one.name: bound.getsockname()[1] for one, bound in sockets})
            try:
                node.tls.on_start()
            except ConfigError as error:
                raise StartError(f"set while the broker ran: {error}") from error
            node.services.listening.hold()
            node.begin()
            await self._create_topics(loop, node)
        except BaseException:
            for _, bound in sockets:
                bound.close()
            self._stop_timers()
            if self._is_open:  # e.g. cancelled just after the logs were opened: the caller may start again
                self.node.stop()
                self._node = None
            else:
                node.release()
            self._unwatch_posts()
            if self._http is not None:
                await self._http.stop()
            raise
        sends_maps = type(loop).__module__.startswith("uvloop")
        self.connections = Connections(
            node.services,
            node.dispatcher,
            sends_maps=sends_maps,
            descriptors=limit,
            doors=node.doors,
            tls=node.tls.by_name,
        )
        self._show_pages()
        for listener, bound in sockets:
            self.addresses[listener.name] = bound.getsockname()[:2]
        log_start_summary(self.config, node.services, (time.perf_counter_ns() - started_ns) // 1_000_000)
        await self._accept_all(loop, sockets)
        node.services.listening.listen()
        self._watch = LoopWatch(node.services.metrics.loop_lag, self._look, loop.call_later)
        node.services.memory_reserve.after_shortage.append(self._watch.plan_again)
        self._is_accepting = True

    async def _open(self, loop: asyncio.AbstractEventLoop, node: Node, bound_ports: Mapping[str, int]) -> None:
        """`node.open` in a thread, so that the loop answers signals and probes. Raises what it raises."""
        opened: asyncio.Future[None] = loop.create_future()

        def report(error: BaseException | None) -> None:
            if not opened.done():
                opened.set_result(None) if error is None else opened.set_exception(error)

        def work() -> None:
            try:
                node.open(bound_ports)
            except BaseException as error:  # it belongs to the caller that awaits
                loop.call_soon_threadsafe(report, error)
            else:
                self._is_open = True
                loop.call_soon_threadsafe(report, None)

        thread = ThreadStarter("").start(work, "start")
        try:
            while not opened.done():
                await asyncio.wait([opened], timeout=EXTEND_START_EVERY_S)
                if not opened.done():
                    notify(
                        f"EXTEND_TIMEOUT_USEC={EXTEND_START_USEC}\nSTATUS={node.services.log_manager.loading.words()}"
                    )
        except asyncio.CancelledError:
            node.services.log_manager.loading.stop()
            raise
        finally:
            thread.join()
        opened.result()

    async def _create_topics(self, loop: asyncio.AbstractEventLoop, node: Node) -> None:
        """Create the topics of `ottla.create.topics`. Raises StartError."""
        if not self.config.ottla_create_topics:
            return
        from ottla.broker.catalog.configured_topics import create_configured_topics  # only where the key is set

        created: asyncio.Future[str | None] = loop.create_future()

        def done(problem: str | None) -> None:
            if not created.done():
                created.set_result(problem)

        create_configured_topics(node.services.catalog, self.config.ottla_create_topics, done)
        node.services.turn.end()
        problem = await created
        if problem is not None:
            raise StartError(problem)

    def interrupt_start(self) -> None:
        """End a running recovery, if there is one: `start` raises LoadInterrupted."""
        if self._node is not None:
            self._node.services.log_manager.loading.stop()

    async def stop(self, *, force: asyncio.Event | None = None) -> None:
        """Drain and close. `force`, when set, ends the waits for requests in flight and for logs that are closed."""
        self._stop_accepting()
        connections, node = self.connections, self._node
        if connections is not None and node is not None:
            node.services.listening.hold()
            connections.drain()
            node.services.turn.end()
            await self._wait_for_end(connections, force)
        await self._stop_parts()
        if node is not None:
            await self._close_logs(node, force)
            self._node = None

    async def abandon(self) -> None:
        """End as a killed process does: connections are cut, requests in flight get no answer, nothing is synced, and
        no directory is marked clean. What was appended stays in the files; the next start recovers.
        """
        self._stop_accepting()
        connections, node = self.connections, self._node
        if connections is not None:
            connections.refuse_all()
            connections.abort()
            await asyncio.sleep(0)
        await self._stop_parts()
        if node is not None:
            node.abandon_logs()
            self._node = None

    def clock_moved(self) -> None:
        """Run what is due now, if the clock was moved forward: the loop's own timers do not notice that."""
        if self._timers is not None:
            self._timers.run()
            self.node.services.turn.end()

    def socket_descriptors(self) -> list[int]:
        """The descriptors of its listening sockets and of its connections, except HTTP's; -1 for closed ones."""
        connections = () if self.connections is None else self.connections
        return self._accepting.descriptors() + [connection.descriptor for connection in connections]

    def _stop_accepting(self) -> None:
        self._is_accepting = False
        self._accepting.stop()

    async def _stop_parts(self) -> None:
        """Stop everything but the connections and the logs."""
        if self._http is not None:
            await self._http.stop()
            self._http = None
        self._stop_timers()
        if self._watch is not None:
            self._watch.stop()
        if self._node is not None:
            self._node.quiesce()
            self._unwatch_posts()

    def _start_timers(self, loop: asyncio.AbstractEventLoop, node: Node) -> None:
        # `poll_done` runs after every socket that is ready now has been read.
        node.services.turn.on_work = functools.partial(loop.call_soon, node.services.turn.poll_done)
        node.services.memory_reserve.after_shortage.append(node.services.turn.plan_again)
        self._timers = LoopTimers(node.services, loop)
        self._recovery = ShortageRecovery(node.services.memory_reserve, loop)

    def _stop_timers(self) -> None:
        if self._timers is not None:
            self._timers.stop()
        if self._recovery is not None:
            self._recovery.stop()

    async def _close_logs(self, node: Node, force: asyncio.Event | None) -> None:
        """`node.close_logs` in a thread, so that the loop still handles signals. Raises what it raises."""
        loop = asyncio.get_running_loop()
        closed: asyncio.Future[None] = loop.create_future()

        def report(error: BaseException | None) -> None:
            if not closed.done():
                closed.set_result(None) if error is None else closed.set_exception(error)

        def work() -> None:
            try:
                node.close_logs()
            except BaseException as error:  # it belongs to the caller that awaits
                self._call_soon(loop, functools.partial(report, error))
            else:
                self._call_soon(loop, functools.partial(report, None))

        closing = node.services.log_manager.closing
        if (
            ThreadStarter("The logs are closed on the main thread: no further signal is heard").try_start(work, "stop")
            is None
        ):
            node.close_logs()
            return
        forced = None if force is None else asyncio.ensure_future(force.wait())
        limit_s = self.config.ottla_shutdown_close_timeout_ms / 1000 + HANGING_DISK_S
        deadline = loop.time() + limit_s
        while not closed.done() and loop.time() < deadline:
            waits: list[asyncio.Future[Any]] = [closed] if forced is None else [closed, forced]
            left_s = min(EXTEND_START_EVERY_S, deadline - loop.time())
            await asyncio.wait(waits, timeout=max(0.0, left_s), return_when=asyncio.FIRST_COMPLETED)
            if forced is not None and forced.done():
                forced = None
                closing.stop()
                deadline = min(deadline, loop.time() + HANGING_DISK_S)
            elif not closed.done():
                notify(f"STATUS=stopping: {closing.words()}")
        if forced is not None:
            forced.cancel()
        if closed.done():
            closed.result()
        else:
            LOG.warning(
                "the disk does not answer: %s; the stop does not wait for it. Nothing acknowledged is lost, the next"
                " start recovers as after a kill",
                closing.words(),
            )

    @staticmethod
    def _call_soon(loop: asyncio.AbstractEventLoop, step: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits any more
            loop.call_soon_threadsafe(step)

    async def _wait_for_end(self, connections: Connections, force: asyncio.Event | None) -> None:
        """Wait until every connection has ended, for `ottla.shutdown.timeout.ms`, or until `force`; abort the rest."""
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
            LOG.warning("%d connections are closed with requests in flight", len(connections))
            connections.abort()
            await asyncio.sleep(0)

    def _watch_posts(self, loop: asyncio.AbstractEventLoop) -> Post:
        """A function that runs a step on the loop, from any thread, and then ends the turn: replies wait for it."""
        try:
            posts = Posts()
            loop.add_reader(posts.descriptor, self._run_posted, posts.run)
        except (OSError, NotImplementedError):
            return lambda step: self._call_soon(loop, functools.partial(self._run_posted, step))
        self._unwatch_posts = lambda: loop.remove_reader(posts.descriptor)
        return posts.put

    def _run_posted(self, step: Callable[[], None]) -> None:
        node = self._node
        if node is None:
            step()
            return
        turn = node.services.turn
        turn.has_work = True  # the turn ends here, without another iteration of the loop
        try:
            step()
        finally:
            turn.end()

    def _look(self) -> None:
        """What is checked ten times a second."""
        self.node.services.listening.now_ms()
        self._accepting.look()
        if self._http is not None:
            self._http.look()

    async def _accept_all(
        self, loop: asyncio.AbstractEventLoop, sockets: Sequence[tuple[Listener, socket.socket]]
    ) -> None:
        for number, (listener, bound) in enumerate(sockets):
            try:
                await self._accept(loop, listener, bound)
            except StartError:
                for _, unused in sockets[number:]:
                    unused.close()
                raise

    async def _accept(self, loop: asyncio.AbstractEventLoop, listener: Listener, bound: socket.socket) -> None:
        connections = self.connections
        assert connections is not None
        backlog = self.config.socket_listen_backlog_size
        acceptor = Acceptor(loop, listener.name, bound, backlog, connections.accept)
        try:
            await acceptor.start()
        except OSError as error:
            # With SO_REUSEADDR a bound port is only refused to the second process that listens.
            await self.stop()
            raise refusal(listener, error) from error
        self._accepting.add(acceptor)
        host, port = self.addresses[listener.name]
        advertised = self.config.advertised(listener.name)
        if advertised is None:
            address = "the address that they connect to"
        else:
            address = host_and_port(advertised.host, advertised.port or port)
        LOG.info("listener %s at %s: clients get %s", listener.name, host_and_port(host, port), address)

    def _start_http(self) -> None:
        """Listen for HTTP. A configured port must be available; another broker may have the default one."""
        address = self.config.ottla_http_listener
        if address is None:
            return
        progress = self.node.services.log_manager.loading.words

        def starting() -> tuple[Pages, Operations]:
            from ottla.broker.http.pages import starting_pages

            return starting_pages(progress), {}

        host, port = address
        where = f"ottla.http.listener={host_and_port(host, port)}"
        try:
            self._http = HttpPort(host, port, starting)
        except OSError as error:
            if "ottla.http.listener" in self.config.values:
                raise StartError(f"{where}: {explain(error)}; port 0 takes a free one") from error
            LOG.warning(
                "no HTTP (health, metrics): %s: %s, perhaps for another broker; "
                "--override ottla.http.listener=127.0.0.1:0 takes a free one",
                where,
                explain(error),
            )
            return
        self.http_address = self._http.address
        at = host_and_port(*self.http_address)
        LOG.info(
            "health and metrics at http://%s (a page at / links all of it; POST /log/... is for this machine only)", at
        )

    def _show_pages(self) -> None:
        """Show the pages of a started broker: the logs are open."""
        node, services = self.node, self.node.services

        def opened() -> tuple[Pages, Operations]:
            from ottla.broker.http.operations import operations_of
            from ottla.broker.http.pages import pages_of

            pages = pages_of(services, node.cleaner, self.addresses, lambda: self._is_accepting)
            return pages, operations_of(services, node.cleaner)

        if self._http is not None:
            self._http.show(opened)
