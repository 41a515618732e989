"""The client of tasks and driver against a broker that does what a test tells it to."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from kit.scripted_broker import ScriptedBroker, ScriptedLog, ScriptedTopic, fetch_response

from ottla.protocol.api import ApiKey
from ottla.protocol.api.api_versions import ApiVersionsResponse
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.api.list_offsets import ListOffsetsResponse
from ottla.protocol.api.metadata import MetadataResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, encode
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.errors import CorruptBatch
from ottla.protocol.records.record import Record
from ottla.spark import connection
from ottla.spark.cluster import Cluster
from ottla.spark.columns import arrow_schema_of
from ottla.spark.errors import BrokerUnavailable, DataLoss, ProtocolFailure
from ottla.spark.fetcher import RangeFetcher
from ottla.spark.option_values import Address
from ottla.spark.options import ReadOptions, read_options
from ottla.spark.planner import OffsetRange, plan
from ottla.spark.reading import read_range


def batch(first: int, count: int, size: int = 5) -> bytes:
    return bytes(encode_batch([Record(first + i, i, None, b"v" * size) for i in range(count)]))


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    scripted = ScriptedBroker()
    log = ScriptedLog([batch(0, 10), batch(10, 10), batch(20, 10)], 0, 30)
    scripted.topics["t"] = ScriptedTopic({0: log})
    with scripted.running():
        yield scripted


def options_for(broker: ScriptedBroker, **given: str) -> ReadOptions:
    quick = {"kafka.retry.backoff.ms": "0", "fetchOffset.retryIntervalMs": "0", "kafkaConsumer.pollTimeoutMs": "10000"}
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "t", **quick}
    return read_options(options | {key.replace("__", "."): value for key, value in given.items()})


def read(broker: ScriptedBroker, wanted: OffsetRange | None = None, **given: str) -> list[int]:
    """The offsets of the topic, planned if no range is given, as a query would read them."""
    from pyspark.sql.types import LongType, StructField, StructType

    options = options_for(broker, **given)
    if wanted is None:
        with closing(Cluster(options.client)) as cluster:
            wanted_ranges = plan(options, cluster)
    else:
        wanted_ranges = [wanted]
    schema = arrow_schema_of(StructType([StructField("offset", LongType())]))
    return [
        offset
        for part in wanted_ranges
        for arrow_batch in read_range(part, options, schema)
        for offset in arrow_batch.column(0).to_pylist()
    ]


def part_of(broker: ScriptedBroker, start: int, end: int, topic_id: UUID | None = None) -> OffsetRange:
    return OffsetRange("t", topic_id or broker.topics["t"].topic_id, 0, start, end)


def once(broker: ScriptedBroker, api_key: ApiKey, answer: Callable[[Request, int], Response | bytes | None]) -> None:
    """Give this answer to the first request of an API, and the usual one to all others."""
    usual = broker.answers[api_key]
    asked: list[Request] = []

    def answer_first(request: Request, version: int) -> Response | bytes | None:
        asked.append(request)
        return answer(request, version) if len(asked) == 1 else usual(request, version)

    broker.answers[api_key] = answer_first


def fetch_error(code: ErrorCode) -> Callable[[Any, int], Response]:
    return lambda request, version: fetch_response(request.topics[0], error=code)


def test_a_topic_is_read_from_start_to_end(broker: ScriptedBroker) -> None:
    assert read(broker) == list(range(30))


@pytest.mark.parametrize(("start", "end"), [(0, 1), (9, 11), (10, 20), (13, 17), (29, 30), (5, 5)])
def test_a_range_stops_exactly_at_its_end(start: int, end: int, broker: ScriptedBroker) -> None:
    assert read(broker, part_of(broker, start, end)) == list(range(start, end))


def test_nothing_is_asked_for_behind_the_end(broker: ScriptedBroker) -> None:
    read(broker, part_of(broker, 0, 20), kafka__fetch__max__bytes="1")
    positions = [request.topics[0].partitions[0].fetch_offset for key, _, request in broker.requests if key == 1]  # type: ignore[attr-defined]  # requests of key 1 are FetchRequests
    assert positions == [0, 10]


def test_the_next_fetch_is_sent_before_the_last_one_is_decoded(broker: ScriptedBroker) -> None:
    fetcher = RangeFetcher(
        part_of(broker, 0, 30), options_for(broker, kafka__fetch__max__bytes="1").client, fail_on_data_loss=True
    )
    fetched = fetcher.fetch()
    assert next(fetched).first_offset == 0
    # The second request is on its way although nobody has asked for the second batch; the third is not.
    assert fetcher._asked
    assert next(fetched).first_offset == 10
    assert broker.count(ApiKey.FETCH) in (2, 3)  # the third request may not have arrived yet
    fetched.close()  # type: ignore[attr-defined]  # a generator


@pytest.mark.parametrize("newest", [4, 6, 8, 11, 12, 13, 14, 15, 16, 17, 18])
def test_every_version_of_fetch_reads_the_same(newest: int, broker: ScriptedBroker) -> None:
    broker.versions[ApiKey.FETCH] = (4, newest)
    assert read(broker) == list(range(30))
    assert {version for key, version, _ in broker.requests if key == ApiKey.FETCH} == {newest}


@pytest.mark.parametrize("newest", range(4, 14))
def test_every_version_of_metadata_reads_the_same(newest: int, broker: ScriptedBroker) -> None:
    broker.versions[ApiKey.METADATA] = (0, newest)
    assert read(broker) == list(range(30))
    fetches = {version for key, version, _ in broker.requests if key == ApiKey.FETCH}
    assert fetches == {18 if newest >= 10 else 12}  # without the topic's id, Fetch must name topics


@pytest.mark.parametrize("newest", range(1, 11))
def test_every_version_of_list_offsets_reads_the_same(newest: int, broker: ScriptedBroker) -> None:
    broker.versions[ApiKey.LIST_OFFSETS] = (1, newest)
    assert read(broker) == list(range(30))


def test_a_broker_without_our_newest_api_versions_is_asked_again_in_its_oldest(broker: ScriptedBroker) -> None:
    def refuse(request: Request, version: int) -> Response | bytes:
        if version > 0:
            return encode(ApiVersionsResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION), api_keys=[]), 0)
        return broker.api_versions(request, version)

    broker.answers[ApiKey.API_VERSIONS] = refuse
    assert read(broker) == list(range(30))


def test_a_broker_that_is_too_old_is_named(broker: ScriptedBroker) -> None:
    broker.versions[ApiKey.FETCH] = (0, 3)
    with pytest.raises(ProtocolFailure, match=f"127.0.0.1:{broker.port} does not speak Fetch 4 to 18"):
        read(broker)
    broker.versions[ApiKey.METADATA] = (0, 3)
    with pytest.raises(ProtocolFailure, match=f"127.0.0.1:{broker.port} does not speak Metadata 4 to 13"):
        read(broker)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    ],
)
def test_errors_that_pass_are_waited_out(code: ErrorCode, broker: ScriptedBroker) -> None:
    once(broker, ApiKey.FETCH, fetch_error(code))
    assert read(broker) == list(range(30))


def test_a_throttled_answer_which_names_no_partition_is_waited_out(broker: ScriptedBroker) -> None:
    """So Kafka answers a client above its quota (KIP-219), and takes its next request later."""
    once(broker, ApiKey.FETCH, lambda request, version: FetchResponse(throttle_time_ms=700, responses=[]))
    assert read(broker) == list(range(30))
    once(broker, ApiKey.FETCH, lambda request, version: FetchResponse(throttle_time_ms=0, responses=[]))
    with pytest.raises(ProtocolFailure, match="left the partition out"):
        read(broker)


def test_an_answer_without_one_whole_batch_is_damage_and_not_waited_out(broker: ScriptedBroker) -> None:
    cut = batch(0, 10)[:-1]
    broker.answers[ApiKey.FETCH] = lambda request, version: fetch_response(
        request.topics[0],  # type: ignore[attr-defined]  # a FetchRequest
        records=cut,
        high_watermark=30,
    )
    with pytest.raises(CorruptBatch, match=f"at offset 0 or after: .* {len(cut)} bytes without one whole batch"):
        read(broker)
    assert broker.count(ApiKey.FETCH) == 1


def test_an_error_that_does_not_pass_ends_the_task_with_its_name(broker: ScriptedBroker) -> None:
    broker.answers[ApiKey.FETCH] = fetch_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(ProtocolFailure, match="t-0: the broker answered TOPIC_AUTHORIZATION_FAILED"):
        read(broker)
    assert broker.count(ApiKey.FETCH) == 1


def test_the_new_leader_is_followed(broker: ScriptedBroker) -> None:
    other = ScriptedBroker()
    other.topics = dict(broker.topics)
    with other.running():

        def move(request: Request, version: int) -> Response:
            assert isinstance(request, FetchRequest)
            broker.topics["t"].leader_port = other.port
            return fetch_response(request.topics[0], error=ErrorCode.NOT_LEADER_OR_FOLLOWER)

        broker.answers[ApiKey.FETCH] = move
        assert read(broker) == list(range(30))
        assert broker.count(ApiKey.FETCH) == 1
        assert other.count(ApiKey.FETCH) > 0


def planned(broker: ScriptedBroker, **given: str) -> OffsetRange:
    """The range of the only partition, as the driver hands it to a task."""
    options = options_for(broker, **given)
    with closing(Cluster(options.client)) as cluster:
        (wanted,) = plan(options, cluster)
    return wanted


def test_a_plan_describes_the_topic_once_and_asks_for_each_end_of_the_logs_once(broker: ScriptedBroker) -> None:
    planned(broker)
    assert (broker.count(ApiKey.METADATA), broker.count(ApiKey.LIST_OFFSETS)) == (1, 2)
    planned(broker, startingTimestamp="3", endingTimestamp="9")
    assert (broker.count(ApiKey.METADATA), broker.count(ApiKey.LIST_OFFSETS)) == (2, 6)


def test_a_connection_that_the_broker_has_closed_is_opened_again_at_once(broker: ScriptedBroker) -> None:
    """Brokers close idle ones, after ten minutes, and a stream may have a trigger every hour."""
    options = options_for(broker, fetchOffset__numRetries="0")
    with closing(Cluster(options.client)) as cluster:
        for closed in range(3):
            assert list(cluster.describe(["t"])) == ["t"]
            broker.hang_up()
            assert broker.count(ApiKey.API_VERSIONS) == 1 + closed
        broker.stop()
        with pytest.raises(BrokerUnavailable, match="Connection refused"):
            cluster.describe(["t"])


@pytest.mark.parametrize("failure", [None, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_leader_that_fails_while_a_query_is_planned_is_looked_up_at_once(
    failure: ErrorCode | None, broker: ScriptedBroker
) -> None:
    """Without the pause between attempts: leaders move, and the plan knows them from a moment ago."""
    old = ScriptedBroker()
    old.topics = dict(broker.topics)

    def refuse(request: Any, version: int) -> Response | None:
        broker.topics["t"].leader_port = broker.port
        if failure is None:
            return None
        response = broker.list_offsets(request, version)
        assert isinstance(response, ListOffsetsResponse)
        response.topics[0].partitions[0].error_code = int(failure)
        return response

    old.answers[ApiKey.LIST_OFFSETS] = refuse
    with old.running():
        broker.topics["t"].leader_port = old.port
        assert planned(broker, fetchOffset__numRetries="0").end == 30
    assert old.count(ApiKey.LIST_OFFSETS) == 1
    assert broker.count(ApiKey.LIST_OFFSETS) == 2
    assert broker.count(ApiKey.METADATA) == 2


def test_a_task_that_knows_the_leader_asks_for_no_metadata(broker: ScriptedBroker) -> None:
    wanted = planned(broker)
    broker.requests.clear()
    assert read(broker, wanted) == list(range(30))
    assert {key for key, _, _ in broker.requests} == {ApiKey.API_VERSIONS, ApiKey.FETCH}
    assert broker.count(ApiKey.API_VERSIONS) == 1


def test_a_task_that_knows_the_leader_needs_no_bootstrap_server(broker: ScriptedBroker) -> None:
    wanted = planned(broker)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    assert read(broker, wanted, kafka__bootstrap__servers=f"127.0.0.1:{port}") == list(range(30))


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID])
def test_a_planned_leader_that_refuses_is_looked_up_again(code: ErrorCode, broker: ScriptedBroker) -> None:
    old = ScriptedBroker()
    old.answers[ApiKey.FETCH] = fetch_error(code)
    old.answers[ApiKey.METADATA] = broker.metadata
    with old.running():
        wanted = replace(planned(broker), leader=Address("127.0.0.1", old.port))
        assert read(broker, wanted) == list(range(30))
    assert old.count(ApiKey.FETCH) == 1


@pytest.mark.parametrize("address", ["nobody listens", "not a broker", "hangs up", "too old"])
def test_a_planned_leader_that_is_no_broker_any_more_is_looked_up_again(address: str, broker: ScriptedBroker) -> None:
    """A query is planned once, and its tasks may run hours later, when another server has the address."""
    with ExitStack() as running:
        other = running.enter_context(ScriptedBroker().running())
        wanted = replace(planned(broker), leader=Address("127.0.0.1", other.port))
        if address == "nobody listens":
            other.stop()
        elif address == "too old":
            other.versions[ApiKey.FETCH] = (0, 3)
        else:
            other.answers[ApiKey.API_VERSIONS] = lambda request, version: None if address == "hangs up" else b"HTTP"
        assert read(broker, wanted) == list(range(30))


def test_a_planned_leader_that_follows_now_and_lags_is_looked_up_again(broker: ScriptedBroker) -> None:
    """A follower answers Fetch as well (KIP-392), up to the end that it knows, which may stay where it is."""
    follower = ScriptedBroker()
    follower.topics["t"] = ScriptedTopic({0: ScriptedLog([batch(0, 10)], 0, 10)}, broker.topics["t"].topic_id)
    follower.answers[ApiKey.METADATA] = broker.metadata
    with follower.running():
        wanted = replace(planned(broker), leader=Address("127.0.0.1", follower.port))
        assert read(broker, wanted) == list(range(30))
    assert follower.count(ApiKey.FETCH) == 2


@pytest.mark.parametrize("newest", [12, 18])
def test_a_topic_created_again_since_planning_is_data_loss(newest: int, broker: ScriptedBroker) -> None:
    """Fetch 12 names topics, so such a broker would serve the records of the new one."""
    broker.versions[ApiKey.FETCH] = (4, newest)
    wanted = planned(broker)
    broker.topics["t"].topic_id = uuid4()
    with pytest.raises(DataLoss, match="topic t was deleted and created again"):
        read(broker, wanted)


def test_a_lost_connection_is_made_again_without_losing_or_doubling_records(broker: ScriptedBroker) -> None:
    usual = broker.fetch
    asked: list[Request] = []

    def every_second_closes(request: Request, version: int) -> Response | None:
        asked.append(request)
        return None if len(asked) % 2 else usual(request, version)

    broker.answers[ApiKey.FETCH] = every_second_closes
    assert read(broker, kafka__fetch__max__bytes="1") == list(range(30))
    assert len(asked) >= 6


def test_a_broker_that_is_away_when_a_task_begins_is_waited_for(broker: ScriptedBroker) -> None:
    broker.stop()
    seconds = 0.0
    with ExitStack() as running:

        def sleep(duration: float) -> None:
            nonlocal seconds
            seconds += duration
            if seconds >= 30 and not running_brokers:
                later = ScriptedBroker(broker.port)
                later.topics = broker.topics
                running_brokers.append(running.enter_context(later.running()))

        running_brokers: list[ScriptedBroker] = []
        settings = options_for(broker, kafka__retry__backoff__ms="100", kafkaConsumer__pollTimeoutMs="40000").client
        fetcher = RangeFetcher(
            part_of(broker, 0, 30), settings, fail_on_data_loss=True, monotonic=lambda: seconds, sleep=sleep
        )
        assert [len(fetched.found.headers) for fetched in fetcher.fetch()] == [3]
    assert seconds >= 30


def test_an_end_of_the_log_that_nobody_knows_just_now_is_asked_for_again(broker: ScriptedBroker) -> None:
    """A position out of range is looked up at a leader that moves meanwhile: no reason to fail the task."""
    broker.topics["t"].logs[0].start = 10
    usual = broker.answers[ApiKey.LIST_OFFSETS]
    asked = 0

    def moving(request: Request, version: int) -> Response | bytes | None:
        nonlocal asked
        asked += 1
        answer = usual(request, version)
        assert isinstance(answer, ListOffsetsResponse)
        if asked <= 6:
            answer.topics[0].partitions[0].error_code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return answer

    broker.answers[ApiKey.LIST_OFFSETS] = moving
    assert read(broker, part_of(broker, 5, 30), failOnDataLoss="false") == list(range(10, 30))


def test_without_progress_for_the_poll_timeout_the_task_gives_up(broker: ScriptedBroker) -> None:
    broker.answers[ApiKey.FETCH] = lambda request, version: None
    with pytest.raises(BrokerUnavailable, match=r"no progress in t-0 \[0, 30\) for 1 ms: .*closed the connection"):
        read(broker, kafkaConsumer__pollTimeoutMs="1")
    broker.answers[ApiKey.FETCH] = fetch_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with pytest.raises(ProtocolFailure, match=r"no progress.*NOT_LEADER_OR_FOLLOWER"):
        read(broker, kafkaConsumer__pollTimeoutMs="1")


def test_records_deleted_since_planning_are_data_loss(broker: ScriptedBroker, caplog: pytest.LogCaptureFixture) -> None:
    wanted = part_of(broker, 0, 30)
    broker.topics["t"].logs[0] = ScriptedLog([batch(20, 10)], 20, 30)
    with pytest.raises(DataLoss, match=r"t-0: offset 0 is gone, the log starts at 20 \(reading t-0 \[0, 30\)\)"):
        read(broker, wanted)
    assert read(broker, wanted, failOnDataLoss="false") == list(range(20, 30))
    assert "offsets 0 to 19 are left out" in caplog.text
    assert read(broker, part_of(broker, 0, 15), failOnDataLoss="false") == []


def test_what_ends_a_task_comes_without_the_frames_that_led_to_it(broker: ScriptedBroker) -> None:
    """Spark shows people the whole trace."""
    broker.topics["t"].logs[0] = ScriptedLog([batch(20, 10)], 20, 30)
    with pytest.raises(DataLoss) as raised:
        read(broker, part_of(broker, 0, 30))
    ours = [entry.path.name for entry in raised.traceback if "ottla" in entry.path.parts]
    assert "reading.py" in ours
    assert "fetcher.py" not in ours


def test_a_log_that_ends_before_the_range_is_data_loss(broker: ScriptedBroker) -> None:
    wanted = part_of(broker, 25, 30)
    broker.topics["t"].logs[0] = ScriptedLog([batch(0, 10)], 0, 10)
    with pytest.raises(DataLoss, match="t-0: offset 25 is gone, the log ends at 10"):
        read(broker, wanted)
    assert read(broker, wanted, failOnDataLoss="false") == []
    # A log cut exactly where we are gives no error, just no records.
    with pytest.raises(DataLoss, match="no record from offset 10 on; the log ends at 10"):
        read(broker, part_of(broker, 5, 30), kafkaConsumer__pollTimeoutMs="1")
    options = {"failOnDataLoss": "false", "kafkaConsumer__pollTimeoutMs": "1"}
    assert read(broker, part_of(broker, 5, 30), **options) == list(range(5, 10))


@pytest.mark.parametrize("newest", [12, 18])
def test_a_deleted_topic_is_data_loss(newest: int, broker: ScriptedBroker) -> None:
    broker.versions[ApiKey.FETCH] = (4, newest)
    wanted = part_of(broker, 0, 30)

    def delete(request: Request, version: int) -> Response:
        broker.topics.clear()
        return broker.fetch(request, version)

    broker.answers[ApiKey.FETCH] = delete
    with pytest.raises(DataLoss, match="t-0 does not exist any more"):
        read(broker, wanted)
    assert read(broker, wanted, failOnDataLoss="false") == []


def test_a_topic_created_again_under_the_same_name_is_data_loss(broker: ScriptedBroker) -> None:
    with pytest.raises(DataLoss, match="topic t was deleted and created again"):
        read(broker, part_of(broker, 0, 30, topic_id=uuid4()))


def test_gaps_of_compaction_are_no_data_loss(broker: ScriptedBroker) -> None:
    first = encode_batch([Record(3, 0, b"k", b"v"), Record(7, 0, b"k", b"v")], base_offset=0)
    broker.topics["t"].logs[0] = ScriptedLog([bytes(first), batch(40, 1)], 0, 50)
    assert read(broker, part_of(broker, 0, 41)) == [3, 7, 40]
    assert read(broker, part_of(broker, 0, 40)) == [3, 7]


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_a_range_whose_last_records_were_compacted_away_ends_there_and_is_not_waited_for(
    level: str, broker: ScriptedBroker
) -> None:
    """As a leader answers behind the last record and below the end of its log, once a tombstone there is gone."""
    broker.topics["t"].logs[0] = ScriptedLog([batch(0, 10)], 0, 30)

    def fetch(request: Request, version: int) -> Response:
        response = broker.fetch(request, version)
        assert isinstance(response, FetchResponse)
        data = response.responses[0].partitions[0]
        data.high_watermark, data.last_stable_offset = 40, 30
        return response

    broker.answers[ApiKey.FETCH] = fetch
    options = {"kafka__isolation__level": level, "kafka__fetch__max__bytes": "1"}
    assert read(broker, part_of(broker, 0, 30), **options) == list(range(10))
    assert broker.count(ApiKey.FETCH) == 2


def test_an_empty_answer_below_the_end_of_what_is_committed_is_waited_for(broker: ScriptedBroker) -> None:
    def fetch(request: Request, version: int) -> Response:
        response = fetch_response(request.topics[0], high_watermark=30)  # type: ignore[attr-defined]  # a FetchRequest
        response.responses[0].partitions[0].last_stable_offset = 0
        return response

    once(broker, ApiKey.FETCH, fetch)
    assert read(broker, part_of(broker, 0, 30), kafka__isolation__level="read_committed") == list(range(30))


@pytest.mark.parametrize("loss", ["true", "false"])
def test_records_that_an_open_transaction_hides_are_no_data_loss(loss: str, broker: ScriptedBroker) -> None:
    """They must not be left out: a batch of a stream that ends after them would never come back to them."""

    def fetch(request: Request, version: int) -> Response:
        response = fetch_response(request.topics[0], high_watermark=30)  # type: ignore[attr-defined]  # a FetchRequest
        response.responses[0].partitions[0].last_stable_offset = 20
        return response

    broker.answers[ApiKey.FETCH] = fetch
    options = {"kafka__isolation__level": "read_committed", "kafkaConsumer__pollTimeoutMs": "1"}
    says = r"no progress in t-0 \[20, 30\) for 1 ms: an open transaction hides the records from offset 20 on"
    with pytest.raises(ProtocolFailure, match=says):
        read(broker, part_of(broker, 20, 30), failOnDataLoss=loss, **options)


def test_read_committed_asks_for_it_and_leaves_out_aborted_transactions(broker: ScriptedBroker) -> None:
    records = [Record(0, 0, None, b"v")]
    aborted = bytes(encode_batch(records, producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True))
    levels = []

    def fetch(request: Request, version: int) -> Response:
        assert isinstance(request, FetchRequest)
        levels.append(request.isolation_level)
        transactions = [FetchResponse.AbortedTransaction(producer_id=9, first_offset=0)]
        return fetch_response(request.topics[0], records=aborted + batch(1, 2), high_watermark=3, aborted=transactions)

    broker.answers[ApiKey.FETCH] = fetch
    assert read(broker, part_of(broker, 0, 3), kafka__isolation__level="read_committed") == [1, 2]
    assert levels == [1]


def test_a_damaged_batch_names_partition_and_offset(broker: ScriptedBroker) -> None:
    damaged = bytearray(batch(10, 10))
    damaged[70] ^= 0xFF
    broker.topics["t"].logs[0].batches = [batch(0, 10), bytes(damaged)]
    with pytest.raises(CorruptBatch, match="t-0, at offset 10 or after: the batch at offset 10 does not match"):
        read(broker, kafka__fetch__max__bytes="1")


def test_batches_before_the_offset_asked_for_do_not_make_an_endless_loop(broker: ScriptedBroker) -> None:
    broker.answers[ApiKey.FETCH] = lambda request, version: fetch_response(
        request.topics[0],  # type: ignore[attr-defined]  # a FetchRequest
        records=batch(0, 10),
        high_watermark=30,
    )
    with pytest.raises(CorruptBatch, match="before the requested offset"):
        read(broker, part_of(broker, 10, 30))


GARBAGE = {
    "an empty answer": b"",
    "a body cut short": b"\x00\x00\x00",
    "counts beyond the bytes": b"\xff" * 40,
}


@pytest.mark.parametrize("api_key", [ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.FETCH])
@pytest.mark.parametrize("garbage", GARBAGE)
def test_an_answer_that_is_none_is_refused_with_the_address(
    api_key: ApiKey, garbage: str, broker: ScriptedBroker
) -> None:
    broker.answers[api_key] = lambda request, version: GARBAGE[garbage]
    with pytest.raises(ProtocolFailure, match=f"127.0.0.1:{broker.port} does not answer as a Kafka broker"):
        read(broker)


def test_an_answer_to_another_request_is_refused(broker: ScriptedBroker) -> None:
    with closing(
        connection.Connection(options_for(broker).client.bootstrap_servers[0], options_for(broker).client)
    ) as c:
        from ottla.protocol.api.metadata import MetadataRequest

        broker.answers_another_request_by = 98
        c.send(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        with pytest.raises(ProtocolFailure, match="answered request 99, not 1"):
            c.receive()


def test_an_answer_larger_than_the_bound_is_refused(broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(batch(0, 10)) * 3
    monkeypatch.setattr(connection, "MAX_RESPONSE_BYTES", size + 1000)
    assert read(broker) == list(range(30))
    monkeypatch.setattr(connection, "MAX_RESPONSE_BYTES", size)
    with pytest.raises(ProtocolFailure, match="a frame of"):
        read(broker)


def test_unknown_topics_and_brokers_that_are_not_there_are_named(broker: ScriptedBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(BrokerUnavailable, match=f"^cannot reach 127.0.0.1:{port}: .*refused"):
        read(broker, kafka__bootstrap__servers=f"127.0.0.1:{port}")


def test_the_second_bootstrap_server_serves_when_the_first_is_not_there(broker: ScriptedBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    assert read(broker, kafka__bootstrap__servers=f"127.0.0.1:{port},{broker.bootstrap}") == list(range(30))


def test_a_broker_that_does_not_answer_in_time_is_given_up(broker: ScriptedBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(BrokerUnavailable, match=f"cannot reach {address}: no answer within 50 ms$"):
            read(
                broker,
                kafka__bootstrap__servers=address,
                kafka__request__timeout__ms="50",
                fetchOffset__numRetries="0",
            )


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port: int = unused.getsockname()[1]
    return port


@pytest.mark.parametrize(
    ("host", "says"),
    [
        ("127.0.0.1", r"^cannot reach 127\.0\.0\.1:\d+: Connection refused; brokers give clients that address"),
        (
            "broker.invalid",
            r"^cannot reach broker\.invalid:\d+: .*; brokers give clients that address \(advertised.list",
        ),
        ("a..b", r"^a\.\.b:\d+ is no address: .*; brokers give clients that address"),
    ],
)
def test_an_advertised_address_that_cannot_be_reached_is_said_to_be_one(
    host: str, says: str, broker: ScriptedBroker
) -> None:
    """The bootstrap server answers, and names an address of its container, or of a network that is another one here."""
    broker.topics["t"].leader_port = unused_port()

    def elsewhere(request: Request, version: int) -> Response:
        response = broker.metadata(request, version)
        assert isinstance(response, MetadataResponse)
        for each in response.brokers:
            each.host = host
        return response

    broker.answers[ApiKey.METADATA] = elsewhere
    with pytest.raises(BrokerUnavailable, match=says):
        read(broker, fetchOffset__numRetries="0")


def test_a_server_that_accepts_no_connection_is_said_to_accept_none(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: object, **__: object) -> None:
        raise TimeoutError("timed out")

    monkeypatch.setattr("ottla.spark.connection.socket.create_connection", late)
    with pytest.raises(BrokerUnavailable, match=rf"^{broker.bootstrap} did not accept a connection within 700 ms$"):
        read(broker, fetchOffset__numRetries="0", kafka__socket__connection__setup__timeout__ms="700")


@pytest.mark.parametrize("failure", ["refused", "late"])
def test_a_task_that_waits_for_a_broker_names_it_and_warns_once(
    failure: str, broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """A minute later an executor's log must show what it waits for."""
    wanted = planned(broker)
    port = broker.port
    given = {"kafkaConsumer__pollTimeoutMs": "300", "kafka__retry__backoff__ms": "20"}
    if failure == "refused":
        broker.stop()
    else:
        given |= {"kafka__request__timeout__ms": "20", "kafka__fetch__max__wait__ms": "0"}
        broker.answers[ApiKey.FETCH] = lambda request, version: time.sleep(0.1)
    with pytest.raises(BrokerUnavailable, match=rf"^no progress in t-0 \[0, 30\) for 300 ms: .*127\.0\.0\.1:{port}"):
        read(broker, wanted, **given)
    (warning,) = (record.message for record in caplog.records if record.levelno == logging.WARNING)
    assert f"127.0.0.1:{port}" in warning


def test_questions_are_asked_again_as_often_as_the_option_says(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def leaderless(request: Request, version: int) -> Response:
        response = broker.metadata(request, version)
        assert isinstance(response, MetadataResponse)
        response.topics[0].error_code = int(ErrorCode.LEADER_NOT_AVAILABLE)
        return response

    broker.answers[ApiKey.METADATA] = leaderless
    with pytest.raises(ProtocolFailure, match="t: the broker answered LEADER_NOT_AVAILABLE"):
        read(broker, fetchOffset__numRetries="2")
    assert broker.count(ApiKey.METADATA) == 3
