"""First appends to many partitions: how many in each turn, and that nothing else changes."""

from __future__ import annotations

import pytest
from kit.exchange import STAMP_MS, Exchange, batch, make_topic
from kit.nodes import partition_of, start_node
from kit.simulated_files import SimulatedFile

from ottla.broker.node import Node
from ottla.broker.partitions import first_appends
from ottla.broker.partitions.first_appends import FEW_PARTITIONS, FIRST_APPENDS_PER_TURN, ROLL_WEIGHT
from ottla.broker.partitions.plain_appends import REMEMBERED_MS
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record

MANY = 2 * FIRST_APPENDS_PER_TURN + 10


def produce(
    indexes: list[int],
    *,
    acks: int = -1,
    sequence: int = -1,
    topic: str = "t",
    stamp_ms: int = STAMP_MS,
    size: int = 1,
) -> ProduceRequest:
    """A batch to each partition, in this order; of an idempotent producer, where there is a sequence."""
    fields = {} if sequence < 0 else {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
    sent = encode_batch([Record(0, stamp_ms, b"k", b"v" * size, ())], **fields)
    data = [ProduceRequest.PartitionProduceData(index=index, records=bytes(sent)) for index in indexes]
    return ProduceRequest(
        acks=acks, timeout_ms=30_000, topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=data)]
    )


def started(acks_all: str = "page-cache", partitions: int = MANY) -> Node:
    node, _, _ = start_node(ottla_acks_all=acks_all)
    make_topic(node, "t", partitions)
    return node


def ends(node: Node) -> list[int]:
    """The end offset of each partition."""
    return [partition.log.log_end_offset for partition in node.services.catalog.topics["t"].partitions]


def segments(node: Node) -> set[int]:
    """How many segments the logs have."""
    return {len(partition_of(node, "t", index).log.segments) for index in range(len(ends(node)))}


def run_turns(node: Node) -> list[int]:
    """Run turns until nothing is left to do: how many records each of them appended."""
    counts, before = [], sum(ends(node))
    for _ in range(20):
        node.services.turn.end()
        after = sum(ends(node))
        counts.append(after - before)
        before = after
        node.services.timers.run_due(node.services.clock.monotonic_ms())
    node.settle()
    return [count for count in counts if count]


def results(client: Exchange) -> list[tuple[int, int, int]]:
    """Of the only answer: partition, error and base offset."""
    answer = client.reply()
    assert isinstance(answer, ProduceResponse)
    return [(one.index, one.error_code, one.base_offset) for one in answer.responses[0].partition_responses]


@pytest.mark.parametrize("acks_all", ["page-cache", "sync"])
def test_first_appends_to_many_partitions_are_made_some_in_each_turn_and_answered_together(acks_all: str) -> None:
    node = started(acks_all)
    client = Exchange(node)
    client.send(produce(list(range(MANY))), 9)
    assert run_turns(node) == [FIRST_APPENDS_PER_TURN, FIRST_APPENDS_PER_TURN, 10]
    assert results(client) == [(index, 0, 0) for index in range(MANY)]
    assert ends(node) == [1] * MANY


@pytest.mark.parametrize("acks", [-1, 1])
def test_later_appends_are_made_together(acks: int) -> None:
    node = started()
    client = Exchange(node)
    for _ in range(2):
        client.send(produce(list(range(MANY)), acks=acks), 9)
        counts = run_turns(node)
        assert len(client.replies()) == 1
    assert counts == [MANY]


def test_files_that_were_closed_are_opened_some_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """For want of descriptors; the template leaves them to the slow path, at the latest when a second has passed."""
    node, _, clock = start_node()
    make_topic(node, "t", MANY)
    client = Exchange(node)
    for _ in range(2):
        client.send(produce(list(range(MANY))), 9)
        run_turns(node)
        assert len(client.replies()) == 1
    few = FIRST_APPENDS_PER_TURN
    closed = {f"t-{index}" for index in range(few)}
    monkeypatch.setattr(SimulatedFile, "is_open", property(lambda file: file.path.parent.name not in closed))
    client.send(produce(list(range(MANY))), 9)
    assert run_turns(node) == [MANY], "few are opened at once"
    closed.add(f"t-{few}")
    clock.advance(REMEMBERED_MS + 1)
    client.send(produce(list(range(MANY))), 9)
    assert run_turns(node) == [FIRST_APPENDS_PER_TURN, FIRST_APPENDS_PER_TURN, 10]
    assert [len(client.replies()), ends(node)] == [2, [4] * MANY]


