"""What an admin returns of transactions, and which it takes for hanging: those that nobody will end."""

from __future__ import annotations

import time

import pytest
from kit.fake_broker import FakeCluster

from ottla.client import (
    Admin,
    AdminError,
    ErrorCode,
    KafkaError,
    TopicPartition,
    TransactionDescription,
    TransactionListing,
    UnsupportedByBroker,
)
from ottla.protocol.api import ApiKey
from ottla.protocol.api.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from ottla.protocol.api.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    refused_id,
)
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.api.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.protocol.api.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 2}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
HOUR_AGO_MS = int(time.time() * 1000) - 3_600_000


class Scene:
    """What a cluster knows: transactions by id as (producer id, state, partitions), open ones by partition as (producer
    id, start offset, time of the last write)."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.ids = {}
        self.open = {}
        self.marker_code = ErrorCode.NONE
        cluster.add_topic("t", 0, 1)
        cluster.handlers |= {
            FindCoordinatorRequest: self.find,
            ListTransactionsRequest: self.list,
            DescribeTransactionsRequest: self.describe,
            DescribeProducersRequest: self.producers,
            WriteTxnMarkersRequest: self.mark,
        }

    def find(self, request, version):
        assert request.key_type == 1
        found = [
            FindCoordinatorResponse.Coordinator(key=key, node_id=1, host="127.0.0.1", port=self.cluster.ports[1])
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=found)

    def list(self, request, version):
        known = {"Empty", "Ongoing", "CompleteCommit"}
        return ListTransactionsResponse(
            unknown_state_filters=[one for one in request.state_filters if one not in known],
            transaction_states=[
                ListTransactionsResponse.TransactionState(
                    transactional_id=name, producer_id=producer_id, transaction_state=state
                )
                for name, (producer_id, state, _) in self.ids.items()
                if not request.producer_id_filters or producer_id in request.producer_id_filters
            ],
        )

    def describe(self, request, version):
        return DescribeTransactionsResponse(
            transaction_states=[self.described(name) for name in request.transactional_ids]
        )

    def described(self, name):
        if name not in self.ids:
            return refused_id(name, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        producer_id, state, partitions = self.ids[name]
        topics = [
            DescribeTransactionsResponse.TopicData(topic=topic, partitions=[index]) for topic, index in partitions
        ]
        return DescribeTransactionsResponse.TransactionState(
            transactional_id=name,
            transaction_state=state,
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=5 if state == "Ongoing" else -1,
            producer_id=producer_id,
            producer_epoch=3,
            topics=topics,
        )

    def producers(self, request, version):
        topics = []
        for topic in request.topics:
            partitions = [
                DescribeProducersResponse.PartitionResponse(
                    partition_index=index,
                    active_producers=[
                        DescribeProducersResponse.ProducerState(
                            producer_id=producer_id,
                            producer_epoch=3,
                            last_timestamp=written_at,
                            coordinator_epoch=-1,
                            current_txn_start_offset=start,
                        )
                        for producer_id, start, written_at in self.open.get((topic.name, index), ())
                    ],
                )
                for index in topic.partition_indexes
            ]
            topics.append(DescribeProducersResponse.TopicResponse(name=topic.name, partitions=partitions))
        return DescribeProducersResponse(topics=topics)

    def mark(self, request, version):
        (marker,) = request.markers
        partition = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(
            partition_index=marker.topics[0].partition_indexes[0], error_code=self.marker_code
        )
        topic = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(name="t", partitions=[partition])
        result = WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=[topic])
        return WriteTxnMarkersResponse(markers=[result])


@pytest.fixture
async def scene():
    async with FakeCluster(brokers=2) as cluster:
        yield Scene(cluster)


@pytest.fixture
async def admin(scene):
    async with Admin(scene.cluster.bootstrap, **QUICK) as running:
        yield running


async def test_ids_of_all_brokers_are_listed(scene, admin):
    scene.ids = {"b": (8, "Empty", []), "a": (7, "Ongoing", [T0])}
    listed = await admin.list_transactions(states=["Ongoing"], producer_ids=[7, 8], pattern="a.*")
    assert listed[::2] == [TransactionListing("a", 7, "Ongoing"), TransactionListing("b", 8, "Empty")]
    asked = scene.cluster.seen(ListTransactionsRequest)
    assert len(asked) == 2  # each broker coordinates some
    assert (asked[0].state_filters, asked[0].producer_id_filters) == (["Ongoing"], [7, 8])
    assert (asked[0].duration_filter, asked[0].transactional_id_pattern) == (-1, "a.*")


async def test_only_what_is_open_has_been_open_for_long(scene, admin):
    scene.ids = {"a": (7, "Ongoing", [T0]), "b": (8, "Empty", []), "c": (9, "CompleteCommit", [])}
    listed = await admin.list_transactions(open_for_ms=1000)
    assert {one.transactional_id for one in listed} == {"a"}


async def test_filters_that_the_broker_does_not_know_are_not_passed_over(scene, admin):
    with pytest.raises(ValueError, match="no transaction has the state Sleeping"):
        await admin.list_transactions(states=["Sleeping"])
    scene.cluster.versions[ApiKey.LIST_TRANSACTIONS] = (0, 0)
    async with Admin(scene.cluster.bootstrap, **QUICK) as older:
        for given in ({"open_for_ms": 1}, {"pattern": "a"}):
            with pytest.raises(UnsupportedByBroker):
                await older.list_transactions(**given)
        assert await older.list_transactions() == []


async def test_an_id_is_described_by_its_coordinator(scene, admin):
    scene.ids = {"a": (7, "Ongoing", [T0, T1]), "b": (8, "Empty", [])}
    described = await admin.describe_transactions(["a", "b"])
    coordinator = described["a"].coordinator
    assert coordinator.node_id == 1
    assert described == {
        "a": TransactionDescription("a", "Ongoing", coordinator, 7, 3, 60_000, 5, [T0, T1]),
        "b": TransactionDescription("b", "Empty", coordinator, 8, 3, 60_000, None, []),
    }
    with pytest.raises(AdminError) as refused:
        await admin.describe_transactions(["a", "nobody"])
    assert {name: error.code for name, error in refused.value.errors.items()} == {
        "nobody": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    }


async def test_fencing_waits_until_the_open_transaction_is_aborted(scene, admin):
    codes = iter([ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE])

    def initialize(request, version):
        assert (request.transactional_id, request.producer_id) == ("a", -1)
        return InitProducerIdResponse(error_code=next(codes), producer_id=7, producer_epoch=4)

    scene.cluster.handlers[InitProducerIdRequest] = initialize
    assert await admin.fence_producers(["a"]) == {"a": (7, 4)}


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ({}, [None]),  # nobody knows the producer
        ({"a": (7, "Ongoing", [T1])}, ["a"]),  # it is in another transaction
        ({"a": (7, "CompleteCommit", [])}, ["a"]),
        ({"a": (7, "Ongoing", [T0, T1])}, []),
        ({"a": (7, "PrepareAbort", [T0])}, []),  # the marker is on its way
    ],
)
async def test_a_transaction_hangs_that_no_coordinator_will_end(scene, admin, ids, expected):
    scene.ids = ids
    scene.open = {T0: [(7, 40, HOUR_AGO_MS)]}
    found = await admin.find_hanging_transactions()
    assert [one.transactional_id for one in found] == expected
    for one in found:
        assert (one.partition, one.producer_id, one.start_offset) == (T0, 7, 40)


async def test_what_is_young_or_has_ended_does_not_hang(scene, admin):
    scene.open = {T0: [(7, 40, int(time.time() * 1000))], T1: [(8, -1, HOUR_AGO_MS)]}
    assert await admin.find_hanging_transactions([T0, T1]) == []
    assert await admin.find_hanging_transactions([T1], older_than_ms=0) == []
    assert len(await admin.find_hanging_transactions([T0], older_than_ms=0)) == 1


async def test_what_ends_while_coordinators_are_asked_does_not_hang(scene, admin):
    scene.open = {T0: [(7, 40, HOUR_AGO_MS)], T1: [(8, 50, HOUR_AGO_MS)]}
    listing = scene.list

    def end_one(request, version):
        scene.open.pop(T0, None)
        return listing(request, version)

    scene.cluster.handlers[ListTransactionsRequest] = end_one
    assert [one.partition for one in await admin.find_hanging_transactions()] == [T1]


async def test_a_hanging_transaction_is_ended_by_a_marker(scene, admin):
    scene.open = {T1: [(7, 40, HOUR_AGO_MS)]}
    (hanging,) = await admin.find_hanging_transactions()
    await admin.abort_hanging_transaction(hanging)
    (request,) = scene.cluster.seen(WriteTxnMarkersRequest)
    (marker,) = request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (7, 3, False)
    assert marker.coordinator_epoch == 0  # no coordinator has ever written a marker of this producer
    assert (marker.topics[0].name, marker.topics[0].partition_indexes) == ("t", [1])
    scene.marker_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with pytest.raises(KafkaError) as refused:
        await admin.abort_hanging_transaction(hanging)
    assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_producers_of_a_partition_that_does_not_exist_are_refused_by_its_own_error(scene):
    async with Admin(scene.cluster.bootstrap, **QUICK, default_api_timeout_ms=2**31 - 1) as admin:
        with pytest.raises(KafkaError, match="nowhere") as refused:
            await admin.describe_producers([TopicPartition("nowhere", 0)])
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
