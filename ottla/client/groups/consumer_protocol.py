"""A member of the consumer protocol (KIP-848): by heartbeats the coordinator assigns partitions, one step at a time.

Two tasks run concurrently:

- *Heartbeats*, at the coordinator's interval, and immediately when there is news to report. Their answers have the
  member's epoch and, when it has changed, its whole assignment.
- *Reconciliation*, in polls: give up partitions that are not in the assignment, take the new ones, and report it by the
  next heartbeat. A member continues to read the partitions that it keeps; the coordinator assigns a partition to
  another member only after its owner has given it up.

A member whose epoch is fenced, or that the group does not know, has lost its partitions; it notifies the listener in
the next poll, and joins again. Error codes are handled as in Kafka's `AbstractHeartbeatRequestManager`.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Mapping
from uuid import UUID, uuid4

from ottla.client.coordinator import MEMBERSHIP_LANE, MOVED
from ottla.client.errors import KafkaError, UnsupportedByBroker, is_worth_retrying
from ottla.client.groups.commits import MemberIdentity
from ottla.client.groups.heartbeat_state import JOIN_EPOCH, Facts, HeartbeatState, owned_by_id
from ottla.client.groups.membership import GroupContext, Membership, PollWatch
from ottla.client.groups.side_by_side import run_side_by_side
from ottla.client.structs import TopicPartition
from ottla.protocol.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

NO_EPOCH = -1
"""The epoch of a member that has not joined, nor may yet: the listener must be notified of lost partitions first."""
_FIRST_VERSION_WITH_OWN_IDS = 1
_FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})


class ConsumerProtocolMember(Membership):
    """See the module."""

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._server_pattern: str | None = None
        self._state = HeartbeatState(context.coordinator.key, context.options.group_instance_id)
        self._member_id = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        self._epoch = NO_EPOCH
        self._topics: frozenset[str] = frozenset()
        self._target: Mapping[UUID, frozenset[int]] | None = None
        """The assignment of this member; None when it is reached, and before the coordinator has sent one."""
        self._ids: dict[str, UUID] = {}
        """The ids of the topics of owned partitions."""
        self._interval_s = 0.0
        self._changed = asyncio.Event()
        """Set when the reconciliation has something to do."""
        self._is_urgent = asyncio.Event()
        """Set when a heartbeat must be sent immediately."""

    # Interface --------------------------------------------------------------------------------------------------

    @property
    def identity(self) -> MemberIdentity | None:
        """The identity of this member; None before the coordinator has accepted it, and after it was removed."""
        if self._epoch <= 0:
            return None
        return MemberIdentity(self._member_id, self._epoch, self._context.options.group_instance_id, has_epoch=True)

    def on_subscription(self, topics: frozenset[str], server_pattern: str | None) -> None:
        """Report a new subscription to the coordinator immediately."""
        if (topics, server_pattern) != (self._topics, self._server_pattern):
            self._topics, self._server_pattern = topics, server_pattern
            self._is_urgent.set()

    def on_metadata(self) -> None:
        """Check again for topics whose names were unknown."""
        if self._target is not None:
            self._changed.set()

    def on_commit_refused(self, identity: MemberIdentity, code: ErrorCode) -> None:
        """Send the next heartbeat immediately: its answer has the epoch, or shows that the member was removed."""
        self._is_urgent.set()

    async def leave(self, reason: str, *, for_good: bool) -> None:
        """Send the heartbeat of a member that leaves, or of a static one that will return."""
        was_member, self._epoch = self._epoch >= 0, NO_EPOCH
        is_dynamic = self._context.options.group_instance_id is None
        self._state.lost()
        if not was_member or (is_dynamic and not for_good):
            return
        try:
            answer = await self._context.coordinator.ask(
                self._state.leaving(self._member_id, for_good=for_good),
                ConsumerGroupHeartbeatResponse,
                lane=MEMBERSHIP_LANE,
            )
            if answer.error_code:
                logger.info("group %s: leaving: %s", self._context.coordinator.key, answer.error_message)
        except KafkaError as failed:
            logger.info("group %s: leaving: %s", self._context.coordinator.key, failed)

    async def run(self) -> None:
        """Run heartbeats and reconciliation."""
        await run_side_by_side({"ottla-heartbeats": self._beat(), "ottla-reconciliation": self._reconcile()})

    # Heartbeats -------------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        context = self._context
        options = context.options
        watch = PollWatch(context.gate, context.partitions.progress, options.max_poll_interval_ms, context.now())
        failures = 0
        while True:
            if self._epoch == NO_EPOCH:
                await self._urgency(None)
                continue
            if watch.left_s(context.now()) <= 0:
                await self._leave_because_nobody_polls()
                continue
            self._is_urgent.clear()
            try:
                await self._beat_once()
                failures = 0
            except KafkaError as failed:
                self._state.lost()
                if not is_worth_retrying(failed):
                    raise
                logger.info("group %s: heartbeat: %s", context.coordinator.key, failed)
                failures += 1
                await asyncio.sleep(options.retry_pause_s(failures))
                continue
            await self._urgency(min(self._interval_s, watch.left_s(context.now())))

    async def _urgency(self, limit_s: float | None) -> None:
        """Wait until a heartbeat is due: in `limit_s` seconds, or when there is something to report."""
        try:
            async with asyncio.timeout(None if limit_s is None else max(0.0, limit_s)):
                await self._is_urgent.wait()
        except TimeoutError:
            pass
        if limit_s is None:
            self._is_urgent.clear()

    async def _beat_once(self) -> None:
        context = self._context
        connection = await context.coordinator.connection(MEMBERSHIP_LANE)
        try:
            version = connection.version_for(ConsumerGroupHeartbeatRequest)
        except UnsupportedByBroker as old:
            raise UnsupportedByBroker(f"{old.message}; set group_protocol to classic") from None
        if version < _FIRST_VERSION_WITH_OWN_IDS and self._server_pattern is not None:
            raise UnsupportedByBroker(f"the broker at {connection.address} is too old to match patterns; compile it")
        is_joining = self._epoch == JOIN_EPOCH
        member_id = "" if is_joining and version < _FIRST_VERSION_WITH_OWN_IDS else self._member_id
        facts = self._facts()
        request = self._state.request(member_id, self._epoch, facts)
        asked_at = context.now()
        answer = await context.coordinator.send(connection, request, ConsumerGroupHeartbeatResponse, version)
        context.metrics.heartbeat_latency_ms.add((context.now() - asked_at) * 1000, context.now())
        if self._epoch == NO_EPOCH:
            return  # this member has left meanwhile
        code = ErrorCode.of(answer.error_code)
        if code in _FENCED:
            logger.warning("group %s: %s; joining again", context.coordinator.key, answer.error_message or code.name)
            self._lose_all()
            return
        if code != ErrorCode.NONE:
            if code in MOVED:
                context.coordinator.hear(code)
            raise KafkaError(code, f"group {context.coordinator.key}: {answer.error_message or code.message}")
        self._state.answered()
        self._epoch = answer.member_epoch
        self._member_id = answer.member_id or self._member_id
        self._interval_s = max(answer.heartbeat_interval_ms, context.options.retry_backoff_ms) / 1000
        if answer.assignment is not None:
            self._target = {topic.topic_id: frozenset(topic.partitions) for topic in answer.assignment.topic_partitions}
            self._changed.set()
        if not self._state.is_reported(self._facts()):
            self._is_urgent.set()

    def _facts(self) -> Facts:
        context = self._context
        return Facts(
            topics=self._topics,
            regex=self._server_pattern,
            server_assignor=context.options.group_remote_assignor,
            rebalance_timeout_ms=context.rebalance_timeout_ms,
            owned=owned_by_id(context.partitions.owned(), self._ids) if self._epoch != JOIN_EPOCH else frozenset(),
        )

    def _lose_all(self) -> None:
        """Leave the membership until the listener was notified of the lost partitions."""
        self._epoch = NO_EPOCH
        self._target = None
        self._state.lost()
        self._changed.set()

    async def _leave_because_nobody_polls(self) -> None:
        context = self._context
        logger.warning(
            "group %s: no records were asked for within max_poll_interval_ms (%d ms); the member leaves until some are",
            context.coordinator.key,
            context.options.max_poll_interval_ms,
        )
        is_dynamic = context.options.group_instance_id is None
        await self.leave("no records were asked for within max_poll_interval_ms", for_good=is_dynamic)
        self._lose_all()

    # Reconciliation ---------------------------------------------------------------------------------------------

    async def _reconcile(self) -> None:
        failures = 0
        while True:
            if self._epoch == NO_EPOCH:
                await self._join()
            target = self._target
            if target is not None:
                is_whole = False
                try:
                    is_whole = await self._take(target)
                except KafkaError as failed:  # of the request for names
                    if not is_worth_retrying(failed):
                        raise
                if not is_whole and self._target is target:
                    failures += 1
                    await asyncio.sleep(self._context.options.retry_pause_s(failures))
                    continue
                failures = 0
            while self._epoch != NO_EPOCH and (self._target is None or self._target is target):
                self._changed.clear()
                await self._changed.wait()

    async def _join(self) -> None:
        """Notify the listener of lost partitions, if there are any, and join with the next heartbeat."""
        context = self._context
        async with context.gate.section():
            await context.listener.lost(context.partitions.owned())
            context.partitions.replace([])
            self._ids = {}
            self._epoch = JOIN_EPOCH
            self._is_urgent.set()

    async def _take(self, target: Mapping[UUID, frozenset[int]]) -> bool:
        """Own the assigned partitions; False if the name of a topic is not known yet."""
        context = self._context
        names = await context.cluster.learn_names(target)
        wanted = [
            TopicPartition(names[topic_id], index)
            for topic_id, indexes in target.items()
            if topic_id in names
            for index in sorted(indexes)
        ]
        ids = {name: topic_id for topic_id, name in names.items() if topic_id in target}
        async with context.gate.section():
            if self._target is not target or self._epoch == NO_EPOCH:
                return False
            owned = context.partitions.owned()
            stays = [one for one in owned if one in wanted and ids[one.topic] == self._ids.get(one.topic)]
            goes = [one for one in owned if one not in stays]
            if goes:
                await context.commit_consumed()
                await context.listener.revoked(goes)
                context.partitions.replace(stays)
                if self._epoch == NO_EPOCH:
                    return False
            context.partitions.replace(wanted)
            self._ids = ids
            await context.listener.assigned([one for one in wanted if one not in stays])
            context.partitions.start_reading()
            is_whole = len(names.keys() & target.keys()) == len(target)
            if is_whole and self._target is target:
                self._target = None
            self._is_urgent.set()
            return is_whole
