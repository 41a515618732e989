"""Damage in a closed segment: consumers of every kind get what lies before it and CORRUPT_MESSAGE, at once; the others
notice nothing, the log has one line a minute, and the metrics count.
"""

from __future__ import annotations

import logging

import pytest
from kit.exchange import STAMP_MS, Exchange, batch, fetch_request, make_topic, produce_request
from kit.nodes import ask_for, partition_of, start_node
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.fast.fetch_templates import FetchTemplates
from ottla.broker.node import Node
from ottla.broker.telemetry.exposition import Exposition
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.api.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.formats import iter_any

BATCHES = 12
HIT = 7
"""The damaged batch of partition 0; offsets are numbers of batches."""
ROOM_BYTES = 300
"""What a client takes of a partition at a time: two batches."""
KINDS = ["a page of zeros", "zeros in the payload", "short by 100 bytes", "short while it is served"]


class Setting:
    """A node that was started on two partitions, of which the first has damage in its closed segment."""

    def __init__(self, kind: str, *, is_cold: bool = False) -> None:
        node, self.files, self.clock = start_node(ottla_acks_all="page-cache")
        make_topic(node, "t", 2)
        for partition in (0, 1):
            for number in range(BATCHES):
                records = batch(1, value=b"%d" % (number % 10) * 40)
                Exchange(node).ask(produce_request("t", records, partition=partition), 9)
                if number == 8:
                    partition_of(node, "t", partition).log.roll(self.clock.wall_ms())
        log = partition_of(node, "t").log
        segment = log.segments[0]
        self.path = segment.path
        positions = [position for position, _ in iter_any(segment.file.pread(segment.size_bytes, 0))]
        node.stop()
        self.reached = HIT
        if not kind.startswith("short while"):
            self._damage(kind, positions[HIT])
        self.node: Node = start_node(self.files, self.clock, ottla_acks_all="page-cache")[0]
        if kind.startswith("short"):
            self.reached = 8
        if kind.startswith("short while"):
            ask_all(Exchange(self.node), "t", 0, 12)
            self._damage(kind, positions[HIT])
        self.files.cold = ["*.log"] if is_cold else []

    def _damage(self, kind: str, position: int) -> None:
        file = self.files.open(self.path, writable=True)
        if kind == "a page of zeros":
            file.pwritev([bytes(80)], position)
        elif kind == "zeros in the payload":
            file.pwritev([bytes(20)], position + 75)
        else:
            file.truncate(file.size() - 100)


def ask_all(client: Exchange, topic: str, offset: int, version: int) -> FetchResponse:
    answer = client.ask(fetch_request(topic, offset, partitions=2), version)
    assert isinstance(answer, FetchResponse)
    return answer


class Consumer:
    """Reads both partitions, each from where it is, until nothing comes or all has come."""

    def __init__(self, node: Node, version: int, *, in_session: bool = False, isolation_level: int = 0) -> None:
        self.client = Exchange(node)
        self.node = node
        self.version = version
        self.isolation_level = isolation_level
        self.positions = [0, 0]
        self.errors: list[set[int]] = [set(), set()]
        self.session_id, self.epoch = 0, 0 if in_session else -1

    def fetch(self, partitions: list[int]) -> None:
        wanted = [
            FetchRequest.FetchPartition(
                partition=index, fetch_offset=self.positions[index], partition_max_bytes=ROOM_BYTES
            )
            for index in partitions
        ]
        topic = FetchRequest.FetchTopic(topic="t", partitions=wanted)
        if self.version >= 13:
            topic.topic_id = self.node.services.catalog.topics["t"].id
        request = FetchRequest(
            session_id=self.session_id,
            session_epoch=self.epoch,
            max_wait_ms=600_000,  # nobody is left waiting
            min_bytes=1,
            isolation_level=self.isolation_level,
            topics=[topic],
        )
        answer = self.client.ask(request, self.version)
        assert isinstance(answer, FetchResponse)
        assert not answer.error_code
        if self.epoch >= 0:
            self.session_id, self.epoch = answer.session_id, self.epoch + 1
        for data in answer.responses[0].partitions:
            if data.error_code:
                self.errors[data.partition_index].add(data.error_code)
            for _, header in iter_any(data.records or b"", allow_partial_tail=True):
                self.positions[data.partition_index] = header.next_offset


