"""The other end of a connection, as far as a request's handling may know it: no transport, and nothing to wait for.

It can be built in a test from nothing. What a connection lends to its requests is named here by what they may do with
it (`ReceivedBytes`), so that this file knows nothing of `net`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

from ottla.broker.principal import ANONYMOUS, Principal
from ottla.plain import Plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.broker.runtime.answer_memory import Reservation
    from ottla.broker.runtime.in_flight_request import InFlightRequest
    from ottla.broker.runtime.pending import Pending
    from ottla.broker.runtime.steps import Steps
    from ottla.protocol.types import Buffer

R = TypeVar("R")


class ReceivedBytes(Protocol):
    """The count of what is kept of requests beyond their turn (`queued.max.request.bytes`)."""

    def note_copied(self, size_bytes: int) -> None:
        """So much of a request was copied, and is kept."""

    def drop_copied(self, size_bytes: int) -> None:
        """It is not kept any more."""


class FastPath(Protocol):
    """What answers requests that look like earlier ones (`broker/fast/hot_path.py`). `fetch` is None where none of them
    is a Fetch.
    """

    @property
    def fetch(self) -> object | None:
        """The templates of Fetch requests."""

    def try_park(self, view: memoryview, end: int) -> InFlightRequest | None:
        """Let the request of `view[:end]` wait, if that is one Fetch for which there is too little, like the one
        before it; else None, and nothing done.
        """

    def try_answer(self, view: memoryview, end: int, most: int) -> tuple[Sequence[Buffer], int] | None:
        """Answer the requests of `view[:end]`, at most `most`, at once: the answers, and where the next frame begins.

        None, and nothing done, where the slow path must start the first of them.
        """

    def start(
        self, view: memoryview, start: int, end: int, most: int, newest: InFlightRequest | None
    ) -> tuple[list[Buffer] | InFlightRequest, int, int] | None:
        """Start the requests with which `view[start:end]` begins, at most `most`: their answer, or the
        request in flight, which may be `newest`; where the next frame begins; and how many requests that are. None as
        above.
        """


class Owner(Protocol):
    """A connection, as its `Peer` sees it."""

    def close(self, reason: str) -> None:
        """End it after this turn with one log line."""

    def throttle(self, duration_ms: float) -> None:
        """Read and start nothing for so long."""

    def hold_answer(self, reservation: Reservation) -> None:
        """Count the memory of the answer that is given next until it has left."""

    def admit(self, *, is_watched: bool) -> None:
        """The client has authenticated: its requests may start, and be as long as any. `is_watched`: they still pass
        what stands in front of the dispatcher, because its session ends some time.
        """


class Authentication(Protocol):
    """The authentication of a client, as its connection sees it (`security/sasl/authentication.py`)."""

    @property
    def is_complete(self) -> bool:
        """Whether the client has a session, which may have expired."""

    def begin(self) -> None:
        """The client has connected."""

    def end(self) -> None:
        """It is gone."""


class FetchQuota(Protocol):
    """What a Fetch is charged to (`security/quotas/request_quota.py`)."""

    def fetch_bytes(self, most_bytes: int) -> int:
        """How much may be read, at most `most_bytes`."""

    def may_fetch(self, size_bytes: int) -> bool:
        """Charge so many bytes of records, and say whether they may be sent; else they cost nothing."""


class RequestContext(Protocol):
    """What parts that know nothing of handlers may see of a request's `Context`: version, client and connection."""

    api_version: int
    client_id: str | None
    connection: Peer

    @property
    def quota(self) -> FetchQuota | None:
        """What the request is charged to; None where its client is under no quota."""

    def in_steps(self, steps: Steps[R | Pending[R]] | Steps[R]) -> R | Pending[R]:
        """The result of work that may be long: at once after a single step, else in time."""


UNKNOWN_ADDRESS = ("127.0.0.1", 9092)
"""In place of the address that a client connected to, where no socket says it."""


class Endpoint(Plain, frozen=True):
    """What all clients have in common that came in by the same listener and address; one object for all of them.

    `listener` is its name, `local_address` the (host, port) that they connected to, as the socket reports it: the
    advertised address of a listener without one. `sends_maps` says that record bytes may be given as views of mapped
    files (plaintext on uvloop only: anything that reads the bytes in our process would die of a lost page). `received`
    counts what of a request is kept beyond its turn, None where there is no connection.
    """

    listener: str = "PLAINTEXT"
    local_address: tuple[str, int] = UNKNOWN_ADDRESS
    sends_maps: bool = False
    received: ReceivedBytes | None = None


_ANY = Endpoint()
_NO_ENDINGS: Mapping[object, Callable[[], None]] = {}


class Peer(Plain, eq=False):
    """The other end of a connection, as handlers see it.

    `endpoint` is where it came in, `host` and `port` are its own address. `software`: what the client calls itself
    (KIP-511), empty until it has. `principal` is who it is: ANONYMOUS until it has authenticated; `is_by_token`
    says that it has by a delegation token. `authentication`
    is what it has yet to complete, or to repeat some time, None where nothing is. `hot_path` holds its request
    templates, None before the first is learnt. `owner` is the connection, None where there is none. `endings` are
    called once when the connection has ended, each by the coordinator that wants to know.
    """

    endpoint: Endpoint = _ANY
    host: str = "127.0.0.1"
    port: int = 0
    software: str = ""
    principal: Principal = ANONYMOUS
    is_by_token: bool = False
    authentication: Authentication | None = None
    hot_path: FastPath | None = None
    owner: Owner | None = None
    endings: Mapping[object, Callable[[], None]] = _NO_ENDINGS

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        software = f" ({self.software})" if self.software else ""
        return f"{host}:{self.port}{software} on {self.endpoint.listener}"

    def close(self, reason: str) -> None:
        """End the connection after this turn with one log line; nothing where there is none."""
        if self.owner is not None:
            self.owner.close(reason)

    def throttle(self, duration_ms: float) -> None:
        """Mute the connection for so long: a quota is used up (KIP-219). Nothing where there is none."""
        if self.owner is not None:
            self.owner.throttle(duration_ms)

    def authenticated(self, *, is_watched: bool) -> None:
        """The client has authenticated for the first time; `is_watched` says that its session ends some time."""
        if not is_watched:
            self.authentication = None
        if self.owner is not None:
            self.owner.admit(is_watched=is_watched)

    def when_ended(self, owner: object, ended: Callable[[], None]) -> None:
        """Call `ended` when the connection has ended, once for each owner."""
        if owner not in self.endings:
            self.endings = {**self.endings, owner: ended}

    def end(self) -> None:
        """The connection has ended: say so, and hold on to nothing, neither to logs nor in a circle to itself."""
        self.hot_path = None
        self.owner = None
        authentication, self.authentication = self.authentication, None
        if authentication is not None:
            authentication.end()
        endings, self.endings = self.endings, _NO_ENDINGS
        for ended in endings.values():
            ended()
