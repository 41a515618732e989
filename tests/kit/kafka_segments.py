"""Segments as Apache Kafka leaves them, transactions among their batches, on a simulated disk."""

from __future__ import annotations

from dataclasses import dataclass, field

from kit.logs import DIRECTORY, NOW_MS, disk, open_test_log
from kit.simulated_files import SimulatedFiles

from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.control import (
    ControlType,
    EndTransactionMarker,
    encode_control_key,
    encode_end_transaction_marker,
)
from ottla.protocol.records.record import Record
from ottla.storage.formats import layout
from ottla.storage.log.log import Log
from ottla.storage.producers.transaction_index import AbortedTransaction, encode_transaction_index

ONE, TWO = 1000, 2000
"""Ids of transactional producers."""


@dataclass
class Kafka:
    """Writes segments as Kafka does, but for its indexes: a start makes those."""

    files: SimulatedFiles = field(default_factory=disk)
    offset: int = 0
    segments: dict[int, bytearray] = field(default_factory=lambda: {0: bytearray()})

    def records(self, producer_id: int, count: int = 1, *, is_transactional: bool = True) -> None:
        records = [Record(self.offset + number, NOW_MS, b"k", b"v", ()) for number in range(count)]
        self._add(records, producer_id=producer_id, is_transactional=is_transactional, base_sequence=self.offset)

    def end(self, producer_id: int, kind: ControlType) -> None:
        value = encode_end_transaction_marker(EndTransactionMarker(0))
        marker = Record(self.offset, NOW_MS, encode_control_key(kind), value, ())
        self._add([marker], producer_id=producer_id, is_transactional=True, is_control=True)

    def abort(self, producer_id: int) -> None:
        self.end(producer_id, ControlType.ABORT)

    def commit(self, producer_id: int) -> None:
        self.end(producer_id, ControlType.COMMIT)

    def roll(self) -> None:
        self.segments[self.offset] = bytearray()

    def index(self, base_offset: int, *entries: AbortedTransaction) -> None:
        self.put(layout.TXN_INDEX_SUFFIX, base_offset, encode_transaction_index(entries))

    def put(self, suffix: str, base_offset: int, data: bytes) -> None:
        self.files.write_atomically(DIRECTORY / layout.offset_file_name(base_offset, suffix), data)

    def open(self, **state: bool | int) -> Log:
        for base_offset, data in self.segments.items():
            self.put(layout.LOG_SUFFIX, base_offset, bytes(data))
        return open_test_log(self.files, **state)  # type: ignore[arg-type]  # handed through

    def stored(self, base_offset: int = 0) -> bytes:
        return self.files.read_bytes(layout.txn_index_file(DIRECTORY, base_offset))

    def _add(self, records: list[Record], **options: int) -> None:
        data = encode_batch(records, producer_epoch=0, leader_epoch=0, **options)  # type: ignore[arg-type]  # options of encode_batch
        self.segments[max(self.segments)] += data
        self.offset += len(records)


def aborted_and_committed() -> Kafka:
    """Offsets 0-1 of ONE aborted (marker 3), 2 of TWO committed (marker 4), 5 of no transaction."""
    kafka = Kafka()
    kafka.records(ONE, 2)
    kafka.records(TWO)
    kafka.abort(ONE)
    kafka.commit(TWO)
    kafka.records(-1, is_transactional=False)
    return kafka
