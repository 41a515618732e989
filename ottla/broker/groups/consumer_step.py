"""One step of a consumer group, from one durable state to the next. Each record is replayed as soon as it is written.

The order within a step is Kafka's, and so is the order of its records: the member, its expressions, the group's epoch,
the target, the member's own progress. A step refuses before it writes; once it has written, it is completed. What one
record cannot hold (a target of very many partitions where `max.message.bytes` is small) is left out, and logged.

The records of one step may need more than one batch, and a crash may keep only the first of them. No answer has shown
the step, and the group can continue with what is there. A target without its epoch is computed again because the
group's epoch is ahead. Members that left without a new epoch leave partitions without an owner, for which the group is
searched once after each start.

Unlike in Kafka, expressions are matched within the step that brings them. So a member that subscribes by an expression
gets its partitions in the answer to its first heartbeat, and not to its second.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from ottla.broker.coordination.effects import CoordinatorRecord, Effects, Now
from ottla.broker.groups.consumer_member import JOINING_EPOCH, ConsumerMember
from ottla.broker.groups.consumer_records import (
    assignment_epoch_record,
    current_assignment_record,
    epoch_record,
    expression_record,
    expression_tombstone,
    member_record,
    member_tombstones,
    partition_metadata_tombstone,
    target_record,
)
from ottla.broker.groups.metadata_hash import hash_of_topic, hash_of_topics
from ottla.broker.groups.partitions import NO_PARTITIONS, count
from ottla.broker.groups.reconciliation import next_step
from ottla.broker.groups.subscriptions import ResolvedExpression
from ottla.broker.groups.target_assignment import compute_target, preferred_assignor
from ottla.broker.runtime.regular_expressions import matching
from ottla.protocol.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from uuid import UUID

    from ottla.broker.groups.consumer_state import ConsumerState
    from ottla.broker.groups.partitions import Partitions
    from ottla.broker.groups.settings import GroupSettings
    from ottla.broker.groups.topics import TopicView

LOG = logging.getLogger("ottla.groups")
NEVER_LOOKED = -1

# Upper bounds of the size of a record, for the parts that grow with the cluster.
NAME_EXTRA_BYTES = 5
TOPIC_BYTES = 33
"""The id, two lengths, and the tag of the epochs with its size and their number."""
PARTITION_BYTES = 4
KEY_EXTRA_BYTES = 64


class TopicWatch:
    """The topics of the cluster that a group has checked already. Soft: after a start it checks all of them again.

    `all_matched_ms` is when all topics were last matched against the expressions (monotonic).
    """

    __slots__ = ("all_matched_ms", "epoch", "names")

    def __init__(self) -> None:
        self.epoch = NEVER_LOOKED
        self.all_matched_ms = 0.0
        self.names: frozenset[str] = frozenset()


class ConsumerStep:
    """The writing part of one step. `effects` has the records; the state has replayed them already."""

    def __init__(
        self,
        state: ConsumerState,
        settings: GroupSettings,
        topics: TopicView,
        watch: TopicWatch,
        now: Now,
        may_see: Callable[[str], bool] | None = None,
    ) -> None:
        self.effects = Effects()
        self._state = state
        self._settings = settings
        self._topics = topics
        self._watch = watch
        self._now = now
        self._may_see = may_see

    def write(self, record: CoordinatorRecord) -> None:
        """Request a record, and replay it."""
        self.effects.records.append(record)
        self._state.replay(*record)

    def update_member(self, old: ConsumerMember, new: ConsumerMember) -> bool:
        """Store a member's metadata. Return whether its subscription has changed."""
        if new == old:
            return False
        self.write(member_record(self._state.group_id, new))
        return self._subscription_changed(old, new)

    def replace_static_member(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """Let the next run of a static member take over the target and the partitions of the last one."""
        group_id = self._state.group_id
        target = self._state.target_of(old.member_id)
        new = replace(old, member_id=member_id, member_epoch=JOINING_EPOCH, previous_member_epoch=JOINING_EPOCH)
        for record in member_tombstones(group_id, old.member_id):
            self.write(record)
        self.write(member_record(group_id, new))
        self.write(target_record(group_id, member_id, target))
        self.write(current_assignment_record(group_id, new))
        return new

    def remove_members(self, member_ids: Iterable[str]) -> None:
        """Remove members, and begin a new epoch. A group without members needs no target, so it has one immediately."""
        state = self._state
        for member_id in member_ids:
            member = state.members[member_id]
            for record in member_tombstones(state.group_id, member_id):
                self.write(record)
            self._forget_expression(member.subscribed_topic_regex)
        self.write(epoch_record(state.group_id, state.group_epoch + 1, self.metadata_hash()))
        if not state.members:
            self.write(assignment_epoch_record(state.group_id, state.group_epoch))

    def catch_up(self, *, is_changed: bool) -> None:
        """Begin a new epoch where the members (`is_changed`) or the topics changed, and compute its target."""
        state = self._state
        if is_changed or self._watch.epoch != self._topics.epoch or self._is_refresh_due():
            looks_through = self._watch.epoch == NEVER_LOOKED and state.group_epoch == state.assignment_epoch
            is_changed = self._match_expressions() or is_changed or (looks_through and not self._covers_all())
            metadata_hash = self.metadata_hash()
            if is_changed or metadata_hash != state.metadata_hash:
                self.write(epoch_record(state.group_id, state.group_epoch + 1, metadata_hash))
            if state.has_partition_metadata:
                self.write(partition_metadata_tombstone(state.group_id))
        if state.group_epoch > state.assignment_epoch:
            self._assign()

    def reconcile(self, member_id: str, owned: Partitions | None, *, is_changed: bool) -> ConsumerMember:
        """Let a member take its next step. `owned` is what it reports to own, None where it reports nothing.
        `is_changed`: whether its subscription has changed in this step.
        """
        state = self._state
        member = state.members[member_id]

        def is_taken(topic_id: UUID, partition: int) -> bool:
            return state.is_taken(topic_id, partition, member_id)

        left = self._leaves(member) if is_changed else None
        moved = next_step(member, state.assignment_epoch, state.target_of(member_id), is_taken, owned, left)
        if moved is not member:
            self.write(current_assignment_record(state.group_id, moved))
            moved = state.members[member_id]
        return moved

    def metadata_hash(self) -> int:
        """The hash of the topics to which members subscribe at present (KIP-1101)."""
        topics = self._topics
        found = ((name, topics.id_of(name)) for name in self._state.subscriptions.names())
        return hash_of_topics(
            (name, hash_of_topic(topic_id, name, topics.partition_count(topic_id)))
            for name, topic_id in found
            if topic_id is not None
        )

    def _leaves(self, member: ConsumerMember) -> Callable[[UUID], bool]:
        """Return a test for topics to which the member does not subscribe."""
        subscribed = set(map(self._topics.id_of, self._state.subscriptions.names_of(member)))
        return lambda topic_id: topic_id not in subscribed

    def _subscription_changed(self, old: ConsumerMember, new: ConsumerMember) -> bool:
        state = self._state
        is_changed = new.subscribed_topic_names != old.subscribed_topic_names
        if new.subscribed_topic_regex != old.subscribed_topic_regex:
            self._forget_expression(old.subscribed_topic_regex)
            expression = new.subscribed_topic_regex
            if expression and expression not in state.subscriptions.resolved:
                self._resolve(expression, self._seen(matching(expression, self._topics.names())))
            is_changed = is_changed or bool(expression or old.subscribed_topic_regex)
        return is_changed

    def _covers_all(self) -> bool:
        """Whether the target has an owner for each partition of the topics to which members subscribe."""
        state, topics = self._state, self._topics
        if not state.members:
            return True
        covered: dict[UUID, int] = {}
        for partitions in state.target.values():
            for topic_id, indexes in partitions.items():
                covered[topic_id] = covered.get(topic_id, 0) + len(indexes)
        ids = filter(None, map(topics.id_of, state.subscriptions.names()))
        return all(covered.get(topic_id, 0) >= topics.partition_count(topic_id) for topic_id in ids)

    def _fits(self, size_bytes: int, what: str) -> bool:
        """Whether the log accepts a record of this estimated size, and one twice as large.

        The record of a member's current assignment may name its topics twice, and has an epoch for each partition.
        """
        if 2 * size_bytes <= self._settings.record_max_bytes:
            return True
        LOG.error(
            "group %r: %s is left out: its record would have %d bytes, the log's max.message.bytes allows half of %d",
            self._state.group_id,
            what,
            size_bytes,
            self._settings.record_max_bytes,
        )
        return False

    def _forget_expression(self, expression: str | None) -> None:
        subscriptions = self._state.subscriptions
        if expression and expression in subscriptions.resolved and not subscriptions.is_used(expression):
            self.write(expression_tombstone(self._state.group_id, expression))

    def _seen(self, topics: frozenset[str]) -> frozenset[str]:
        """The topics that the heartbeat's member may know of; a member is assigned no other topics by an expression."""
        return topics if self._may_see is None else frozenset(filter(self._may_see, topics))

    def _match_expressions(self) -> bool:
        """Match the names that are new since the last call. Return whether an expression has other topics than before.

        All names are matched once in `group.consumer.regex.refresh.interval.ms`. As in Kafka only heartbeats do this,
        since the result depends on the topics that a member may know of.
        """
        watch, subscriptions = self._watch, self._state.subscriptions
        if self._may_see is None and subscriptions.has_expressions:
            return False
        is_refresh = self._is_refresh_due()
        if watch.epoch == self._topics.epoch and not is_refresh:
            return False
        if is_refresh or watch.epoch == NEVER_LOOKED:
            watch.all_matched_ms, watch.names = self._now.monotonic_ms, frozenset()
        is_changed = False
        if expressions := subscriptions.expressions:
            names = frozenset(self._topics.names())
            for expression in expressions:
                known = subscriptions.resolved.get(expression)
                before = frozenset() if known is None else known.topics & names
                found = self._matching(expression, names if known is None else names - watch.names)
                if found is None:
                    after = before
                else:
                    after = self._seen(found) if is_refresh else before | self._seen(found)
                if known is None or after != known.topics:
                    self._resolve(expression, after)
                    is_changed = True
            watch.names = names
        else:
            watch.names = frozenset()
        watch.epoch = self._topics.epoch
        return is_changed

    def _is_refresh_due(self) -> bool:
        if not self._state.subscriptions.has_expressions or self._watch.epoch == NEVER_LOOKED:
            return False
        since_ms = self._now.monotonic_ms - self._watch.all_matched_ms
        return since_ms >= self._settings.consumer_regex_refresh_interval_ms

    def _matching(self, expression: str, names: frozenset[str]) -> frozenset[str] | None:
        """The names that match; None, to keep the old ones, for an expression that Kafka accepted and RE2 does not."""
        try:
            return matching(expression, names)
        except KafkaError as error:
            LOG.error("group %r: %s", self._state.group_id, error.message)
            return None

    def _resolve(self, expression: str, topics: frozenset[str]) -> None:
        names_bytes = sum(len(topic) + NAME_EXTRA_BYTES for topic in topics)
        if not self._fits(names_bytes + 3 * len(expression) + self._key_bytes(""), f"what {expression!r} matches"):
            topics = frozenset()
        resolved = ResolvedExpression(topics, self._topics.epoch, self._now.wall_ms)
        self.write(expression_record(self._state.group_id, expression, resolved))

    def _assign(self) -> None:
        state = self._state
        assignor = preferred_assignor(state, self._settings.consumer_assignors)
        target = compute_target(state, self._topics, assignor)
        for member_id, wanted in target.items():
            before = state.target.get(member_id)
            size_bytes = TOPIC_BYTES * len(wanted) + PARTITION_BYTES * count(wanted) + self._key_bytes(member_id)
            partitions = wanted if self._fits(size_bytes, f"the target of member {member_id!r}") else NO_PARTITIONS
            if partitions is not before and partitions != before:
                self.write(target_record(state.group_id, member_id, partitions))
        self.write(assignment_epoch_record(state.group_id, state.group_epoch))

    def _key_bytes(self, member_id: str) -> int:
        return 3 * (len(self._state.group_id) + len(member_id)) + KEY_EXTRA_BYTES
