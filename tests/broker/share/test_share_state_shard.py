"""The states of share partitions: loaded, written by change, forgotten with their topics, and what is pruned."""

from __future__ import annotations

import errno

import pytest
from kit.nodes import DATA, partition_of
from kit.share_nodes import Reader, ShareNode
from kit.topics import create, delete

from ottla.broker.metadata.change_requests import NewTopic
from ottla.broker.share import shard as shards
from ottla.broker.share.deliveries import RecordState, StateBatch
from ottla.broker.share.shard import ShareStateShard
from ottla.protocol.api.share_fetch import AcknowledgeType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Struct
from ottla.protocol.records.batch import decode_batch, iter_batches
from ottla.protocol.stored.share_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateValue,
    decode_share_state_record,
)
from ottla.storage.formats.layout import SHARE_GROUP_STATE_TOPIC

GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
PRUNE_MS = 300_000
MOST_UPDATES = 3


@pytest.fixture
def broker() -> ShareNode:
    return ShareNode(share_coordinator_snapshot_update_records_per_snapshot=MOST_UPDATES)


def shard_of(broker: ShareNode) -> ShareStateShard:
    (shard,) = broker.coordinator.shards.active()
    return shard


def written(broker: ShareNode) -> list[tuple[Struct, Struct | None]]:
    """The records of `__share_group_state`, in order."""
    data = broker.files.read_bytes(DATA / f"{SHARE_GROUP_STATE_TOPIC}-0" / "00000000000000000000.log")
    return [
        decode_share_state_record(record.key or b"", record.value)
        for position, _ in iter_batches(data)
        for record in decode_batch(memoryview(data)[position:])
    ]


def acknowledge_one_by_one(broker: ShareNode, reader: Reader, count: int) -> None:
    broker.produce(*[1] * count)
    for first_offset, last_offset, _ in reader.take():
        reader.acknowledge((first_offset, last_offset, [ACCEPT]))


def log_range(broker: ShareNode) -> tuple[int, int]:
    log = partition_of(broker.node, SHARE_GROUP_STATE_TOPIC).log
    return log.log_start_offset, log.log_end_offset


# --- records ---------------------------------------------------------------------------------------------------------


def test_no_topic_is_made_before_a_member_fetches(broker: ShareNode) -> None:
    assert SHARE_GROUP_STATE_TOPIC not in broker.node.services.catalog.topics
    Reader(broker).fetch()
    assert SHARE_GROUP_STATE_TOPIC in broker.node.services.catalog.topics


def test_a_state_is_a_snapshot_and_updates_until_the_next_snapshot(broker: ShareNode) -> None:
    acknowledge_one_by_one(broker, Reader(broker), 6)
    values = [value for _, value in written(broker)]
    kinds = [ShareSnapshotValue, *[ShareUpdateValue] * MOST_UPDATES, ShareSnapshotValue, *[ShareUpdateValue] * 2]
    assert [type(value) for value in values] == kinds
    assert [(value.snapshot_epoch, value.start_offset) for value in values] == [  # type: ignore[union-attr]
        (0, 0),
        (0, 1),
        (0, 2),
        (0, 3),
        (1, 4),
        (1, 5),
        (1, 6),
    ]


def test_what_a_load_reads_is_what_was_written(broker: ShareNode) -> None:
    broker.produce(*[1] * 8)
    reader = Reader(broker)
    reader.take()
    for offset, kind in zip(range(1, 8), [ACCEPT, REJECT, RELEASE, GAP, ACCEPT, ACCEPT, RELEASE], strict=True):
        reader.acknowledge((offset, offset, [kind]))
    before = broker.state()
    assert before is not None
    assert before.complete_count == 5
    assert before.batches[0] == StateBatch(1, 1, RecordState.ACKNOWLEDGED, 1)
    for again in (broker.crashed(), broker.restarted()):
        Reader(again, "b", partitions=()).fetch()
        loaded = again.state()
        assert loaded is not None
        assert loaded._replace(snapshot_offset=0) == before._replace(snapshot_offset=0)


def test_a_shard_says_how_much_it_has(broker: ShareNode) -> None:
    Reader(broker, partitions=(0, 1)).fetch()
    assert shard_of(broker).summary() == "2 share partitions"


# --- topics ----------------------------------------------------------------------------------------------------------


def test_the_states_of_a_deleted_topic_are_forgotten_for_good(broker: ShareNode) -> None:
    reader = Reader(broker, partitions=(0, 1))
    reader.fetch()
    assert broker.counts() == (1, 2, 2)
    delete(broker.node, "t")
    broker.pass_ms(100)
    assert broker.counts() == (1, 0, 0)
    assert [value for _, value in written(broker)[-2:]] == [None, None]
    assert all(isinstance(key, ShareSnapshotKey) for key, _ in written(broker)[-2:])


