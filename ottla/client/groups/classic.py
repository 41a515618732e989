"""A member of the classic protocol: JoinGroup, SyncGroup, heartbeats, LeaveGroup (KIP-62, 345, 394, 429, 792, 814).

One round after the other:

1. *Prepare*, in a poll: commit, call the listener, give up partitions: all, unless all assignors are cooperative; then
   only those that are not subscribed to any more. Partitions that the group took away already are lost, not revoked.
2. *Join*: JoinGroup waits for all members; the leader computes the assignment; SyncGroup returns it.
3. *Accept*, in a poll: a cooperative member gives up the partitions that move, and joins again so that others may get
   them. Then the listener gets the new ones.
4. Heartbeats until there is a reason to join again: the group rebalances, the subscription or (leader) the partitions
   changed, or the group does not know this member any more.

Error codes are handled as in Kafka's `AbstractCoordinator` and `ConsumerCoordinator`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from ottla.client.coordinator import MEMBERSHIP_LANE, MOVED
from ottla.client.errors import KafkaError, UnsupportedByBroker, is_worth_retrying
from ottla.client.groups.assignors import rebalances_cooperatively
from ottla.client.groups.classic_messages import (
    FIRST_JOIN_VERSION_WITH_INSTANCES,
    assignment_bytes,
    assignment_of,
    join_request,
    leave_request,
    members_of,
    sync_request,
)
from ottla.client.groups.commits import MemberIdentity
from ottla.client.groups.membership import GroupContext, Membership, PollWatch
from ottla.client.groups.side_by_side import run_side_by_side
from ottla.client.structs import TopicPartition
from ottla.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.api.sync_group import SyncGroupResponse
from ottla.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

NO_GENERATION = -1
_JOIN_GRACE_MS = 5_000
"""The time that a JoinGroup may take beyond the rebalance timeout, as in Kafka's client."""
_JOIN_AGAIN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS})
"""Codes of JoinGroup and SyncGroup after which another round begins immediately."""


