"""Decisions 2, 3 and 9: one append per log and turn, what acknowledgements wait for, and what may be seen when."""

from __future__ import annotations

import errno
import gc
import random
import sys
from collections.abc import Callable
from types import FrameType

import pytest
from kit.exchange import Exchange, batch, fetch_request, make_topic, produce_request
from kit.logs import ticket_with_steps
from kit.nodes import DATA, partition_of, start_node

from ottla.broker.catalog.catalog import NewTopic, TopicResult
from ottla.broker.net.connection import Connection
from ottla.broker.node import Node
from ottla.broker.partitions.appending import PartitionAppend
from ottla.broker.runtime import turn as turn_module
from ottla.broker.runtime.disk import POSTPONED_MS
from ottla.broker.runtime.queued_syncer import QueuedSyncer
from ottla.broker.runtime.turn import MOST_GATHERING, Turn
from ottla.config.topic import TopicConfig
from ottla.protocol.api.api_versions import ApiVersionsRequest
from ottla.protocol.api.fetch import FetchResponse
from ottla.protocol.api.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.storage.log.append import Appended, AppendEntry, AppendResult
from ottla.storage.log.log import Log
from ottla.storage.log.sync import SyncTicket

METADATA_LOG = DATA / "__cluster_metadata-0" / "00000000000000000000.log"


def appends_of(node: Node, topic: str, index: int = 0) -> list[int]:
    """How many batches each append call to the partition's log takes from now on."""
    log = node.services.catalog.topics[topic].partitions[index].log
    counts: list[int] = []
    original = log.append_batches

    def counting(batches: list[memoryview], now_ms: int, takes: int = 1) -> object:
        counts.append(len(batches))
        return original(batches, now_ms, takes)

    log.append_batches = counting  # type: ignore[method-assign]  # a spy
    return counts


def first(response: object) -> ProduceResponse.PartitionProduceResponse:
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0]


def latest(topic: str) -> ListOffsetsRequest:
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition])]
    )


def offset_of(response: object) -> int:
    assert isinstance(response, ListOffsetsResponse)
    return response.topics[0].partitions[0].offset


@pytest.fixture
def node() -> Node:
    node, _, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t")
    return node


@pytest.fixture
def synced_node() -> Node:
    node, _, _ = start_node(ottla_acks_all="sync")
    make_topic(node, "t")
    return node


def test_the_batches_of_one_turn_reach_the_log_in_one_call(node: Node) -> None:
    counts = appends_of(node, "t")
    clients = [Exchange(node) for _ in range(4)]
    for client in clients:
        for _ in range(5):
            client.send(produce_request("t", batch(2)), 9)
    assert counts == []
    node.services.turn.end()
    assert counts == [20]
    offsets = [first(reply).base_offset for client in clients for _, reply in client.replies()]
    assert sorted(offsets) == list(range(0, 40, 2))
    assert all(client.transport.sends == 1 for client in clients)


@pytest.mark.parametrize(("partitions", "others_wait"), [(MOST_GATHERING - 1, False), (MOST_GATHERING, True)])
def test_a_turn_that_appends_to_many_partitions_lets_further_requests_wait_for_the_next(
    partitions: int, others_wait: bool
) -> None:
    node, _, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, "many", partitions)
    make_topic(node, "t")
    counts = appends_of(node, "t")
    one, other = Exchange(node), Exchange(node)
    data = [ProduceRequest.PartitionProduceData(index=index, records=batch()) for index in range(partitions)]
    many = ProduceRequest.TopicProduceData(name="many", partition_data=data)
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[many])
    one.ask(request, 9)  # first appends to many partitions are not made in one turn
    one.send(request, 9)
    other.send(produce_request("t", batch()), 9)
    node.services.turn.end()
    assert counts == ([] if others_wait else [1])
    node.settle()
    assert counts == [1]
    assert [len(client.replies()) for client in (one, other)] == [1, 1]


def test_a_look_at_the_log_sees_what_was_produced_before_in_the_same_turn(node: Node) -> None:
    counts = appends_of(node, "t")
    client = Exchange(node)
    client.send(produce_request("t", batch(3)), 9)
    client.send(latest("t"), 7)
    client.send(produce_request("t", batch(3)), 9)
    client.send(fetch_request("t", 3), 12)
    node.services.turn.end()
    replies = [reply for _, reply in client.replies()]
    assert counts == [1, 1]
    assert offset_of(replies[1]) == 3
    fetched = replies[3]
    assert isinstance(fetched, FetchResponse)
    assert fetched.responses[0].partitions[0].high_watermark == 6


