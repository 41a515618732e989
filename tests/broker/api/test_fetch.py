"""Fetch: long polls, limits, sessions, epochs, and cold data."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kit.clock import ManualClock
from kit.exchange import Exchange, batch, fetch_request, make_topic, produce_request
from kit.nodes import start_node

from ottla.broker.fetch import delayed_fetch
from ottla.broker.fetch.fetch_sessions import FetchSessions
from ottla.broker.node import Node
from ottla.broker.requests.dispatch import RequestDispatcher
from ottla.broker.requests.gate import Gate
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.api.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.errors import ErrorCode
from ottla.storage.producers.transaction_index import AbortedTransaction
from ottla.storage.producers.transactions import LogTransactions
from ottla.storage.segment.slice import LogSlice


@pytest.fixture
def setting() -> tuple[Node, ManualClock]:
    node, _, clock = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t", 3)
    return node, clock


@pytest.fixture
def node(setting: tuple[Node, ManualClock]) -> Node:
    return setting[0]


def fetched(answer: object) -> FetchResponse:
    assert isinstance(answer, FetchResponse)
    return answer


def partitions(answer: object) -> dict[int, FetchResponse.PartitionData]:
    return {data.partition_index: data for topic in fetched(answer).responses for data in topic.partitions}


def put(node: Node, partition: int = 0, count: int = 1, value: bytes = b"v") -> int:
    """Produce one batch; its size."""
    records = batch(count, value=value)
    Exchange(node).ask(produce_request("t", records, partition=partition), 9)
    return len(records)


def test_an_empty_partition_has_zero_bytes_and_not_null(node: Node) -> None:
    for version in range(4, 13):
        data = partitions(Exchange(node).ask(fetch_request("t", 0), version))[0]
        assert data.records is not None
        assert len(data.records) == 0


@pytest.mark.parametrize("version", [4, 14, 15, 18])
def test_a_replica_reads_nothing(node: Node, version: int) -> None:
    put(node)
    replica = {"replica_id": 2} if version < 15 else {"replica_state": FetchRequest.ReplicaState(replica_id=2)}
    request = fetch_request("t", 0, **replica)
    if version >= 13:
        request.topics[0].topic_id = node.services.catalog.topics["t"].id
    data = partitions(Exchange(node).ask(request, version))[0]
    assert (data.error_code, bytes(data.records or b"")) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")


def test_a_long_poll_is_answered_by_the_next_produce(node: Node) -> None:
    client = Exchange(node)
    client.send(fetch_request("t", 0, partitions=3, max_wait_ms=10_000), 12)
    node.settle()
    assert client.replies() == []
    put(node, partition=2)
    data = partitions(client.reply())
    assert [len(data[index].records) > 0 for index in range(3)] == [False, False, True]
    assert not node.services.catalog.topics["t"].partitions[0].is_watched


def test_a_long_poll_ends_with_its_time(setting: tuple[Node, ManualClock]) -> None:
    node, clock = setting
    client = Exchange(node)
    client.send(fetch_request("t", 0, max_wait_ms=500), 12)
    node.settle()
    clock.advance(499)
    node.run_due()
    assert client.replies() == []
    clock.advance(1)
    node.run_due()
    assert partitions(client.reply())[0].error_code == 0


def test_a_long_poll_waits_for_min_bytes_over_all_partitions(node: Node) -> None:
    client = Exchange(node)
    size = len(batch())
    client.send(fetch_request("t", 0, partitions=3, max_wait_ms=10_000, min_bytes=3 * size), 12)
    put(node, 0)
    put(node, 1)
    assert client.replies() == []
    put(node, 0)
    data = partitions(client.reply())
    assert [len(data[index].records) for index in range(3)] == [2 * size, size, 0]


def test_a_long_poll_of_a_client_that_goes_away_leaves_nothing_behind(node: Node) -> None:
    client = Exchange(node)
    client.send(fetch_request("t", 0, max_wait_ms=10_000), 12)
    node.settle()
    timers = len(node.services.timers)
    client.connection.connection_lost(None)
    assert not node.services.catalog.topics["t"].partitions[0].is_watched
    assert len(node.services.timers) < timers


def test_an_error_is_answered_at_once(node: Node) -> None:
    client = Exchange(node)
    request = fetch_request("t", 0, max_wait_ms=10_000)
    request.topics.append(
        FetchRequest.FetchTopic(
            topic="nowhere",
            partitions=[FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)],
        )
    )
    answer = fetched(client.ask(request, 12))
    assert [topic.partitions[0].error_code for topic in answer.responses] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("offset", [-1, 3, 1 << 60])
def test_an_offset_outside_the_log_is_refused_with_its_bounds(node: Node, offset: int) -> None:
    put(node, count=2)
    data = partitions(Exchange(node).ask(fetch_request("t", offset, max_wait_ms=10_000), 12))[0]
    assert (data.error_code, data.log_start_offset, data.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, 0, 2)


def test_max_bytes_bounds_what_follows_the_first_batch(node: Node) -> None:
    size = put(node, 0, value=b"x" * 1000)
    put(node, 1, value=b"x" * 1000)
    data = partitions(Exchange(node).ask(fetch_request("t", 0, partitions=2, max_bytes=10), 12))
    assert [len(data[index].records) for index in range(2)] == [size, 0]
    data = partitions(Exchange(node).ask(fetch_request("t", 0, partitions=2, max_bytes=2 * size), 12))
    assert [len(data[index].records) for index in range(2)] == [size, size]


@pytest.mark.parametrize(("epoch", "code"), [(0, 0), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_the_leader_epoch_is_compared(node: Node, epoch: int, code: int) -> None:
    request = fetch_request("t", 0)
    request.topics[0].partitions[0].current_leader_epoch = epoch
    assert partitions(Exchange(node).ask(request, 12))[0].error_code == code


def test_an_older_leader_epoch_is_fenced(node: Node) -> None:
    node.services.catalog.topics["t"].partitions[0].leader_epoch = 2
    request = fetch_request("t", 0)
    request.topics[0].partitions[0].current_leader_epoch = 1
    assert partitions(Exchange(node).ask(request, 12))[0].error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_log_that_diverges_from_the_brokers_gets_the_diverging_epoch(node: Node) -> None:
    put(node, count=5)
    request = fetch_request("t", 9)
    request.topics[0].partitions[0].last_fetched_epoch = 0
    data = partitions(Exchange(node).ask(request, 12))[0]
    assert data.diverging_epoch is not None
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 5)
    assert len(data.records) == 0


def test_unknown_topic_ids_are_refused_by_id(node: Node) -> None:
    request = fetch_request("", 0)
    request.topics[0].topic_id = type(node.services.catalog.topics["t"].id)(int=77)
    answer = fetched(Exchange(node).ask(request, 13))
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert answer.responses[0].topic_id.int == 77


def incremental(session_id: int, epoch: int, **more: object) -> FetchRequest:
    return FetchRequest(max_wait_ms=0, min_bytes=1, session_id=session_id, session_epoch=epoch, topics=[], **more)  # type: ignore[arg-type]


def test_a_session_sends_only_what_is_new(node: Node) -> None:
    client = Exchange(node)
    opened = fetched(client.ask(fetch_request("t", 0, partitions=3, session_epoch=0), 12))
    assert opened.session_id > 0
    assert len(partitions(opened)) == 3
    assert partitions(client.ask(incremental(opened.session_id, 1), 12)) == {}
    put(node, 1)
    assert list(partitions(client.ask(incremental(opened.session_id, 2), 12))) == [1]
    again = fetched(client.ask(incremental(opened.session_id, 2), 12))
    assert again.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_session_forgets_what_the_client_names(node: Node) -> None:
    client = Exchange(node)
    opened = fetched(client.ask(fetch_request("t", 0, partitions=2, session_epoch=0), 12))
    put(node, 0)
    put(node, 1)
    forgotten = [FetchRequest.ForgottenTopic(topic="t", partitions=[0])]
    answer = client.ask(incremental(opened.session_id, 1, forgotten_topics_data=forgotten), 12)
    assert list(partitions(answer)) == [1]


def test_an_unknown_session_is_refused_at_the_top(node: Node) -> None:
    answer = fetched(Exchange(node).ask(incremental(4711, 1), 12))
    assert (answer.error_code, answer.session_id, answer.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, [])


def test_a_session_without_room_for_more_partitions_has_to_begin_again_and_gets_none(node: Node) -> None:
    sessions = FetchSessions(10, node.services.clock, max_partitions=2)
    services = type(node.services)(**node.services.field_values() | {"fetch_sessions": sessions})
    node.dispatcher = RequestDispatcher(services, Gate(services))
    client = Exchange(node)
    opened = fetched(client.ask(fetch_request("t", 0, partitions=2, session_epoch=0), 12))
    assert opened.session_id
    asked = fetch_request("t", 0, partitions=3, session_id=opened.session_id, session_epoch=1)
    answer = fetched(client.ask(asked, 12))
    assert (answer.error_code, answer.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
    again = fetched(client.ask(fetch_request("t", 0, partitions=3, session_epoch=0), 12))
    assert (again.session_id, len(partitions(again))) == (0, 3)


def test_a_session_can_be_closed(node: Node) -> None:
    client = Exchange(node)
    opened = fetched(client.ask(fetch_request("t", 0, session_epoch=0), 12))
    closing = fetched(client.ask(incremental(opened.session_id, -1), 12))
    assert (closing.session_id, closing.responses) == (0, [])
    assert len(node.services.fetch_sessions) == 0


def test_partitions_that_got_data_are_read_last_next_time(node: Node) -> None:
    client = Exchange(node)
    size = put(node, 0)
    put(node, 1)
    opened = fetched(client.ask(fetch_request("t", 0, partitions=2, session_epoch=0, max_bytes=size), 12))
    data = partitions(opened)
    assert [len(data[index].records) for index in range(2)] == [size, 0]
    answer = client.ask(incremental(opened.session_id, 1, max_bytes=size), 12)
    assert {index: len(data.records) for index, data in partitions(answer).items()} == {1: size}


def test_a_topic_of_zstd_is_refused_to_clients_that_cannot_read_it(node: Node) -> None:
    make_topic(node, "z", compression_type="zstd")
    client = Exchange(node)
    code = partitions(client.ask(fetch_request("z", 0), 9))[0].error_code
    assert code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert partitions(client.ask(fetch_request("z", 0), 10))[0].error_code == 0


class ColdSlice(LogSlice):
    """A slice whose pages are not in memory."""

    def __init__(self, length: int, read: Callable[[], bytes]) -> None:
        super().__init__(None, length)
        self.read = read

    def read_blocking(self) -> bytes:
        return self.read()


@pytest.fixture
def jobs(node: Node, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Work for threads is kept here until the test runs it."""
    kept: list[Callable[[], None]] = []
    monkeypatch.setattr(node.services.workers, "run", lambda work, done: kept.append(lambda: done(work(), None)))
    return kept


