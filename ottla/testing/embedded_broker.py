"""A broker in this process, for tests: real clients of any language connect to it by TCP, and the test controls it.

It is the whole broker of `ottla serve`, on a thread with an event loop of its own, a free port of 127.0.0.1 and a
temporary directory. It starts in some hundredths of a second, so each test can have a new one. What a broker in another
process could not offer: its clock can be moved (`advance`), its requests can fail (`fail`, `delay`, `cut`), and it can
end as a killed process does (`kill`).

Every method blocks: a coroutine calls those that wait for clients by `await asyncio.to_thread(...)`.
"""

from __future__ import annotations

import math
import threading
import weakref
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.address import host_and_port
from ottla.config.broker import BrokerConfig
from ottla.protocol.api import REGISTRY
from ottla.shown import counted
from ottla.testing.broker_thread import NOT_RUNNING, BrokerThread
from ottla.testing.client_methods import TIMEOUT_S, ClientMethods
from ottla.testing.fault_methods import FaultMethods
from ottla.testing.faults import Faults, api_named
from ottla.testing.faulty_gate import FaultyGate
from ottla.testing.movable_clock import MovableClock
from ottla.testing.reserved_port import ReservedPort
from ottla.testing.temporary_directory import TemporaryDirectory
from ottla.testing.waiting import wait_until
from ottla.testing.waiting_reads import waiting_reads

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from typing import Self

    from ottla.broker.server import Server

DEFAULTS: Final[dict[str, object]] = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "ottla.http.listener": "",  # one port for all brokers of the machine
    "ottla.acks.all": "page-cache",  # a test's records end with the test: no sync is waited for
}
"""What differs from `ottla serve` unless it is configured."""