def test_a_topic_that_was_deleted_as_the_broker_stopped_is_forgotten_at_the_load(
    broker: ShareNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    Reader(broker).fetch()
    with monkeypatch.context() as patches:
        patches.setattr(ShareStateShard, "on_topics_changed", lambda *_: iter(()))
        delete(broker.node, "t")
        broker.pass_ms(100)
    assert broker.coordinator.state_count == 1
    again = broker.restarted()
    Reader(again, partitions=()).fetch()
    again.pass_ms(100)
    assert again.coordinator.state_count == 0


def test_a_topic_of_the_same_name_begins_again(broker: ShareNode) -> None:
    acknowledge_one_by_one(broker, Reader(broker), 3)
    delete(broker.node, "t")
    create(broker.node, NewTopic("t", partitions=2, replication_factor=1))
    broker.produce(2)
    assert Reader(broker).take() == [(0, 1, 1)]


# --- a shard that dies -----------------------------------------------------------------------------------------------


def test_a_shard_that_dies_takes_what_is_delivered_with_it_and_its_successor_goes_on(broker: ShareNode) -> None:
    broker.produce(1, 1, 1)
    reader = Reader(broker)
    reader.take(max_records=2)
    reader.acknowledge((0, 0, [ACCEPT]))
    before = shard_of(broker)
    full = broker.files.fail("pwritev", f"*/{SHARE_GROUP_STATE_TOPIC}-0/*", error=errno.ENOSPC, times=None)
    with pytest.raises(KafkaError):
        reader.acknowledge((1, 1, [ACCEPT]))
    assert before.is_dead
    broker.files.heal(full)
    broker.pass_ms(15_000)
    assert shard_of(broker) is not before
    assert reader.take() == [(1, 1, 1), (2, 2, 1)], "the acknowledgement was refused, the acquisition is forgotten"


def test_members_that_wait_live_through_the_end_of_a_shard(broker: ShareNode) -> None:
    reader, other = Reader(broker), Reader(broker, "b")
    broker.produce(1)
    other.take()
    pending = reader.begin_wait(60_000)
    full = broker.files.fail("pwritev", f"*/{SHARE_GROUP_STATE_TOPIC}-0/*", error=errno.ENOSPC, times=None)
    with pytest.raises(KafkaError):
        other.acknowledge((0, 0, [ACCEPT]))
    broker.files.heal(full)
    broker.pass_ms(15_000)
    assert pending.done
    data = [one for topic in reader.answer(pending).responses for one in topic.partitions]
    assert [(one.error_code, len(one.acquired_records)) for one in data] in (
        [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)],
        [(ErrorCode.NONE, 1)],
    )


# --- pruning ---------------------------------------------------------------------------------------------------------


def test_what_is_before_the_oldest_snapshot_is_removed(broker: ShareNode) -> None:
    reader = Reader(broker)
    acknowledge_one_by_one(broker, reader, 10)
    before = broker.state()
    assert before is not None
    assert log_range(broker) == (0, 11)
    broker.pass_ms(PRUNE_MS)
    assert log_range(broker) == (before.snapshot_offset, 11)
    again = broker.crashed()
    Reader(again, "b", partitions=()).fetch()
    loaded = again.state()
    assert loaded is not None
    assert (loaded.start_offset, loaded.snapshot_epoch) == (10, before.snapshot_epoch)


def test_nothing_is_removed_that_another_state_needs(broker: ShareNode) -> None:
    idle = Reader(broker, "b", partitions=(1,))
    idle.fetch()
    acknowledge_one_by_one(broker, Reader(broker), 10)
    broker.pass_ms(PRUNE_MS)
    assert log_range(broker)[0] == 0
    assert broker.state(1) is not None


def test_a_state_that_is_in_the_way_of_many_records_is_written_again(
    broker: ShareNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "RECORDS_LEFT", 16)
    Reader(broker, "b", partitions=(1,)).fetch()
    reader = Reader(broker)
    acknowledge_one_by_one(broker, reader, 14)
    broker.pass_ms(PRUNE_MS)
    assert log_range(broker) == (0, 16), "16 records may be left"
    acknowledge_one_by_one(broker, reader, 1)
    broker.pass_ms(PRUNE_MS)
    assert log_range(broker)[1] == 18, "the snapshot of the other partition"
    broker.pass_ms(PRUNE_MS)
    start, end = log_range(broker)
    assert 0 < start < end
    state = broker.state(1)
    assert state is not None
    assert (state.snapshot_epoch, state.snapshot_offset) == (1, 17)
    again = broker.crashed()
    Reader(again, "c", partitions=()).fetch()
    assert again.coordinator.state_count == 2


def test_after_a_load_nothing_is_removed_until_snapshots_are_known(broker: ShareNode) -> None:
    acknowledge_one_by_one(broker, Reader(broker), 10)
    again = broker.restarted()
    Reader(again, "b", partitions=()).fetch()
    again.pass_ms(PRUNE_MS)
    assert log_range(again) == (0, 11)


def test_without_states_nothing_is_left(broker: ShareNode) -> None:
    acknowledge_one_by_one(broker, Reader(broker), 3)
    delete(broker.node, "t")
    broker.pass_ms(PRUNE_MS)
    start, end = log_range(broker)
    assert start == end > 0


def test_records_that_are_not_durable_yet_remove_nothing(broker: ShareNode) -> None:
    """A snapshot that a power cut takes would be missed with all that was before it."""
    reader = Reader(broker)
    acknowledge_one_by_one(broker, reader, 3)
    broker.produce(1)
    reader.take()
    pending = reader.begin_acknowledge((3, 3, [ACCEPT]))
    removed: list[int] = []
    shard_of(broker).prune(removed.append)
    assert removed == []
    broker.node.settle()
    assert pending.done
    assert removed == [4]
