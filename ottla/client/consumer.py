"""Consumer: reads partitions that the program names, or that its group shares out, and commits how far it got.

`subscribe` to topics and let the group share them out, or `assign` partitions; then iterate (`async for record in
consumer`) or take what is there (`getmany`). Where a partition is read from: `seek` and its relatives, else what the
group has committed, else `auto_offset_reset`.
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
from ottla.client.structs import GroupMetadata, K, OffsetAndMetadata, TopicPartition, V
from ottla.protocol.errors import ErrorCode


class Consumer(ColumnReader[K, V], Generic[K, V]):
    """See the module. Use it as a context manager, or call `start` and `close`.

    `bootstrap_servers` is `host:port`, with commas or as a list; or a mapping of options under Kafka's dotted names,
    `bootstrap.servers` among them. Options as keywords have underscores: `ConsumerOptions` and `ClientOptions` say what
    each means. The deserializers make keys and values of bytes, and with them the type of the records. Raises
    ValueError for an option that does not exist or makes no sense.
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
        """End: commit what was read (with `enable_auto_commit`), leave the group. Readers that wait raise ClientClosed.

        Takes a few seconds at most, also when no broker answers. Fetches under way are not waited for.
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
        """Read what the group assigns of these topics, or of all topics whose whole name matches a pattern.

        Takes the place of an earlier subscription. The group is joined by the polls that follow (`getone`, `getmany`,
        iteration). With `group_protocol` consumer a pattern in text is matched by the broker, in RE2's syntax;
        otherwise, and always if it is compiled, it is matched here. Raises ValueError for what cannot be subscribed to,
        KafkaError INVALID_GROUP_ID without a `group_id`.
        """
        participation = self._in_group()
        on_server = self._options.group_protocol == "consumer"
        internal = not self._options.exclude_internal_topics
        subscription = Subscription.of(topics, pattern, on_server=on_server, internal=internal)
        if participation.subscription is None and self._partitions:
            raise RuntimeError("partitions are assigned by hand; unsubscribe before a subscription")
        participation.subscribe(subscription, listener)

    async def unsubscribe(self) -> None:
        """End the subscription and leave the group, or end what `assign` began; nothing is assigned then.

        What was read is committed before, with `enable_auto_commit`, and the listener hears what is revoked.
        """
        cluster, _ = self._started()
        topics = {partition.topic for partition in self._partitions}
        if self._participation is not None:
            await self._participation.unsubscribe()
        self._replace_assignment([], awaits_committed=False)
        for topic in topics:
            cluster.forget(topic)

    def subscription(self) -> list[str]:
        """Return the topics that are subscribed to, sorted; those that a pattern matches as far as they are known."""
        return sorted(self._participation.topics) if self._participation is not None else []

    def group_metadata(self) -> GroupMetadata:
        """Return who this consumer is in its group; raises KafkaError INVALID_GROUP_ID without a `group_id`."""
        return self._in_group().metadata()

    def consumed_for_transaction(self) -> tuple[GroupMetadata, dict[TopicPartition, OffsetAndMetadata]]:
        """Return who this consumer is in its group and how far it has read, which `Transaction.send_offsets` commits.

        Raises ValueError with `enable_auto_commit`, which would commit what no transaction has, CommitFailed while a
        subscribed consumer is no member of its group, KafkaError INVALID_GROUP_ID without a `group_id`.
        """
        participation = self._in_group()
        if self._options.enable_auto_commit:
            raise ValueError("the consumer commits by itself: offsets in transactions need enable_auto_commit=False")
        participation.require_membership()
        return participation.metadata(), self._consumed()

    def hear_refused_transaction(self, group: GroupMetadata, code: ErrorCode) -> None:
        """Note that offsets which were sent in a transaction for `group` were refused; `Transaction` calls it.

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
        """Commit offsets, each that of the next record to read; None: how far every assigned partition was read.

        Waits for the broker's answer, at most `timeout_ms` (None: `default_api_timeout_ms`). Raises CommitFailed when
        the group has given the partitions to others, KafkaError for what else the broker refuses.
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
        """Return what the group has committed for partitions (none named: those assigned), None where it has not."""
        participation = self._in_group()
        wanted = [TopicPartition(*partition) for partition in partitions or self._partitions]
        return await participation.committed(wanted, self._timeout_ms if timeout_ms is None else timeout_ms)

    def seek_to_committed(self, *partitions: tuple[str, int]) -> None:
        """Read on where the group has committed, as a consumer does that begins, of these partitions or of all.

        After an aborted transaction this is where its records are read again. Raises KafkaError INVALID_GROUP_ID
        without a `group_id`.
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

        With a `group_id` others begin where the group has committed. Raises RuntimeError under a subscription.
        """
        cluster, _ = self._started()
        participation = self._participation
        if participation is not None and participation.subscription is not None:
            raise RuntimeError("the group assigns what is subscribed to; unsubscribe before an assignment by hand")
        wanted = [TopicPartition(*partition) for partition in partitions]
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
        """What is assigned now."""
        return self._consumer.assignment()

    def holdings(self) -> Mapping[TopicPartition, object]:
        """What is assigned now, each with an object that is another one when it was given up and came back."""
        return dict(self._consumer._partitions)

    def replace(self, wanted: Iterable[TopicPartition]) -> None:
        """Own these and no others."""
        self._consumer._replace_assignment(wanted, awaits_committed=True)

    def start_reading(self) -> None:
        """Look up where to begin."""
        self._consumer._look_up_positions()

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """How far the program has read."""
        return self._consumer._consumed()

    def progress(self) -> object:
        """Something that is different after the program took a record."""
        current = self._consumer._current
        return None if current is None else (current.partition, current.next_offset)


def _to_offset(given: int | OffsetAndMetadata) -> OffsetAndMetadata:
    offset = OffsetAndMetadata(given) if isinstance(given, int) else OffsetAndMetadata(*given)
    if offset.offset < 0:
        raise ValueError(f"an offset is 0 or more, not {offset.offset}")
    return offset
