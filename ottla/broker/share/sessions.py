"""Share sessions (KIP-932): which partitions a member fetches from, remembered between its requests.

A session is named by group and member. It ends with the connection that its newest request came by, and what the member
has then is available to others. Epochs: 0 opens a session in the place of the one before, -1 ends it, and
otherwise each request has the epoch after that of the one before; after 2^31-1 comes 1.

Bounded by `group.share.max.share.sessions`. Source: Kafka's `ShareSessionCache` and `SharePartitionManager.newContext`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.peer import Peer

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = (1 << 31) - 1
MAX_PARTITIONS = 200_000
"""Partitions over all sessions, 300 bytes each: a client may name some that do not exist."""

Place: TypeAlias = tuple[UUID, int]
"""A partition: topic id and index."""


class ShareSession:
    """A member's session, and its partitions in the order of their adding. `epoch` is that of the next request."""

    __slots__ = ("epoch", "group_id", "is_closed", "left", "member_id", "peer", "places")

    def __init__(self, group_id: str, member_id: str, peer: Peer) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.peer = peer
        self.epoch = 1
        self.is_closed = False
        self.places: dict[Place, None] = {}
        self.left: set[Place] = set()
        """Partitions that were removed while records of theirs were acquired, also from the member's session before."""

    def in_turn(self) -> list[Place]:
        """The partitions, beginning with another one in each request (fairness under the limits of one answer)."""
        places = list(self.places)
        first = self.epoch % len(places) if places else 0
        return places[first:] + places[:first]


class ShareSessions:
    """The sessions of one broker."""

    def __init__(self, most_sessions: int, most_partitions: int = MAX_PARTITIONS) -> None:
        self._most_sessions = most_sessions
        self._most_partitions = most_partitions
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self.partition_count = 0
        """Partitions over all sessions."""

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, group_id: str, member_id: str) -> ShareSession | None:
        """The session of a member; None without one."""
        return self._sessions.get((group_id, member_id))

    def open(self, group_id: str, member_id: str, peer: Peer) -> ShareSession:
        """A new session, in the place of the one before, which the caller has ended.

        Raises KafkaError SHARE_SESSION_LIMIT_REACHED.
        """
        if len(self._sessions) >= self._most_sessions:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"there are {self._most_sessions} share sessions, as many as group.share.max.share.sessions allows",
            )
        session = self._sessions[group_id, member_id] = ShareSession(group_id, member_id, peer)
        return session

    def resume(self, group_id: str, member_id: str, epoch: int, peer: Peer) -> ShareSession:
        """The session of a request that continues or ends it, moved on to its next epoch.

        Raises KafkaError SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND, "the member has no share session")
        if epoch != FINAL_EPOCH:
            if session.epoch != epoch:
                reason = f"the share session is at epoch {session.epoch}, the request has {epoch}"
                raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, reason)
            session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        session.peer = peer
        return session

    def update(self, session: ShareSession, added: Iterable[Place], removed: Iterable[Place]) -> list[Place]:
        """Add and remove partitions; those that were removed. Raises KafkaError SHARE_SESSION_LIMIT_REACHED for more
        partitions than are remembered over all sessions: the session stays as it was.
        """
        places = session.places
        new = dict.fromkeys(place for place in added if place not in places)
        gone = [place for place in dict.fromkeys(removed) if place in places or place in new]
        more = len(new) - len(gone)
        if more > 0 and self.partition_count + more > self._most_partitions:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"share sessions have {self._most_partitions} partitions at most"
            )
        places.update(new)
        for place in gone:
            del places[place]
        self.partition_count += more
        return gone

    def close(self, session: ShareSession) -> None:
        """Forget a session."""
        if not session.is_closed:
            session.is_closed = True
            del self._sessions[session.group_id, session.member_id]
            self.partition_count -= len(session.places)

    def of_peer(self, peer: Peer) -> list[ShareSession]:
        """The sessions whose newest request came by a connection."""
        return [session for session in self._sessions.values() if session.peer is peer]

    def of_groups(self, group_ids: Collection[str]) -> list[ShareSession]:
        """The sessions of some groups."""
        return [session for session in self._sessions.values() if session.group_id in group_ids]