@pytest.mark.parametrize("is_cold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", [0, 1, 3, 4, 11, 12, 13, 18])
def test_a_consumer_gets_what_lies_before_damage_and_the_other_partition_as_always(
    version: int, kind: str, is_cold: bool
) -> None:
    setting = Setting(kind, is_cold=is_cold)
    consumer = Consumer(setting.node, version)
    for _ in range(BATCHES):
        consumer.fetch([0, 1] if consumer.positions[1] < BATCHES else [0])
    assert consumer.positions == [setting.reached, BATCHES]
    assert consumer.errors == [{ErrorCode.CORRUPT_MESSAGE}, set()]


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", [7, 13, 18])
def test_so_does_one_in_a_session(version: int, kind: str, isolation_level: int) -> None:
    setting = Setting(kind)
    consumer = Consumer(setting.node, version, in_session=True, isolation_level=isolation_level)
    for _ in range(BATCHES):
        consumer.fetch([0, 1])
    assert consumer.positions == [setting.reached, BATCHES]
    assert consumer.errors == [{ErrorCode.CORRUPT_MESSAGE}, set()]


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", [4, 12, 17])
def test_so_does_one_whose_requests_look_alike(
    version: int, kind: str, isolation_level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_form: list[bool] = []
    original = FetchTemplates.answer

    def noting(*arguments: object) -> object:
        answer = original(*arguments)  # type: ignore[arg-type]  # handed through
        by_form.append(answer is not None)
        return answer

    monkeypatch.setattr(FetchTemplates, "answer", noting)
    setting = Setting(kind)
    for _ in range(2):  # once where nobody has looked at it, and once where that is known
        consumer = Consumer(setting.node, version, isolation_level=isolation_level)
        for _ in range(BATCHES):
            consumer.fetch([0])
        assert consumer.positions == [setting.reached, 0]
        assert consumer.errors == [{ErrorCode.CORRUPT_MESSAGE}, set()]
    # A look at the headers around the end of a file that is short is left to the slow path.
    assert (True in by_form) == (kind != "short while it is served")


def test_who_seeks_behind_the_damage_reads_on() -> None:
    setting = Setting("zeros in the payload")
    consumer = Consumer(setting.node, 12)
    consumer.positions = [HIT + 1, BATCHES - 1]
    for _ in range(BATCHES):
        consumer.fetch([0, 1] if consumer.positions[0] < BATCHES else [1])
        if consumer.positions == [BATCHES, BATCHES]:
            break
    assert consumer.errors == [set(), set()]


def damage_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]


@pytest.mark.parametrize("version", [3, 12])
def test_damage_has_one_line_a_minute_and_partition_and_each_answer_counts(
    version: int, caplog: pytest.LogCaptureFixture
) -> None:
    setting = Setting("a page of zeros")
    node = setting.node
    for _ in range(5):
        ask_all(Exchange(node), "t", HIT, version)
    (line,) = damage_lines(caplog)
    assert f"t-0: damaged: a read of offset {HIT} is answered CORRUPT_MESSAGE ({setting.path}: at position" in line
    assert "zeros where a batch was expected" in line
    setting.clock.advance(59_999)
    ask_all(Exchange(node), "t", HIT, version)
    assert len(damage_lines(caplog)) == 1
    setting.clock.advance(1)
    ask_all(Exchange(node), "t", HIT, version)
    assert len(damage_lines(caplog)) == 2
    text = Exposition(node.services, node.cleaner).render().decode()
    samples = {
        (sample.name, sample.labels.get("partition")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "corrupt_reads" in sample.name
    }
    assert samples == {("ottla_corrupt_reads_total", None): 7, ("ottla_corrupt_reads_by_partition_total", "0"): 7}


def test_a_look_up_by_time_that_meets_damage_has_its_line_too(caplog: pytest.LogCaptureFixture) -> None:
    node, files, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t")
    for count in (1, 1, 2):
        Exchange(node).ask(produce_request("t", batch(count)), 9)
    files.open(partition_of(node, "t").log.segments[0].path, writable=True).pwritev([bytes(61)], 0)
    wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=STAMP_MS + 1)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[wanted])
    answer = ask_for(ListOffsetsResponse, node, ListOffsetsRequest(replica_id=-1, topics=[topic]), 7)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.CORRUPT_MESSAGE
    assert f"t-0: damaged: a read of timestamp {STAMP_MS + 1} is" in damage_lines(caplog)[0]
