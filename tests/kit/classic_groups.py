"""One group of the classic protocol on a table: requests in, answers by waiter, time that passes by call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

from ottla.broker.coordination.effects import CoordinatorRecord, Effects, Now
from ottla.broker.groups.classic import ClassicGroup
from ottla.broker.groups.group import Caller
from ottla.broker.groups.settings import GroupSettings
from ottla.protocol.api.heartbeat import HeartbeatRequest
from ottla.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import encode
from ottla.protocol.stored.group import decode_group_record, encode_group_key, encode_group_value

WALL_START_MS = 1_700_000_000_000


def subscription(*topics: str, version: int = 1) -> bytes:
    """What a consumer tells the leader: its topics."""
    message = ConsumerProtocolSubscription(topics=list(topics), user_data=None)
    return version.to_bytes(2, "big") + encode(message, version)


class ClassicTable:
    """A group, the records it asked for, and the answers it gave. Waiters are numbers."""

    def __init__(self, **settings: Any) -> None:
        self.settings = GroupSettings(**settings)
        ids = count(1)
        self.group = ClassicGroup("g", self.settings, new_id=lambda: f"id{next(ids)}")
        self.now_ms = 1_000.0
        self.records: list[CoordinatorRecord] = []
        self.answers: dict[int, Any] = {}
        self.next_waiter = count(1)

    @property
    def now(self) -> Now:
        return Now(self.now_ms, WALL_START_MS + int(self.now_ms))

    @property
    def state(self) -> str:
        return self.group.state

    @property
    def generation(self) -> int:
        return self.group.generation_id

    def take(self, effects: Effects) -> Effects:
        """Keep what a step gave; the records must survive their own bytes."""
        for key, value in effects.records:
            stored = None if value is None else encode_group_value(value)
            assert decode_group_record(encode_group_key(key), stored) == (key, value)
        self.records += effects.records
        for waiter, answer in effects.replies:
            assert isinstance(waiter, int)
            assert waiter not in self.answers, f"waiter {waiter} is answered twice"
            self.answers[waiter] = answer
        return effects

    def caller(self, connection: object = "c", client_id: str = "client") -> Caller:
        return Caller(client_id, "/127.0.0.1", connection)

    def join(
        self,
        member_id: str = "",
        *,
        version: int = 9,
        protocols: Mapping[str, bytes] | Iterable[tuple[str, bytes]] = (("range", b"m"),),
        instance: str | None = None,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        connection: object = "c",
        client_id: str = "client",
        reason: str | None = None,
    ) -> int:
        """Send JoinGroup; the waiter."""
        waiter = next(self.next_waiter)
        pairs = protocols.items() if isinstance(protocols, Mapping) else protocols
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=n, metadata=m) for n, m in pairs],
            reason=reason,
        )
        self.take(self.group.join(request, version, self.caller(connection, client_id), waiter, self.now))
        return waiter

    def sync(
        self,
        member_id: str,
        generation: int | None = None,
        assignments: Mapping[str, bytes] | None = None,
        *,
        version: int = 5,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        connection: object = "c",
    ) -> int:
        """Send SyncGroup; the waiter."""
        waiter = next(self.next_waiter)
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=m, assignment=a)
                for m, a in (assignments or {}).items()
            ],
        )
        self.take(self.group.sync(request, version, self.caller(connection), waiter, self.now))
        return waiter

    def heartbeat(
        self, member_id: str, generation: int | None = None, *, instance: str | None = None, connection: object = "c"
    ) -> ErrorCode:
        """Send Heartbeat; the code."""
        waiter = next(self.next_waiter)
        request = HeartbeatRequest(
            group_id="g",
            generation_id=self.generation if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        self.take(self.group.heartbeat(request, 4, self.caller(connection), waiter, self.now))
        return ErrorCode.of(self.answers[waiter].error_code)

    def leave(self, *who: tuple[str, str | None] | str, version: int = 5) -> LeaveGroupResponse:
        """Send LeaveGroup for members by id, or by (member id, instance id)."""
        waiter = next(self.next_waiter)
        pairs = [(each, None) if isinstance(each, str) else each for each in who]
        request = LeaveGroupRequest(
            group_id="g",
            member_id=pairs[0][0] if version < 3 else "",
            members=[]
            if version < 3
            else [
                LeaveGroupRequest.MemberIdentity(member_id=m, group_instance_id=i, reason="the test says so")
                for m, i in pairs
            ],
        )
        self.take(self.group.leave(request, version, self.caller(), waiter, self.now))
        answer: LeaveGroupResponse = self.answers[waiter]
        return answer

    def disconnect(self, connection: object = "c") -> None:
        """The connection ends; what was parked on it is not answered."""
        self.take(self.group.on_disconnect(connection, self.now))

    def pass_time(self, ms: float) -> None:
        """Let time pass, calling the group at each of its deadlines."""
        end_ms = self.now_ms + ms
        while (due_ms := self.group.next_deadline_ms) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.take(self.group.on_deadline(self.now))
        self.now_ms = end_ms

    def is_waiting(self, waiter: int) -> bool:
        return waiter not in self.answers

    def joined(self, waiter: int) -> JoinGroupResponse:
        """The good answer to a JoinGroup."""
        answer = self.answers[waiter]
        assert isinstance(answer, JoinGroupResponse)
        assert answer.error_code == ErrorCode.NONE, ErrorCode.of(answer.error_code)
        return answer

    def synced(self, waiter: int) -> SyncGroupResponse:
        """The good answer to a SyncGroup."""
        answer = self.answers[waiter]
        assert isinstance(answer, SyncGroupResponse)
        assert answer.error_code == ErrorCode.NONE, ErrorCode.of(answer.error_code)
        return answer

    def code(self, waiter: int) -> ErrorCode:
        return ErrorCode.of(self.answers[waiter].error_code)

    def new_member(self, **join: Any) -> tuple[str, int]:
        """A dynamic member in the two steps of KIP-394: its id, and the waiter of its second JoinGroup."""
        first = self.join(**join)
        assert self.code(first) == ErrorCode.MEMBER_ID_REQUIRED
        member_id: str = self.answers[first].member_id
        return member_id, self.join(member_id, **join)

    def stable(self, count_of_members: int = 1, **join: Any) -> list[str]:
        """Bring that many dynamic members into a stable group; their ids, the leader's first."""
        members = [self.new_member(**join)[0]]
        for _ in range(count_of_members - 1):
            member_id, _ = self.new_member(**join)
            for known in members:
                self.join(known, **join)
            members.append(member_id)
        leader = self.group.roster.leader
        assert leader == members[0]
        self.settle()
        return members

    def settle(self) -> None:
        """Everybody sends SyncGroup, the leader at last; each gets its own id as its assignment."""
        leader = self.group.roster.leader
        assert leader is not None
        members = list(self.group.members)
        for member_id in members:
            if member_id != leader:
                self.sync(member_id)
        self.sync(leader, assignments={member_id: member_id.encode() for member_id in members})
        assert self.state == "Stable"

    def reload(self) -> ClassicGroup:
        """A fresh group that has replayed the records so far."""
        fresh = ClassicGroup("g", self.settings, new_id=lambda: "fresh")
        for key, value in self.records:
            fresh.replay(key, value)
        return fresh
