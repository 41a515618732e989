"""Members of a classic group as raw frames: one connection each, requests in any version, nothing papered over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import monotonic

from kit.wire import PATIENCE_S, Wire

from ottla.protocol.api.find_coordinator import FindCoordinatorRequest
from ottla.protocol.api.heartbeat import HeartbeatRequest
from ottla.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.errors import ErrorCode

COMING_UP = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}


def join_request(
    group_id: str,
    member_id: str = "",
    *,
    instance: str | None = None,
    protocols: Iterable[tuple[str, bytes]] = (("range", b"m"),),
    protocol_type: str = "consumer",
    session_ms: int = 60_000,
    rebalance_ms: int = 30_000,
) -> JoinGroupRequest:
    """A JoinGroup."""
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols],
    )


def sync_request(
    group_id: str,
    member_id: str,
    generation: int,
    assignments: Mapping[str, bytes] | None = None,
    *,
    instance: str | None = None,
    protocol_type: str | None = "consumer",
    protocol_name: str | None = "range",
) -> SyncGroupRequest:
    """A SyncGroup."""
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=[
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=m, assignment=a)
            for m, a in (assignments or {}).items()
        ],
    )


def await_coordinator(wire: Wire, group_id: str) -> None:
    """Ask until the group's coordinator answers (Kafka makes its topic on the first request, and loads it)."""
    give_up = monotonic() + PATIENCE_S
    while monotonic() < give_up:
        found = wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id]), 4).coordinators[0]
        if found.error_code == ErrorCode.NONE:
            probe = wire.call(sync_request(group_id, "probe", 1), 5)
            if probe.error_code not in COMING_UP:
                return
    raise AssertionError(f"no coordinator of {group_id} within {PATIENCE_S} s")


class WireMember:
    """One member of one group; `member_id` and `generation` are as the last good JoinGroup said."""

    def __init__(self, port: int, group_id: str, *, instance: str | None = None) -> None:
        self.wire = Wire(port)
        self.group_id = group_id
        self.instance = instance
        self.member_id = ""
        self.generation = -1

    def send_join(self, version: int = 9, **options: object) -> None:
        """Send JoinGroup; with an id, if this member has none and needs one."""
        if not self.member_id and self.instance is None and version >= 4:
            answer = self.wire.call(join_request(self.group_id, **options), version)  # type: ignore[arg-type]  # fields by name
            assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED, answer
            self.member_id = answer.member_id
        request = join_request(self.group_id, self.member_id, instance=self.instance, **options)  # type: ignore[arg-type]  # fields by name
        self.wire.send_request(request, version)
        self._version = version

    def read_join(self) -> JoinGroupResponse:
        """The answer to it."""
        answer = self.wire.read_answer(JoinGroupRequest, self._version)
        assert isinstance(answer, JoinGroupResponse)
        if answer.error_code == ErrorCode.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def join(self, version: int = 9, **options: object) -> JoinGroupResponse:
        """Send JoinGroup and wait for its answer."""
        self.send_join(version, **options)
        return self.read_join()

    def sync(
        self, assignments: Mapping[str, bytes] | None = None, version: int = 5, **options: object
    ) -> SyncGroupResponse:
        """Send SyncGroup and wait for its answer."""
        request = sync_request(
            self.group_id,
            self.member_id,
            self.generation,
            assignments,
            instance=self.instance,
            **options,  # type: ignore[arg-type]  # fields by name
        )
        answer = self.wire.call(request, version)
        assert isinstance(answer, SyncGroupResponse)
        return answer

    def heartbeat(self, version: int = 4) -> ErrorCode:
        """Send Heartbeat; the code."""
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        return ErrorCode.of(self.wire.call(request, version).error_code)

    def await_rebalance(self) -> None:
        """Return once the group wants this member to join again: what others sent before has arrived then."""
        give_up = monotonic() + PATIENCE_S
        while (code := self.heartbeat()) != ErrorCode.REBALANCE_IN_PROGRESS:
            assert code == ErrorCode.NONE, code
            assert monotonic() < give_up, "no rebalance began"

    def leave(self, version: int = 5) -> LeaveGroupResponse:
        """Send LeaveGroup for this member."""
        identity = LeaveGroupRequest.MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
        if version < 3:
            request = LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id)
        else:
            request = LeaveGroupRequest(group_id=self.group_id, members=[identity])
        answer = self.wire.call(request, version)
        assert isinstance(answer, LeaveGroupResponse)
        return answer

    def close(self) -> None:
        """End the connection."""
        self.wire.socket.close()
