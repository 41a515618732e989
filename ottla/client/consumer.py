"""Consumer: reads partitions that the program names, or that its group assigns, and commits its offsets.

`subscribe` to topics and let the group assign the partitions, or `assign` partitions; then iterate (`async for record
in consumer`) or take the fetched records (`getmany`). A partition is read from the offset of `seek` and its relatives,
else from the group's committed offset, else by `auto_offset_reset`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Unpack

from ottla.client.column_reader import ColumnReader
from ottla.client.consumer_options import ConsumerKeywords, ConsumerOptions
from ottla.client.coordinator import Coordinator
from ottla.client.errors import ClientClosed, KafkaError
from ottla.client.groups.commits import MemberIdentity
from ottla.client.groups.listeners import RebalanceListener
from ottla.client.groups.participation import Participation
from ottla.client.groups.start_positions import StartPositions
from ottla.client.groups.subscription import Subscription
from ottla.client.options import Servers, read_options
from ottla.client.structs import GroupMetadata, K, OffsetAndMetadata, TopicPartition, V, require_int64
from ottla.protocol.errors import ErrorCode


class Consumer(ColumnReader[K, V], Generic[K, V]):
    """See the module. Use it as a context manager, or call `start` and `close`.

    `bootstrap_servers` is `host:port`, with commas or as a list; or a mapping of options under Kafka's dotted names,
    including `bootstrap.servers`. Options as keywords have underscores: `ConsumerOptions` and `ClientOptions` describe
    them. The deserializers convert bytes to keys and values, and determine the type of the records. Raises ValueError
    for an option that does not exist or is invalid.
    """

    def __init__(
        self,
        bootstrap_servers: Servers | Mapping[str, object] | None = None,
        *,
        key_deserializer: Callable[[bytes], K] | None = None,
        value_deserializer: Callable[[bytes], V] | None = None,
        **options: Unpack[ConsumerKeywords],
    ) -> None:
        given: dict[str, object] = {**options}
        if key_deserializer is not None:
            given["key_deserializer"] = key_deserializer
        if value_deserializer is not None:
            given["value_deserializer"] = value_deserializer
        super().__init__(*read_options(ConsumerOptions, bootstrap_servers, given))
        self._participation: Participation | None = None
        self._is_closing = False

    async def start(self) -> None:
        """Find the cluster; raises NoBrokersAvailable, ClientClosed after `close`. A second call does nothing."""
        if self._is_closing:
            raise ClientClosed("the consumer is closed")
        if self._cluster is not None:
            return
        await super().start()
        if self._options.group_id is None:
            return
        cluster, fetcher = self._started()
        participation = Participation(
            cluster,
            self._options,
            self._gate,
            _Partitions(self),
            on_failure=self._on_failure,
            positions=self._make_positions,
        )

        def on_update() -> None:
            fetcher.wake()
            participation.on_metadata()

        cluster.on_update = on_update
        self._participation = participation

    async def close(self) -> None:
        """Commit the offsets (with `enable_auto_commit`), leave the group and end. Waiting readers raise ClientClosed.

        It takes a few seconds at most, even if no broker answers. It does not wait for fetches in flight.
        """
        if self._is_closing:
            return
        if self._gate.is_holder:
            raise RuntimeError("a rebalance listener cannot close its consumer")
        self._is_closing = True
        try:
            if self._participation is not None:
                await self._participation.close()
        finally:
            await super().close()

    # Subscription -----------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read the assigned partitions of these topics, or of all topics whose whole name matches a pattern.

        This replaces an earlier subscription. The following polls (`getone`, `getmany`, iteration) join the group. With
        `group_protocol` consumer the broker matches a pattern given as text, in RE2's syntax; otherwise, and always if
        it is compiled, the client matches it. Raises ValueError for an invalid subscription, KafkaError
        INVALID_GROUP_ID without a `group_id`.
        """
        participation = self._in_group()
        on_server = self._options.group_protocol == "consumer"
        internal = not self._options.exclude_internal_topics
        subscription = Subscription.of(topics, pattern, on_server=on_server, internal=internal)
        if participation.subscription is None and self._partitions:
            raise RuntimeError("partitions are assigned by hand; unsubscribe before a subscription")
        participation.subscribe(subscription, listener)

    async def unsubscribe(self) -> None:
        """End the subscription and leave the group, or end the assignment by `assign`; nothing is assigned then.

        With `enable_auto_commit` the offsets are committed before. The listener is notified of the revoked partitions.
        """
        cluster, _ = self._started()
        topics = {partition.topic for partition in self._partitions}
        if self._participation is not None:
            await self._participation.unsubscribe()
        self._replace_assignment([], awaits_committed=False)
        for topic in topics:
            cluster.forget(topic)

    def subscription(self) -> list[str]:
        """Return the subscribed topics, sorted; for a pattern, those matching topics that are known."""
        return sorted(self._participation.topics) if self._participation is not None else []

    def group_metadata(self) -> GroupMetadata:
        """Return this consumer's identity in its group; raises KafkaError INVALID_GROUP_ID without a `group_id`."""
        return self._in_group().metadata()

    def consumed_for_transaction(self) -> tuple[GroupMetadata, dict[TopicPartition, OffsetAndMetadata]]:
        """Return this consumer's identity in its group and its offsets, which `Transaction.send_offsets` commits.

        Raises ValueError with `enable_auto_commit`, which would commit outside of the transaction, CommitFailed while a
        subscribed consumer is not a member of its group, KafkaError INVALID_GROUP_ID without a `group_id`.
        """
        participation = self._in_group()
        if self._options.enable_auto_commit:
            raise ValueError("the consumer commits by itself: offsets in transactions need enable_auto_commit=False")
        participation.require_membership()
        return participation.metadata(), self._consumed()

    def hear_refused_transaction(self, group: GroupMetadata, code: ErrorCode) -> None:
        """Note that offsets in a transaction for `group` were refused; `Transaction` calls this.

        A member that its group does not know any more joins again with the next poll.
        """
        self._in_group().hear_refusal(group.member_id, group.generation, code)

    # Commits ----------------------------------------------------------------------------------------------------

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit offsets, each that of the next record to read; None: the positions of all assigned partitions.

        Waits for the broker's answer, at most `timeout_ms` (None: `default_api_timeout_ms`). Raises CommitFailed when
        the group has assigned the partitions to other members, KafkaError for other refusals.
        """
        participation = self._in_group()
        if offsets is None:
            wanted = self._consumed()
        else:
            wanted = {TopicPartition(*partition): _to_offset(given) for partition, given in offsets.items()}
        await participation.commit(wanted, self._timeout_ms if timeout_ms is None else timeout_ms)

    async def committed(
        self, *partitions: tuple[str, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets of partitions (without arguments: the assigned ones), None for none."""
        participation = self._in_group()
        wanted = [TopicPartition(*partition) for partition in partitions or self._partitions]
        return await participation.committed(wanted, self._timeout_ms if timeout_ms is None else timeout_ms)

    def seek_to_committed(self, *partitions: tuple[str, int]) -> None:
        """Continue these partitions, or all, at the group's committed offsets, like a consumer that starts.

        After an aborted transaction its input is read again from there. Raises KafkaError INVALID_GROUP_ID without a
        `group_id`.
        """
        self._in_group()
        for partition in partitions or list(self._partitions):
            assigned = self._assignment.find(partition)
            assigned.move(-1)
            assigned.awaits_committed = True
            self._after_move(partition)
        self._look_up_positions()

    # Assignment -------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read these partitions from now on and no others. Those that were assigned before keep their position.

        With a `group_id` new ones begin at the group's committed offset. Raises RuntimeError during a subscription.
        """
        cluster, _ = self._started()
        participation = self._participation
        if participation is not None and participation.subscription is not None:
            raise RuntimeError("the group assigns what is subscribed to; unsubscribe before an assignment by hand")
        try:
            wanted = [TopicPartition(*partition) for partition in partitions]
        except TypeError:
            words = "assign takes TopicPartitions, or pairs of topic and number (assign_topics takes topics)"
            raise TypeError(f"{words}, not {partitions!r:.80}") from None
        for topic, index in wanted:
            if index < 0 or not topic:
                raise ValueError(f"{topic!r} partition {index} cannot be")
        topics = {partition.topic for partition in wanted}
        if participation is not None:
            participation.commit_soon(self._consumed())
        for partition in self._partitions:
            if partition.topic not in topics:
                cluster.forget(partition.topic)
        self._replace_assignment(wanted, awaits_committed=participation is not None)
        cluster.want(topics)
        self._look_up_positions()

    async def assign_topics(self, *topics: str) -> list[TopicPartition]:
        """Assign every partition of the topics, and return them; raises as `partitions_for`."""
        partitions = [TopicPartition(topic, index) for topic in topics for index in await self.partitions_for(topic)]
        self.assign(partitions)
        return partitions

    # Inside -----------------------------------------------------------------------------------------------------

    def _in_group(self) -> Participation:
        self._started()
        if self._participation is None:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the consumer has no group_id")
        return self._participation

    def _require_source(self) -> None:
        participation = self._participation
        if not self._partitions and (participation is None or participation.subscription is None):
            raise RuntimeError("there is nothing to read: call subscribe, assign or assign_topics first")

    def _before_poll(self) -> None:
        if self._participation is not None:
            self._participation.wake()
            self._look_up_positions()

    def _group_metrics(self) -> dict[str, float]:
        return self._participation.measured() if self._participation is not None else {}

    def _look_up_positions(self) -> None:
        if self._participation is not None:
            self._participation.start_reading(self._partitions.values())

    def _consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            partition: OffsetAndMetadata(assigned.next_offset, "", assigned.consumed_epoch)
            for partition, assigned in self._partitions.items()
            if assigned.next_offset >= 0
        }

    def _on_failure(self, failure: BaseException) -> None:
        self._failure = self._failure or failure
        self._wake_readers()

    def _make_positions(self, coordinator: Coordinator, identity: Callable[[], MemberIdentity]) -> StartPositions:
        cluster, fetcher = self._started()

        def on_change() -> None:
            fetcher.wake()
            self._wake_readers()

        return StartPositions(
            cluster, coordinator, identity, self._timeout_ms, on_missing=self._assignment.reset, on_change=on_change
        )


class _Partitions:
    """A consumer's partitions, as its membership sees them."""

    def __init__(self, consumer: Consumer[Any, Any]) -> None:
        self._consumer = consumer

    def owned(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return self._consumer.assignment()

    def holdings(self) -> Mapping[TopicPartition, object]:
        """Return the assigned partitions, each with an object that changes when it is revoked and assigned again."""
        return dict(self._consumer._partitions)

    def replace(self, wanted: Iterable[TopicPartition]) -> None:
        """Own these partitions and no others."""
        self._consumer._replace_assignment(wanted, awaits_committed=True)

    def start_reading(self) -> None:
        """Look up the positions where reading begins."""
        self._consumer._look_up_positions()

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets up to which the program has read."""
        return self._consumer._consumed()

    def progress(self) -> object:
        """Return a value that differs after the program has taken a record."""
        current = self._consumer._current
        return None if current is None else (current.partition, current.next_offset)


def _to_offset(given: int | OffsetAndMetadata) -> OffsetAndMetadata:
    offset = OffsetAndMetadata(given) if isinstance(given, int) else OffsetAndMetadata(*given)
    require_int64("an offset", offset.offset)
    return offset
