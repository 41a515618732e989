"""First appends in several turns, beside other clients: what is acknowledged is in the logs, once and in order."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples
from kit.exchange import Exchange, batch, make_topic
from kit.nodes import partition_of, start_node

from ottla.broker.node import Node
from ottla.broker.partitions import first_appends
from ottla.broker.partitions.first_appends import FirstAppends
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.records.batch import BatchHeader, unpack_header

PARTITIONS, CLIENTS = 5, 3
SENDS = st.tuples(
    st.integers(0, CLIENTS - 1), st.lists(st.integers(0, PARTITIONS - 1), min_size=1, max_size=PARTITIONS, unique=True)
)
STEPS = st.lists(st.one_of(SENDS, SENDS, st.sampled_from(["turn", "due", "sync", "topic"])), min_size=5, max_size=60)

Place = tuple[str, int]


class Client:
    """An idempotent producer, and what it was answered: the offset of each of its batches."""

    def __init__(self, node: Node, number: int, beside: Exchange | None) -> None:
        self.exchange = Exchange(node, beside)
        self.producer_id = 100 + number
        self.sequences: Counter[Place] = Counter()
        self.sent: dict[int, list[tuple[Place, int]]] = {}
        self.stored: dict[Place, list[tuple[int, int]]] = defaultdict(list)

    def send(self, topic: str, indexes: list[int]) -> None:
        data, sent = [], []
        for index in indexes:
            place = topic, index
            sequence = self.sequences[place]
            self.sequences[place] += 1
            records = batch(producer_id=self.producer_id, producer_epoch=0, base_sequence=sequence)
            data.append(ProduceRequest.PartitionProduceData(index=index, records=records))
            sent.append((place, sequence))
        topic_data = ProduceRequest.TopicProduceData(name=topic, partition_data=data)
        number = self.exchange.send(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic_data]), 9)
        self.sent[number] = sent

    def take_answers(self) -> None:
        for number, answer in self.exchange.replies():
            assert isinstance(answer, ProduceResponse)
            assert number == min(self.sent), "answers come in the order of the requests"
            results = answer.responses[0].partition_responses
            for (place, sequence), result in zip(self.sent.pop(number), results, strict=True):
                assert (result.index, result.error_code) == (place[1], 0)
                self.stored[place].append((sequence, result.base_offset))


def batches_of(node: Node, topic: str, index: int) -> list[BatchHeader]:
    """The headers of all batches in a log."""
    log = partition_of(node, topic, index).log
    data = log.segment_list.active.file.pread(log.size_bytes, 0)
    found, position = [], 0
    while position < len(data):
        header = BatchHeader._make(unpack_header(memoryview(data)[position:]))
        found.append(header)
        position += header.size_bytes
    return found


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("acks_all", ["page-cache", "sync"])
@settings(max_examples=examples(40), deadline=None)
@given(steps=STEPS)
def test_what_is_acknowledged_is_in_the_logs_once_and_in_order(
    most: int, acks_all: str, steps: list[str | tuple[int, list[int]]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first_appends, "FIRST_APPENDS_PER_TURN", most)
        for module in ("partitions.first_appends", "api.produce", "fast.several_template"):
            patch.setattr(f"ottla.broker.{module}.FEW_PARTITIONS", 1)
        node, _, _ = start_node(ottla_acks_all=acks_all)
        topics = ["t-0"]
        make_topic(node, "t-0", PARTITIONS)
        clients: list[Client] = []
        for number in range(CLIENTS):
            clients.append(Client(node, number, clients[0].exchange if clients else None))
        for step in steps:
            if isinstance(step, tuple):
                clients[step[0]].send(topics[-1], step[1])
            elif step == "turn":
                node.services.turn.end()
            elif step == "due":
                node.services.timers.run_due(node.services.clock.monotonic_ms())
            elif step == "sync":
                node.settle()
            else:
                topics.append(f"t-{len(topics)}")
                make_topic(node, topics[-1], PARTITIONS)
            for client in clients:
                client.take_answers()
        for _ in range(PARTITIONS * len(steps)):
            node.settle()
            node.run_due()
        node.settle()
        for client in clients:
            client.take_answers()
            assert client.sent == {}, "every request is answered"
        for topic in topics:
            for index in range(PARTITIONS):
                stored: dict[int, list[tuple[int, int]]] = defaultdict(list)
                for header in batches_of(node, topic, index):
                    stored[header.producer_id].append((header.base_sequence, header.base_offset))
                for client in clients:
                    acknowledged = client.stored[topic, index]
                    assert acknowledged == stored[client.producer_id]
                    assert [sequence for sequence, _ in acknowledged] == list(range(client.sequences[topic, index]))


def test_the_requests_of_this_test_are_gathered_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[None] = []
    original = FirstAppends.gather_more

    def counting(self: FirstAppends) -> None:
        turns.append(None)
        original(self)

    monkeypatch.setattr(FirstAppends, "gather_more", counting)
    monkeypatch.setattr(first_appends, "FIRST_APPENDS_PER_TURN", 1)
    monkeypatch.setattr(first_appends, "FEW_PARTITIONS", 1)
    monkeypatch.setattr("ottla.broker.api.produce.FEW_PARTITIONS", 1)
    node, _, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t-0", PARTITIONS)
    client = Client(node, 0, None)
    client.send("t-0", list(range(PARTITIONS)))
    for _ in range(PARTITIONS):
        node.settle()
        node.run_due()
    assert len(turns) == PARTITIONS - 1
