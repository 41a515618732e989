"""A group coordinator on a `FakeCluster` that does what the script says: for what real coordinators rarely do.

It has one member, whoever asks, which leads the group. `codes` holds, per request class, codes to be answered next, one
each; when none is left it behaves. `joins` adds other members to what the leader gets. Commits are kept in
`committed`. For the consumer protocol a heartbeat is answered with what `target` says.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any
from uuid import UUID

from kit.fake_broker import SILENCE, FakeCluster

from ottla.protocol.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.api.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.consumer_protocol import ConsumerProtocolAssignment, decode_assignment, encode_assignment
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request


class FakeGroup:
    """See the module. Commits by (topic, partition): offset, metadata, leader epoch."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.codes: dict[type[Request], deque[ErrorCode]] = defaultdict(deque)
        self.silent: set[type[Request]] = set()
        """Requests that are never answered."""
        self.committed: dict[tuple[str, int], tuple[int, str, int]] = {}
        self.joins: list[JoinGroupResponse.JoinGroupResponseMember] = []
        self.overrides: dict[str, list[tuple[str, int]]] = {}
        """Assignments by member id, in place of what the leader computed."""
        self.generation = 0
        self.members = 0
        self.target: dict[str, list[int]] | None = None
        self.epoch = 0
        self.node = 0
        self._sent_target: object = None
        handlers: dict[type[Request], Callable[[Any, int, ErrorCode], object]] = {
            FindCoordinatorRequest: self._find,
            JoinGroupRequest: self._join,
            SyncGroupRequest: self._sync,
            HeartbeatRequest: self._beat,
            LeaveGroupRequest: self._leave,
            OffsetCommitRequest: self._commit,
            OffsetFetchRequest: self._fetch,
            ConsumerGroupHeartbeatRequest: self._consumer_beat,
        }
        for kind, handler in handlers.items():
            cluster.handlers[kind] = self._scripted(kind, handler)

    def refuse(self, kind: type[Request], *codes: ErrorCode) -> None:
        """Answer the next requests of a kind with these codes (NONE: as it should be)."""
        self.codes[kind].extend(codes)

    def count(self, kind: type[Request]) -> int:
        """How many requests of a kind came."""
        return len(self.cluster.seen(kind))

    def _scripted(
        self, kind: type[Request], handler: Callable[[Any, int, ErrorCode], object]
    ) -> Callable[[Request, int], object]:
        def answer(request: Request, version: int) -> object:
            if kind in self.silent:
                return SILENCE
            code = self.codes[kind].popleft() if self.codes[kind] else ErrorCode.NONE
            return handler(request, version, code)

        return answer

    def _find(self, request: FindCoordinatorRequest, version: int, code: ErrorCode) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(
            coordinators=[
                FindCoordinatorResponse.Coordinator(
                    key=key, node_id=self.node, host="127.0.0.1", port=self.cluster.ports[self.node], error_code=code
                )
                for key in request.coordinator_keys
            ]
        )

    def _join(self, request: JoinGroupRequest, version: int, code: ErrorCode) -> JoinGroupResponse:
        member_id = request.member_id
        if not member_id and not code:
            self.members += 1
            member_id = f"member-{self.members}"
            if request.group_instance_id is None:
                code = ErrorCode.MEMBER_ID_REQUIRED
        if code:
            return JoinGroupResponse(error_code=code, protocol_name="", leader="", member_id=member_id, members=[])
        self.generation += 1
        chosen = request.protocols[0]
        me = JoinGroupResponse.JoinGroupResponseMember(
            member_id=member_id, group_instance_id=request.group_instance_id, metadata=chosen.metadata
        )
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=chosen.name,
            leader=member_id,
            member_id=member_id,
            members=[me, *self.joins],
        )

    def _sync(self, request: SyncGroupRequest, version: int, code: ErrorCode) -> SyncGroupResponse:
        if code:
            return SyncGroupResponse(error_code=code, assignment=b"")
        assigned = {one.member_id: bytes(one.assignment) for one in request.assignments}
        for member_id, partitions in self.overrides.items():
            assigned[member_id] = encode_assignment(
                ConsumerProtocolAssignment(
                    assigned_partitions=[
                        ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=[index])
                        for topic, index in partitions
                    ]
                )
            )
        self.last_assignment = {
            member_id: [
                (one.topic, index) for one in decode_assignment(data).assigned_partitions for index in one.partitions
            ]
            for member_id, data in assigned.items()
        }
        return SyncGroupResponse(assignment=assigned.get(request.member_id, b""))

    def _beat(self, request: HeartbeatRequest, version: int, code: ErrorCode) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=code)

    def _leave(self, request: LeaveGroupRequest, version: int, code: ErrorCode) -> LeaveGroupResponse:
        return LeaveGroupResponse(error_code=code, members=[])

    def _commit(self, request: OffsetCommitRequest, version: int, code: ErrorCode) -> OffsetCommitResponse:
        for topic in request.topics:
            name = topic.name or self._name_of(topic.topic_id)
            for one in topic.partitions:
                if not code:
                    kept = (one.committed_offset, one.committed_metadata or "", one.committed_leader_epoch)
                    self.committed[name, one.partition_index] = kept
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponse.OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetCommitResponse.OffsetCommitResponsePartition(
                            partition_index=one.partition_index, error_code=code
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _name_of(self, topic_id: UUID) -> str:
        """The topic of an id; the test fails if there is none."""
        return next(name for name in self.cluster.topics if self.cluster.id_of(name) == topic_id)

    def _fetch(self, request: OffsetFetchRequest, version: int, code: ErrorCode) -> OffsetFetchResponse:
        groups = []
        of_partitions = (ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.UNKNOWN_TOPIC_ID)
        for group in request.groups:
            topics = []
            for topic in group.topics or ():
                name = topic.name or self._name_of(topic.topic_id)
                partitions = []
                for index in topic.partition_indexes:
                    offset, metadata, epoch = self.committed.get((name, index), (-1, "", -1))
                    partitions.append(
                        OffsetFetchResponse.OffsetFetchResponsePartitions(
                            partition_index=index,
                            committed_offset=offset,
                            committed_leader_epoch=epoch,
                            metadata=metadata,
                            error_code=code if code in of_partitions else 0,
                        )
                    )
                topics.append(
                    OffsetFetchResponse.OffsetFetchResponseTopics(
                        name=topic.name, topic_id=topic.topic_id, partitions=partitions
                    )
                )
            top = 0 if code in of_partitions else code
            groups.append(
                OffsetFetchResponse.OffsetFetchResponseGroup(group_id=group.group_id, topics=topics, error_code=top)
            )
        return OffsetFetchResponse(groups=groups)

    def _consumer_beat(
        self, request: ConsumerGroupHeartbeatRequest, version: int, code: ErrorCode
    ) -> ConsumerGroupHeartbeatResponse:
        if code:
            return ConsumerGroupHeartbeatResponse(
                error_code=code, error_message="as the test wants it", member_epoch=0, heartbeat_interval_ms=0
            )
        if request.member_epoch < 0:
            return ConsumerGroupHeartbeatResponse(member_epoch=request.member_epoch, heartbeat_interval_ms=0)
        if request.member_epoch == 0:
            self.epoch += 1
            self._sent_target = None
        assignment = None
        if self.target is not None and self.target != self._sent_target:
            self._sent_target = dict(self.target)
            described = {name: self.cluster._describe(name).topic_id for name in self.target}
            assignment = ConsumerGroupHeartbeatResponse.Assignment(
                topic_partitions=[
                    ConsumerGroupHeartbeatResponse.TopicPartitions(topic_id=described[name], partitions=indexes)
                    for name, indexes in self.target.items()
                ]
            )
        return ConsumerGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=self.epoch,
            heartbeat_interval_ms=5,
            assignment=assignment,
        )