def test_cold_data_is_read_by_a_worker_while_others_go_on(
    node: Node, jobs: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(node)
    put(node, 1)
    log = node.services.catalog.topics["t"].partitions[0].log
    expected = log.read(0, 1 << 20, end_offset=1).read_blocking()
    monkeypatch.setattr(log, "read", lambda *_, **__: ColdSlice(len(expected), lambda: expected))
    client, other = Exchange(node), Exchange(node)
    client.send(fetch_request("t", 0, partitions=2), 12)
    node.settle()
    assert client.replies() == []
    put(other.node, 2)
    for job in jobs:
        job()
    node.settle()
    data = partitions(client.reply())
    assert bytes(data[0].records) == expected
    assert len(data[1].records) == len(expected)


def test_a_cold_read_that_fails_is_a_storage_error_of_its_partition_alone(
    node: Node, jobs: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(node)
    put(node, 1)

    def fail() -> bytes:
        raise OSError("the disk is gone")

    monkeypatch.setattr(
        node.services.catalog.topics["t"].partitions[0].log, "read", lambda *_, **__: ColdSlice(10, fail)
    )
    client = Exchange(node)
    client.send(fetch_request("t", 0, partitions=2), 12)
    node.settle()
    for job in jobs:
        job()
    node.settle()
    data = partitions(client.reply())
    assert [data[0].error_code, data[1].error_code] == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
    assert len(data[1].records) > 0


@pytest.mark.parametrize("version", [0, 3, 4, 12])
def test_a_read_that_retention_overtakes_gives_what_it_found_and_the_next_hears_of_it(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, files, clock = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t", retention_bytes="1")
    partition = node.services.catalog.topics["t"].partitions[0]
    for _ in range(3):
        put(node)
        partition.log.roll(clock.wall_ms())
    jobs: list[Callable[[], None]] = []
    files.cold = ["*.log"]
    client = Exchange(node)
    with monkeypatch.context() as patch:
        patch.setattr(node.services.workers, "run", lambda work, done: jobs.append(lambda: done(work(), None)))
        client.send(fetch_request("t", 0), version)
        node.settle()
        assert client.replies() == []
        assert [segment.base_offset for segment in partition.log.retention.apply(clock.wall_ms())] == [0, 1]
        jobs.pop()()
        node.settle()
    data = partitions(client.reply())[0]
    assert (data.error_code, len(data.records or b"") > 0) == (0, True)
    assert partitions(client.ask(fetch_request("t", 0), version))[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert len(partitions(client.ask(fetch_request("t", 2), version))[0].records or b"") > 0


@pytest.mark.parametrize("version", [0, 4, 12])
@pytest.mark.parametrize("is_cold", [True, False])
def test_damage_is_reported_of_its_partition_alone_cold_or_not(is_cold: bool, version: int) -> None:
    node, files, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t", 2)
    for partition in (0, 0, 1, 1):
        put(node, partition)
    damaged = node.services.catalog.topics["t"].partitions[0].log.segments[0].path
    file = files.open(damaged, writable=True)
    file.pwritev([b"\xff" * 20], 0)
    files.cold = ["*.log"] if is_cold else []
    data = partitions(Exchange(node).ask(fetch_request("t", 1, partitions=2), version))
    assert [data[0].error_code, data[1].error_code] == [ErrorCode.CORRUPT_MESSAGE, 0]
    assert not data[0].records
    assert len(data[1].records or b"") > 0


def test_many_partitions_are_read_in_steps_and_answered_as_in_one(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    for partition in (0, 1):
        put(node, partition, count=partition + 1)
    whole = Exchange(node).ask(fetch_request("t", 0, partitions=3), 12)
    monkeypatch.setattr(delayed_fetch, "PARTITIONS_PER_STEP", 1)
    client = Exchange(node)
    client.send(fetch_request("t", 0, partitions=3), 12)
    steps = 0
    node.settle()
    while not (answers := client.replies()):
        node.run_due()
        steps += 1
    assert steps == 4  # the partitions, and the answer in a turn of its own
    assert answers[0][1] == whole


def test_what_comes_to_a_partition_between_two_steps_is_seen(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_fetch, "PARTITIONS_PER_STEP", 1)
    client = Exchange(node)
    client.send(fetch_request("t", 0, partitions=3, max_wait_ms=60_000), 12)
    node.run_due()
    put(node)  # it was read, and the next ones were not
    assert client.replies() == []
    for _ in range(3):
        node.run_due()
    assert len(partitions(client.reply())[0].records or b"") > 0


def test_who_goes_away_between_two_steps_leaves_nothing_behind(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_fetch, "PARTITIONS_PER_STEP", 1)
    client = Exchange(node)
    client.send(fetch_request("t", 0, partitions=3, max_wait_ms=60_000), 12)
    node.run_due()
    client.connection.connection_lost(None)
    for _ in range(3):
        node.run_due()
    partition = node.services.catalog.partition("t", 0)
    assert partition is not None
    assert not partition.is_watched


def aborted(data: FetchResponse.PartitionData) -> list[tuple[int, int]] | None:
    found = data.aborted_transactions
    return None if found is None else [(one.producer_id, one.first_offset) for one in found]


@pytest.mark.parametrize("is_cold", [True, False])
@pytest.mark.parametrize("version", [4, 11, 12])
def test_readers_of_committed_records_get_what_was_aborted_in_what_they_read(is_cold: bool, version: int) -> None:
    node, files, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t", 1)
    sizes = [put(node) for _ in range(6)]
    log = node.services.catalog.topics["t"].partitions[0].log
    log.transactions = LogTransactions([AbortedTransaction(1000, 0, 2, 3), AbortedTransaction(2000, 3, 4, 5)])
    files.cold = ["*.log"] if is_cold else []
    client = Exchange(node)
    for _ in range(3):  # the second one would be answered the short way, if it could be
        wanted = fetch_request("t", 0, isolation_level=1)
        wanted.topics[0].partitions[0].partition_max_bytes = sizes[0] * 2
        assert aborted(partitions(client.ask(wanted, version))[0]) == [(1000, 0)]
        assert aborted(partitions(client.ask(fetch_request("t", 1, isolation_level=1), version))[0]) == [
            (1000, 0),
            (2000, 3),
        ]
        assert aborted(partitions(client.ask(fetch_request("t", 5, isolation_level=1), version))[0]) == []
        assert aborted(partitions(client.ask(fetch_request("t", 1), version))[0]) is None


def test_readers_of_committed_records_get_nothing_from_an_open_transaction_on(node: Node) -> None:
    for _ in range(4):
        put(node)
    log = node.services.catalog.topics["t"].partitions[0].log
    log.transactions = LogTransactions([], {1000: 2})
    client = Exchange(node)
    one_size = len(partitions(client.ask(fetch_request("t", 3), 12))[0].records or b"")
    for level, batches, stable in ((1, 2, 2), (0, 4, 2)):
        data = partitions(client.ask(fetch_request("t", 0, isolation_level=level), 12))[0]
        assert (len(data.records or b""), data.last_stable_offset, data.high_watermark) == (
            batches * one_size,
            stable,
            4,
        )
        asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
        topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[asked])
        answer = client.ask(ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=[topic]), 7)
        assert isinstance(answer, ListOffsetsResponse)
        assert answer.topics[0].partitions[0].offset == (2 if level else 4)
    log.move_start(3)
    data = partitions(client.ask(fetch_request("t", 3, isolation_level=1), 12))[0]
    assert (data.error_code, data.records, data.last_stable_offset) == (0, b"", 3)
