"""The other end of a connection, as the handling of a request may know it: no transport, and nothing to wait for.

A test can create one without arguments. The parts of a connection that its requests use are protocols here
(`ReceivedBytes`), so that this file knows nothing of `net`.
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
    """The count of request bytes that are kept beyond their turn (`queued.max.request.bytes`)."""

    def note_copied(self, size_bytes: int) -> None:
        """Count bytes of a request that were copied and are kept."""

    def drop_copied(self, size_bytes: int) -> None:
        """Count copied bytes that are no longer kept."""


class FastPath(Protocol):
    """Answers requests that look like earlier ones (`broker/fast/hot_path.py`). `fetch` is None if none of them is a
    Fetch.
    """

    @property
    def fetch(self) -> object | None:
        """The templates of Fetch requests."""

    def try_park(self, view: memoryview, end: int) -> InFlightRequest | None:
        """Let the request in `view[:end]` wait, if it is one Fetch like the one before it, and there are too few bytes
        for it. Else return None and do nothing.
        """

    def try_answer(self, view: memoryview, end: int, most: int) -> tuple[Sequence[Buffer], int] | None:
        """Answer the requests in `view[:end]`, at most `most`, now: the answers, and where the next frame begins.

        If the slow path must start the first of them, return None and do nothing.
        """

    def try_sync(self, view: memoryview, end: int) -> list[Buffer] | InFlightRequest | None:
        """After `try_answer` has done nothing: append and sync the single Produce in `view[:end]` now. Returns its
        answer, or the request in flight where that has to wait. None as above.
        """

    def start(
        self, view: memoryview, start: int, end: int, most: int, newest: InFlightRequest | None
    ) -> tuple[list[Buffer] | InFlightRequest, int, int] | None:
        """Start the first requests in `view[start:end]`, at most `most`. Returns their answer or the request in flight,
        which may be `newest`; where the next frame begins; and the number of requests. None as above.
        """


class Owner(Protocol):
    """A connection, as its `Peer` sees it."""

    def close(self, reason: str) -> None:
        """End it after this turn with one log line."""

    def throttle(self, duration_ms: float) -> None:
        """Read and start nothing for so long."""

    def hold_answer(self, reservation: Reservation) -> None:
        """Count the memory of the next answer until it has left."""

    def admit(self, *, is_watched: bool) -> None:
        """Admit the requests of an authenticated client, up to the usual length. `is_watched`: they still pass the
        guard in front of the dispatcher, because the session can expire.
        """


class Authentication(Protocol):
    """The authentication of a client, as its connection sees it (`security/sasl/authentication.py`)."""

    @property
    def is_complete(self) -> bool:
        """Whether the client has a session, which may have expired."""

    def begin(self) -> None:
        """Start its deadline: the client has connected."""

    def end(self) -> None:
        """Drop it: the connection has ended."""


class FetchQuota(Protocol):
    """The quota to which a Fetch is charged (`security/quotas/request_quota.py`)."""

    def fetch_bytes(self, most_bytes: int) -> int:
        """How many bytes may be read, at most `most_bytes`."""

    def may_fetch(self, size_bytes: int) -> bool:
        """Charge the bytes of records; return whether they may be sent. If not, they cost nothing."""


class RequestContext(Protocol):
    """The view of a request's `Context` for parts that know nothing of handlers: version, client and connection."""

    api_version: int
    client_id: str | None
    connection: Peer

    @property
    def quota(self) -> FetchQuota | None:
        """The quota to which the request is charged; None if its client is under no quota."""

    def in_steps(self, steps: Steps[R | Pending[R]] | Steps[R]) -> R | Pending[R]:
        """The result of work that may be long: immediately after a single step, else as a `Pending`."""


UNKNOWN_ADDRESS = ("127.0.0.1", 9092)
"""The local address of a connection, if no socket reports it."""


class Endpoint(Plain, frozen=True):
    """The common properties of all clients of one listener and address; one object for all of them.

    `listener` is its name, `local_address` the (host, port) that they connected to, as the socket reports it: the
    advertised address of a listener without one. `sends_maps`: record bytes may be views of mapped files (plaintext on
    uvloop only: if this process read the bytes itself, an unreadable page would kill it). `received` counts bytes of
    requests that are kept beyond their turn, None if there is no connection.
    """

    listener: str = "PLAINTEXT"
    local_address: tuple[str, int] = UNKNOWN_ADDRESS
    sends_maps: bool = False
    received: ReceivedBytes | None = None


_ANY = Endpoint()
_NO_ENDINGS: Mapping[object, Callable[[], None]] = {}


class Peer(Plain, eq=False):
    """The other end of a connection, as handlers see it.

    `endpoint` is where it came in, `host` and `port` are its own address. `software`: the name and version that the
    client reports (KIP-511), empty before that. `principal` is ANONYMOUS until it has authenticated; `is_by_token`: it
    has used a delegation token. `authentication` is the login that it has not completed, or has to repeat later; None
    if there is none. `hot_path` holds its request templates, None before the first is learnt. `owner` is the
    connection, None if there is none. `endings` are called once when the connection has ended, one for each coordinator
    that has members on it.
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
        """End the connection, if there is one, after this turn with one log line."""
        if self.owner is not None:
            self.owner.close(reason)

    def throttle(self, duration_ms: float) -> None:
        """Mute the connection, if there is one, for so long: a quota is used up (KIP-219)."""
        if self.owner is not None:
            self.owner.throttle(duration_ms)

    def authenticated(self, *, is_watched: bool) -> None:
        """Note the first login of the client; `is_watched`: its session can expire."""
        if not is_watched:
            self.authentication = None
        if self.owner is not None:
            self.owner.admit(is_watched=is_watched)

    def when_ended(self, owner: object, ended: Callable[[], None]) -> None:
        """Call `ended` when the connection has ended, once for each owner."""
        if owner not in self.endings:
            self.endings = {**self.endings, owner: ended}

    def end(self) -> None:
        """Report the end of the connection, and drop all references: to logs, and in a cycle to itself."""
        self.hot_path = None
        self.owner = None
        authentication, self.authentication = self.authentication, None
        if authentication is not None:
            authentication.end()
        endings, self.endings = self.endings, _NO_ENDINGS
        for ended in endings.values():
            ended()
