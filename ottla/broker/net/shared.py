"""The state that all connections of one broker share: buffers, the turn, limits, and the large replies of a turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.broker.net.buffers import ReceiveBuffers
from ottla.broker.net.later_turns import LaterTurns
from ottla.broker.peer import UNKNOWN_ADDRESS, Endpoint
from ottla.broker.runtime.answer_memory import SHARES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.broker.peer import Peer
    from ottla.broker.runtime.in_flight_request import InFlightRequest
    from ottla.broker.services import Services
    from ottla.protocol.types import Buffer

LARGE_SEND_BYTES = 256 << 10
"""Longer replies of one connection count towards `TURN_SEND_BYTES`, and wait when it is reached."""
TURN_SEND_BYTES = 32 << 20
"""When a turn has sent so many bytes in large replies, other large ones wait for the next: the kernel copies them, and
200 clients that began to fetch everything at the same time held the loop for 1.2 s (benchmarks/hostile.py)."""

MOST_ENDPOINTS = 1_000
"""A wildcard listener on IPv6 may have any number of addresses."""


class Dispatcher(Protocol):
    """Starts requests."""

    def start(self, frame: memoryview, peer: Peer) -> list[Buffer] | InFlightRequest | None:
        """Start the request of one frame (without its length).

        Returns an encoded reply (with its length), a request that is now in flight, or None if no reply is sent.
        Raises CloseConnection.
        """


class Door(Protocol):
    """Guards the dispatcher on a listener whose clients have to authenticate."""

    @property
    def max_frame_bytes(self) -> int:
        """The longest frame until a client has authenticated."""

    def open(self, peer: Peer) -> Dispatcher:
        """The dispatcher of a new connection until it has authenticated (`Peer.authenticated`)."""


class SharedState:
    """See the module. `sends_maps`: transports send a mapped view without Python code reading it (uvloop).
    `doors`: those of the listeners that have one, by name.

    Attributes:
        max_in_flight: requests of one connection that may be in flight (`ottla.connection.max.pending.requests`).
        max_pending_bytes: bytes of replies of one connection that may wait (`ottla.connection.max.pending.bytes`).
        later: connections that have requests to start and wait for a turn.
        last_reader: the connection that has read last, and `reads_in_a_row` how many reads it has had since any other.
        large_bytes: the bytes of large replies in the newest turn that has sent any.
    """

    def __init__(
        self, services: Services, dispatcher: Dispatcher, *, sends_maps: bool, doors: Mapping[str, Door] | None = None
    ) -> None:
        config = services.config
        self.turn = services.turn
        self.timers = services.timers
        self.metrics = services.metrics
        self.dispatcher = dispatcher
        self.doors = doors or {}
        self.sends_maps = sends_maps
        self.buffers = ReceiveBuffers(services.turn, config.queued_max_request_bytes)
        self.max_frame_bytes = config.socket_request_max_bytes
        self.max_in_flight = config.ottla_connection_max_pending_requests
        self.answer_memory = services.answer_memory
        self.memory_reserve = services.memory_reserve
        self.max_pending_bytes = min(
            config.ottla_connection_max_pending_bytes, services.answer_memory.max_bytes // SHARES
        )
        self.now_ms = services.clock.monotonic_ms
        self.later = LaterTurns(services.turn)
        self._endpoints: dict[tuple[str, tuple[str, int], bool], Endpoint] = {}
        self.last_reader: object = None
        self.reads_in_a_row = 0
        self._large_turn = -1
        self.large_bytes = 0

    def endpoint(self, listener: str, address: tuple[str, int] = UNKNOWN_ADDRESS, *, is_tls: bool = False) -> Endpoint:
        """The endpoint at which a client came in; the same object for all connections at that endpoint."""
        key = (listener, address, is_tls)
        found = self._endpoints.get(key)
        if found is None:
            if len(self._endpoints) >= MOST_ENDPOINTS:
                self._endpoints.clear()
            found = Endpoint(listener, address, self.sends_maps and not is_tls, self.buffers)
            self._endpoints[key] = found
        return found

    def note_large_send(self, size_bytes: int) -> None:
        """Count a reply of more than LARGE_SEND_BYTES that was sent in this turn."""
        if self._large_turn != self.turn.number:
            self._large_turn, self.large_bytes = self.turn.number, 0
        self.large_bytes += size_bytes

    @property
    def has_sent_enough(self) -> bool:
        """Whether large replies have to wait for the next turn."""
        return self.large_bytes >= TURN_SEND_BYTES and self._large_turn == self.turn.number