def test_a_refused_batch_does_not_hold_up_the_others_of_its_turn(node: Node) -> None:
    client = Exchange(node)
    broken = bytearray(batch(2))
    broken[-1] ^= 1
    for records in (batch(2), bytes(broken), batch(2)):
        client.send(produce_request("t", records), 9)
    node.services.turn.end()
    results = [(first(reply).error_code, first(reply).base_offset) for _, reply in client.replies()]
    assert results == [(0, 0), (ErrorCode.CORRUPT_MESSAGE, -1), (0, 2)]


def test_acks_all_waits_for_the_sync_and_acks_1_does_not(synced_node: Node) -> None:
    eager, careful = Exchange(synced_node), Exchange(synced_node)
    eager.send(produce_request("t", batch(), acks=1), 9)
    careful.send(produce_request("t", batch(), acks=-1), 9)
    synced_node.services.turn.end()
    assert first(eager.reply()).base_offset == 0
    assert careful.replies() == []
    synced_node.settle()
    assert first(careful.reply()).base_offset == 1


def test_one_sync_serves_everybody_who_waits(synced_node: Node) -> None:
    clients = [Exchange(synced_node) for _ in range(10)]
    syncs = synced_node.services.metrics.syncs.count
    for client in clients:
        client.send(produce_request("t", batch()), 9)
    synced_node.settle()
    assert synced_node.services.metrics.syncs.count == syncs + 1
    assert sorted(first(client.reply()).base_offset for client in clients) == list(range(10))


def test_what_is_not_synced_is_not_seen(synced_node: Node) -> None:
    client = Exchange(synced_node)
    client.send(produce_request("t", batch(5), acks=1), 9)
    synced_node.services.turn.end()
    client.replies()
    client.send(fetch_request("t", 0), 12)
    synced_node.services.turn.end()
    fetched = client.reply()
    assert isinstance(fetched, FetchResponse)
    assert (fetched.responses[0].partitions[0].high_watermark, len(fetched.responses[0].partitions[0].records)) == (
        0,
        0,
    )
    synced_node.settle()
    fetched = client.ask(fetch_request("t", 0), 12)
    assert isinstance(fetched, FetchResponse)
    assert fetched.responses[0].partitions[0].high_watermark == 5


def test_latest_awaits_the_sync_of_the_log_end_it_saw(synced_node: Node) -> None:
    client = Exchange(synced_node)
    client.send(produce_request("t", batch(5), acks=1), 9)
    client.send(latest("t"), 7)
    synced_node.services.turn.end()
    assert [correlation_id for correlation_id, _ in client.replies()] == [1]
    synced_node.settle()
    assert offset_of(client.reply()) == 5


def test_later_requests_start_behind_a_produce_that_waits_and_are_answered_after_it(synced_node: Node) -> None:
    client = Exchange(synced_node)
    client.send(produce_request("t", batch()), 9)
    client.send(ApiVersionsRequest(), 0)
    synced_node.services.turn.end()
    assert client.replies() == []
    synced_node.settle()
    assert [correlation_id for correlation_id, _ in client.replies()] == [1, 2]


def test_a_sync_that_takes_too_long_times_out_the_request_and_not_the_record() -> None:
    node, _, clock = start_node(ottla_acks_all="sync")
    make_topic(node, "t")
    client = Exchange(node)
    client.send(produce_request("t", batch(), timeout_ms=1000), 9)
    client.send(produce_request("t", batch(), timeout_ms=5000), 9)
    node.services.turn.end()
    clock.advance(999)
    node.run_due()
    assert client.replies() == []
    clock.advance(1)
    node.run_due()
    assert first(client.reply()).error_code == ErrorCode.REQUEST_TIMED_OUT
    node.settle()
    assert first(client.reply()).base_offset == 1
    assert offset_of(client.ask(latest("t"), 7)) == 2


