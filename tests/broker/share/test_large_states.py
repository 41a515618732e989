"""A state that does not fit into one record is written by updates, and a change in several of them."""

from __future__ import annotations

from kit.nodes import start_node
from kit.share_requests import acknowledge, acquire_all, described_offsets, node_with_records, restarted

from ottla.broker.peer import Peer
from ottla.broker.share.deliveries import RecordState, StateBatch
from ottla.broker.share.stored_state import Change, SharePartitionKey, StoredState, change_records
from ottla.protocol.types import ZERO_UUID

KEYS = {
    "share_coordinator_state_topic_segment_bytes": 1024,
    "share_coordinator_snapshot_update_records_per_snapshot": 1,
}
RECORDS = 120
"""Every other of which makes twice as many batches as a record of such a segment takes."""


def test_a_state_of_very_many_batches_is_stored() -> None:
    node, files, clock = node_with_records(RECORDS, **KEYS)
    peer = Peer()
    acquire_all(node, peer, 0)
    for number, offset in enumerate(range(1, RECORDS, 2), 1):
        acknowledge(node, peer, number, offset, offset)
    node, files = restarted(node, files, clock, **KEYS)
    assert described_offsets(node) == (0, RECORDS // 2)
    peer = Peer()
    acquire_all(node, peer, 0)
    acknowledge(node, peer, 1, 0, 0)
    node.stop()
    node, _, _ = start_node(files.successor(), clock, **KEYS)
    assert described_offsets(node) == (2, RECORDS // 2 - 1)


def test_a_change_of_very_many_batches_is_stored() -> None:
    """One of a member that goes and leaves every other record."""
    node, files, clock = node_with_records(RECORDS, **KEYS)
    peer = Peer()
    acquire_all(node, peer, 0)
    for number, offset in enumerate(range(1, RECORDS, 2), 1):
        acknowledge(node, peer, number, offset, offset)
    peer.end()
    node.settle()
    node, files = restarted(node, files, clock, **KEYS)
    peer = Peer()
    acquire_all(node, peer, 0)
    assert described_offsets(node) == (0, RECORDS // 2)


def test_the_start_offset_of_a_change_in_parts_is_in_the_last() -> None:
    key = SharePartitionKey("g", ZERO_UUID, 0)
    batches = [StateBatch(offset, offset, RecordState.ACKNOWLEDGED, 1) for offset in range(10, 20, 2)]
    change = Change(9, 5, batches, 0)
    parts = change_records(key, StoredState(0, 0, 0, 8, 1, 0), change, most_updates=1, most_batches=2, now_ms=0)
    values = [value for _, value in parts]
    assert [len(value.state_batches) for value in values] == [2, 2, 1]  # type: ignore[union-attr]
    assert [value.start_offset for value in values] == [-1, -1, 9]  # type: ignore[union-attr]
    assert [value.delivery_complete_count for value in values] == [1, 1, 5]  # type: ignore[union-attr]
