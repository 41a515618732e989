"""The group coordinator of this broker: what API handlers and the node call.

Each partition of `__consumer_offsets` is a shard (`shard.py`) that holds the groups whose id hashes to it; the runtime
finds it (`coordination/runtime.py`). Every method that takes a request returns a `Pending`. If the whole request is
refused, that fails, and the dispatcher returns the API's own error response.

All calls are made on the broker's one thread. The file is long because it has a method for each API.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from ottla.broker.coordination.runtime import CoordinatorRuntime
from ottla.broker.coordination.shard_log import TransactionMarker
from ottla.broker.groups import answers
from ottla.broker.groups.consumer_checks import check_heartbeat
from ottla.broker.groups.fetched_offsets import fetch_offsets
from ottla.broker.groups.group import Caller, sees_all
from ottla.broker.groups.offsets_topic import groups_definition
from ottla.broker.groups.settings import GroupServices, GroupSettings
from ottla.broker.groups.share_group import check_share_heartbeat
from ottla.broker.groups.streams.checks import check_heartbeat as check_streams_heartbeat
from ottla.broker.groups.streams.internal_topics import InternalTopics
from ottla.broker.groups.topics import CatalogTopics
from ottla.broker.groups.transactional_commits import answer_when_both
from ottla.broker.runtime.pending import Pending, follow
from ottla.protocol.api.heartbeat import HeartbeatResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.formats.layout import OFFSETS_TOPIC

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.broker.coordination.writes import JointAnswer
    from ottla.broker.groups.shard import GroupShard
    from ottla.broker.groups.share_group import ShareGroup
    from ottla.broker.groups.share_state import SharedTopic
    from ottla.broker.groups.streams.group import StreamsGroup
    from ottla.broker.groups.transactional_commits import Admission
    from ottla.broker.partitions.visibility import VisibleCallback
    from ottla.broker.peer import Peer, RequestContext
    from ottla.broker.runtime.steps import Steps
    from ottla.broker.services import Services
    from ottla.protocol.api.consumer_group_describe import (
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
    )
    from ottla.protocol.api.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )
    from ottla.protocol.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
    from ottla.protocol.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
    from ottla.protocol.api.heartbeat import HeartbeatRequest
    from ottla.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse
    from ottla.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
    from ottla.protocol.api.list_groups import ListGroupsRequest, ListGroupsResponse
    from ottla.protocol.api.offset_commit import OffsetCommitRequest, OffsetCommitResponse
    from ottla.protocol.api.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
    from ottla.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
    from ottla.protocol.api.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
    from ottla.protocol.api.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
    from ottla.protocol.api.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
    from ottla.protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
    from ottla.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse
    from ottla.protocol.api.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

P = TypeVar("P")
GROUPS_BEFORE_A_LOOK = 1_000
"""After so many new groups of a connection, those that no longer exist are forgotten."""


class GroupCoordinator:
    """All groups of one broker."""

    def __init__(self, services: Services, *, new_id: Callable[[], str] | None = None) -> None:
        config = services.config
        self.settings = GroupSettings.of(config, services.catalog.settings.group_configs)
        of_groups = GroupServices(
            settings=self.settings,
            topics=CatalogTopics(services.catalog),
            counters=services.metrics.groups,
            new_id=new_id or (lambda: str(uuid4())),
        )
        self._runtime = CoordinatorRuntime(services, groups_definition(config, of_groups))
        self.shards = self._runtime.shards
        """The groups themselves, by the partitions of `__consumer_offsets`."""
        self.internal_topics = InternalTopics(services.catalog, services.clock)
        """The internal topics of streams groups that are being created."""
        self._groups_of: dict[Peer, set[str]] = {}
        """The groups with members that send requests on a connection."""

    def open(self) -> None:
        """As `CoordinatorRuntime.open`."""
        self._runtime.open()

    def close(self) -> None:
        """As `CoordinatorRuntime.close`."""
        self._runtime.close()

    def prepare(self, group_id: str, done: Callable[[KafkaError | None], None]) -> None:
        """As `CoordinatorRuntime.prepare`: for FindCoordinator."""
        self._runtime.prepare(group_id, done)

    # --- members -----------------------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, context: RequestContext) -> Pending[JoinGroupResponse]:
        """A member of the classic protocol joins; the answer parks until the group has joined."""
        pending: Pending[JoinGroupResponse] = Pending(parks=True)
        version = context.api_version
        return self._run_member(
            request.group_id, pending, context, lambda shard, caller: shard.join(request, version, caller, pending)
        )

    def sync(self, request: SyncGroupRequest, context: RequestContext) -> Pending[SyncGroupResponse]:
        """A member asks for its assignment; the answer parks until the leader has sent it."""
        pending: Pending[SyncGroupResponse] = Pending(parks=True)
        version = context.api_version
        return self._run_member(
            request.group_id, pending, context, lambda shard, caller: shard.sync(request, version, caller, pending)
        )

    def heartbeat(self, request: HeartbeatRequest, context: RequestContext) -> Pending[HeartbeatResponse]:
        """A member of the classic protocol is alive. While the group loads, all are accepted, as in Kafka."""
        pending: Pending[HeartbeatResponse] = Pending()
        version = context.api_version
        if self.shards.is_loading(request.group_id):
            pending.complete(HeartbeatResponse())
            return pending
        return self._run_member(
            request.group_id, pending, context, lambda shard, caller: shard.heartbeat(request, version, caller, pending)
        )

    def leave(self, request: LeaveGroupRequest, context: RequestContext) -> Pending[LeaveGroupResponse]:
        """Members leave, or are removed by an administrator."""
        pending: Pending[LeaveGroupResponse] = Pending()
        version = context.api_version
        return self._runtime.run(
            request.group_id, pending, lambda shard: shard.leave(request, version, _caller(context), pending)
        )

    def consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        context: RequestContext,
        may_see: Callable[[str], bool] = sees_all,
    ) -> Pending[ConsumerGroupHeartbeatResponse]:
        """A member of the consumer protocol joins, is alive, or leaves. `may_see` returns whether the client may know
        of a topic, by its name; expressions match no others.
        """
        pending: Pending[ConsumerGroupHeartbeatResponse] = Pending()
        version = context.api_version
        try:
            check_heartbeat(request, version, self.settings.consumer_assignors)
        except KafkaError as refusal:
            pending.fail(refusal)
            return pending
        return self._run_member(
            request.group_id,
            pending,
            context,
            lambda shard, caller: shard.consumer_heartbeat(request, version, caller._replace(may_see=may_see), pending),
        )

    def share_heartbeat(
        self, request: ShareGroupHeartbeatRequest, context: RequestContext
    ) -> Pending[ShareGroupHeartbeatResponse]:
        """A member of a share group joins, is alive, or leaves."""
        pending: Pending[ShareGroupHeartbeatResponse] = Pending()
        try:
            check_share_heartbeat(request)
        except KafkaError as refusal:
            pending.fail(refusal)
            return pending
        return self._run_member(
            request.group_id, pending, context, lambda shard, caller: shard.share_heartbeat(request, caller, pending)
        )

    def streams_heartbeat(
        self, request: StreamsGroupHeartbeatRequest, context: RequestContext
    ) -> Pending[StreamsGroupHeartbeatResponse]:
        """A member of a streams group joins, is alive, or leaves."""
        pending: Pending[StreamsGroupHeartbeatResponse] = Pending()
        version = context.api_version
        try:
            check_streams_heartbeat(request)
        except KafkaError as refusal:
            pending.fail(refusal)
            return pending
        return self._run_member(
            request.group_id,
            pending,
            context,
            lambda shard, caller: shard.streams_heartbeat(request, version, caller, pending),
        )

    def streams_group_if_ready(self, group_id: str) -> StreamsGroup | None:
        """A streams group as it is now; None if it is not there, or its shard is not loaded."""
        try:
            return self.shards.ready(group_id).streams_group(group_id)
        except KafkaError:
            return None

    # --- committed offsets -------------------------------------------------------------------------------------------

    def commit_offsets(self, request: OffsetCommitRequest, context: RequestContext) -> Pending[OffsetCommitResponse]:
        """Keep offsets of partitions that exist; the answer is sent when they survive a crash."""
        pending: Pending[OffsetCommitResponse] = Pending()
        return self._runtime.run(
            request.group_id, pending, lambda shard: shard.commit_offsets(request, context.api_version, pending)
        )

    def commit_transactional_offsets(
        self, request: TxnOffsetCommitRequest, context: RequestContext, admit: Callable[[], Admission]
    ) -> Pending[TxnOffsetCommitResponse]:
        """Keep offsets of partitions that exist, in a producer's transaction.

        `admit` asks the transaction coordinator whether the producer may do this, in the same step in which the offsets
        are gathered. The answer is sent when both are durable.
        """
        pending: Pending[TxnOffsetCommitResponse] = Pending()
        if not request.group_id:
            pending.fail(KafkaError(ErrorCode.INVALID_GROUP_ID))
            return pending

        def run(shard: GroupShard) -> None:
            admission = admit()
            if admission.error is not None:
                raise admission.error
            committed: Pending[TxnOffsetCommitResponse] = Pending()
            shard.commit_transactional_offsets(request, context.api_version, committed)
            answer_when_both(pending, committed, admission)

        return self._runtime.run(request.group_id, pending, run)

    def end_transaction(
        self,
        index: int,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        done: VisibleCallback,
        bumps_epoch: bool = False,
    ) -> None:
        """End a producer's transaction in a partition of `__consumer_offsets`; `done(None)` once the marker is visible.

        `done(error)` where it is not. COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR and errors of the disk are
        temporary, and the caller asks again later; UNKNOWN_TOPIC_OR_PARTITION is permanent; INVALID_PRODUCER_EPOCH and
        TRANSACTION_COORDINATOR_FENCED are those of `Partition.end_transaction`.
        """
        if not 0 <= index < self.shards.count:
            done(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{OFFSETS_TOPIC}-{index} does not exist"))
            return
        end = TransactionMarker(producer_id, producer_epoch, is_commit, coordinator_epoch, bumps_epoch)
        try:
            self.shards.ready_at(index).end_transaction(end, done)
        except KafkaError as refusal:
            done(refusal)

    def offsets_partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that keeps the group's offsets."""
        return self.shards.partition_of(group_id)

    def fetch_offsets(self, request: OffsetFetchRequest, context: RequestContext) -> Pending[OffsetFetchResponse]:
        """The committed offsets of one group, or of several (version 8 and later)."""
        return self._runtime.when_made(
            lambda pending: follow(pending, context.in_steps(fetch_offsets(self.shards, request, context.api_version)))
        )

    def delete_offsets(self, request: OffsetDeleteRequest, context: RequestContext) -> Pending[OffsetDeleteResponse]:
        """Forget committed offsets of partitions that exist."""
        pending: Pending[OffsetDeleteResponse] = Pending()
        if not request.group_id:
            pending.fail(KafkaError(ErrorCode.INVALID_GROUP_ID))
            return pending
        return self._runtime.run(request.group_id, pending, lambda shard: shard.delete_offsets(request, pending))

    # --- administration ----------------------------------------------------------------------------------------------

    def list_groups(
        self, request: ListGroupsRequest, may_see: Callable[[str], bool]
    ) -> Steps[Pending[ListGroupsResponse]]:
        """All groups that the client may see, or those in some states and of some types. Creates no topic."""
        return answers.list_groups(self.shards, request, may_see)

    def describe_groups(
        self, request: DescribeGroupsRequest, context: RequestContext
    ) -> Pending[DescribeGroupsResponse]:
        """Groups of the classic protocol with their members."""
        return self._runtime.when_made(
            lambda pending: follow(pending, context.in_steps(answers.describe_groups(self.shards, request, context)))
        )

    def describe_consumer_groups(
        self, request: ConsumerGroupDescribeRequest, context: RequestContext
    ) -> Pending[ConsumerGroupDescribeResponse]:
        """Groups of the consumer protocol with their members."""
        return self._runtime.when_made(
            lambda pending: follow(pending, context.in_steps(answers.describe_consumer_groups(self.shards, request)))
        )

    def describe_share_groups(
        self, request: ShareGroupDescribeRequest, context: RequestContext
    ) -> Pending[ShareGroupDescribeResponse]:
        """Share groups with their members."""
        return self._runtime.when_made(
            lambda pending: follow(pending, context.in_steps(answers.describe_share_groups(self.shards, request)))
        )

    def describe_streams_groups(
        self, request: StreamsGroupDescribeRequest, context: RequestContext
    ) -> Pending[StreamsGroupDescribeResponse]:
        """Streams groups with their topologies and members."""
        return self._runtime.when_made(
            lambda pending: follow(pending, context.in_steps(answers.describe_streams_groups(self.shards, request)))
        )

    def share_group(self, group_id: str) -> ShareGroup:
        """A share group, as it is now. Raises KafkaError GROUP_ID_NOT_FOUND, and as `ShardMap.ready`."""
        if not self.shards.is_adopted:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return self.shards.ready(group_id).share_group(group_id)

    def check_share_topics(self, group_id: str) -> None:
        """As `GroupShard.check_share_topics`, and as `ShardMap.ready`."""
        self.shards.ready(group_id).check_share_topics(group_id)

    def set_share_topics(
        self, group_id: str, added: Mapping[UUID, SharedTopic], removed: Iterable[UUID], answer: JointAnswer[P]
    ) -> None:
        """Note of which topics an empty share group has a state; the answer rests on it. A group that is not there is
        created for those that it has.

        Raises KafkaError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, and as `ShardMap.ready`.
        """
        shard = self.shards.ready(group_id)
        shard.set_share_topics(group_id, added, removed)
        answer.rest_on(shard, group_id)

    def delete_groups(self, request: DeleteGroupsRequest, context: RequestContext) -> Pending[DeleteGroupsResponse]:
        """Remove groups without members, and their offsets."""
        return self._runtime.when_made(lambda pending: answers.delete_groups(self.shards, request, pending))

    # --- events ------------------------------------------------------------------------------------------------------

    def on_disconnect(self, peer: Peer) -> None:
        """Handle the end of a connection on which members have sent requests."""
        for group_id in sorted(self._groups_of.pop(peer, ())):
            shard = self.shards.get(group_id)
            if shard is not None:
                shard.on_disconnect(group_id, peer)

    def on_topics_changed(self, deleted: Collection[str]) -> Iterator[None]:
        """Handle a change of the catalog's topics; `deleted` no longer exist. Returns the steps of long work."""
        return self._runtime.on_topics_changed(deleted)

    def expire_some(self) -> bool:
        """A step of the chore that removes old offsets and groups. Return whether it has left some over."""
        return self._runtime.expire_some()

    # --- figures -----------------------------------------------------------------------------------------------------

    def count_by_state(self) -> Counter[tuple[str, str]]:
        """The number of groups, by (type, state)."""
        return Counter(
            (group.type.value, group.state) for shard in self.shards.active() for group in shard.groups.values()
        )

    @property
    def offset_count(self) -> int:
        """The number of committed offsets."""
        return sum(shard.offsets.count for shard in self.shards.active())

    @property
    def loads_under_way(self) -> int:
        """The number of partitions that are being loaded."""
        return self.shards.loads_under_way

    # --- internals ---------------------------------------------------------------------------------------------------

    def _run_member(
        self, group_id: str, pending: Pending[P], context: RequestContext, step: Callable[[GroupShard, Caller], None]
    ) -> Pending[P]:
        """As `CoordinatorRuntime.run`, for a member's request: the group must learn of the end of its connection."""

        def run(shard: GroupShard) -> None:
            step(shard, _caller(context))
            if group_id in shard.groups:
                self._remember(context.connection, group_id)

        return self._runtime.run(group_id, pending, run)

    def _remember(self, peer: Peer, group_id: str) -> None:
        groups = self._groups_of.get(peer)
        if groups is None:
            groups = self._groups_of[peer] = set()
            peer.when_ended(self, partial(self.on_disconnect, peer))
        if group_id in groups:
            return
        groups.add(group_id)
        if len(groups) % GROUPS_BEFORE_A_LOOK == 0:
            groups.intersection_update([each for each in groups if self._is_there(each)])

    def _is_there(self, group_id: str) -> bool:
        shard = self.shards.get(group_id)
        return shard is None or group_id in shard.groups


def _caller(context: RequestContext) -> Caller:
    """The client of a request. Hosts are written as by Java's InetAddress."""
    peer = context.connection
    return Caller(context.client_id or "", f"/{peer.host}", peer)