class EmbeddedBroker(ClientMethods, FaultMethods):
    """See the module. A context manager: it starts at the beginning of a `with` block, and stops at its end.

    Args:
        config: keys of `server.properties` with their values. Without them the broker is as in docs/testing.md.
        directory: the log directory, which is kept; by default a temporary one, which is removed with the broker.
        client_options: options for the clients of its own methods, by Kafka's names, for example a login.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        directory: str | os.PathLike[str] | None = None,
        client_options: Mapping[str, object] | None = None,
    ) -> None:
        ClientMethods.__init__(self, client_options)
        self._values = {**DEFAULTS, **(config or {})}
        self._directory = directory
        self._temporary: TemporaryDirectory | None = None
        self._ports: dict[str, ReservedPort] = {}
        self._clock = MovableClock()
        self.faults = Faults()
        self._thread: BrokerThread | None = None
        self._ending: weakref.finalize[[], Any] | None = None
        self._life = threading.RLock()
        """Held by a start and an end, so that threads that share the broker start it once."""

    # -- its life

    def start(self) -> Self:
        """Start it; returns when clients can connect. Does nothing if it runs.

        Raises ConfigError, StartError, StorageError or MetadataError, each one line, and RuntimeError on Windows.
        """
        with self._life:
            if self._thread is None:
                self._start()
        return self

    def stop(self) -> None:
        """Stop it as `ottla serve` at a SIGTERM: what was started is answered, and the directory is marked clean.

        A temporary directory is removed with the object, or by `close`; until then, `start` continues on it. Does
        nothing if it does not run.
        """
        self._end(clean=True)

    def kill(self) -> None:
        """End it as a SIGKILL does: connections are cut, and requests in flight get no answer. The next start recovers.

        (The machine keeps running, so what was written is in the files, synced or not.)
        """
        self._end(clean=False)

    def restart(self) -> Self:
        """`stop` and `start`: clients find it again at the same address."""
        self.stop()
        return self.start()

    def reset(self) -> Self:
        """Start again with nothing: no topics, groups, users and faults, and the time of the machine, at the same
        address. Raises RuntimeError for a directory that is not temporary.
        """
        if self._directory is not None:
            raise RuntimeError(f"reset() would delete {self._directory}: it is for temporary directories")
        self.kill()
        self.faults.clear()
        self._clock = MovableClock()
        self._remove_temporary()
        return self.start()

    def close(self) -> None:
        """Stop it, and remove its temporary directory."""
        self.kill() if self._temporary is not None else self.stop()
        self._remove_temporary()
        for port in self._ports.values():
            port.close()
        self._ports.clear()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_running(self) -> bool:
        """Whether it has started and has not ended."""
        return self._thread is not None

    @property
    def directory(self) -> Path:
        """The log directory. Raises RuntimeError before the first start."""
        if self._directory is not None:
            return Path(self._directory)
        if self._temporary is None:
            raise RuntimeError("the broker has no directory before it starts")
        return self._temporary.path

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of its first listener, for clients. Raises RuntimeError if it does not run."""
        return host_and_port(*next(iter(self._running.addresses.values())))

    def address_of(self, listener: str) -> str:
        """`host:port` of a listener by its name. Raises KeyError, and RuntimeError if the broker does not run."""
        addresses = self._running.addresses
        if listener.upper() not in addresses:
            raise KeyError(f"there is no listener {listener!r}; there are {', '.join(addresses)}")
        return host_and_port(*addresses[listener.upper()])

    # -- its clock

    def advance(self, seconds: float | timedelta) -> None:
        """Move its clock forward: timeouts, sessions and retention happen as if the time had passed.

        Returns when everything that is due by then has been done, such as the deletion of old records. The clocks of
        clients stay as they are: a record that a client sends has its own time. Raises ValueError for a negative time
        and for more than 1,000 years in all, NotInTime if the work does not end, and RuntimeError if the broker does
        not run.
        """
        given_s = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        if not math.isfinite(given_s):
            raise ValueError(f"a clock cannot be moved by {given_s} s")
        ms = round(given_s * 1000)
        self._running.call(partial(_move, self._clock, ms))
        wait_until(lambda: self._running.call(_work_left), TIMEOUT_S)

    # -- its requests and readers

    def requests(self, api: str) -> int:
        """How many requests of an API, by Kafka's name, it has answered since its start; those of its own methods, such
        as `records`, count, too. Raises ValueError for an unknown API, and RuntimeError if the broker does not run.
        """
        name = REGISTRY[api_named(api)].name
        counts = self._running.call(lambda server: server.node.services.metrics.request_counts)
        return sum(count for (api_name, _, _), count in counts.items() if api_name == name)

    def wait_for_readers(self, topic: str, count: int = 1, *, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until at least so many consumers wait for more records at the end of each partition of the topic.

        They get what is written from then on, whatever their `auto.offset.reset`, with or without a group. In a group
        there is one for each partition. Raises NotInTime, and RuntimeError if the broker does not run.
        """

        __tracebackhide__ = True

        def look() -> str | None:
            waiting = self._running.call(lambda server: waiting_reads(server.node.services.catalog, topic))
            if waiting is None:
                return f"topic {topic!r} does not exist"
            for partition, readers in waiting.items():
                if readers < count:
                    return f"at the end of {topic}-{partition} {counted(readers, 'consumer')} wait, not {count:,}"
            return None

        wait_until(look, timeout_s)

    # -- inside

    @property
    def _running(self) -> BrokerThread:
        if self._thread is None:
            raise RuntimeError(NOT_RUNNING)
        return self._thread

    def _start(self) -> None:
        _require_posix()
        config = BrokerConfig.of({**self._values, **self._places()})
        thread = BrokerThread(config, self._clock, partial(FaultyGate, faults=self.faults))
        # A thread must not outlive its program's other threads: it would run while the interpreter ends. It refers to
        # nothing of this object, which may be forgotten without a stop.
        ending = weakref.finalize(self, thread.kill)
        try:
            thread.start()
        except BaseException:
            ending()
            raise
        self._ending, self._thread = ending, thread
        self.faults.on_change = thread.forget_templates

    def _end(self, *, clean: bool) -> None:
        with self._life:
            thread, self._thread = self._thread, None
            if thread is None:
                return
            assert self._ending is not None
            self._ending.detach()
            self.faults.on_change = None
            self._close_clients()
            if clean:
                thread.stop()
            else:
                thread.kill()

    def _places(self) -> dict[str, object]:
        """The directory and the listeners of this start: a port that the system chose stays the same."""
        places: dict[str, object] = {}
        if self._directory is not None:
            places["log.dirs"] = str(self._directory)
        elif "log.dirs" not in self._values:
            if self._temporary is None:
                self._temporary = TemporaryDirectory(self)
            places["log.dirs"] = str(self._temporary.path)
        config = BrokerConfig.of({**self._values, **places})
        listeners = []
        for listener in (*config.listeners, *config.controller_listeners):
            port = listener.port
            if not port:
                if listener.name not in self._ports:
                    self._ports[listener.name] = ReservedPort(listener.host)
                port = self._ports[listener.name].number
            listeners.append(f"{listener.name}://{host_and_port(listener.host, port)}")
        return {**places, "listeners": ",".join(listeners)}

    def _remove_temporary(self) -> None:
        temporary, self._temporary = self._temporary, None
        if temporary is not None:
            temporary.remove()

    def __repr__(self) -> str:
        return f"<EmbeddedBroker at {self.bootstrap_servers}>" if self.is_running else "<EmbeddedBroker, not running>"


def _require_posix() -> None:
    try:
        import fcntl  # noqa: F401  (locks of directories)
    except ImportError:
        raise RuntimeError("the broker needs Linux or macOS; on Windows it runs in WSL or Docker") from None


def _move(clock: MovableClock, ms: int, server: Server) -> None:
    clock.advance(ms)
    server.node.services.listening.count(ms)


def _work_left(server: Server) -> str | None:
    """Run what is due. Returns the work that is left, which may plan more."""
    server.clock_moved()
    services = server.node.services
    deadline_ms = services.timers.next_deadline_ms()
    if deadline_ms is not None and deadline_ms <= services.clock.monotonic_ms():
        return "the broker has timers that are due"
    return None if services.workers.is_idle else "the broker's threads work"
