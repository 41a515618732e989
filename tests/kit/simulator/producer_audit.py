"""The state of producers that a start has found, held against the log that it shows: what was lost is in neither.

A producer whose newest batch is gone from the log (deleted, or cleaned) may be known all the same; one whose newest
batch is there is known by the sequence and the epoch of that, and by where its open transaction begins. In a topic that
is compacted the newest batch that is left need not be the newest: the cleaner keeps the one that the broker knows last,
and a power cut may have taken that since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kit.simulator.model import Violation

from ottla.protocol.api.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from ottla.protocol.records.batch import iter_batches

Place = tuple[str, int]
SEQUENCES = 1 << 31


class Newest(NamedTuple):
    """A producer's newest batch of records; `is_open`: no marker follows it."""

    epoch: int
    last_sequence: int
    is_open: bool


class ProducersOfLog:
    """The producers of one log, in the order of its batches. `is_compacted`: the newest ones may be missing."""

    def __init__(self, *, is_compacted: bool = False) -> None:
        self.is_compacted = is_compacted
        self.newest: dict[int, Newest] = {}
        self.open: dict[int, int] = {}
        """Where open transactions begin."""

    def add(self, content: bytes) -> None:
        """More batches."""
        for _, header in iter_batches(content):
            producer_id = header.producer_id
            if producer_id < 0:
                continue
            if header.is_control:
                self.open.pop(producer_id, None)
                self.newest.pop(producer_id, None)  # the marker may have raised the epoch
                continue
            if header.is_transactional:
                self.open.setdefault(producer_id, header.base_offset)
            last = (header.base_sequence + header.last_offset - header.base_offset) % SEQUENCES
            self.newest[producer_id] = Newest(header.producer_epoch, last, header.is_transactional)


def describe(places: Iterable[Place]) -> DescribeProducersRequest:
    """What partitions remember of their producers."""
    topics: dict[str, list[int]] = {}
    for name, index in places:
        topics.setdefault(name, []).append(index)
    kind = DescribeProducersRequest
    return kind(topics=[kind.TopicRequest(name=name, partition_indexes=found) for name, found in topics.items()])


def audit_producers(answer: DescribeProducersResponse, logs: Mapping[Place, ProducersOfLog]) -> None:
    """Raises Violation."""
    for topic in answer.topics:
        for partition in topic.partitions:
            log = logs[topic.name, partition.partition_index]
            for one in partition.active_producers:
                _audit(f"{topic.name}-{partition.partition_index}", one, log)


def _audit(place: str, one: DescribeProducersResponse.ProducerState, log: ProducersOfLog) -> None:
    newest, producer_id = log.newest.get(one.producer_id), one.producer_id
    if newest is None:
        return
    known = one.producer_epoch, one.last_sequence
    if log.is_compacted and known > newest[:2]:
        return
    if known != newest[:2]:
        raise Violation(
            f"{place}: producer {producer_id} is known by epoch {one.producer_epoch} and sequence {one.last_sequence},"
            f" its newest batch has {newest.epoch} and {newest.last_sequence}"
        )
    began = log.open.get(producer_id, -1)
    is_known = one.current_txn_start_offset == began or 0 <= one.current_txn_start_offset < began
    if newest.is_open and not is_known:
        raise Violation(
            f"{place}: the transaction of producer {producer_id} is open since {began} in the log, and the broker says"
            f" {one.current_txn_start_offset}"
        )
