"""Old records of `__share_group_state` are removed, and with `page-cache` only when what supersedes them is synced."""

from __future__ import annotations

import random

import pytest
from kit.nodes import partition_of, pass_time, start_node
from kit.share_requests import acknowledge, acquire_all, described_offsets, node_with_records, restarted

from ottla.broker.peer import Peer
from ottla.storage.formats.layout import SHARE_GROUP_STATE_TOPIC

KEYS = {
    "share_coordinator_state_topic_prune_interval_ms": 1000,
    "share_coordinator_snapshot_update_records_per_snapshot": 1,
}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("promise", ["sync", "page-cache"])
def test_a_power_cut_after_old_records_were_removed_loses_no_state_that_a_start_has_found(
    promise: str, seed: int
) -> None:
    keys = KEYS | {"ottla_acks_all": promise}
    node, files, clock = node_with_records(20, **keys)
    peer = Peer()
    acquire_all(node, peer, 0)
    acknowledge(node, peer, 1, 0, 4)
    node, files = restarted(node, files, clock, **keys)
    assert described_offsets(node) == (5, 15)
    peer = Peer()
    acquire_all(node, peer, 0)
    for number in range(1, 8):
        acknowledge(node, peer, number, 4 + number, 4 + number)
    pass_time(node, clock, 5000)
    assert partition_of(node, SHARE_GROUP_STATE_TOPIC).log_start_offset > 0
    node, _, _ = start_node(files.crash(random.Random(seed)), clock, **keys)
    start_offset, lag = described_offsets(node)
    assert 5 <= start_offset <= 12
    assert lag == 20 - start_offset