@pytest.mark.parametrize("acks_all", ["page-cache", "sync"])
@pytest.mark.parametrize("why", ["full", "too old", "too old for the broker"])
def test_appends_that_begin_segments_are_made_some_in_each_turn(acks_all: str, why: str) -> None:
    """The template leaves them to the slow path."""
    node, _, clock = start_node(ottla_acks_all=acks_all)
    count, per_turn = FEW_PARTITIONS + 3, FIRST_APPENDS_PER_TURN // ROLL_WEIGHT
    kind = "LogAppendTime" if why == "too old for the broker" else "CreateTime"
    make_topic(node, "t", count, segment_ms="60000", segment_bytes="1024", message_timestamp_type=kind)
    size = 300 if why == "full" else 1
    client = Exchange(node)
    for _ in range(2):
        client.send(produce(list(range(count)), stamp_ms=clock.wall_ms(), size=size), 9)
        assert run_turns(node) == [count]
        assert len(client.replies()) == 1
    if why != "full":
        clock.advance(60_001)
    stamp_ms = 0 if why == "too old for the broker" else clock.wall_ms()
    client.send(produce(list(range(count)), stamp_ms=stamp_ms, size=size), 9)
    assert run_turns(node) == [per_turn] * (count // per_turn) + [count % per_turn]
    assert results(client) == [(index, 0, 2) for index in range(count)]
    assert segments(node) == {2}


def test_old_records_that_are_written_today_begin_no_segments_and_are_appended_together() -> None:
    node, _, clock = start_node()
    count = FEW_PARTITIONS + 3
    make_topic(node, "t", count, segment_ms="60000")
    client = Exchange(node)
    for _ in range(3):
        client.send(produce(list(range(count)), stamp_ms=1_000), 9)
        assert run_turns(node) == [count]
        assert len(client.replies()) == 1
        clock.advance(60_001)
    assert segments(node) == {1}


def test_few_partitions_may_all_begin_a_segment_in_a_turn() -> None:
    node, _, clock = start_node()
    make_topic(node, "t", FEW_PARTITIONS, segment_ms="60000")
    client = Exchange(node)
    for _ in range(2):
        client.send(produce(list(range(FEW_PARTITIONS)), stamp_ms=clock.wall_ms()), 9)
        assert run_turns(node) == [FEW_PARTITIONS]
        clock.advance(60_001)
    assert segments(node) == {2}


def test_a_template_leaves_first_appends_to_many_partitions_to_the_slow_path() -> None:
    node = started()
    client = Exchange(node)
    client.send(produce([0, 1]), 9)
    run_turns(node)
    assert len(client.replies()) == 1
    client.send(produce(list(range(MANY))), 9)
    assert run_turns(node) == [FIRST_APPENDS_PER_TURN, FIRST_APPENDS_PER_TURN, 10]
    assert [error for _, error, _ in results(client)] == [0] * MANY


@pytest.mark.parametrize("partitions", [FIRST_APPENDS_PER_TURN, FIRST_APPENDS_PER_TURN + 1])
def test_so_many_are_made_in_one_turn_and_more_are_not(partitions: int) -> None:
    node = started(partitions=partitions)
    client = Exchange(node)
    client.send(produce(list(range(partitions))), 9)
    assert len(run_turns(node)) == (1 if partitions == FIRST_APPENDS_PER_TURN else 2)
    assert len(client.replies()) == 1


def test_what_is_sent_after_them_waits_so_that_sequences_stay_in_order() -> None:
    node = started()
    client = Exchange(node)
    last = MANY - 1
    client.send(produce([*range(MANY), last], sequence=0), 9)  # the second one to the last partition is a repeat
    client.send(produce([last], sequence=1), 9)
    client.send(produce([last], sequence=2), 9)
    run_turns(node)
    first, *others = [answer for _, answer in client.replies()]
    assert isinstance(first, ProduceResponse)
    assert {one.error_code for one in first.responses[0].partition_responses} == {0}
    assert [answer.responses[0].partition_responses[0].base_offset for answer in others] == [1, 2]
    assert ends(node) == [1] * last + [3]


def test_the_bytes_of_later_turns_are_those_that_were_sent() -> None:
    """The buffer in which they came is used again from the next turn on."""
    node = started()
    client, other = Exchange(node), Exchange(node)
    client.send(produce(list(range(MANY))), 9)
    node.services.turn.end()
    other.send(produce([0, 1]), 9)  # comes to the same place in memory
    run_turns(node)
    assert [error for _, error, _ in results(client)] == [0] * MANY
    assert ends(node) == [2, 2] + [1] * (MANY - 2)


def test_large_batches_are_appended_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_appends, "MOST_COPIED_BYTES", MANY * len(batch(1)) - 1)
    node = started()
    client = Exchange(node)
    client.send(produce(list(range(MANY))), 9)
    assert run_turns(node) == [MANY]
    assert len(client.replies()) == 1


