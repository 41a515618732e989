"""A streams group (KIP-1071): members heartbeat, the broker assigns the tasks of their topology, members reconcile.

There are three epochs, as in a consumer group: the *group epoch* grows when members, topics or settings change, the
*assignment epoch* is the group epoch for which the target was computed, and a *member epoch* shows how far that member
has moved to the target. The first member brings the topology. The broker creates the internal topics that it needs
(`internal_topics.py`), and assigns nothing before they and all source topics are there.

Durable state is `durable`; sessions, the configured topology, offsets of tasks, endpoints' epoch and a requested
shutdown are soft. The behaviour, the codes and the records are those of Kafka 4.4's `GroupMetadataManager` and
`StreamsGroup`, with one exception: the early removal of members whose connection breaks.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from ottla.broker.coordination.effects import CoordinatorRecord, Effects, Now, Waiter
from ottla.broker.groups.group import Caller, GroupType, PartitionCheck
from ottla.broker.groups.member_timers import Limit
from ottla.broker.groups.metadata_hash import hash_of_topic, hash_of_topics
from ottla.broker.groups.modern_group import ModernGroup
from ottla.broker.groups.streams import heartbeats
from ottla.broker.groups.streams.checks import check_commit_epoch, check_fetch_epoch
from ottla.broker.groups.streams.configured_topology import configure
from ottla.broker.groups.streams.description import describe_group
from ottla.broker.groups.streams.member import NOT_GIVEN, MemberState, StreamsMember
from ottla.broker.groups.streams.records import group_tombstones, member_record, topology_record
from ottla.broker.groups.streams.settings import STREAMS_PROTOCOL_TYPE, StreamsSettings
from ottla.broker.groups.streams.state import StreamsGroupState
from ottla.broker.groups.streams.step import StreamsStep
from ottla.broker.groups.streams.tasks import count
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.group import encode_group_key, encode_group_value

if TYPE_CHECKING:
    from ottla.broker.groups.settings import GroupSettings
    from ottla.broker.groups.streams.configured_topology import ConfiguredTopology
    from ottla.broker.groups.streams.task_offsets import TaskOffsets
    from ottla.broker.groups.streams.topology import Topology
    from ottla.broker.groups.topics import TopicView
    from ottla.protocol.api.streams_group_describe import StreamsGroupDescribeResponse
    from ottla.protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest

LOG = logging.getLogger("ottla.groups")
NEVER_LOOKED = -1
BYTES_PER_TASK = 16
"""The most that a task adds to the record of a member: its partition and epoch, and again if it is given up."""
BYTES_PER_SUBTOPOLOGY = 48
"""The most that a subtopology adds to it beside the tasks and six times its id: lengths and tags of six lists."""


class StreamsGroup(ModernGroup[StreamsMember]):
    """One streams group."""

    type = GroupType.STREAMS
    durable: StreamsGroupState

    def __init__(self, group_id: str, settings: GroupSettings, topics: TopicView) -> None:
        super().__init__(group_id, settings, topics)
        self.durable = StreamsGroupState(group_id)
        self.configured: ConfiguredTopology | None = None
        """The topology, compared with the topics that existed at the last heartbeat."""
        self.task_offsets: dict[str, TaskOffsets] = {}
        self.endpoint_epoch = 0
        """Grows when an endpoint, or the tasks of a member with an endpoint, change."""
        self.shutdown_member_id: str | None = None
        """The member that has requested the end of the application; forgotten when no member is left."""
        self._topics_epoch = NEVER_LOOKED
        self._delay_ends_ms: float | None = None
        self._is_target_checked = True

    # --- heartbeats --------------------------------------------------------------------------------------------------

    def heartbeat(
        self, request: StreamsGroupHeartbeatRequest, api_version: int, caller: Caller, waiter: Waiter, now: Now
    ) -> Effects:
        """Join, stay, or leave. A refused heartbeat changes nothing. Raises KafkaError."""
        return heartbeats.answer(self, request, api_version, caller, waiter, now)

    def current_settings(self) -> StreamsSettings:
        """The group's settings as they are now."""
        return self.settings.streams(self.group_id)

    def configure(self, topology: Topology) -> tuple[int, ConfiguredTopology]:
        """The hash of the topology's topics as they are now, and the topology compared with them.

        Raises KafkaError STREAMS_INVALID_TOPOLOGY for one that contradicts itself.
        """
        known = self.configured
        if known is not None and self._topics_epoch == self.topics.epoch:
            return self.durable.metadata_hash, known
        topics = self.topics
        found = ((name, topics.id_of(name)) for name in topology.required_topics)
        metadata_hash = hash_of_topics(
            (name, hash_of_topic(topic_id, name, topics.partition_count(topic_id)))
            for name, topic_id in found
            if topic_id is not None
        )
        if known is not None and metadata_hash == self.durable.metadata_hash:
            return metadata_hash, known  # other topics have changed
        return metadata_hash, configure(topology, topics)

    def note_configured(self, configured: ConfiguredTopology) -> None:
        """Keep the topology that a heartbeat has configured, until the topics change again."""
        if configured.problem is not None and configured != self.configured:
            LOG.info("streams group %r: %s", self.group_id, configured.problem.detail)
        self.configured, self._topics_epoch = configured, self.topics.epoch

    def is_without_target(self, member_id: str, configured: ConfiguredTopology) -> bool:
        """Whether a crash has kept only a part of a step: the target of the current epoch lacks the member, or tasks.

        Tasks are only counted once after a start.
        """
        state = self.durable
        if state.group_epoch > state.assignment_epoch:
            return False
        if member_id not in state.target:
            return True
        if self._is_target_checked:
            return False
        self._is_target_checked = True
        if not configured.is_ready or configured.subtopologies is None:
            return False
        wanted = sum(subtopology.task_count for subtopology in configured.subtopologies.values())
        return sum(count(target.active) for target in state.target.values()) != wanted

    def begin_initial_delay(self, settings: StreamsSettings, now: Now) -> None:
        """Wait for further members before the first assignment, unless the group waits already."""
        if settings.initial_rebalance_delay_ms > 0 and self._delay_ends_ms is None:
            self._delay_ends_ms = now.monotonic_ms + settings.initial_rebalance_delay_ms

    @property
    def is_initial_delay_active(self) -> bool:
        """Whether it waits for further members."""
        return self._delay_ends_ms is not None

    def begin_step(self, settings: StreamsSettings, now: Now) -> StreamsStep:
        """A step on the durable state. Nothing may be refused once it has written."""
        return StreamsStep(self.durable, settings, now)

    def note_sign_of_life(
        self, before: StreamsMember, after: StreamsMember, settings: StreamsSettings, caller: Caller, now: Now
    ) -> None:
        """Begin the session of a member again, and the time in which it must give up tasks."""
        member_id = after.member_id
        self.timers.start(member_id, Limit.SESSION, now.monotonic_ms + settings.session_timeout_ms)
        self.timers.came_by(member_id, caller.connection)
        if after.state is not MemberState.UNREVOKED_TASKS:
            self.timers.cancel(member_id, Limit.REVOCATION)
        elif (before.member_epoch, before.pending_revocation) != (after.member_epoch, after.pending_revocation):
            self.timers.start(member_id, Limit.REVOCATION, now.monotonic_ms + after.rebalance_timeout_ms)

    def request_shutdown(self, member_id: str) -> None:
        """A member requests that the whole application ends. The others get the name of the first one."""
        if self.shutdown_member_id is None:
            LOG.info("streams group %r: member %r requests a shutdown of the application", self.group_id, member_id)
            self.shutdown_member_id = member_id

    def static_member_of(self, instance_id: str, member_id: str) -> StreamsMember:
        """The member with an instance id, which has to be `member_id`. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        member = self.durable.member_of_instance(instance_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
            )
        return member

    def check_sizes(self, member: StreamsMember, topology: Topology, configured: ConfiguredTopology) -> None:
        """Raise UNKNOWN_SERVER_ERROR, as Kafka does, where the log would not accept a record.

        A member's own metadata may take half of a record. Its assignment, which may be all tasks, has to fit into one.
        """
        most = self.settings.record_max_bytes
        if member != self.durable.members.get(member.member_id):
            self._check_record("the member's record", member_record(self.group_id, member), most // 2)
        if self.durable.topology is None:
            self._check_record("the topology's record", topology_record(self.group_id, topology.value), most)
        if configured.subtopologies is None or configured is self.configured:
            return
        size_bytes = len(self.group_id.encode()) + len(member.member_id.encode()) + BYTES_PER_SUBTOPOLOGY
        for subtopology_id, subtopology in configured.subtopologies.items():
            size_bytes += BYTES_PER_TASK * subtopology.task_count + 6 * len(subtopology_id.encode())
            size_bytes += BYTES_PER_SUBTOPOLOGY
        if size_bytes > most:
            raise _too_large("the record of all tasks", size_bytes)

    def _check_record(self, what: str, record: CoordinatorRecord, most_bytes: int) -> None:
        key, value = record
        assert value is not None
        size_bytes = len(encode_group_key(key)) + len(encode_group_value(value))
        if size_bytes > most_bytes:
            raise _too_large(what, size_bytes)

    # --- members that leave -------------------------------------------------------------------------------------------

    def leave_for_a_while(self, member: StreamsMember, now: Now) -> Effects:
        """A static member leaves; its tasks wait for its instance id until its session ends."""
        step = self.begin_step(self.current_settings(), now)
        step.leave_for_a_while(member)
        self.timers.cancel(member.member_id, Limit.REVOCATION)
        return step.effects

    def remove(self, member_ids: Collection[str], now: Now) -> Effects:
        """Members leave, or are fenced: their tasks become free, and a new epoch begins."""
        if not member_ids:
            return Effects()
        step = self.begin_step(self.current_settings(), now)
        step.remove_members(member_ids)
        for member_id in member_ids:
            self.forget_member(member_id)
        if self.is_empty:
            self.shutdown_member_id = None
        return step.effects

    def forget_member(self, member_id: str) -> None:
        """Forget the soft state of a member that has left."""
        self.timers.forget(member_id)
        self.task_offsets.pop(member_id, None)

    # --- what every group can do -------------------------------------------------------------------------------------

    @property
    def protocol_type(self) -> str:
        """Always `streams`."""
        return STREAMS_PROTOCOL_TYPE

    @property
    def next_deadline_ms(self) -> float | None:
        """The earliest end of a session, of a member's time to give up tasks, or of the initial delay."""
        deadlines = [one for one in (self.timers.next_ms, self._delay_ends_ms) if one is not None]
        return min(deadlines, default=None)

    def on_load(self, now: Now) -> Effects:
        """Begin all sessions again, and the time of members that have tasks to give up."""
        self._is_target_checked = False
        session_timeout_ms = self.current_settings().session_timeout_ms
        for member in self.durable.members.values():
            self.timers.start(member.member_id, Limit.SESSION, now.monotonic_ms + session_timeout_ms)
            if member.state is MemberState.UNREVOKED_TASKS:
                at_ms = now.monotonic_ms + member.rebalance_timeout_ms
                self.timers.start(member.member_id, Limit.REVOCATION, at_ms)
        return Effects()

    def on_deadline(self, now: Now) -> Effects:
        """Fence members whose time has passed, and assign tasks after the initial delay."""
        due = self.timers.pop_due(now.monotonic_ms)
        for member_id, limit in due.items():
            why = "it did not give up its tasks in time" if limit is Limit.REVOCATION else limit.value
            LOG.info("streams group %r: member %r is fenced: %s", self.group_id, member_id, why)
        effects = self.remove([member_id for member_id in due if member_id in self.durable.members], now)
        if self._delay_ends_ms is not None and self._delay_ends_ms <= now.monotonic_ms:
            self._delay_ends_ms = None
            effects.join(self._assign_after_delay(now))
        return effects

    def check_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        *,
        api_version: int,
        is_transactional: bool = False,
    ) -> PartitionCheck | None:
        """Raise UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, UNSUPPORTED_VERSION (OffsetCommit < 9)."""
        if generation_or_epoch < 0 and self.is_empty:
            return None
        says_nothing = generation_or_epoch == NOT_GIVEN and not member_id and group_instance_id is None
        if is_transactional and says_nothing:
            return None
        commit_version = None if is_transactional else api_version
        member = self.member_of(member_id)
        return check_commit_epoch(self.durable, member, generation_or_epoch, commit_version=commit_version)

    def check_fetch_offsets(self, member_id: str | None, member_epoch: int) -> None:
        """Raise UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH; never where no member is named."""
        if member_id is not None or member_epoch >= 0:
            check_fetch_epoch(self.member_of(member_id or ""), member_epoch)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether the topology of its members reads a topic."""
        topology = self.durable.topology
        return not self.is_empty and topology is not None and topic in topology.subtopology_by_source

    def tombstones(self) -> list[CoordinatorRecord]:
        """The tombstones of all records of the group."""
        return group_tombstones(self.group_id, self.durable.target.keys() | self.durable.members.keys())

    def offsets_idle_since_ms(self) -> int | None:
        """None: each offset's own commit time counts."""
        return None

    # --- administration ----------------------------------------------------------------------------------------------

    def describe(self) -> StreamsGroupDescribeResponse.DescribedGroup:
        """The group as StreamsGroupDescribe shows it, without authorized operations."""
        return describe_group(self.durable, self.configured, self.task_offsets)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _assign_after_delay(self, now: Now) -> Effects:
        state = self.durable
        if self.is_empty or self.configured is None or state.group_epoch <= state.assignment_epoch:
            return Effects()
        step = self.begin_step(self.current_settings(), now)
        if step.may_assign():
            step.assign(self.configured, self.task_offsets)
        return step.effects


def _too_large(what: str, size_bytes: int) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what} would have {size_bytes} bytes, which is too large")
