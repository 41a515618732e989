"""Produce requests that stand one behind the other in one read: started together, each answered as if it came alone."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples
from kit.exchange import Exchange, batch, fetch_request, make_topic, produce_request
from kit.nodes import start_node
from kit.produce_frames import COUNTED, KINDS, answers_of, damaged, frame, frames_of, make_node, split
from kit.transport import feed

from ottla.broker.fast.produce_run import ProduceRun
from ottla.broker.net.connection import READS_ALONE
from ottla.broker.node import Node
from ottla.protocol.api.fetch import FetchResponse
from ottla.protocol.api.produce import ProduceResponse
from ottla.protocol.errors import ErrorCode


def alone(node: Node) -> Exchange:
    """A client that has been the only one to send for a while."""
    client = Exchange(node)
    client.connections.shared.last_reader, client.connections.shared.reads_in_a_row = client.connection, READS_ALONE
    return client


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from([1, 1, 50, 200, 9000])), min_size=1, max_size=12),
    st.integers(0, 40_000),
)
def test_requests_in_one_read_are_answered_as_if_each_had_come_alone(kinds: list[tuple[str, int]], cut: int) -> None:
    frames = [*frames_of([("plain", 1), ("old", 1)]), *frames_of(kinds)]
    one_by_one = Exchange(make_node())
    for each in frames:
        feed(one_by_one.connection, each)
        one_by_one.node.settle()
    stream = b"".join(frames)
    for together in (Exchange(make_node()), alone(make_node())):
        for piece in (stream[:cut], stream[cut:]):
            feed(together.connection, piece)
        together.node.settle()
        assert together.transport.written == one_by_one.transport.written
        for attribute in COUNTED:
            values = [getattr(client.node.services.metrics.topic("t"), attribute) for client in (one_by_one, together)]
            assert values[0] == values[1], attribute
        assert one_by_one.node.services.metrics.request_counts == together.node.services.metrics.request_counts


def test_who_is_alone_is_answered_within_the_read_and_what_is_left_of_it_after_that() -> None:
    client = alone(make_node())
    feed(client.connection, frames_of([("plain", 1)])[0])
    frames = frames_of([("plain", 1), ("plain", 300), ("damaged", 1), ("plain", 5), ("other", 1), ("plain", 9)])
    client.transport.written.clear()
    feed(client.connection, b"".join(frames[:4]))
    assert [answer.error_code for answer in answers_of(client)] == [0, 0, ErrorCode.CORRUPT_MESSAGE, 0]
    assert not client.node.services.turn.has_work
    client.transport.written.clear()
    feed(client.connection, frames[0] + frames[1][:50])
    feed(client.connection, frames[1][50:] + frames[4])
    client.node.settle()
    feed(client.connection, frames[5])
    assert [struct.unpack(">i", reply[4:8])[0] for reply in split(client)] == [100, 101, 104, 105]
    assert not client.connection.queue.in_flight
    assert not client.node.services.turn.has_work


def test_who_is_alone_wakes_a_long_poll() -> None:
    node = make_node()
    reader, writer = Exchange(node), alone(node)
    feed(writer.connection, frames_of([("plain", 1)])[0])
    reader.ask(fetch_request("t", 0), 12)
    reader.send(fetch_request("t", 2, max_wait_ms=10_000), 12)
    reader.end_turn()
    assert not reader.replies()
    writer.connections.shared.reads_in_a_row = READS_ALONE
    writer.connections.shared.last_reader = writer.connection
    feed(writer.connection, frames_of([("plain", 1)])[0])
    node.settle()
    response = reader.reply()
    assert isinstance(response, FetchResponse)
    assert response.responses[0].partitions[0].high_watermark == 4


@pytest.mark.parametrize("topic", [{"ottla_acks_all": "sync"}, {"flush_messages": 1}], ids=str)
def test_who_is_alone_waits_for_the_disk_where_that_was_promised(topic: dict[str, object]) -> None:
    node, _, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t", **{key: str(value) for key, value in topic.items()})
    client = alone(node)
    feed(client.connection, frames_of([("plain", 1)])[0])
    node.settle()
    client.transport.written.clear()
    feed(client.connection, b"".join(frames_of([("plain", 1)] * 3)))
    assert not client.transport.written
    node.settle()
    assert [answer.base_offset for answer in answers_of(client)] == [2, 4, 6]


def test_the_only_sender_gets_an_error_for_a_topic_that_was_deleted() -> None:
    node = make_node()
    client = alone(node)
    feed(client.connection, frames_of([("plain", 1)])[0])
    node.services.catalog.delete_topics(["t"], lambda _: None)
    node.settle()
    client.transport.written.clear()
    feed(client.connection, frames_of([("plain", 1)])[0])
    node.settle()
    assert [answer.error_code for answer in answers_of(client)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_requests_of_one_template_in_one_read_are_one_run() -> None:
    client = Exchange(make_node())
    feed(client.connection, frames_of([("plain", 1)])[0])
    client.end_turn()
    feed(client.connection, b"".join(frames_of([("plain", 1), ("plain", 300), ("plain", 300), ("old", 1)])))
    runs = [request for request in client.connection.queue.in_flight if isinstance(request, ProduceRun)]
    assert [run.requests for run in runs] == [3]  # whatever their lengths


def answers(client: Exchange) -> list[ProduceResponse.PartitionProduceResponse]:
    found = []
    for _, reply in client.replies():
        assert isinstance(reply, ProduceResponse)
        found.append(reply.responses[0].partition_responses[0])
    return found


def send_run(client: Exchange, batches: list[bytes], **options: int) -> None:
    """Let the requests arrive in one read, behind one of the same template that was answered."""
    client.ask(produce_request("t", batches[0], **options), 9)
    data = b""
    for number, records in enumerate(batches):
        client.asked[200 + number] = (0, 9)
        data += frame(produce_request("t", records, **options), 9, 200 + number)
    feed(client.connection, data)
    client.end_turn()


def test_a_run_is_answered_when_its_last_batch_is_synced_and_what_was_refused_with_it() -> None:
    node = make_node("sync")
    client = Exchange(node)
    send_run(client, [batch(), damaged(batch()), batch()])
    assert client.transport.written == b""
    node.settle()
    assert [(answer.error_code, answer.base_offset) for answer in answers(client)] == [
        (ErrorCode.NONE, 1),
        (ErrorCode.CORRUPT_MESSAGE, -1),
        (ErrorCode.NONE, 2),
    ]


def test_a_failed_sync_is_reported_to_every_request_of_a_run_but_those_that_were_refused() -> None:
    node, files, _ = start_node(ottla_acks_all="sync")
    make_topic(node, "t")
    client = Exchange(node)
    send_run(client, [batch(), damaged(batch()), batch()])
    files.fail("fdatasync", "*t-0*|*/ottla-redo.log", errno.EIO)
    node.settle()
    assert [answer.error_code for answer in answers(client)] == [
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ]
    counts = {
        code: count for (name, _, code), count in node.services.metrics.request_counts.items() if name == "Produce"
    }
    assert counts == {0: 1, ErrorCode.KAFKA_STORAGE_ERROR: 2, ErrorCode.CORRUPT_MESSAGE: 1}


def test_a_duplicate_in_a_run_whose_sync_fails_keeps_its_answer() -> None:
    node, files, _ = start_node(ottla_acks_all="sync")
    make_topic(node, "t")
    client = Exchange(node)
    first = batch(producer_id=7, producer_epoch=0, base_sequence=0)
    second = batch(producer_id=7, producer_epoch=0, base_sequence=1)
    send_run(client, [first, second])
    files.fail("fdatasync", "*t-0*|*/ottla-redo.log", errno.EIO)
    node.settle()
    assert [(answer.error_code, answer.base_offset) for answer in answers(client)] == [
        (ErrorCode.NONE, 0),
        (ErrorCode.KAFKA_STORAGE_ERROR, -1),
    ]


def test_the_bound_of_pending_requests_counts_the_requests_of_a_run() -> None:
    node = make_node("sync", ottla_connection_max_pending_requests=3)
    client = Exchange(node)
    send_run(client, [batch()] * 5)
    partition = node.services.catalog.topics["t"].partitions[0]
    assert partition is not None
    assert partition.log.log_end_offset == 1 + 3
    assert client.transport.is_paused
    node.settle()
    assert [answer.base_offset for answer in answers(client)] == [1, 2, 3, 4, 5]
    assert not client.transport.is_paused


def test_what_two_reads_of_one_turn_bring_is_one_run_answered_in_order() -> None:
    client = Exchange(make_node())
    feed(client.connection, frames_of([("plain", 1)])[0])
    client.end_turn()
    written = len(client.transport.written)
    frames = frames_of([("plain", 1), ("plain", 300), ("plain", 1)])
    feed(client.connection, frames[0])
    feed(client.connection, frames[1] + frames[2])
    (run,) = client.connection.queue.in_flight
    assert isinstance(run, ProduceRun)
    assert run.requests == client.connection.queue.requests == 3
    client.end_turn()
    assert not client.connection.queue.in_flight
    assert not client.connection.queue.requests
    answered = bytes(client.transport.written[written:])
    correlation_ids = []
    while answered:
        length, correlation_id = struct.unpack_from(">ii", answered)
        correlation_ids.append(correlation_id)
        answered = answered[4 + length :]
    assert correlation_ids == [100, 101, 102]


def test_a_run_does_not_go_on_behind_what_somebody_else_gathered() -> None:
    node = make_node()
    client, other = Exchange(node), Exchange(node)
    for each in (client, other):
        feed(each.connection, frames_of([("plain", 1)])[0])
        each.end_turn()
    (frame_bytes,) = frames_of([("plain", 1)])
    for each in (client, other, client):
        feed(each.connection, frame_bytes)
    assert [len(each.connection.queue.in_flight) for each in (client, other)] == [2, 1]
    node.settle()
    assert [answer.base_offset for answer in answers_of(client)] == [0, 4, 8]
    assert [answer.base_offset for answer in answers_of(other)] == [2, 6]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("is_fast", [True, False])
def test_requests_whose_connection_has_ended_are_not_counted(
    is_fast: bool, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have no answer; their batches are stored."""
    node, files, _ = start_node(ottla_acks_all="sync")
    make_topic(node, "t")
    if not is_fast:
        monkeypatch.setattr("ottla.broker.requests.dispatch.learn", lambda *_: None)
    client = Exchange(node)
    client.ask(produce_request("t", batch()), 9)
    before = node.services.metrics.request_counts
    for records in (batch(), damaged(batch())):
        feed(client.connection, client.frame(produce_request("t", records), 9))
    kinds = [isinstance(one, ProduceRun) for one in client.connection.queue.in_flight]
    assert kinds == ([True] if is_fast else [False, False])
    client.connection.connection_lost(None)
    if fails:
        files.fail("fdatasync", "*t-0*|*/ottla-redo.log", errno.EIO)
    node.settle()
    assert node.services.metrics.request_counts == before
    assert node.services.metrics.topic("t").messages_in == 2
