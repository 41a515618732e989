"""A consumer's participation in its group: the subscription, its membership, and manual and automatic commits.

There is one per Consumer with a `group_id`. The membership runs in its own task while there is a subscription. An error
that ends it is raised by the next poll, and the poll after that tries again. But a member that was fenced by another
one with its instance id does not return, since that would fence the other one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

from ottla.client.assigned import AssignedPartition
from ottla.client.cluster import Cluster
from ottla.client.consumer_options import ConsumerOptions
from ottla.client.coordinator import Coordinator
from ottla.client.errors import CommitFailed, KafkaError
from ottla.client.groups.classic import ClassicMember
from ottla.client.groups.commits import GONE, NOBODY, MemberIdentity, commit_once, fetch_committed
from ottla.client.groups.consumer_protocol import ConsumerProtocolMember
from ottla.client.groups.listeners import ListenerCalls, RebalanceListener
from ottla.client.groups.membership import GroupContext, Membership, Partitions
from ottla.client.groups.poll_gate import PollGate
from ottla.client.groups.start_positions import StartPositions
from ottla.client.groups.subscription import Subscription
from ottla.client.interceptors import report_commit
from ottla.client.metrics import GroupMetrics
from ottla.client.missing_topics import MissingTopics
from ottla.client.structs import GroupMetadata, OffsetAndMetadata, TopicPartition
from ottla.protocol.errors import ErrorCode, MalformedMessage

logger = logging.getLogger(__name__)

CLOSE_LIMIT_MS = 5_000
"""How long the last commit and leaving the group may each take (Kafka's client: 30 s together)."""
MISSING_TOPIC_PAUSE_S = 5.0
"""The interval of requests for a subscribed topic that does not exist (Kafka's client: every `metadata.max.age.ms`)."""
_FINAL = frozenset({ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID})


class Participation:
    """See the module. `partitions` are the consumer's; `on_failure` gets the exception for the next poll."""

    def __init__(
        self,
        cluster: Cluster,
        options: ConsumerOptions,
        gate: PollGate,
        partitions: Partitions,
        *,
        on_failure: Callable[[BaseException], None],
        positions: Callable[[Coordinator, Callable[[], MemberIdentity]], StartPositions],
    ) -> None:
        assert options.group_id is not None
        self._cluster = cluster
        self._options = options
        self._gate = gate
        self._partitions = partitions
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._coordinator = Coordinator(cluster, options.group_id)
        self._metrics = GroupMetrics(self._loop.time())
        self._listener = ListenerCalls(on_failure, self._metrics, self._loop.time)
        self._context = GroupContext(
            cluster,
            self._coordinator,
            options,
            gate,
            partitions,
            self._listener,
            self.commit_consumed,
            self._want_topics_of_group,
            self._loop.time,
            self._metrics,
        )
        self._positions = positions(self._coordinator, lambda: self._identity or NOBODY)
        self._subscription: Subscription | None = None
        self._membership: Membership | None = None
        self._worker: asyncio.Task[None] | None = None
        self._fatal: Exception | None = None
        self._topics_of_group: frozenset[str] = frozenset()
        self._wanted: frozenset[str] = frozenset()
        self._committing = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()
        self._missing = MissingTopics(f"group {options.group_id}", may_appear=options.allow_auto_create_topics)
        self._missing_timer: asyncio.TimerHandle | None = None
        if options.enable_auto_commit:
            self._in_background(self._commit_from_time_to_time())

    # Subscription -----------------------------------------------------------------------------------------------

    @property
    def subscription(self) -> Subscription | None:
        """The subscription; None if there is none."""
        return self._subscription

    @property
    def topics(self) -> frozenset[str]:
        """The subscribed topics that are known to the client: the broker may match patterns."""
        if self._subscription is None:
            return frozenset()
        existing = ((name, topic.is_internal) for name, topic in self._cluster.topics.items() if not topic.error)
        return self._subscription.names_among(existing)

    def subscribe(self, subscription: Subscription, listener: RebalanceListener | None) -> None:
        """Replace the subscription."""
        self._subscription = subscription
        self._listener.listener = listener
        self._fatal = None
        self._cluster.want_all(subscription.pattern is not None)
        if self._membership is None:
            self._membership = self._new_membership()
        self.on_metadata()
        self.wake()

    def wake(self) -> None:
        """Called by every poll: start the membership again if it has ended."""
        if self._fatal is not None and _is_final(self._fatal):
            self._on_failure(self._fatal)
        elif self._subscription is not None and self._worker is None:
            self._fatal = None
            assert self._membership is not None
            self._worker = asyncio.create_task(self._be_a_member(self._membership), name="ottla-group")
            self._worker.add_done_callback(self._on_bug)

    async def unsubscribe(self) -> None:
        """Give up all partitions and leave the group."""
        await self._end(is_closing=False)

    def on_metadata(self) -> None:
        """Called after an update of the cluster's metadata."""
        if self._subscription is None or self._membership is None:
            return
        topics = self.topics
        self._want(topics)
        self._membership.on_subscription(topics, self._subscription.server_pattern)
        self._membership.on_metadata()
        self._missing.look(topics, self._cluster.topics)
        self._look_for_missing_topics(topics)

    def start_reading(self, assigned: Iterable[AssignedPartition]) -> None:
        """Look up the positions of partitions that have none."""
        self._positions.look_up(assigned)

    async def close(self) -> None:
        """Commit, call the listener and leave the group, according to the options."""
        try:
            await self._end(is_closing=True)
        finally:  # also if the close is cancelled
            tasks = list(self._background)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*self._positions.stop(), *tasks, return_exceptions=True)

    # Commits ----------------------------------------------------------------------------------------------------

    def measured(self) -> dict[str, float]:
        """Return the metrics, by Kafka's metric names."""
        return self._metrics.snapshot(self._loop.time())

    def metadata(self) -> GroupMetadata:
        """Return this consumer's identity in the group."""
        member_id, generation, _, _ = self._identity or NOBODY
        return GroupMetadata(self._coordinator.key, generation, member_id, self._options.group_instance_id)

    def require_membership(self) -> None:
        """Raise CommitFailed if there is a subscription, and the group does not know this consumer now."""
        if self._subscription is not None and self._identity is None:
            reason = "the consumer is no member of the group at the moment; records must be asked for"
            raise CommitFailed(ErrorCode.UNKNOWN_MEMBER_ID, reason)

    def hear_refusal(self, member_id: str, generation: int, code: ErrorCode) -> None:
        """Note that a commit of this member in a transaction was refused: it joins again if the group removed it."""
        identity = self._identity
        if code not in GONE or identity is None or self._membership is None:
            return
        if (identity.member_id, identity.generation) == (member_id, generation):
            self._membership.on_commit_refused(identity, code)

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        """Commit offsets; retry transient errors. Raises KafkaError, CommitFailed if the group removed this member."""
        if not offsets:
            return

        held = self._partitions.holdings()

        async def attempt() -> None:
            self._refuse_what_is_gone(offsets, held)
            identity = NOBODY
            if self._subscription is not None:
                self.require_membership()
                identity = self._identity or NOBODY
            try:
                await commit_once(self._cluster, self._coordinator, identity, offsets)
            except CommitFailed as failed:
                if self._membership is not None:
                    self._membership.on_commit_refused(identity, failed.code)
                if failed.code == ErrorCode.STALE_MEMBER_EPOCH:  # a heartbeat will return the new one
                    raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, failed.message) from None
                raise

        async with self._committing:  # a retry of an older commit must not come after a newer one
            begun_at = self._loop.time()
            try:
                await self._cluster.retry(attempt, timeout_ms)
            except KafkaError:
                self._metrics.failed_commits.add(1, self._loop.time())
                raise
            now = self._loop.time()
            self._metrics.commit_latency_ms.add((now - begun_at) * 1000, now)
        report_commit(self._options.interceptors, offsets)

    def _refuse_what_is_gone(self, offsets: Iterable[TopicPartition], held: Mapping[TopicPartition, object]) -> None:
        """Raise CommitFailed if partitions were given up since a commit began: others may have read further by now."""
        holds = self._partitions.holdings()
        gone = [one for one in offsets if one in held and holds.get(one) is not held[one]]
        if self._subscription is not None and gone:
            reason = f"{gone[0].topic}-{gone[0].partition} was taken away while it was committed"
            raise CommitFailed(ErrorCode.ILLEGAL_GENERATION, reason)

    async def committed(
        self, partitions: Sequence[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets."""
        return await fetch_committed(
            self._cluster, self._coordinator, lambda: self._identity or NOBODY, partitions, timeout_ms
        )

    def commit_soon(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit in the background, if automatic commits are enabled."""
        if self._options.enable_auto_commit and offsets:
            self._in_background(self._try_to_commit(offsets, self._options.request_timeout_ms))

    async def commit_consumed(self) -> None:
        """Commit the consumed offsets, if automatic commits are enabled; errors are logged."""
        if self._options.enable_auto_commit:
            limit_ms = min(self._context.rebalance_timeout_ms, self._options.request_timeout_ms)
            await self._try_to_commit(self._partitions.consumed(), limit_ms)

    async def _commit_from_time_to_time(self) -> None:
        interval_s = self._options.auto_commit_interval_ms / 1000
        while True:
            await asyncio.sleep(interval_s)
            async with self._gate.section():
                offsets = self._partitions.consumed()
            if self._subscription is None or self._identity is not None:
                await self._try_to_commit(offsets, self._options.auto_commit_interval_ms)

    async def _try_to_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        """Commit what can be committed; log errors. A deleted topic's offsets would be sent until the time is over, and
        a rebalance waits for that.
        """
        there = {one: offset for one, offset in offsets.items() if not self._cluster.is_missing(one.topic)}
        try:
            await self.commit(there, timeout_ms)
        except KafkaError as failed:
            logger.warning("group %s: automatic commit: %s", self._coordinator.key, failed)

    # Inside -----------------------------------------------------------------------------------------------------

    @property
    def _identity(self) -> MemberIdentity | None:
        return self._membership.identity if self._membership is not None else None

    def _new_membership(self) -> Membership:
        kind = ConsumerProtocolMember if self._options.group_protocol == "consumer" else ClassicMember
        return kind(self._context)

    async def _be_a_member(self, membership: Membership) -> None:
        try:
            if self._subscription is not None and self._subscription.pattern is not None:
                await self._cluster.know_all(self._options.default_api_timeout_ms)
            self.on_metadata()
            await membership.run()
        except Exception as failed:  # a refusal or a bug, perhaps of a program's own assignor: a poll raises it
            is_refusal = isinstance(failed, (KafkaError, MalformedMessage))
            if is_refusal:  # the program gets it from the poll, with the same words
                logger.info("group %s: %s", self._coordinator.key, failed)
            else:
                logger.warning("group %s: %s", self._coordinator.key, failed, exc_info=True)
            async with self._gate.section():
                await self._listener.lost(self._partitions.owned())
                self._partitions.replace([])
            if not _is_final(failed):
                await self._leave(membership, "the member failed", for_good=self._options.group_instance_id is None)
            self._membership = self._new_membership()
            self._fatal = failed
            if isinstance(failed, MalformedMessage):
                self._fatal = KafkaError(ErrorCode.CORRUPT_MESSAGE, str(failed))
            self._on_failure(self._fatal)
            self._worker = None

    async def _leave(self, membership: Membership, reason: str, *, for_good: bool) -> None:
        """Leave the group, with a time limit; otherwise the group waits for the end of the member's session."""
        try:
            async with asyncio.timeout(CLOSE_LIMIT_MS / 1000):
                await membership.leave(reason, for_good=for_good)
        except TimeoutError:
            logger.info("group %s: leaving took too long", self._coordinator.key)

    async def _end(self, *, is_closing: bool) -> None:
        """End the membership, as within a poll; `_give_up` commits before that."""
        if self._gate.is_holder:
            raise RuntimeError("a rebalance listener cannot end the subscription that it listens to")
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)
        if self._missing_timer is not None:
            self._missing_timer.cancel()
        with self._gate.polling():
            async with self._gate.section():
                await self._give_up(is_closing=is_closing)
        membership, self._membership = self._membership, None
        self._subscription = None
        self._fatal = None
        self._listener.listener = None
        self._want(frozenset())
        self._cluster.want_all(False)
        if membership is not None:
            is_dynamic = self._options.group_instance_id is None
            for_good = self._options.leave_group_on_close
            if for_good is None or not is_closing:
                for_good = is_dynamic
            await self._leave(membership, "the consumer ends its subscription", for_good=for_good)

    async def _give_up(self, *, is_closing: bool) -> None:
        """Commit, call the listener, and give up all partitions."""
        owned = self._partitions.owned()
        is_member = self._identity is not None
        if self._options.enable_auto_commit and (is_member or self._subscription is None):
            await self._try_to_commit(self._partitions.consumed(), CLOSE_LIMIT_MS)
        if self._subscription is not None:
            await (self._listener.revoked(owned) if is_member else self._listener.lost(owned))
        if not is_closing or self._subscription is not None:
            self._partitions.replace([])

    def _want_topics_of_group(self, topics: Iterable[str]) -> None:
        self._topics_of_group = frozenset(topics)
        self._want(self.topics)

    def _want(self, topics: frozenset[str]) -> None:
        if self._subscription is None:
            self._topics_of_group = frozenset()
        before, self._wanted = self._wanted, topics | self._topics_of_group
        for topic in before - self._wanted:
            self._cluster.forget(topic)
        if self._wanted - before:
            self._cluster.want(self._wanted)

    def _look_for_missing_topics(self, topics: frozenset[str]) -> None:
        if self._missing_timer is not None:
            self._missing_timer.cancel()
            self._missing_timer = None
        known = self._cluster.topics
        if any(topic not in known or known[topic].error for topic in topics):
            self._missing_timer = self._loop.call_later(MISSING_TOPIC_PAUSE_S, self._cluster.mark_stale)

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, name="ottla-commits")
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        task.add_done_callback(self._on_bug)

    def _on_bug(self, task: asyncio.Task[None]) -> None:
        """Let the next poll raise an unexpected exception, so that it is not lost with its task."""
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._on_failure(bug)


def _is_final(failure: Exception) -> bool:
    """Whether another member uses the same instance id; this one must neither return nor leave in its name."""
    return isinstance(failure, KafkaError) and failure.code in _FINAL
