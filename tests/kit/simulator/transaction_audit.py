"""Reads all that a started broker shows to readers of committed records, and holds it against the log and the model.

The log itself says who committed and who aborted: by its markers. What readers see by the lists of aborted transactions
is exactly that, and what producers were answered is exactly that, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kit.simulator.committed_readers import READ_COMMITTED, filtered
from kit.simulator.model import Loss, Stored, Violation
from kit.simulator.readers import fetch_request
from kit.simulator.topic_model import TopicModel
from kit.simulator.transactions import Transactions

from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import decode_batch, iter_batches
from ottla.protocol.records.control import decode_transaction_end

Ask = Callable[[FetchRequest], FetchResponse]
Entry = tuple[int, int]
"""(producer id, first offset) of an aborted transaction."""


class Aborted(NamedTuple):
    """A transaction that a marker has aborted."""

    producer_id: int
    first_offset: int
    marker_offset: int


@dataclass
class LogContent:
    """What a log holds, in the order of its offsets, by its markers.

    Attributes:
        shown, hidden: records whose end is decided.
        open: first offsets of transactions without one, by producer id.
    """

    shown: dict[int, Stored] = field(default_factory=dict)
    hidden: dict[int, Stored] = field(default_factory=dict)
    aborted: list[Aborted] = field(default_factory=list)
    open: dict[int, int] = field(default_factory=dict)
    _waiting: dict[int, dict[int, Stored]] = field(default_factory=dict)

    def add(self, content: bytes) -> None:
        """More batches."""
        for position, header in iter_batches(content):
            batch = memoryview(content)[position : position + header.size_bytes]
            producer_id = header.producer_id
            if header.is_control:
                end = decode_transaction_end(batch)
                if end is None:
                    continue
                decided = self._waiting.pop(producer_id, {})
                (self.shown if end.is_commit else self.hidden).update(decided)
                first = self.open.pop(producer_id, None)
                if first is not None and not end.is_commit:
                    self.aborted.append(Aborted(producer_id, first, header.base_offset))
                continue
            records = {record.offset: Stored(record.key, record.value) for record in decode_batch(batch)}
            if header.is_transactional and records:
                self.open.setdefault(producer_id, header.base_offset)
                self._waiting.setdefault(producer_id, {}).update(records)
            else:
                self.shown.update(records)

    @property
    def offsets(self) -> set[int]:
        """Of all records."""
        return {offset for records in (self.shown, self.hidden, *self._waiting.values()) for offset in records}


class CommittedReading:
    """One partition, read from its start to its last stable offset, with the lists of aborted transactions."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.position = self.start = 0
        self.stable = -1
        self.is_over = False
        self.shown: dict[int, Stored] = {}
        self.hidden: dict[int, Stored] = {}
        self.lists: list[tuple[int, int, set[Entry]]] = []
        """(position, end, entries) of each answer."""

    def take(self, answer: FetchResponse.PartitionData) -> None:
        """Go on with an answer to a fetch at `position`."""
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self.stable < 0:
            self.position = answer.log_start_offset
            return
        if answer.error_code != ErrorCode.NONE:
            raise Violation(f"{self.name}: no committed records at {self.position}: error {answer.error_code}")
        if self.stable < 0:
            self.start = self.position = max(self.position, answer.log_start_offset)
        self.stable = answer.last_stable_offset
        entries = answer.aborted_transactions or []
        found = filtered(bytes(answer.records or b""), entries)
        if found.end > self.stable:
            raise Violation(f"{self.name}: committed records up to {found.end}, beyond {self.stable}")
        self.shown |= found.shown
        self.hidden |= found.hidden
        if found.end >= 0:
            self.lists.append((self.position, found.end, {(one.producer_id, one.first_offset) for one in entries}))
            self.position = found.end
        self.is_over = found.end < 0 or found.end >= self.stable


def audit_committed(ask: Ask, known: Transactions, logs: Mapping[tuple[str, int], LogContent], loss: Loss) -> None:
    """Every partition, after a start. Raises Violation."""
    topics = known.model.topics
    readings = {place: CommittedReading(f"{place[0]}-{place[1]}") for place in logs}
    while wanted := {place: one.position for place, one in readings.items() if not one.is_over}:
        for answer in ask(fetch_request(wanted, isolation_level=READ_COMMITTED)).responses:
            for partition in answer.partitions:
                readings[answer.topic, partition.partition_index].take(partition)
    for (name, index), reading in readings.items():
        topic = topics[name]
        if (topic.id, index) not in known.spoilt:
            _audit(known, topic, index, logs[name, index], reading, loss)


def _audit(
    known: Transactions, topic: TopicModel, index: int, log: LogContent, reading: CommittedReading, loss: Loss
) -> None:
    name, stable = reading.name, reading.stable
    is_taken = loss is Loss.POWER and not topic.always_syncs
    if is_taken:
        known.exempt_all(topic, index)
    _compare(name, "shows", reading.shown, log.shown, range(reading.start, stable))
    _compare(name, "hides", reading.hidden, log.hidden, range(reading.start, stable))
    if log.open and stable > max(min(log.open.values()), reading.start):
        raise Violation(f"{name}: {stable} is the last stable offset, a transaction is open since {log.open}")
    for position, end, entries in reading.lists:
        _compare_lists(name, position, end, entries, log, reading.start, is_exact=not topic.is_compacted)
    known.learn(topic, index, reading.shown, reading.hidden)
    offsets = range(reading.start, stable)
    if topic.is_compacted:
        # Where markers are lost, the last stable offset is before what has superseded records.
        decided = log.shown if is_taken else {}
        known.require_newest(topic, index, reading.shown, offsets, decided=decided, power_cut=loss is Loss.POWER)
    else:
        known.require_shown(topic, index, reading.shown, offsets, power_cut=loss is Loss.POWER)


def _compare(name: str, verb: str, seen: Mapping[int, Stored], truth: Mapping[int, Stored], offsets: range) -> None:
    expected = {offset for offset in truth if offset in offsets}
    found = {offset for offset in seen if offset in offsets}
    if found != expected:
        raise Violation(f"{name} {verb} offsets {sorted(found ^ expected)} otherwise than its markers say")


def _compare_lists(
    name: str, position: int, end: int, entries: set[Entry], log: LogContent, start: int, *, is_exact: bool
) -> None:
    """The list of an answer has the aborted transactions of what it brings, and no others. Of one that began before the
    log's start, or of which the cleaner has taken records, the first offset is not known any more.
    """
    expected = [one for one in log.aborted if one.first_offset < end and one.marker_offset >= position]
    for one in expected:
        if not any(pid == one.producer_id and first <= one.first_offset for pid, first in entries):
            raise Violation(f"{name} from {position} to {end}: {one} is missing in {sorted(entries)}")
    excess = entries - {(one.producer_id, one.first_offset) for one in expected}
    if is_exact and any(first >= start for _, first in excess):
        raise Violation(f"{name} from {position} to {end}: {sorted(excess)} were not aborted there")
