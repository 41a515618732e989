"""The part of an Admin that handles transactions: their state at coordinators and in partitions, and forced aborts.

Requests about a transactional id are sent to its coordinator, those about a partition to its leader (KIP-664). A
transaction *hangs* if it is open in a partition for longer than any may be, and its coordinator does not know of it.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from ottla.client.admin_groups import Outcomes
from ottla.client.admin_results import AdminError, ProducerState, TopicDescription
from ottla.client.admin_streams_groups import StreamsGroupAdmin
from ottla.client.admin_transaction_results import HangingTransaction, TransactionDescription, TransactionListing
from ottla.client.coordinator import KeyType
from ottla.client.errors import KafkaError, UnsupportedByBroker, is_worth_retrying
from ottla.client.missing_look_ups import gives_up_soon
from ottla.client.offsets import leader_of
from ottla.client.structs import TopicPartition
from ottla.protocol.api.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from ottla.protocol.api.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.api.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.protocol.api.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from ottla.protocol.errors import ErrorCode

T = TypeVar("T")

_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
_FIRST_LIST_VERSION_WITH_DURATION = 1
_FIRST_LIST_VERSION_WITH_PATTERN = 2


class TransactionAdmin(StreamsGroupAdmin):
    """See the module; `Admin` is the class for programs."""

    # Transactions -----------------------------------------------------------------------------------------------

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        open_for_ms: int | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Return the transactional ids of all brokers, sorted by name; only those that match every given filter.

        `states` have Kafka's names ("Ongoing"), `open_for_ms` chooses transactions that are open for at least this
        time, `pattern` is a regular expression (RE2) for the whole id. Raises UnsupportedByBroker when the broker is
        too old for a filter, ValueError for a state that it does not know.
        """
        cluster = self._started()
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=-1 if open_for_ms is None else open_for_ms,
            transactional_id_pattern=pattern,
        )

        async def ask(node_id: int) -> list[TransactionListing]:
            connection = await cluster.connection(node_id)
            version = connection.version_for(ListTransactionsRequest)
            for wanted, first in (
                (open_for_ms, _FIRST_LIST_VERSION_WITH_DURATION),
                (pattern, _FIRST_LIST_VERSION_WITH_PATTERN),
            ):
                if wanted is not None and version < first:
                    raise UnsupportedByBroker(f"the broker at {connection.address} is too old for this filter")
            answer = await connection.send(request, ListTransactionsResponse, version)
            if answer.error_code:
                raise KafkaError(ErrorCode.of(answer.error_code))
            if answer.unknown_state_filters:
                raise ValueError(f"no transaction has the state {', '.join(answer.unknown_state_filters)}")
            return [
                TransactionListing(one.transactional_id, one.producer_id, one.transaction_state)
                for one in answer.transaction_states
                if open_for_ms is None
                or one.transaction_state in _OPEN  # Kafka also returns ids that never had an open transaction
            ]

        async def attempt() -> list[list[TransactionListing]]:
            if not cluster.brokers:
                await cluster.refresh()
            return await asyncio.gather(*(ask(node_id) for node_id in cluster.brokers))

        listed = await cluster.retry(attempt, self._timeout_ms)
        return sorted((one for some in listed for one in some), key=lambda one: one.transactional_id)

    async def describe_transactions(self, transactional_ids: Sequence[str]) -> dict[str, TransactionDescription]:
        """Return transactional ids in full; raises AdminError by id, TRANSACTIONAL_ID_NOT_FOUND for an unknown one."""

        async def ask(node_id: int, asked: list[str]) -> Outcomes[TransactionDescription]:
            cluster = self._started()
            request = DescribeTransactionsRequest(transactional_ids=asked)
            answer = await cluster.ask(node_id, request, DescribeTransactionsResponse)
            return {
                one.transactional_id: KafkaError(ErrorCode.of(one.error_code))
                if one.error_code
                else TransactionDescription(
                    transactional_id=one.transactional_id,
                    state=one.transaction_state,
                    coordinator=cluster.brokers[node_id],
                    producer_id=one.producer_id,
                    producer_epoch=one.producer_epoch,
                    timeout_ms=one.transaction_timeout_ms,
                    start_ms=_start_ms(one.transaction_state, one.transaction_start_time_ms),
                    partitions=[
                        TopicPartition(topic.topic, index) for topic in one.topics for index in topic.partitions
                    ],
                )
                for one in answer.transaction_states
            }

        return await self._of_each_group(transactional_ids, ask, KeyType.TRANSACTION)

    async def fence_producers(self, transactional_ids: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Abort the open transactions of transactional ids and end their producers (KIP-588).

        Returns the new producer id and epoch of each. A producer that still runs gets FatalTransactionError; a new one
        with the transactional id may begin. An id that was never used is created. Raises AdminError by id.
        """

        async def ask(node_id: int, asked: list[str]) -> Outcomes[tuple[int, int]]:
            cluster = self._started()
            outcomes: Outcomes[tuple[int, int]] = {}
            for transactional_id in asked:
                request = InitProducerIdRequest(
                    transactional_id=transactional_id, transaction_timeout_ms=self._options.request_timeout_ms
                )
                answer = await cluster.ask(node_id, request, InitProducerIdResponse)
                code = ErrorCode.of(answer.error_code)
                outcomes[transactional_id] = KafkaError(code) if code else (answer.producer_id, answer.producer_epoch)
            return outcomes

        return await self._of_each_group(transactional_ids, ask, KeyType.TRANSACTION)

    async def find_hanging_transactions(
        self, partitions: Iterable[TopicPartition] | None = None, *, older_than_ms: int = 900_000
    ) -> list[HangingTransaction]:
        """Return the transactions of partitions (None: of all partitions) that no coordinator will end.

        They are open in the partition, their producer has written nothing for `older_than_ms`, and no coordinator still
        has to write a marker for them into the partition. The default is that of `transaction.max.timeout.ms`, after
        which a coordinator ends the transactions that it knows of.
        """
        if partitions is None:
            partitions = [
                TopicPartition(topic.name, one.partition)
                for topic in (await self._all_topics()).values()
                for one in topic.partitions
            ]
        suspects = await self._open_since(partitions, int(time.time() * 1000) - older_than_ms)
        if not suspects:
            return []
        listed = await self.list_transactions(producer_ids={state.producer_id for state in suspects.values()})
        ids = {one.producer_id: one.transactional_id for one in listed}
        described = await self._describe_those_there(list(ids.values()))
        hanging = [
            HangingTransaction(
                partition=partition,
                producer_id=producer_id,
                producer_epoch=state.producer_epoch,
                coordinator_epoch=state.coordinator_epoch,
                start_offset=start_offset,
                last_timestamp_ms=state.last_timestamp_ms,
                transactional_id=ids.get(producer_id),
            )
            for (partition, producer_id, start_offset), state in suspects.items()
            if (known := described.get(ids.get(producer_id, ""))) is None
            or known.producer_id != producer_id
            or partition not in known.partitions
        ]
        # Check again, to leave out those that have ended while the coordinators were asked.
        still_open = await self._open_since({one.partition for one in hanging}, None)
        return [one for one in hanging if (one.partition, one.producer_id, one.start_offset) in still_open]

    async def abort_hanging_transaction(self, hanging: HangingTransaction) -> None:
        """Write the ABORT marker of a transaction into its partition: its records are never read with `read_committed`.

        Use it only for results of `find_hanging_transactions`: a marker that is not from the coordinator breaks a
        transaction that is still in progress. Raises KafkaError.
        """
        topic, index = hanging.partition
        request = WriteTxnMarkersRequest(
            markers=[
                WriteTxnMarkersRequest.WritableTxnMarker(
                    producer_id=hanging.producer_id,
                    producer_epoch=hanging.producer_epoch,
                    transaction_result=False,
                    coordinator_epoch=max(0, hanging.coordinator_epoch),
                    topics=[
                        WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=[index]),
                    ],
                )
            ]
        )

        async def ask(leader: int, _: list[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
            answer = await self._started().ask(leader, request, WriteTxnMarkersResponse)
            codes = [
                ErrorCode.of(one.error_code)
                for marker in answer.markers
                for results in marker.topics
                for one in results.partitions
            ]
            code = codes[0] if codes else ErrorCode.UNKNOWN_SERVER_ERROR
            return {hanging.partition: KafkaError(code, f"{topic}-{index}: {code.message}") if code else None}

        outcome = (await self._of_leaders([hanging.partition], ask))[hanging.partition]
        if outcome is not None:
            raise outcome

    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerState]]:
        """Return each partition's state of its producers, including open transactions (KIP-664).

        Raises AdminError by `topic-partition`, UnsupportedByBroker when the broker is too old (before Kafka 2.8).
        """

        async def ask(
            leader: int, asked: list[TopicPartition]
        ) -> dict[TopicPartition, KafkaError | list[ProducerState]]:
            answer = await self._started().ask(leader, _producers_request(asked), DescribeProducersResponse)
            return {
                TopicPartition(topic.name, one.partition_index): KafkaError(
                    ErrorCode.of(one.error_code), one.error_message
                )
                if one.error_code
                else [_producer_state(state) for state in one.active_producers]
                for topic in answer.topics
                for one in topic.partitions
            }

        outcomes = await self._of_leaders([TopicPartition(*partition) for partition in partitions], ask)
        refused = {f"{topic}-{index}": one for (topic, index), one in outcomes.items() if isinstance(one, KafkaError)}
        if refused:
            raise AdminError(refused)
        return {partition: one for partition, one in outcomes.items() if not isinstance(one, KafkaError)}

    # Inside -----------------------------------------------------------------------------------------------------

    async def _all_topics(self) -> Mapping[str, TopicDescription]:
        raise NotImplementedError

    async def _open_since(
        self, partitions: Iterable[TopicPartition], before_ms: int | None
    ) -> dict[tuple[TopicPartition, int, int], ProducerState]:
        """Return the open transactions whose producer has written nothing since a time (None: all) by partition,
        producer id and start offset.
        """
        found = await self.describe_producers(partitions)
        return {
            (partition, state.producer_id, state.transaction_start_offset): state
            for partition, states in found.items()
            for state in states
            if state.transaction_start_offset is not None
            and (before_ms is None or state.last_timestamp_ms <= before_ms)
        }

    async def _describe_those_there(self, transactional_ids: list[str]) -> dict[str, TransactionDescription]:
        """Return descriptions, without ids that were removed since they were listed."""
        try:
            return await self.describe_transactions(transactional_ids)
        except AdminError as refused:
            if any(error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND for error in refused.errors.values()):
                raise
            return await self.describe_transactions([one for one in transactional_ids if one not in refused.errors])

    async def _of_leaders(
        self,
        partitions: Sequence[TopicPartition],
        ask: Callable[[int, list[TopicPartition]], Awaitable[dict[TopicPartition, T | KafkaError]]],
    ) -> dict[TopicPartition, T | KafkaError]:
        """Ask each partition's leader, and retry transient errors; return the result of each partition."""
        cluster = self._started()

        async def attempt() -> dict[TopicPartition, T | KafkaError]:
            if any(cluster.leader_of(*partition) < 0 for partition in partitions):
                await cluster.refresh({partition.topic for partition in partitions})
            by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
            for partition in partitions:
                by_leader[leader_of(cluster, partition)].append(partition)
            answers = await asyncio.gather(*(ask(leader, asked) for leader, asked in by_leader.items()))
            outcomes = {partition: outcome for answer in answers for partition, outcome in answer.items()}
            for outcome in outcomes.values():
                if isinstance(outcome, KafkaError) and is_worth_retrying(outcome):
                    cluster.mark_stale()
                    raise outcome
            return outcomes

        return await cluster.retry(attempt, self._timeout_ms, gives_up_soon) if partitions else {}


def _start_ms(state: str, start_ms: int) -> int | None:
    """The start of an open transaction. Coordinators, including Kafka's, still return it after the end of the
    transaction.
    """
    return start_ms if state in _OPEN and start_ms >= 0 else None


def _producers_request(partitions: Iterable[TopicPartition]) -> DescribeProducersRequest:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        by_topic[topic].append(index)
    return DescribeProducersRequest(
        topics=[
            DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=indexes)
            for topic, indexes in by_topic.items()
        ]
    )


def _producer_state(entry: DescribeProducersResponse.ProducerState) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp_ms=entry.last_timestamp,
        transaction_start_offset=entry.current_txn_start_offset if entry.current_txn_start_offset >= 0 else None,
        coordinator_epoch=entry.coordinator_epoch,
    )