class ClassicMember(Membership):
    """See the module."""

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._assignors = {assignor.name: assignor for assignor in context.options.partition_assignment_strategy}
        self._is_cooperative = rebalances_cooperatively(list(self._assignors.values()))
        self._member_id = ""
        self._generation = NO_GENERATION
        self._protocol: str | None = None
        self._topics: frozenset[str] = frozenset()
        self._joined_topics: frozenset[str] | None = None
        self._assigned_counts: dict[str, int] | None = None
        """The number of partitions per topic that this leader has assigned; None in other members."""
        self._previous: list[TopicPartition] = []
        self._previous_generation = NO_GENERATION
        self._reason: str | None = "the first time"
        """The reason for another round; None if there is none."""
        self._is_beating = False
        self._changed = asyncio.Event()

    # Interface --------------------------------------------------------------------------------------------------

    @property
    def identity(self) -> MemberIdentity | None:
        """The identity of this member; None before the first round, and after the group has removed it."""
        if self._generation == NO_GENERATION:
            return None
        return MemberIdentity(self._member_id, self._generation, self._context.options.group_instance_id)

    def on_subscription(self, topics: frozenset[str], server_pattern: str | None) -> None:
        """Join again for a new set of topics; in this protocol the broker never matches patterns."""
        self._topics = topics
        if self._joined_topics is not None and topics != self._joined_topics:
            self._join_again("the subscription changed")

    def on_metadata(self) -> None:
        """Join again, as the leader, if the numbers of partitions have changed."""
        if self._assigned_counts is not None and self._counts(self._assigned_counts) != self._assigned_counts:
            self._join_again("partitions came or went")

    def on_commit_refused(self, identity: MemberIdentity, code: ErrorCode) -> None:
        """Join again: the group rebalances, or has removed this member. (If it was fenced, a heartbeat shows that.)"""
        if identity == self.identity and code != ErrorCode.FENCED_INSTANCE_ID:
            self._hear(code)
            self._join_again(f"a commit was refused: {code.message}")

    async def leave(self, reason: str, *, for_good: bool) -> None:
        """Send LeaveGroup, if the group knows this member; one that will return just stops its heartbeats."""
        self._forget_generation()
        if not self._member_id or not for_good:
            return
        member_id, self._member_id = self._member_id, ""
        try:
            connection = await self._context.coordinator.connection(MEMBERSHIP_LANE)
            version = connection.version_for(LeaveGroupRequest)
            request = leave_request(version, self._context, member_id, reason)
            answer = await self._context.coordinator.send(connection, request, LeaveGroupResponse, version)
            codes = [answer.error_code, *(member.error_code for member in answer.members)]
            refused = next((ErrorCode.of(code) for code in codes if code), None)
            if refused is not None:
                logger.info("group %s: leaving: %s", self._context.coordinator.key, refused.message)
        except KafkaError as failed:
            logger.info("group %s: leaving: %s", self._context.coordinator.key, failed)

    # Rounds -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run rounds and heartbeats."""
        await run_side_by_side({"ottla-rebalances": self._rounds(), "ottla-heartbeats": self._beat()})

    async def _rounds(self) -> None:
        failures = 0
        while True:
            await self._prepare()
            try:
                assigned = await self._join()
            except KafkaError as failed:
                if failed.code not in _JOIN_AGAIN and not is_worth_retrying(failed):
                    raise
                logger.info("group %s: %s; joining again", self._context.coordinator.key, failed)
                failures += 1
                self._reason = self._reason or failed.message
                if failed.code not in _JOIN_AGAIN or failures > 1:
                    await asyncio.sleep(self._context.options.retry_pause_s(failures))
                continue
            failures = 0
            await self._accept(assigned)
            while self._reason is None:
                self._changed.clear()
                await self._changed.wait()

    async def _prepare(self) -> None:
        """Give up the partitions that must not be owned while joining."""
        context = self._context
        async with context.gate.section():
            owned = context.partitions.owned()
            if self._generation == NO_GENERATION:
                await context.listener.lost(owned)
                context.partitions.replace([])
                return
            goes = [one for one in owned if not self._is_cooperative or one.topic not in self._topics]
            await context.commit_consumed()
            await context.listener.revoked(goes)
            context.partitions.replace([one for one in owned if one not in goes])

    async def _join(self) -> list[TopicPartition]:
        """Send JoinGroup and SyncGroup, and return the partitions assigned to this member."""
        context = self._context
        reason, self._reason = self._reason, None
        topics = self._topics
        connection = await context.coordinator.connection(MEMBERSHIP_LANE)
        version = connection.version_for(JoinGroupRequest)
        if version < FIRST_JOIN_VERSION_WITH_INSTANCES and context.options.group_instance_id is not None:
            raise UnsupportedByBroker(f"the broker at {connection.address} is too old for a group_instance_id")
        owned = context.partitions.owned() if self._is_cooperative else []
        previous = (self._previous, self._previous_generation)
        timeout_ms = max(context.options.request_timeout_ms, context.rebalance_timeout_ms + _JOIN_GRACE_MS)
        self._is_beating = False
        while True:
            request = join_request(context, self._member_id, self._generation, topics, owned, previous, reason)
            answer = await context.coordinator.send(connection, request, JoinGroupResponse, version, timeout_ms)
            if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED or self._member_id == answer.member_id:
                break
            self._member_id = answer.member_id  # the broker requires it before a member may join (KIP-394)
        self._check(ErrorCode.of(answer.error_code), "join")
        self._member_id, self._generation = answer.member_id, answer.generation_id
        self._protocol, self._joined_topics = answer.protocol_name, topics
        assignments: dict[str, bytes] = {}
        self._assigned_counts = None
        if answer.leader == answer.member_id:
            assignments = await self._lead(answer)
        request_sync = sync_request(context, self.identity, self._protocol, assignments)
        synced = await context.coordinator.ask(
            request_sync, SyncGroupResponse, lane=MEMBERSHIP_LANE, timeout_ms=timeout_ms
        )
        self._check(ErrorCode.of(synced.error_code), "sync")
        self._is_beating = True
        self._changed.set()
        if topics != self._topics:
            self._join_again("the subscription changed")
        return assignment_of(synced)

    async def _lead(self, answer: JoinGroupResponse) -> dict[str, bytes]:
        """Compute the assignment of all members; empty if the broker wants the old one to stay (KIP-814)."""
        context = self._context
        members = members_of(answer)
        topics = frozenset().union(*(member.topics for member in members))
        context.want_topics(topics)
        if not topics <= context.cluster.topics.keys():
            await context.cluster.refresh(topics)
        self._assigned_counts = self._counts(topics)
        if answer.skip_assignment:
            return {}
        assignor = self._assignors.get(answer.protocol_name or "")
        if assignor is None:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group chose {answer.protocol_name}, which is not offered"
            )
        existing = {topic: count for topic, count in self._assigned_counts.items() if count}
        return assignment_bytes(assignor.assign(existing, members))

    async def _accept(self, assigned: list[TopicPartition]) -> None:
        """Own the assigned partitions, unless the group has removed this member meanwhile."""
        context = self._context
        generation = self._generation
        async with context.gate.section():
            if generation != self._generation:
                return
            owned = context.partitions.owned()
            goes = [one for one in owned if one not in assigned]
            added = [one for one in assigned if one not in owned]
            if goes:
                await context.commit_consumed()
                await context.listener.revoked(goes)
                self._join_again("what was given up may have a new owner")
            context.partitions.replace(assigned)
            self._previous, self._previous_generation = assigned, generation
            await context.listener.assigned(added)
            context.partitions.start_reading()

    # Heartbeats -------------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Send heartbeats while this member and its program are alive."""
        context = self._context
        options = context.options
        watch = PollWatch(context.gate, context.partitions.progress, options.max_poll_interval_ms, context.now())
        interval_s = options.heartbeat_interval_ms / 1000
        heard_at, failures = context.now(), 0
        while True:
            if not self._is_beating:
                await self._until_beating()
                heard_at = context.now()
            pause_s = options.retry_pause_s(failures) if failures else interval_s
            await asyncio.sleep(max(0.0, min(pause_s, watch.left_s(context.now()))))
            if not self._is_beating:
                continue
            if watch.left_s(context.now()) <= 0:
                await self._leave_because_nobody_polls()
                continue
            try:
                await self._beat_once()
                heard_at, failures = context.now(), 0
            except KafkaError as failed:
                if not is_worth_retrying(failed):
                    raise
                failures += 1
                if context.now() - heard_at > options.session_timeout_ms / 1000:
                    context.coordinator.lose("it has not answered within the session timeout")

    async def _until_beating(self) -> None:
        while not self._is_beating:
            self._changed.clear()
            await self._changed.wait()

    async def _beat_once(self) -> None:
        context = self._context
        asked = self.identity
        if asked is None:
            return
        request = HeartbeatRequest(
            group_id=context.coordinator.key,
            generation_id=asked.generation,
            member_id=asked.member_id,
            group_instance_id=asked.group_instance_id,
        )
        timeout_ms = min(context.options.request_timeout_ms, context.options.session_timeout_ms)
        asked_at = context.now()
        answer = await context.coordinator.ask(request, HeartbeatResponse, lane=MEMBERSHIP_LANE, timeout_ms=timeout_ms)
        context.metrics.heartbeat_latency_ms.add((context.now() - asked_at) * 1000, context.now())
        code = ErrorCode.of(answer.error_code)
        if code == ErrorCode.NONE or self.identity != asked or not self._is_beating:
            return  # an answer for an old generation is ignored
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._join_again("the group rebalances")
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._hear(code)
            self._join_again(f"the group does not know this member any more: {code.message}")
        else:
            self._check(code, "heartbeat")

    async def _leave_because_nobody_polls(self) -> None:
        context = self._context
        logger.warning(
            "group %s: no records were asked for within max_poll_interval_ms (%d ms); the member leaves until some are",
            context.coordinator.key,
            context.options.max_poll_interval_ms,
        )
        self._join_again("the program asks for records again")
        is_dynamic = context.options.group_instance_id is None
        await self.leave("no records were asked for within max_poll_interval_ms", for_good=is_dynamic)

    # Inside -----------------------------------------------------------------------------------------------------

    def _check(self, code: ErrorCode, what: str) -> None:
        """Raise for an error code, after handling it with `_hear`."""
        if code != ErrorCode.NONE:
            self._hear(code)
            raise KafkaError(code, f"group {self._context.coordinator.key}: {what}: {code.message}")

    def _hear(self, code: ErrorCode) -> None:
        """Drop the coordinator, the member id or the generation, if a code shows that it is no longer valid."""
        if code in MOVED:
            self._context.coordinator.hear(code)
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._member_id = ""
            self._forget_generation()
        elif code == ErrorCode.ILLEGAL_GENERATION:
            self._forget_generation()

    def _forget_generation(self) -> None:
        self._generation = NO_GENERATION
        self._assigned_counts = None
        self._is_beating = False

    def _join_again(self, reason: str) -> None:
        if self._reason is None:
            logger.info("group %s: joining again: %s", self._context.coordinator.key, reason)
            self._reason = reason
        self._changed.set()

    def _counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the number of partitions of each topic; 0 for one that does not exist."""
        known = self._context.cluster.topics

        return {name: len(known[name].partitions) if name in known else 0 for name in topics}