def test_a_failed_sync_is_reported_to_all_that_wait_and_is_never_tried_again() -> None:
    node, files, _ = start_node(ottla_acks_all="sync")
    make_topic(node, "t", 2)
    clients = [Exchange(node) for _ in range(2)]
    for index, client in enumerate(clients):
        client.send(produce_request("t", batch(), partition=index), 9)
    node.services.turn.end()
    files.fail("fdatasync", "*t-0*|*/ottla-redo.log", errno.EIO)
    node.settle()
    assert [first(client.reply()).error_code for client in clients] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    files.heal()
    again = clients[0].ask(produce_request("t", batch()), 9)
    assert first(again).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert node.services.log_manager.directories[0].is_offline
    fetched = clients[0].ask(fetch_request("t", 0), 12)
    assert isinstance(fetched, FetchResponse)
    assert fetched.responses[0].partitions[0].error_code == 0


def test_a_log_whose_sync_is_refused_because_another_one_failed_takes_no_more_writes() -> None:
    """A power cut may leave what it appended after that, and not what was refused: a start would find a hole."""
    node, files, _ = start_node(ottla_acks_all="sync")
    make_topic(node, "t")
    results: list[list[TopicResult]] = []
    for name in "abcd":  # one change at a time: the first is synced in the round that fails, the others wait for it
        node.services.catalog.create_topics([NewTopic(name, 1)], results.append)
    first_end = files.size(METADATA_LOG)
    client = Exchange(node)
    client.send(produce_request("t", batch()), 9)
    files.fail("fdatasync", "*t-0*|*/ottla-redo.log", errno.EIO)
    node.settle()
    assert first(client.reply()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(results) == 4
    assert files.size(METADATA_LOG) < first_end + 2 * 150, "one more change was written at most"


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_a_sync_that_cannot_begin_for_want_of_a_descriptor_is_waited_for(code: int) -> None:
    """The disk has not failed: who waits goes on waiting, logs that need no descriptor are synced all the same."""
    node, files, clock = start_node(ottla_acks_all="sync")
    make_topic(node, "t")
    make_topic(node, "u")
    client = Exchange(node)
    client.ask(produce_request("u", batch()), 9)  # its directory's name is on disk now, that of t is not
    lacking = files.fail("sync_directory", "*", code, times=None)
    client.send(produce_request("u", batch()), 9)
    client.send(produce_request("t", batch()), 9)
    node.services.turn.end()
    node.settle()
    assert [first(reply).base_offset for _, reply in client.replies()] == [1]
    for _ in range(2):
        clock.advance(POSTPONED_MS)
        node.run_due()
        node.settle()
    assert client.replies() == []
    assert node.services.log_manager.directories[0].is_online
    files.heal(lacking)
    clock.advance(POSTPONED_MS)
    node.run_due()
    node.settle()
    assert [first(reply).base_offset for _, reply in client.replies()] == [0]
    later, _, _ = start_node(files.crash(random.Random(1)))
    assert offset_of(Exchange(later).ask(latest("t"), 7)) == 1


def test_who_waits_for_a_sync_that_could_not_begin_is_served_by_the_next_round() -> None:
    node, files, _ = start_node(ottla_acks_all="sync")
    make_topic(node, "t")
    clients = [Exchange(node) for _ in range(2)]
    clients[0].send(produce_request("t", batch()), 9)
    node.services.turn.end()
    files.fail("sync_directory", "*", errno.EMFILE)
    node.settle()
    assert first(clients[1].ask(produce_request("t", batch()), 9)).base_offset == 1
    assert first(clients[0].reply()).base_offset == 0


def test_who_waits_for_a_sync_that_could_not_begin_hears_of_the_deletion_of_the_topic() -> None:
    node, files, clock = start_node(ottla_acks_all="sync")
    make_topic(node, "t")
    client = Exchange(node)
    client.send(produce_request("t", batch()), 9)
    node.services.turn.end()
    files.fail("sync_directory", "*/t-0", errno.EMFILE, times=None)
    node.settle()
    node.services.catalog.delete_topics(["t"], lambda _: None)
    node.settle()
    assert first(client.reply()).error_code != ErrorCode.NONE
    clock.advance(POSTPONED_MS)
    node.run_due()
    node.settle()
    assert node.services.log_manager.directories[0].is_online


@pytest.mark.parametrize("version", [0, 7])
def test_a_look_up_that_waits_for_a_sync_is_refused_when_the_topic_is_deleted(version: int) -> None:
    """The end that is visible, 0, would say that the log is empty."""
    node, files, _ = start_node(ottla_acks_all="sync")
    make_topic(node, "t")
    client = Exchange(node)
    client.send(produce_request("t", batch(), acks=0), 9)
    client.send(latest("t"), version)
    node.services.turn.end()
    files.fail("sync_directory", "*/t-0", errno.EMFILE, times=None)
    node.settle()
    assert client.replies() == []
    node.services.catalog.delete_topics(["t"], lambda _: None)
    node.settle()
    answer = client.reply()
    assert isinstance(answer, ListOffsetsResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_is_deleted_while_a_sync_of_it_cannot_begin_is_gone_when_that_has_ended() -> None:
    """The sync is still under way when the deletion comes to the log, which waits for its end."""
    node, files, _ = start_node(ottla_acks_all="sync")
    make_topic(node, "t")
    Exchange(node).send(produce_request("t", batch()), 9)
    node.services.turn.end()
    log = partition_of(node, "t").log
    files.fail("sync_directory", "*/t-0", errno.EMFILE, times=None)
    is_quiet: list[bool] = []
    node.services.syncer.retire(log, lambda: is_quiet.append(log.unsynced.ticket is None))
    node.settle()
    assert is_quiet == [True], "no sync is left that nobody would end"


@pytest.mark.parametrize("call", ["fdatasync", "sync_directory"])
def test_a_sync_that_failed_for_want_of_memory_is_a_failed_one(call: str) -> None:
    """Only where nothing was opened nothing was tried."""
    node, files, _ = start_node(ottla_acks_all="sync")
    make_topic(node, "t")
    client = Exchange(node)
    client.send(produce_request("t", batch()), 9)
    node.services.turn.end()
    files.fail(call, "*/t-0*", errno.ENOMEM)
    node.settle()
    assert first(client.reply()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert node.services.log_manager.directories[0].is_offline


def test_a_duplicate_is_answered_no_earlier_than_its_original(synced_node: Node) -> None:
    client = Exchange(synced_node)
    records = batch(producer_id=7, producer_epoch=0, base_sequence=0)
    client.send(produce_request("t", records), 9)
    client.send(produce_request("t", records), 9)
    synced_node.services.turn.end()
    assert client.replies() == []
    synced_node.settle()
    assert [first(reply).base_offset for _, reply in client.replies()] == [0, 0]
    assert offset_of(client.ask(latest("t"), 7)) == 1


def test_flush_messages_holds_the_acknowledgement_until_the_sync() -> None:
    node, _, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t", flush_messages="2")
    client = Exchange(node)
    client.send(produce_request("t", batch(), acks=1), 9)
    node.services.turn.end()
    assert first(client.reply()).base_offset == 0
    client.send(produce_request("t", batch(), acks=1), 9)
    node.services.turn.end()
    assert client.replies() == []
    node.settle()
    assert first(client.reply()).base_offset == 1


def test_what_a_failed_sync_for_flush_messages_should_have_covered_is_never_shown() -> None:
    node, files, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t", flush_messages="1")
    client = Exchange(node)
    client.send(produce_request("t", batch(), acks=1), 9)
    node.services.turn.end()
    files.fail("fdatasync", "*.log", errno.EIO)
    node.settle()
    assert first(client.reply()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    refused = client.ask(produce_request("t", batch(), acks=1), 9)
    assert first(refused).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert partition_of(node, "t").high_watermark == 0


def test_what_flush_messages_holds_is_still_held_after_a_change_to_sync() -> None:
    node, _, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t", flush_messages="1")
    client, partition, syncer = Exchange(node), partition_of(node, "t"), node.services.syncer
    assert isinstance(syncer, QueuedSyncer)
    for _ in range(2):
        client.send(produce_request("t", batch(), acks=1), 9)
        node.services.turn.end()
    partition.configure(TopicConfig.resolve({"ottla.acks.all": "sync"}, node.services.config))
    syncer.run_one()
    assert (partition.log.synced_offset, partition.high_watermark) == (1, 1)
    node.settle()
    assert (partition.log.synced_offset, partition.high_watermark) == (2, 2)


def test_flush_ms_syncs_after_its_time_and_nobody_waits_for_it() -> None:
    node, _, clock = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t", flush_ms="500")
    client = Exchange(node)
    client.send(produce_request("t", batch()), 9)
    node.services.turn.end()
    assert first(client.reply()).base_offset == 0
    log = node.services.catalog.topics["t"].partitions[0].log
    assert log.synced_offset == 0
    clock.advance(500)
    node.run_due()
    node.settle()
    assert log.synced_offset == 1


def test_a_deleted_topic_answers_those_who_wait_on_it() -> None:
    node, _, _ = start_node(ottla_acks_all="sync")
    make_topic(node, "t")
    producer, poller = Exchange(node), Exchange(node)
    poller.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
    node.services.turn.end()
    node.services.catalog.delete_topics(["t"], lambda _: None)
    node.settle()
    fetched = poller.reply()
    assert isinstance(fetched, FetchResponse)
    assert fetched.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    refused = producer.ask(produce_request("t", batch()), 9)
    assert first(refused).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_what_acks_all_promised_survives_the_loss_of_everything_unsynced() -> None:
    node, files, _ = start_node(ottla_acks_all="sync")
    make_topic(node, "t")
    client = Exchange(node)
    for _ in range(5):
        assert first(client.ask(produce_request("t", batch(3)), 9)).error_code == 0
    client.send(produce_request("t", batch(3), acks=1), 9)
    node.services.turn.end()
    after, _, _ = start_node(files.crash(random.Random(3)))
    end_offset = offset_of(Exchange(after).ask(latest("t"), 7))
    assert end_offset in (15, 18)


def test_a_bug_in_one_partitions_answers_keeps_no_other_batch_beyond_the_turn() -> None:
    """Left behind, it would be appended from a receive buffer that holds somebody else's bytes by then."""
    node, _, _ = start_node()
    make_topic(node, "t", 2)
    broken, sound = node.services.catalog.topics["t"].partitions

    class Broken:
        def appended(self, index: int, result: AppendResult) -> None:
            raise ValueError("a bug")

    broken.gather(AppendEntry(memoryview(bytearray(batch())), 9), Broken(), 0)
    client = Exchange(node)
    client.send(produce_request("t", batch(), partition=1), 9)
    client.end_turn()
    assert sound.log.log_end_offset == 1
    node.settle()
    assert first(client.reply()).error_code == ErrorCode.NONE


def test_batches_for_whose_append_there_is_no_memory_are_refused_and_the_next_turn_appends(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kept, they would be appended later from a buffer with other bytes, and no turn would append to the partition."""
    client = Exchange(node)
    client.send(produce_request("t", batch()), 9)

    def no_memory(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as broken:
        broken.setattr(PartitionAppend, "flush", no_memory)
        client.end_turn()
    assert first(client.reply()).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert not partition_of(node, "t").gathered
    assert first(client.ask(produce_request("t", batch()), 9)).base_offset == 0


class OwnResults:
    """Takes the results of its batches."""

    def __init__(self) -> None:
        self.results: list[AppendResult] = []

    def run_appended(self, appended: Appended, partition: PartitionAppend) -> None:
        self.results += appended


@pytest.mark.parametrize("is_newest", [False, True])
@pytest.mark.parametrize("is_first", [False, True])
def test_no_memory_at_any_line_of_a_gathering_gives_no_waiter_the_results_of_another(
    *, is_newest: bool, is_first: bool
) -> None:
    lines = 0
    code = PartitionAppend.gather_run.__code__

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., object] | None:
        nonlocal lines
        if frame.f_code is not code:
            return None
        if event == "line":
            lines -= 1
            if not lines:
                raise MemoryError
        return trace

    for place in range(1, 30):
        node, _, _ = start_node()
        make_topic(node, "t")
        partition = partition_of(node, "t")
        one, other = OwnResults(), OwnResults()
        gathered = [] if is_first else [b"before"]
        for value in gathered:
            partition.gather_run([memoryview(bytearray(batch(value=value)))], 1, one)
        lines, traced = place, sys.gettrace()
        sys.settrace(trace)
        try:
            failing = [memoryview(bytearray(batch(2, value=b"failing")))]
            partition.gather_run(failing, 1, one if is_newest else OwnResults())
        except MemoryError:
            pass
        else:
            break
        finally:
            sys.settrace(traced)
        partition.gather_run([memoryview(bytearray(batch(value=b"after")))], 1, other)
        node.services.turn.end()
        assert [result.base_offset for result in one.results] == list(range(len(gathered)))
        assert [result.base_offset for result in other.results] == [len(gathered)]
        assert partition.log.log_end_offset == len(gathered) + 1
    assert 5 < place < 29


@pytest.mark.parametrize("where", ["beginning", "running"])
def test_a_bug_in_one_logs_sync_leaves_nobody_of_the_round_without_an_answer(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that ended with it would answer no round of the directory any more."""
    node, _, _ = start_node(ottla_acks_all="sync")
    make_topic(node, "t")
    make_topic(node, "u")
    log = node.services.catalog.topics["t"].partitions[0].log  # type: ignore[union-attr]
    begin = type(log).begin_sync

    def bug(*_: object) -> None:
        raise RuntimeError("a bug")

    def with_bug(one: Log) -> SyncTicket | None:
        if one is log and where == "beginning":
            bug()
        ticket = begin(one)
        if one is log and ticket is not None:
            return ticket_with_steps(ticket, [bug])
        return ticket

    monkeypatch.setattr(type(log), "begin_sync", with_bug)
    client = Exchange(node)
    client.send(produce_request("t", batch(1)), 9)
    client.send(produce_request("u", batch(1)), 9)
    node.services.turn.end()
    node.settle()
    answers = [first(reply).error_code for _, reply in client.replies()]
    assert answers[0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(answers) == 2
    assert "a bug" in str(log.error)


def test_requests_that_wait_leave_no_turn_open_which_would_seem_long_to_those_that_come_later() -> None:
    node, _, clock = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t")
    producer, *consumers = (Exchange(node) for _ in range(3))
    producer.ask(produce_request("t", batch()), 9)
    for consumer in consumers:
        consumer.send(fetch_request("t", 1, max_wait_ms=60_000), 12)
        if node.services.turn.has_work:  # as the loop does when it has read all sockets
            node.services.turn.end()
        clock.advance(50)
    producer.send(produce_request("t", batch()), 9)
    assert not producer.transport.is_paused
    node.settle()
    assert len(producer.replies()) == 1
    assert [len(consumer.replies()) for consumer in consumers] == [1, 1]


def test_a_connection_that_has_ended_is_let_go_of_at_once_with_all_it_remembered(node: Node) -> None:
    client = Exchange(node)
    for _ in range(2):
        client.ask(produce_request("t", batch()), 9)
        client.ask(fetch_request("t", 0), 12)
    ended = id(client.connection)
    gc.disable()
    try:
        client.connection.connection_lost(None)
        del client
        assert [one for one in gc.get_objects() if id(one) == ended and isinstance(one, Connection)] == []
    finally:
        gc.enable()


def test_a_turn_ends_though_there_is_no_memory_to_log_that_one_of_its_steps_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it would never end: all replies from then on would wait for it."""

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    ran: list[str] = []
    turn = Turn(lambda: 0)
    monkeypatch.setattr(turn_module.LOG, "exception", fail)
    for plan in (turn.after_append, turn.send_at_end, turn.last):
        plan(fail)
        plan(lambda: ran.append("behind it"))
    turn.end(fail)
    assert ran == 3 * ["behind it"]
    assert not turn.has_work


def test_an_end_of_a_turn_for_which_there_is_no_memory_is_made_by_the_next_work() -> None:
    """Else no turn would ever end again, or what was gathered would be lost without an answer."""
    errors, ran, ends = [MemoryError()], [], []

    def now_ms() -> int:
        if errors:
            raise errors.pop()
        return 7

    class Gathered:
        def flush(self, now_ms: int) -> None:
            ran.append(f"flush at {now_ms}")

        def give_up(self) -> None:
            ran.append("give up")

    turn = Turn(now_ms)
    turn.on_work = lambda: ends.append("planned")
    turn.note_gathering(Gathered())
    turn.after_append(lambda: ran.append("after the append"))
    with pytest.raises(MemoryError):
        turn.end()
    assert (ran, ends) == ([], ["planned"])
    turn.send_at_end(lambda: ran.append("send"))
    assert ends == ["planned"] * 2
    turn.end()
    assert ran == ["flush at 7", "after the append", "send"]


def test_a_turn_that_had_no_memory_to_end_ends_after_the_shortage(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else would plan its end: the turn counts as planned when more work comes."""
    planned: list[str] = []
    turn = node.services.turn
    turn.on_work = lambda: planned.append("end")
    client = Exchange(node)
    client.send(produce_request("t", batch()), 9)
    assert planned == ["end"]

    def no_memory() -> int:
        raise MemoryError

    with monkeypatch.context() as broken:
        broken.setattr(turn, "_now_ms", no_memory)
        with pytest.raises(MemoryError):
            turn.poll_done()
    turn.plan_again()
    assert planned == ["end"] * 2
    turn.poll_done()
    assert first(client.reply()).base_offset == 0
    turn.plan_again()
    assert planned == ["end"] * 2
