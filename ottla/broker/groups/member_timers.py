"""The deadlines of a consumer group's members, and the connection of each member's last request. Soft state.

A member has up to four deadlines: the end of its session, which each heartbeat moves; the end of its time to revoke;
and, where it uses the classic protocol, the ends of its times to join again and to fetch its assignment. The first that
passes removes the member. Times are monotonic milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from ottla.broker.coordination.deadlines import Deadlines


class Limit(StrEnum):
    """The kinds of deadlines of a member; the values are the texts in the log."""

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
        """Begin a deadline, or begin it again."""
        self._deadlines.set((member_id, limit), at_ms)

    def start_if_absent(self, member_id: str, limit: Limit, at_ms: float) -> None:
        """Begin a deadline, unless it runs already."""
        if (member_id, limit) not in self._deadlines:
            self._deadlines.set((member_id, limit), at_ms)

    def start_if_earlier(self, member_id: str, limit: Limit, at_ms: float) -> None:
        """Let the deadline pass at `at_ms`, unless it passes before that anyway."""
        self._deadlines.bring_forward((member_id, limit), at_ms)

    def cancel(self, member_id: str, *limits: Limit) -> None:
        """Cancel some of a member's deadlines."""
        for limit in limits:
            self._deadlines.cancel((member_id, limit))

    def forget(self, member_id: str) -> None:
        """Forget a member that has been removed."""
        self.cancel(member_id, *Limit)
        self._connections.pop(member_id, None)

    def pop_due(self, now_ms: float) -> dict[str, Limit]:
        """The members with a deadline that has passed, and its kind."""
        return dict(reversed(self._deadlines.take_due(now_ms)))

    def came_by(self, member_id: str, connection: object) -> None:
        """Note the connection of a member's request."""
        self._connections[member_id] = connection

    def connection_of(self, member_id: str) -> object:
        """The connection of a member's last request; None when that is not known."""
        return self._connections.get(member_id)

    def members_of(self, connection: object) -> Iterator[str]:
        """The members whose last request came on this connection, which is forgotten."""
        gone = [member_id for member_id, last in self._connections.items() if last is connection]
        for member_id in gone:
            del self._connections[member_id]
        return iter(gone)
