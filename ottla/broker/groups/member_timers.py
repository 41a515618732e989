"""When members of a consumer group run out of time, and by which connection they showed life last. Soft state.

A member has up to four deadlines: the end of its session, moved by each heartbeat; the end of its time to revoke; and,
where it speaks the classic protocol, the ends of its times to join again and to fetch its assignment. The first that
comes ends the member. Times are monotonic milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from ottla.broker.coordination.deadlines import Deadlines


class Limit(StrEnum):
    """What a member may run out of; the values say it in the log."""

    SESSION = "its session has ended"
    REVOCATION = "it did not give up its partitions in time"
    JOIN = "it did not join again in time"
    SYNC = "it did not ask for its assignment in time"


class MemberTimers:
    """The deadlines of one group's members."""

    def __init__(self) -> None:
        self._deadlines: Deadlines[tuple[str, Limit]] = Deadlines()
        self._connections: dict[str, object] = {}

    @property
    def next_ms(self) -> float | None:
        """The earliest deadline."""
        return self._deadlines.next_ms

    def start(self, member_id: str, limit: Limit, at_ms: float) -> None:
        """Begin, or begin again."""
        self._deadlines.set((member_id, limit), at_ms)

    def start_if_absent(self, member_id: str, limit: Limit, at_ms: float) -> None:
        """Begin, unless it runs already."""
        if (member_id, limit) not in self._deadlines:
            self._deadlines.set((member_id, limit), at_ms)

    def start_if_earlier(self, member_id: str, limit: Limit, at_ms: float) -> None:
        """Let the time end at `at_ms`, unless it ends before that anyway."""
        self._deadlines.bring_forward((member_id, limit), at_ms)

    def cancel(self, member_id: str, *limits: Limit) -> None:
        """End some of a member's deadlines."""
        for limit in limits:
            self._deadlines.cancel((member_id, limit))

    def forget(self, member_id: str) -> None:
        """The member is gone."""
        self.cancel(member_id, *Limit)
        self._connections.pop(member_id, None)

    def pop_due(self, now_ms: float) -> dict[str, Limit]:
        """The members whose time is over, and of which kind it was."""
        return dict(reversed(self._deadlines.take_due(now_ms)))

    def came_by(self, member_id: str, connection: object) -> None:
        """A member showed life."""
        self._connections[member_id] = connection

    def connection_of(self, member_id: str) -> object:
        """The connection by which a member showed life last; None when that is not known."""
        return self._connections.get(member_id)

    def members_of(self, connection: object) -> Iterator[str]:
        """The members that showed life last by this connection, which is forgotten."""
        gone = [member_id for member_id, last in self._connections.items() if last is connection]
        for member_id in gone:
            del self._connections[member_id]
        return iter(gone)
