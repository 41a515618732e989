"""What a dump says of the records that brokers write for themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from ottla.protocol.records.batch import Record, encode_batch
from ottla.protocol.records.control import ControlType, encode_control_key, end_transaction_marker
from ottla.protocol.stored.group import (
    OffsetCommitKey,
    OffsetCommitValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupTopologyKey,
    encode_group_key,
    encode_group_value,
)
from ottla.protocol.stored.metadata import (
    ConfigRecord,
    MetadataRecord,
    UserScramCredentialRecord,
    encode_metadata_record,
)
from ottla.protocol.stored.share_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
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
from ottla.storage.formats import layout

VALUE = TransactionLogValue(
    producer_id=1000,
    producer_epoch=5,
    transaction_timeout_ms=60_000,
    transaction_status=TransactionStatus.PREPARE_COMMIT,
    transaction_partitions=[TransactionLogValue.PartitionsSchema(topic="orders", partition_ids=[0, 2])],
    transaction_last_update_timestamp_ms=2,
    transaction_start_timestamp_ms=1,
    client_transaction_version=2,
)
KEY = encode_transaction_key(TransactionLogKey(transactional_id="billing"))


def dump(path: Path, *options: str) -> str:
    result = CliRunner().invoke(main, ["log", "dump", str(path), "--records", *options])
    assert result.exit_code == 0, result.output
    return result.output


def records(path: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in dump(path, "--json").splitlines()]
    return [row for row in rows if row["type"] == "record"]


def log_of(directory: Path, *batches: bytes | bytearray) -> Path:
    directory.mkdir()
    path = layout.log_file(directory, 0)
    path.write_bytes(b"".join(batches))
    return path


def transactions(tmp_path: Path, key: bytes | None, value: bytes | None) -> Path:
    return log_of(tmp_path / "__transaction_state-0", encode_batch([Record(0, 2, key, value)]))


@pytest.mark.parametrize(("is_commit", "kind"), [(True, "COMMIT"), (False, "ABORT")])
def test_a_marker_is_named_with_the_epoch_of_its_coordinator(tmp_path: Path, is_commit: bool, kind: str) -> None:
    marker = end_transaction_marker(1000, 5, is_commit=is_commit, coordinator_epoch=9, timestamp_ms=1)
    path = log_of(tmp_path / "orders-0", marker)
    (row,) = records(path)
    assert row["control"] == {"kind": kind, "coordinator_epoch": 9}
    assert f'{kind} {{"coordinator_epoch": 9}}' in dump(path)
    assert "producer 1000/5" in dump(path)


def test_a_marker_with_too_few_bytes_is_unreadable(tmp_path: Path) -> None:
    broken = encode_batch([Record(0, 1, encode_control_key(ControlType.ABORT), b"\0\0")], is_control=True)
    (row,) = records(log_of(tmp_path / "orders-0", broken))
    assert row["control"] == {"kind": "unreadable", "problem": "a transaction marker has 2 bytes, it needs 6"}


@pytest.mark.parametrize("version", [0, 1])
def test_a_transactional_id_is_shown_with_its_state_and_partitions(tmp_path: Path, version: int) -> None:
    written = VALUE if version else VALUE.replace(client_transaction_version=0)
    path = transactions(tmp_path, KEY, encode_transaction_value(written, version))
    (row,) = records(path)
    assert (row["key"], row["value"]) == (None, None)
    assert row["transaction"] == {
        "kind": "PrepareCommit",
        "transactional_id": "billing",
        "producer_id": 1000,
        "previous_producer_id": -1,
        "next_producer_id": -1,
        "producer_epoch": 5,
        "next_producer_epoch": -1,
        "transaction_timeout_ms": 60_000,
        "transaction_status": 2,
        "transaction_partitions": [{"topic": "orders", "partition_ids": [0, 2]}],
        "transaction_last_update_timestamp_ms": 2,
        "transaction_start_timestamp_ms": 1,
        "client_transaction_version": 2 if version else 0,
    }
    assert 'PrepareCommit {"transactional_id": "billing", "producer_id": 1000, ' in dump(path)


def test_a_forgotten_transactional_id_is_a_tombstone(tmp_path: Path) -> None:
    (row,) = records(transactions(tmp_path, KEY, None))
    assert row["transaction"] == {"kind": "tombstone", "transactional_id": "billing"}


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [(None, b"v", "unreadable"), (KEY, b"\0\2", "unreadable"), (b"\0\1more", b"v", "unknown")],
)
def test_what_is_not_known_is_shown_as_it_is(tmp_path: Path, key: bytes | None, value: bytes, kind: str) -> None:
    (row,) = records(transactions(tmp_path, key, value))
    assert row["transaction"]["kind"] == kind
    assert row["transaction"]["key"] == (None if key is None else key.decode())
    assert row["transaction"]["value"] == value.decode()


ID = UUID(int=1)
ID_TEXT = "AAAAAAAAAAAAAAAAAAAAAQ"


def test_committed_offsets_are_shown(tmp_path: Path) -> None:
    key = encode_group_key(OffsetCommitKey(group="billing", topic="orders", partition=2))
    value = encode_group_value(OffsetCommitValue(offset=7, leader_epoch=1, metadata="m", commit_timestamp=9))
    batch = encode_batch([Record(0, 2, key, value), Record(1, 2, key, None)])
    path = log_of(tmp_path / "__consumer_offsets-0", batch)
    committed, forgotten = records(path)
    assert (committed["key"], committed["value"]) == (None, None)
    about = {"group": "billing", "topic": "orders", "partition": 2}
    assert committed["group"].items() >= {"kind": "OffsetCommit", **about, "offset": 7, "metadata": "m"}.items()
    assert forgotten["group"] == {"kind": "tombstone", "of": "OffsetCommit", **about}
    assert 'OffsetCommit {"group": "billing", "topic": "orders", "partition": 2, "offset": 7, ' in dump(path)


def test_members_and_partitions_of_a_share_group_are_shown(tmp_path: Path) -> None:
    member = ShareGroupMemberMetadataValue(
        rack_id=None, client_id="app", client_host="/h", subscribed_topic_names=["orders"]
    )
    info = ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo(topic_id=ID, topic_name="orders", partitions=[0])
    partitions = ShareGroupStatePartitionMetadataValue(
        initializing_topics=[], initialized_topics=[info], deleting_topics=[]
    )
    written = [
        (ShareGroupMemberMetadataKey(group_id="mailers", member_id="m"), member),
        (ShareGroupStatePartitionMetadataKey(group_id="mailers"), partitions),
    ]
    batch = [Record(n, 2, encode_group_key(key), encode_group_value(value)) for n, (key, value) in enumerate(written)]
    path = log_of(tmp_path / "__consumer_offsets-0", encode_batch(batch))
    assert [row["group"] for row in records(path)] == [
        {
            "kind": "ShareGroupMemberMetadata",
            "group_id": "mailers",
            "member_id": "m",
            "rack_id": None,
            "client_id": "app",
            "client_host": "/h",
            "subscribed_topic_names": ["orders"],
        },
        {
            "kind": "ShareGroupStatePartitionMetadata",
            "group_id": "mailers",
            "initializing_topics": [],
            "initialized_topics": [{"topic_id": ID_TEXT, "topic_name": "orders", "partitions": [0]}],
            "deleting_topics": [],
        },
    ]
    assert 'ShareGroupMemberMetadata {"group_id": "mailers", "member_id": "m", ' in dump(path)


def test_tasks_and_a_deleted_topology_of_a_streams_group_are_shown(tmp_path: Path) -> None:
    tasks = StreamsGroupCurrentMemberAssignmentValue.TaskIds(subtopology_id="0", partitions=[2], assignment_epochs=[4])
    current = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=5,
        previous_member_epoch=4,
        state=1,
        active_tasks=[tasks],
        standby_tasks=[],
        warmup_tasks=[],
        active_tasks_pending_revocation=[],
        standby_tasks_pending_revocation=[],
        warmup_tasks_pending_revocation=[],
    )
    key = StreamsGroupCurrentMemberAssignmentKey(group_id="counters", member_id="m")
    batch = [
        Record(0, 2, encode_group_key(key), encode_group_value(current)),
        Record(1, 2, encode_group_key(StreamsGroupTopologyKey(group_id="counters")), None),
    ]
    path = log_of(tmp_path / "__consumer_offsets-0", encode_batch(batch))
    shown, forgotten = (row["group"] for row in records(path))
    assert shown.items() >= {"kind": "StreamsGroupCurrentMemberAssignment", "group_id": "counters", "state": 1}.items()
    assert shown["active_tasks"] == [{"subtopology_id": "0", "partitions": [2], "assignment_epochs": [4]}]
    assert forgotten == {"kind": "tombstone", "of": "StreamsGroupTopology", "group_id": "counters"}
    assert 'StreamsGroupCurrentMemberAssignment {"group_id": "counters", "member_id": "m", ' in dump(path)


def test_the_state_of_a_share_partition_is_shown_with_its_changes(tmp_path: Path) -> None:
    place = {"group_id": "mailers", "topic_id": ID, "partition": 3}
    batches = [
        ShareSnapshotValue.StateBatch(first_offset=n, last_offset=n, delivery_state=state, delivery_count=1)
        for n, state in enumerate((0, 2, 4, 7))
    ]
    snapshot = ShareSnapshotValue(
        snapshot_epoch=1,
        state_epoch=0,
        leader_epoch=2,
        start_offset=0,
        delivery_complete_count=2,
        create_timestamp=1,
        write_timestamp=2,
        state_batches=batches,
    )
    update = ShareUpdateValue(
        snapshot_epoch=1, leader_epoch=2, start_offset=-1, delivery_complete_count=2, state_batches=[]
    )
    snapshot_key = encode_share_state_key(ShareSnapshotKey(**place))
    written = [
        (snapshot_key, encode_share_state_value(snapshot)),
        (encode_share_state_key(ShareUpdateKey(**place)), encode_share_state_value(update)),
        (snapshot_key, None),
    ]
    batch = encode_batch([Record(n, 2, key, value) for n, (key, value) in enumerate(written)])
    path = log_of(tmp_path / "__share_group_state-0", batch)
    first, second, third = [row["share_state"] for row in records(path)]
    about = {"group_id": "mailers", "topic_id": ID_TEXT, "partition": 3}
    assert first == {
        "kind": "ShareSnapshot",
        **about,
        "snapshot_epoch": 1,
        "state_epoch": 0,
        "leader_epoch": 2,
        "start_offset": 0,
        "delivery_complete_count": 2,
        "create_timestamp": 1,
        "write_timestamp": 2,
        "state_batches": [
            {"first_offset": n, "last_offset": n, "delivery_state": state, "delivery_count": 1}
            for n, state in enumerate(("available", "acknowledged", "archived", 7))
        ],
    }
    assert second.items() >= {"kind": "ShareUpdate", **about, "start_offset": -1, "state_batches": []}.items()
    assert third == {"kind": "tombstone", "of": "ShareSnapshot", **about}
    assert 'ShareSnapshot {"group_id": "mailers", ' in dump(path)


@pytest.mark.parametrize(
    ("directory", "name"), [("__consumer_offsets-0", "group"), ("__share_group_state-0", "share_state")]
)
@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [(None, b"v", "unreadable"), (b"\0\1\0", b"v", "unreadable"), (b"\1\0more", b"v", "unknown")],
)
def test_stored_records_that_are_not_known_are_shown_as_they_are(
    tmp_path: Path, directory: str, name: str, key: bytes | None, value: bytes, kind: str
) -> None:
    (row,) = records(log_of(tmp_path / directory, encode_batch([Record(0, 2, key, value)])))
    found = row[name]
    assert (found["kind"], found["key"]) == (kind, None if key is None else key.decode())
    assert found["value"] == value.decode()


def test_records_of_clients_stay_as_they_are(tmp_path: Path) -> None:
    (row,) = records(log_of(tmp_path / "orders-0", encode_batch([Record(0, 1, KEY, None)])))
    assert "transaction" not in row
    assert row["key"] == KEY.decode()


def test_secrets_in_the_metadata_are_not_shown(tmp_path: Path) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    values = {
        "ssl.keystore.password": "[hidden]",
        "listener.name.tls.ssl.key.password": "[hidden]",
        "of.somebody.else": "[hidden]",
        "listener.name.tls.ssl.keystore.location": "/a secret",
        "log.retention.ms": "1000",
    }
    metadata: list[MetadataRecord] = [
        UserScramCredentialRecord(
            name="alice", mechanism=1, salt=b"salt", stored_key=b"a secret", server_key=b"a secret", iterations=4096
        )
    ]
    metadata += [
        ConfigRecord(resource_type=4, resource_name="1", name=key, value=shown if shown != "[hidden]" else "a secret")
        for key, shown in values.items()
    ]
    written = [Record(index, 1, None, encode_metadata_record(one), ()) for index, one in enumerate(metadata)]
    path = log_of(directory, encode_batch(written))
    first, *others = [row["metadata"] for row in records(path)]
    assert (first["name"], first["stored_key"], first["server_key"]) == ("alice", "[hidden]", "[hidden]")
    assert {one["name"]: one["value"] for one in others} == values
    assert "a secret" not in dump(path).replace("/a secret", "")