def test_without_acknowledgements_all_are_appended_although_the_client_is_gone() -> None:
    node = started()
    client = Exchange(node)
    client.send(produce(list(range(MANY)), acks=0), 9)
    client.connection.connection_lost(None)
    run_turns(node)
    assert ends(node) == [1] * MANY


def test_a_topic_that_is_deleted_between_the_turns_is_an_error_of_the_partitions_that_are_left() -> None:
    node = started()
    client = Exchange(node)
    client.send(produce(list(range(MANY))), 9)
    node.services.turn.end()
    node.services.catalog.delete_topics(["t"], lambda results: None)
    node.settle()
    for _ in range(5):
        node.run_due()
        node.settle()
    gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [error for _, error, _ in results(client)] == [0] * FIRST_APPENDS_PER_TURN + [gone] * (
        MANY - FIRST_APPENDS_PER_TURN
    )


def test_what_is_copied_is_counted_until_it_is_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    node = started()
    client = Exchange(node)
    received = client.connection.peer.endpoint.received
    assert received is not None
    counted: list[int] = []
    monkeypatch.setattr(received, "note_copied", counted.append)
    monkeypatch.setattr(received, "drop_copied", lambda size_bytes: counted.append(-size_bytes))
    client.send(produce(list(range(MANY))), 9)
    copied = (MANY - FIRST_APPENDS_PER_TURN) * len(batch(1))
    assert counted == [copied]
    run_turns(node)
    assert counted == [copied, -copied]


def test_nothing_stays_counted_if_the_first_of_them_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    node = started()
    client = Exchange(node)
    received = client.connection.peer.endpoint.received
    assert received is not None
    counted: list[int] = []
    monkeypatch.setattr(received, "note_copied", counted.append)
    monkeypatch.setattr(received, "drop_copied", lambda size_bytes: counted.append(-size_bytes))

    def no_memory(*_: object) -> None:
        raise MemoryError

    first = node.services.catalog.topics["t"].partitions[0]
    monkeypatch.setattr(type(first), "gather", no_memory)
    client.send(produce(list(range(MANY))), 9)
    run_turns(node)
    assert client.transport.closed or client.connection.closing is not None
    assert sum(counted) == 0


def test_an_append_that_cannot_be_planned_ends_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    node = started()
    client = Exchange(node)
    client.send(produce(list(range(MANY))), 9)
    node.services.turn.end()

    def no_memory(*_: object) -> None:
        raise MemoryError

    last = node.services.catalog.topics["t"].partitions[FIRST_APPENDS_PER_TURN]
    assert last is not None
    monkeypatch.setattr(type(last), "gather", no_memory)
    run_turns(node)
    assert client.transport.closed or client.connection.closing is not None
