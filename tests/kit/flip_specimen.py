"""A small data directory with every kind of small file in it, and everything that a broker shows of it.

    d   records of which DeleteRecords took some, of an idempotent producer, aborted and committed transactions of a
        Kafka's producers: `.snapshot`, `.txnindex`, a log start in the middle of a segment; a time index of one entry
    c   a compacted topic that was cleaned, with several entries in each index

and committed offsets of a group, a topic's configuration, metadata with a snapshot; stopped cleanly or killed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from kit.clock import ManualClock
from kit.exchange import STAMP_MS, Exchange, make_topic, produce_request
from kit.group_requests import commit, committed
from kit.known_ids import known_ids
from kit.nodes import ask, partition_of, pass_time, start_node
from kit.simulated_disk import Directory, Inode
from kit.simulated_files import SimulatedFiles

from ottla.broker.node import Node
from ottla.protocol.api.delete_records import DeleteRecordsRequest
from ottla.protocol.records.batch import CorruptBatch, decode_batch, encode_batch, iter_batches
from ottla.protocol.records.control import (
    ControlType,
    EndTransactionMarker,
    encode_control_key,
    encode_end_transaction_marker,
)
from ottla.protocol.records.record import Record
from ottla.storage.log.log import Log

KEYS: Final[dict[str, object]] = {
    "log_segment_bytes": 1024,
    "log_index_interval_bytes": 200,
    "offsets_topic_num_partitions": 1,
    "log_retention_ms": 10 * 365 * 86_400_000,
    "num_partitions": 1,
}
DELETED_BEFORE: Final = 5
_ABORTED, _COMMITTED, _ONCE = 1000, 1001, 7
BIG_FILES: Final = (".log", ".checkpoint")
"""Batches with checksums of their own; what becomes of their bits is tried elsewhere."""
READ_OTHERWISE: Final = ("-checkpoint", "-copy", "index")


@dataclass(frozen=True)
class Shown:
    """Everything that a broker shows of the directory."""

    bounds: dict[str, tuple[int, int]]
    records: dict[str, dict[int, tuple[bytes | None, bytes | None]]]
    aborted: dict[str, list[tuple[int, int]]]
    producers: dict[str, dict[int, tuple[int, int, int]]]
    committed: int
    configs: dict[str, str]
    epochs: dict[str, list[int]]
    cluster: str


def content(ending: str) -> dict[str, bytes]:
    """The files by path after "stop" or "kill"."""
    return dict(_lived(ending))


@cache
def _lived(ending: str) -> tuple[tuple[str, bytes], ...]:
    with known_ids(1):
        return _live(ending)


def _live(ending: str) -> tuple[tuple[str, bytes], ...]:
    clock = ManualClock()
    node, files, _ = start_node(None, clock, **KEYS)
    make_topic(node, "d", max_message_bytes="4096", index_interval_bytes="4096")
    make_topic(node, "c", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    client = Exchange(node)
    for number in range(5):
        records = [Record(n, STAMP_MS + 60_000 * number, b"k%d" % n, b"v%d" % number * 40, ()) for n in range(2)]
        producer = (_ONCE, 0, 2 * number) if number < 2 else (-1, -1, -1)
        once = encode_batch(records, producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2])
        client.ask(produce_request("d", bytes(once)), 9)
        client.ask(produce_request("c", bytes(encode_batch(records))), 9)
    log = partition_of(node, "d").log
    for producer_id, kind in ((_ABORTED, ControlType.ABORT), (_COMMITTED, ControlType.COMMIT)):
        _transaction(log, producer_id, kind)
    node.settle()
    client.ask(produce_request("d", bytes(encode_batch([Record(0, STAMP_MS + 600_000, b"k", b"last", ())]))), 9)
    wanted = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=DELETED_BEFORE)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name="d", partitions=[wanted])
    ask(node, DeleteRecordsRequest(topics=[topic], timeout_ms=30_000), 2)
    assert not commit(node, "g", {0: 9}, topic="d")
    pass_time(node, clock, 90_000, step_ms=15_000)  # checkpoints, a cleaning
    files.kill()
    node, files, clock = start_node(files, clock, **KEYS)  # makes the `.txnindex`, as a Kafka would have
    pass_time(node, clock, 61_000, step_ms=61_000)
    if ending == "stop":
        node.stop()
    else:
        files.kill()
    return tuple(sorted(files.written_state().items()))


def _transaction(log: Log, producer_id: int, kind: ControlType) -> None:
    """As a Kafka leaves one in the log: two records and their marker."""
    at = log.log_end_offset
    records = [Record(at + n, STAMP_MS + 500_000, b"t%d" % n, b"of a transaction", ()) for n in range(2)]
    value = encode_end_transaction_marker(EndTransactionMarker(0))
    marker = [Record(at + 2, STAMP_MS + 500_000, encode_control_key(kind), value, ())]
    for one, is_control in ((records, False), (marker, True)):
        data = encode_batch(
            one,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=-1 if is_control else 0,
            leader_epoch=0,
            is_transactional=True,
            is_control=is_control,
        )
        assert not log.append_internal(data, STAMP_MS).error_code


def small_files(ending: str) -> list[str]:
    """The files whose bits are flipped, by path: after a kill those that are not read in the same way after a stop."""
    small = [path for path, data in _lived(ending) if data and not path.endswith(BIG_FILES)]
    return small if ending == "stop" else [path for path in small if path.endswith(READ_OTHERWISE)]


def on_disk(found: dict[str, bytes]) -> SimulatedFiles:
    """A disk with these files, all written at the same moment and synced. Made without a call: there are many."""
    files = SimulatedFiles()
    for path, data in found.items():
        *parents, name = path.strip("/").split("/")
        directory = files.root
        for parent in parents:
            below = directory.entries.get(parent)
            if below is None:
                below = directory.entries[parent] = directory.durable[parent] = Directory()
            assert isinstance(below, Directory)
            directory = below
        inode = Inode()
        inode.data, inode.synced = bytearray(data), bytearray(data)
        directory.entries[name] = directory.durable[name] = inode
    return files


def shown(node: Node) -> Shown:
    """What the broker shows; it is asked what clients ask, and the log itself for what they ask seldom."""
    node.settle()
    bounds, records, aborted, producers, epochs = {}, {}, {}, {}, {}
    for name in ("d", "c", "__consumer_offsets"):
        partition = node.services.catalog.partition(name, 0)
        if partition is None:
            continue
        log = partition.log
        if name != "__consumer_offsets":
            bounds[name] = log.log_start_offset, log.log_end_offset
            records[name] = _records(log)
            epochs[name] = [log.epoch_for_offset(offset) for offset in records[name]]
        aborted[name] = log.transactions.between(log.log_start_offset, log.log_end_offset)
        producers[name] = {
            one.producer_id: (one.epoch, one.last_sequence, one.batches[-1].last_offset if one.batches else -1)
            for one in log.producers
        }
    offset = committed(node, "g", topic="d") if "__consumer_offsets" in aborted else -1
    configs = dict(node.services.catalog.image.topic_configs("d"))
    return Shown(bounds, records, aborted, producers, offset, configs, epochs, node.services.catalog.cluster_id)


def _records(log: Log) -> dict[int, tuple[bytes | None, bytes | None]]:
    found: dict[int, tuple[bytes | None, bytes | None]] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, end_offset=log.log_end_offset).read_blocking()
        if not data:
            break
        following = offset
        for at, header in iter_batches(data):
            try:
                batch = decode_batch(data[at : at + header.size_bytes])
            except CorruptBatch:
                batch = []
            found |= {one.offset: (one.key, one.value) for one in batch if one.offset >= log.log_start_offset}
            following = max(following, header.next_offset)
        if following <= offset:
            break
        offset = following
    return found


def kind_of(path: str) -> str:
    """As the page names a file: the place and the offset in its name left out."""
    name = Path(path).name
    stem, dot, suffix = name.rpartition(".")
    return f".{suffix}" if stem.isdigit() and dot else name
