"""The worked bytes of docs/storage-format.md and docs/internal-topics.md, written by the code that writes the files."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import UUID

import pytest
from kit.logs import snapshot_of

from ottla.protocol.records.batch import encode_batch, parse_header
from ottla.protocol.records.control import end_transaction_marker
from ottla.protocol.records.legacy import encode_message
from ottla.protocol.records.record import Record
from ottla.protocol.stored.group import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_group_key,
    encode_group_value,
)
from ottla.protocol.stored.metadata import TopicRecord, encode_metadata_record
from ottla.protocol.stored.share_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    encode_share_state_key,
    encode_share_state_value,
)
from ottla.protocol.stored.transaction import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionStatus,
    encode_transaction_key,
    encode_transaction_value,
)
from ottla.storage.cleaner.batch_cleaning import BatchCleaning
from ottla.storage.cleaner.offset_map import OffsetMap
from ottla.storage.files.clock_trust import KnownTime
from ottla.storage.files.files import OsFiles
from ottla.storage.formats.checkpoint import write_offsets
from ottla.storage.formats.clock_checkpoint import write_known_time
from ottla.storage.formats.directory_format import write_clean_shutdown, write_format
from ottla.storage.formats.kafka_uuid import uuid_from_text
from ottla.storage.formats.layout import TopicPartition
from ottla.storage.formats.leader_epoch_checkpoint import EpochEntry, write_leader_epochs
from ottla.storage.formats.meta_properties import MetaProperties, write_meta_properties
from ottla.storage.formats.partition_metadata import write_partition_metadata
from ottla.storage.index.offset_index import OffsetIndex
from ottla.storage.index.time_index import TimeIndex
from ottla.storage.producers.producer_state import ProducerStates, advance
from ottla.storage.producers.transaction_index import AbortedTransaction, encode_transaction_index

DOCS = Path(__file__).parents[3] / "docs"
PAGES = "".join((DOCS / name).read_text() for name in ("storage-format.md", "internal-topics.md"))
TOPIC_ID: UUID = uuid_from_text("4kCDYg5FQ4Cl4NjE0pOq6w")


def block(name: str) -> str:
    found = re.search(rf"```(?:hex|text) {re.escape(name)}\n(.*?)```", PAGES, re.DOTALL)
    assert found, f"the pages have no block named {name}"
    return found[1]


def shown(name: str) -> bytes:
    return bytes.fromhex("".join(block(name).split()))


def test_a_message_of_old() -> None:
    assert encode_message(1, 7, 1_700_000_000_000, None, b"tea") == shown("message")


def test_the_batch() -> None:
    records = [
        Record(0, 1_700_000_000_000, b"anna", b"tea", (("src", b"web"),)),
        Record(1, 1_700_000_000_500, None, b"rain", ()),
    ]
    assert bytes(encode_batch(records, leader_epoch=0)) == shown("batch")


@pytest.mark.parametrize(("name", "newest_offset"), [("horizon", 41), ("empty", 99)])
def test_the_cleaned_batches(name: str, newest_offset: int) -> None:
    stamp_ms = 1_700_000_000_000
    records = [Record(40, stamp_ms, b"anna", b"tea"), Record(41, stamp_ms + 500, b"anna", None)]
    data = encode_batch(records, leader_epoch=0, producer_id=1000, producer_epoch=0, base_sequence=7)
    offsets = OffsetMap(1000, 0.9, 10)
    offsets.put(b"anna", newest_offset)
    offsets.latest_offset = 99
    cleaning = BatchCleaning(
        offsets,
        now_ms=stamp_ms + 100_000,
        delete_retention_ms=86_400_000,
        end_offset=-1,
        last_offset_of=lambda _: 41,
        max_decompressed_bytes=1 << 20,
        pause=lambda: None,
    )
    assert cleaning.apply(bytes(data), parse_header(data)) == shown(name)


def test_the_offset_index(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000368769.index"
    index = OffsetIndex.create(OsFiles(), path, 368769, max_bytes=1024)
    index.append(368776, 1407)
    index.flush()
    assert path.read_bytes() == shown("offset-index")


def test_the_time_index(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000368769.timeindex"
    index = TimeIndex.create(OsFiles(), path, 368769, max_bytes=1024)
    index.maybe_append(1_700_000_000_000, 368776)
    index.flush()
    assert path.read_bytes() == shown("time-index")


def test_the_producer_snapshot() -> None:
    records = [Record(i, 5, None, b"v", ()) for i in range(3)]
    header = parse_header(encode_batch(records, producer_id=1000, producer_epoch=0, base_sequence=0))
    producers = ProducerStates(expiration_ms=86_400_000)
    producers.publish(advance(None, header, 0, now_ms=5))
    assert snapshot_of(producers) == shown("producer-snapshot")


def test_the_index_of_aborted_transactions() -> None:
    assert encode_transaction_index([AbortedTransaction(1000, 5, 9, 10)]) == shown("transaction-index")


def test_the_text_files(tmp_path: Path) -> None:
    files = OsFiles()
    write_meta_properties(files, tmp_path, MetaProperties("nhB9nTcrtoJr2B01QqQZ1g", 1, TOPIC_ID))
    write_offsets(
        files,
        tmp_path / "recovery-point-offset-checkpoint",
        {TopicPartition("orders", 0): 4711, TopicPartition("orders", 1): 0},
    )
    write_leader_epochs(files, tmp_path, [EpochEntry(0, 0), EpochEntry(3, 4711)])
    write_partition_metadata(files, tmp_path, TOPIC_ID)
    write_format(files, tmp_path)
    known = KnownTime(1_795_364_703_123, 86_400_000, "0f6e2b1c-0000-4000-8000-123456789abc", 0)
    write_known_time(files, tmp_path, known)
    write_clean_shutdown(files, tmp_path, 17)
    for name in (
        "meta.properties",
        "recovery-point-offset-checkpoint",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "ottla.format",
        "ottla.clock",
        ".kafka_cleanshutdown",
    ):
        written = (tmp_path / name).read_text()
        assert written.strip() == block(name).strip(), name


def test_the_topic_record() -> None:
    assert encode_metadata_record(TopicRecord(name="orders", topic_id=TOPIC_ID)) == shown("topic-record")


def test_a_committed_offset() -> None:
    key = OffsetCommitKey(group="billing", topic="orders", partition=3)
    value = OffsetCommitValue(offset=42, leader_epoch=0, metadata="", commit_timestamp=1_700_000_000_000)
    assert (encode_group_key(key), encode_group_value(value)) == (shown("offset-key"), shown("offset-value"))


def test_a_group_without_members() -> None:
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=2,
        protocol=None,
        leader=None,
        current_state_timestamp=1_700_000_000_000,
        members=[],
    )
    key = GroupMetadataKey(group="billing")
    assert (encode_group_key(key), encode_group_value(value)) == (shown("group-key"), shown("group-value"))


def test_a_transactional_id_with_an_open_transaction() -> None:
    value = TransactionLogValue(
        producer_id=1000,
        producer_epoch=5,
        transaction_timeout_ms=60_000,
        transaction_status=TransactionStatus.ONGOING,
        transaction_partitions=[TransactionLogValue.PartitionsSchema(topic="orders", partition_ids=[3])],
        transaction_last_update_timestamp_ms=1_700_000_000_500,
        transaction_start_timestamp_ms=1_700_000_000_000,
        client_transaction_version=2,
    )
    key = TransactionLogKey(transactional_id="billing")
    assert encode_transaction_key(key) == shown("transaction-key")
    assert encode_transaction_value(value, 1) == shown("transaction-value")


def test_the_state_of_a_share_partition() -> None:
    key = ShareSnapshotKey(group_id="billing", topic_id=TOPIC_ID, partition=3)
    value = ShareSnapshotValue(
        snapshot_epoch=1,
        state_epoch=0,
        leader_epoch=2,
        start_offset=5,
        delivery_complete_count=1,
        create_timestamp=1_700_000_000_000,
        write_timestamp=1_700_000_000_500,
        state_batches=[
            ShareSnapshotValue.StateBatch(first_offset=6, last_offset=6, delivery_state=2, delivery_count=1)
        ],
    )
    assert encode_share_state_key(key) == shown("share-key")
    assert encode_share_state_value(value) == shown("share-snapshot")


def test_the_states_of_transactions() -> None:
    rows = re.findall(r"^\| ([A-Z][A-Za-z]+(?:, [A-Z][A-Za-z]+)?) \| (\d(?:, \d)?) \|", PAGES, re.MULTILINE)
    shown_states = {
        name: int(number)
        for names, numbers in rows
        for name, number in zip(names.split(", "), numbers.split(", "), strict=True)
    }
    states = {status.name.title().replace("_", ""): status.value for status in TransactionStatus}
    assert shown_states.items() >= states.items()


def test_a_marker() -> None:
    marker = end_transaction_marker(
        1000,
        5,
        is_commit=True,
        coordinator_epoch=0,
        timestamp_ms=1_700_000_001_000,
        base_offset=42,
        leader_epoch=0,
    )
    assert marker == shown("marker")
