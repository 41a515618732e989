"""A member of a share group: heartbeats, by which the coordinator assigns partitions (ShareGroupHeartbeat, KIP-932).

Several members may have the same partition, so an assignment needs no agreement: it replaces the one before at once.
A member that is fenced, or that the group does not know, has no partitions, and joins again with the same id. A program
that has not polled for `max_poll_interval_ms` leaves the group until its next poll. Kafka's classes are
`ShareMembershipManager` and `ShareHeartbeatRequestManager`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from ottla.client.cluster import Cluster
from ottla.client.coordinator import MEMBERSHIP_LANE, MOVED, Coordinator
from ottla.client.errors import KafkaError, is_worth_retrying
from ottla.client.metrics import GroupMetrics
from ottla.client.share_consumer_options import ShareConsumerOptions
from ottla.client.structs import TopicPartition
from ottla.protocol.api.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
_NO_EPOCH = -2
"""The epoch of a member that has left until the next poll."""
_FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})


class ShareMembership:
    """See the module. `run` is one task until it is cancelled; `on_assignment` gets the partitions with topic ids."""

    def __init__(
        self,
        cluster: Cluster,
        options: ShareConsumerOptions,
        member_id: str,
        metrics: GroupMetrics,
        *,
        on_assignment: Callable[[Mapping[TopicPartition, UUID]], None],
        now: Callable[[], float],
    ) -> None:
        assert options.group_id is not None
        self._cluster = cluster
        self._options = options
        self._member_id = member_id
        self._metrics = metrics
        self._on_assignment = on_assignment
        self._now = now
        self._coordinator = Coordinator(cluster, options.group_id)
        self._topics: frozenset[str] = frozenset()
        self._reported: frozenset[str] | None = None
        """The topics that the coordinator knows of; None when it must get them (again)."""
        self._epoch = JOIN_EPOCH
        self._target: Mapping[UUID, Iterable[int]] | None = None
        """An assignment whose topics have no known names yet; None if there is none."""
        self._interval_s = 0.0
        self._is_urgent = asyncio.Event()
        """Set when a heartbeat must be sent immediately."""
        self._polls = 0
        self._polled_at = now()

    @property
    def epoch(self) -> int:
        """The member epoch; 0 or less while this is no member."""
        return self._epoch

    def subscribe(self, topics: frozenset[str]) -> None:
        """Report these topics to the coordinator immediately."""
        if topics != self._topics:
            self._topics = topics
            self._is_urgent.set()

    def begin_poll(self) -> None:
        """Note that the program polls; a member that had left joins again."""
        self._polls += 1
        if self._epoch == _NO_EPOCH:
            self._epoch = JOIN_EPOCH
            self._is_urgent.set()

    def end_poll(self) -> None:
        """Note the end of a poll."""
        self._polls -= 1
        self._polled_at = self._now()

    async def run(self) -> None:
        """Be a member until cancelled; raises KafkaError when the group refuses this member."""
        failures = 0
        while True:
            if self._epoch == _NO_EPOCH:
                await self._urgency(None)
                continue
            if self._left_s() <= 0:
                await self._leave_because_nobody_polls()
                continue
            self._is_urgent.clear()
            try:
                await self._beat()
                is_whole = await self._take_target()
            except KafkaError as failed:
                self._reported = None
                if not is_worth_retrying(failed):
                    raise
                logger.info("share group %s: heartbeat: %s", self._coordinator.key, failed)
                is_whole = False
            if is_whole:
                failures = 0
                await self._urgency(min(self._interval_s, self._left_s()))
            else:
                failures += 1
                await self._urgency(self._options.retry_pause_s(failures))

    async def leave(self) -> None:
        """Send the heartbeat of a member that leaves the group; its errors are logged."""
        was_member, self._epoch = self._epoch > JOIN_EPOCH, _NO_EPOCH
        self._reported = self._target = None
        if not was_member:
            return
        request = ShareGroupHeartbeatRequest(
            group_id=self._coordinator.key, member_id=self._member_id, member_epoch=LEAVE_EPOCH
        )
        try:
            answer = await self._coordinator.ask(request, ShareGroupHeartbeatResponse, lane=MEMBERSHIP_LANE)
            if answer.error_code:
                logger.info("share group %s: leaving: %s", self._coordinator.key, answer.error_message)
        except KafkaError as failed:
            logger.info("share group %s: leaving: %s", self._coordinator.key, failed)

    def _left_s(self) -> float:
        """Return how much time the program has left until its next poll."""
        limit_s = self._options.max_poll_interval_ms / 1000
        return limit_s if self._polls else self._polled_at + limit_s - self._now()

    async def _urgency(self, limit_s: float | None) -> None:
        """Wait until a heartbeat is due: in `limit_s` seconds, or when there is something to report."""
        try:
            async with asyncio.timeout(None if limit_s is None else max(0.0, limit_s)):
                await self._is_urgent.wait()
        except TimeoutError:
            pass
        self._is_urgent.clear()

    async def _beat(self) -> None:
        topics = self._topics
        request = ShareGroupHeartbeatRequest(
            group_id=self._coordinator.key,
            member_id=self._member_id,
            member_epoch=self._epoch,
            rack_id=self._options.client_rack if self._reported is None else None,
            subscribed_topic_names=sorted(topics) if topics != self._reported else None,
        )
        asked_at = self._now()
        answer = await self._coordinator.ask(request, ShareGroupHeartbeatResponse, lane=MEMBERSHIP_LANE)
        self._metrics.heartbeat_latency_ms.add((self._now() - asked_at) * 1000, self._now())
        code = ErrorCode.of(answer.error_code)
        if code in _FENCED:
            logger.warning(
                "share group %s: %s; joining again", self._coordinator.key, answer.error_message or code.name
            )
            self._join_again()
            return
        if code != ErrorCode.NONE:
            if code in MOVED:
                self._coordinator.hear(code)
            raise KafkaError(code, f"share group {self._coordinator.key}: {answer.error_message or code.message}")
        self._reported = topics
        self._epoch = answer.member_epoch
        self._interval_s = max(answer.heartbeat_interval_ms, self._options.retry_backoff_ms) / 1000
        if answer.assignment is not None:
            self._target = {topic.topic_id: topic.partitions for topic in answer.assignment.topic_partitions}
        if topics != self._topics:
            self._is_urgent.set()

    def _join_again(self) -> None:
        self._epoch = JOIN_EPOCH
        self._reported = self._target = None
        self._on_assignment({})
        self._is_urgent.set()

    async def _take_target(self) -> bool:
        """Take an assignment that has come; return False while the name of one of its topics is not known."""
        target = self._target
        if target is None:
            return True
        names = await self._cluster.learn_names(target)
        self._on_assignment(
            {
                TopicPartition(names[topic_id], index): topic_id
                for topic_id, indexes in target.items()
                if topic_id in names
                for index in indexes
            }
        )
        if names.keys() < set(target):
            return False
        self._target = None
        return True

    async def _leave_because_nobody_polls(self) -> None:
        logger.warning(
            "share group %s: no records were asked for within max_poll_interval_ms (%d ms); the member leaves until "
            "some are",
            self._coordinator.key,
            self._options.max_poll_interval_ms,
        )
        await self.leave()
        self._on_assignment({})
