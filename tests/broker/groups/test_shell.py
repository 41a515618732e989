"""The shell of groups: what a reply waits for, what a failing disk does, and what is there after a crash."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from typing import Any

import pytest
from kit.clock import ManualClock
from kit.exchange import Exchange
from kit.group_requests import (
    COMMIT_VERSION,
    FETCH_VERSION,
    HEARTBEAT_VERSION,
    JOIN_VERSION,
    SYNC_VERSION,
    begin,
    code_of,
    commit,
    commit_request,
    committed,
    delete_group,
    delete_groups_request,
    describe,
    fetch_request,
    group_ids,
    heartbeat,
    join,
    join_request,
    make_topic,
    settled,
    sync,
    sync_request,
)
from kit.nodes import ask, pass_time, start_node
from kit.simulated_files import SimulatedFiles

from ottla.broker.coordination.shard_map import RELOAD_INTERVAL_MS
from ottla.broker.groups import coordinator
from ottla.broker.groups.shard import GROUPS_PER_STEP
from ottla.broker.metadata.image import GROUP_RESOURCE
from ottla.broker.node import Node
from ottla.broker.peer import Peer
from ottla.broker.runtime.pending import Pending
from ottla.broker.telemetry.exposition import Exposition
from ottla.config.topic import TopicConfig
from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.protocol.api.delete_topics import DeleteTopicsRequest
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.api.join_group import JoinGroupResponse
from ottla.protocol.api.leave_group import LeaveGroupRequest
from ottla.protocol.api.list_groups import ListGroupsRequest
from ottla.protocol.api.offset_commit import OffsetCommitResponse
from ottla.protocol.api.offset_fetch import OffsetFetchResponse
from ottla.protocol.api.sync_group import SyncGroupResponse
from ottla.protocol.errors import ErrorCode, UnencodableMessage
from ottla.protocol.message import Request
from ottla.storage.formats.layout import OFFSETS_TOPIC

Life = tuple[Node, SimulatedFiles, ManualClock]
HEARTBEAT: dict[str, Any] = {
    "group_id": "k",
    "member_id": "m",
    "member_epoch": 0,
    "rebalance_timeout_ms": 60_000,
    "subscribed_topic_names": ["t"],
    "topic_partitions": [],
}


@pytest.fixture
def life() -> Life:
    node, files, clock = start_node(ottla_acks_all="sync")
    make_topic(node, "t", 4)
    assert commit(node, "warm", {0: 1}) == ErrorCode.NONE
    return node, files, clock


def log_end(node: Node) -> int:
    partition = node.services.catalog.partition(OFFSETS_TOPIC, 0)
    assert partition is not None
    return partition.log.log_end_offset


# What a reply waits for ----------------------------------------------------------------------------------------------


def test_a_commit_is_answered_once_it_is_synced_and_not_before(life: Life) -> None:
    node, _, _ = life
    pending = begin(node, commit_request("g", {0: 5}), COMMIT_VERSION)
    node.services.turn.end()
    assert not pending.done
    node.settle()
    assert settled(node, pending, OffsetCommitResponse).topics[0].partitions[0].error_code == ErrorCode.NONE


def test_with_the_page_cache_a_commit_is_answered_at_the_end_of_the_turn() -> None:
    node, _, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t")
    commit(node, "warm", {0: 1})
    pending = begin(node, commit_request("g", {0: 5}), COMMIT_VERSION)
    assert not pending.done
    node.services.turn.end()
    assert pending.done


def test_a_fetched_offset_is_never_one_that_a_crash_could_take_back(life: Life) -> None:
    node, _, _ = life
    begin(node, commit_request("g", {0: 5}), COMMIT_VERSION)
    read = begin(node, fetch_request("g", [0]), FETCH_VERSION)
    node.services.turn.end()
    assert not read.done
    node.settle()
    assert read.done


def test_a_group_whose_records_are_durable_does_not_wait_for_another(life: Life) -> None:
    node, _, _ = life
    begin(node, commit_request("g", {0: 5}), COMMIT_VERSION)
    read = begin(node, fetch_request("warm", [0]), FETCH_VERSION)
    assert read.done


def test_a_list_waits_for_whatever_it_shows(life: Life) -> None:
    node, _, _ = life
    begin(node, commit_request("g", {0: 5}), COMMIT_VERSION)
    listed = begin(node, ListGroupsRequest(), 5)
    node.services.turn.end()
    assert not listed.done
    node.settle()
    assert listed.done


def test_a_generation_is_sent_to_members_once_it_is_synced(life: Life) -> None:
    node, _, _ = life
    joined = join(node, "g")
    synced = begin(node, sync_request("g", joined), SYNC_VERSION)
    node.services.turn.end()
    assert not synced.done
    node.settle()
    assert settled(node, synced, SyncGroupResponse).assignment == b"mine"


def test_a_heartbeat_does_not_wait_for_the_disk(life: Life) -> None:
    node, _, _ = life
    joined = join(node, "g")
    sync(node, "g", joined)
    of_member = commit_request("g", {0: 5}, member_id=joined.member_id, generation=joined.generation_id)
    committing = begin(node, of_member, COMMIT_VERSION)
    beat = begin(node, heartbeat("g", joined), HEARTBEAT_VERSION)
    assert beat.done
    assert not committing.done
    assert settled(node, beat, HeartbeatResponse).error_code == ErrorCode.NONE


def test_the_steps_of_one_turn_reach_the_log_in_one_batch(life: Life) -> None:
    node, _, _ = life
    partition = node.services.catalog.partition(OFFSETS_TOPIC, 0)
    assert partition is not None
    appends: list[int] = []
    original = partition.log.append_batches

    def counting(batches: Sequence[object], *more: Any) -> object:
        appends.append(len(batches))
        return original(batches, *more)

    partition.log.append_batches = counting  # type: ignore[method-assign]  # a spy
    for group in ("a", "b", "c"):
        begin(node, commit_request(group, {0: 1, 1: 2}), COMMIT_VERSION)
    node.settle()
    assert appends == [1]


def test_requests_of_one_connection_start_at_once_and_are_answered_in_order(life: Life) -> None:
    node, _, _ = life
    client = Exchange(node)
    sent = [
        client.send(commit_request("g", {0: 1}), COMMIT_VERSION),
        client.send(commit_request("g", {0: 2}), COMMIT_VERSION),
        client.send(fetch_request("warm", [0]), FETCH_VERSION),
        client.send(fetch_request("g", [0]), FETCH_VERSION),
    ]
    client.end_turn()
    assert client.replies() == []  # the answer about another group is there and waits its turn
    node.settle()
    replies = client.replies()
    assert [correlation_id for correlation_id, _ in replies] == sent
    last = replies[-1][1]
    assert isinstance(last, OffsetFetchResponse)
    assert last.groups[0].topics[0].partitions[0].committed_offset == 2


def test_nothing_starts_behind_a_parked_join(life: Life) -> None:
    node, _, _ = life
    joined = join(node, "g")
    sync(node, "g", joined)
    client = Exchange(node)
    newcomer = client.ask(join_request("g"), JOIN_VERSION)
    assert isinstance(newcomer, JoinGroupResponse)
    client.send(join_request("g", newcomer.member_id), JOIN_VERSION)
    client.send(commit_request("other", {0: 9}), COMMIT_VERSION)
    node.settle()
    assert client.replies() == []
    assert committed(node, "other") == -1
    begin(node, join_request("g", joined.member_id), JOIN_VERSION)
    node.settle()
    assert [type(reply) for _, reply in client.replies()] == [JoinGroupResponse, OffsetCommitResponse]
    assert committed(node, "other") == 9


# A failing disk ------------------------------------------------------------------------------------------------------


def test_a_failed_sync_unloads_and_requests_that_wait_get_not_coordinator(life: Life) -> None:
    node, files, _ = life
    joined = join(node, "g")
    sync(node, "g", joined)
    parked = begin(node, join_request("g", ""), JOIN_VERSION)
    node.settle()
    files.fail("fdatasync", error=errno.EIO)
    pending = begin(node, commit_request("h", {0: 9}), COMMIT_VERSION)
    node.settle()
    assert code_of(pending) is ErrorCode.NOT_COORDINATOR
    assert parked.done
    assert code_of(begin(node, commit_request("h", {0: 9}), COMMIT_VERSION)) is ErrorCode.NOT_COORDINATOR


def test_a_full_disk_refuses_and_the_groups_are_back_with_what_was_acknowledged(life: Life) -> None:
    node, files, clock = life
    commit(node, "g", {0: 5})
    full = files.fail("pwritev", error=errno.ENOSPC, times=None)
    pending = begin(node, commit_request("g", {0: 6}), COMMIT_VERSION)
    node.settle()
    assert code_of(pending) is ErrorCode.NOT_COORDINATOR
    pass_time(node, clock, 3 * RELOAD_INTERVAL_MS)
    refused = settled(node, begin(node, fetch_request("g", [0]), FETCH_VERSION), OffsetFetchResponse)
    assert refused.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    files.heal(full)
    pass_time(node, clock, 30_000)
    assert committed(node, "g") == 5
    assert commit(node, "g", {0: 7}) == ErrorCode.NONE
    assert committed(node, "g") == 7


def test_a_record_that_cannot_be_written_leaves_nothing_in_memory(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    node, _, clock = life
    before = log_end(node)
    monkeypatch.setattr("ottla.broker.groups.offsets.LAST_TIMESTAMP_MS", 1 << 64)
    refused = begin(node, commit_request("warm", {0: 9}, retention_ms=(1 << 63) - 1), 3)
    assert code_of(refused) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert log_end(node) == before
    pass_time(node, clock, 10 * RELOAD_INTERVAL_MS)
    assert committed(node, "warm") == 1


def test_a_group_whose_removal_cannot_be_written_is_not_said_to_be_deleted(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, _, clock = life

    def refuse(*_: object, **__: object) -> list[tuple[bytes, bytes | None]]:
        raise UnencodableMessage("too large")

    with monkeypatch.context() as patched:
        patched.setattr("ottla.broker.coordination.shard_log.encode_records", refuse)
        pending = begin(node, delete_groups_request("warm"), 2)
        node.settle()
    assert code_of(pending) is ErrorCode.NOT_COORDINATOR
    pass_time(node, clock, 10 * RELOAD_INTERVAL_MS)
    assert committed(node, "warm") == 1


# Crashes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_a_power_cut_between_append_and_sync_loses_nothing_that_was_acknowledged(life: Life, seed: int) -> None:
    node, files, clock = life
    for offset in range(1, 6):
        assert commit(node, "g", {0: offset, 1: offset * 10}) == ErrorCode.NONE
    unsynced = begin(node, commit_request("g", {0: 6, 1: 60}), COMMIT_VERSION)
    node.services.turn.end()
    assert not unsynced.done
    node, _, _ = start_node(files.crash(random.Random(seed)), clock, ottla_acks_all="sync")
    assert (committed(node, "g", 0), committed(node, "g", 1)) in {(5, 50), (6, 60)}
    assert committed(node, "warm") == 1


def test_members_are_there_after_a_crash_and_their_sessions_begin_again(life: Life) -> None:
    node, files, clock = life
    joined = join(node, "g")
    sync(node, "g", joined)
    clock.advance(9_000)
    node, _, _ = start_node(files.crash(random.Random(1)), clock, ottla_acks_all="sync")
    assert describe(node, "g").group_state == "Stable"
    pass_time(node, clock, 9_000)
    beat = settled(node, begin(node, heartbeat("g", joined), HEARTBEAT_VERSION), HeartbeatResponse)
    assert beat.error_code == ErrorCode.NONE
    pass_time(node, clock, 11_000)
    assert describe(node, "g").group_state == "Empty"


def test_a_deleted_group_stays_deleted(life: Life) -> None:
    node, files, clock = life
    commit(node, "g", {0: 5, 1: 6})
    assert delete_group(node, "g") == ErrorCode.NONE
    node, _, _ = start_node(files.crash(random.Random(1)), clock)
    assert group_ids(node) == {"warm"}
    assert committed(node, "g") == -1


def test_a_clean_restart_keeps_groups_and_offsets(life: Life) -> None:
    node, files, clock = life
    joined = join(node, "g")
    sync(node, "g", joined)
    commit(node, "g", {2: 22}, member_id=joined.member_id, generation=joined.generation_id)
    node.stop()
    node, _, _ = start_node(files, clock)
    assert committed(node, "g", 2) == 22
    assert [member.member_id for member in describe(node, "g").members] == [joined.member_id]


@pytest.mark.parametrize("seed", range(5))
def test_a_topic_that_was_deleted_before_a_power_cut_leaves_no_offset_to_a_new_one_of_its_name(
    life: Life, seed: int
) -> None:
    node, files, clock = life
    assert commit(node, "g", {0: 77}) == ErrorCode.NONE
    deletion = begin(node, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 5)
    while not deletion.done:
        node.services.turn.end()
        node.services.syncer.run_one()
    survivor, _, _ = start_node(files.crash(random.Random(seed)), clock)
    make_topic(survivor, "t")
    assert committed(survivor, "g") == -1


def test_a_topic_that_is_deleted_and_made_again_while_the_groups_load_has_no_offset(life: Life) -> None:
    node, files, clock = life
    assert commit(node, "g", {0: 77}) == ErrorCode.NONE
    files.fail("pwritev", error=errno.ENOSPC)
    begin(node, commit_request("g", {0: 78}), COMMIT_VERSION)
    node.settle()
    while not node.services.groups.get().loads_under_way:
        clock.advance(RELOAD_INTERVAL_MS)
        node.run_due()
    ask(node, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 5)
    make_topic(node, "t")
    assert node.services.groups.get().loads_under_way
    pass_time(node, clock, 10 * RELOAD_INTERVAL_MS)
    assert committed(node, "g") == -1


def test_a_first_commit_that_crosses_the_deletion_of_its_topic_leaves_no_offset_to_a_new_one_of_its_name() -> None:
    node, _, _ = start_node(ottla_acks_all="sync")
    make_topic(node, "t")
    begin(node, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 5)
    crossing = begin(node, commit_request("g", {0: 77}), COMMIT_VERSION)
    answer = settled(node, crossing, OffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    make_topic(node, "t")
    assert committed(node, "g") == -1
    assert group_ids(node) == set()


@pytest.mark.parametrize("unloaded_by", ["a commit before", "the deletion itself"])
def test_a_topic_that_is_deleted_and_made_again_while_its_groups_are_unloaded_has_no_offset(unloaded_by: str) -> None:
    node, files, clock = start_node(ottla_acks_all="sync", log_dirs="/data,/other")
    make_topic(node, "t")
    assert commit(node, "g", {0: 77}) == ErrorCode.NONE
    directory = node.services.log_manager.directory_of(OFFSETS_TOPIC, 0)
    assert directory is not None
    full = files.fail("pwritev", f"{directory.path}/{OFFSETS_TOPIC}*", error=errno.ENOSPC, times=None)
    if unloaded_by == "a commit before":
        refused = begin(node, commit_request("g", {0: 78}), COMMIT_VERSION)
        node.settle()
        assert code_of(refused) is ErrorCode.NOT_COORDINATOR
    ask(node, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 5)
    make_topic(node, "t")
    assert not node.services.groups.get().shards.active()
    assert not node.services.groups.get().loads_under_way
    files.heal(full)
    pass_time(node, clock, 30 * RELOAD_INTERVAL_MS)
    assert committed(node, "g") == -1


def test_what_a_slow_disk_forgets_in_the_end_is_not_forgotten_again_at_the_next_load() -> None:
    node, files, clock = start_node(ottla_acks_all="sync", offsets_commit_timeout_ms=500)
    make_topic(node, "t")
    assert commit(node, "g", {0: 77}) == ErrorCode.NONE
    (shard,) = node.services.groups.get().shards.active()
    begin(node, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 5)
    while not shard.deleted_topics:
        node.services.turn.end()
        node.services.syncer.run_one()
    node.services.turn.end()
    clock.advance(501)
    node.services.timers.run_due(clock.monotonic_ms())
    assert shard.deleted_topics == {"t"}
    node.settle()
    assert not shard.deleted_topics
    make_topic(node, "t")
    assert commit(node, "g", {0: 5}) == ErrorCode.NONE
    full = files.fail("pwritev", error=errno.ENOSPC, times=None)
    begin(node, commit_request("g", {0: 6}), COMMIT_VERSION)
    node.settle()
    assert shard.is_dead
    files.heal(full)
    pass_time(node, clock, 30_000)
    assert committed(node, "g") == 5


# Upgrades ------------------------------------------------------------------------------------------------------------


def followed(node: Node) -> tuple[JoinGroupResponse, Pending[object]]:
    """Two members in CompletingRebalance: the leader, which is to bring the assignment, and whose follower waits."""
    leader = join(node, "g")
    begin(node, sync_request("g", leader).replace(assignments=[]), SYNC_VERSION)
    follower = begin(node, join_request("g"), 3)
    again = settled(node, begin(node, join_request("g", leader.member_id), 3), JoinGroupResponse)
    joined = settled(node, follower, JoinGroupResponse)
    synced = begin(node, sync_request("g", joined).replace(assignments=[]), SYNC_VERSION)
    node.settle()
    assert not synced.done
    return again, synced


def upgrading_heartbeat(**fields: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(**{**HEARTBEAT, "group_id": "g", **fields})


def test_an_upgrade_asks_waiting_members_to_join_again(life: Life) -> None:
    node, _, _ = life
    _, parked = followed(node)
    upgraded = settled(node, begin(node, upgrading_heartbeat(), 1), ConsumerGroupHeartbeatResponse)
    assert upgraded.error_code == ErrorCode.NONE
    assert settled(node, parked, SyncGroupResponse).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_an_upgrade_that_is_refused_leaves_no_member_that_never_expires(life: Life) -> None:
    node, _, clock = life
    leader, parked = followed(node)
    for _ in range(4):  # the follower waits for longer than its session
        pass_time(node, clock, 5_000)
        begin(node, heartbeat("g", leader), HEARTBEAT_VERSION)
    refused = begin(node, upgrading_heartbeat(subscribed_topic_names=None, subscribed_topic_regex="("), 1)
    assert code_of(refused) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not parked.done
    begin(node, sync_request("g", leader).replace(assignments=[]), SYNC_VERSION)
    for _ in range(4):  # the follower does not come back
        pass_time(node, clock, 5_000)
        begin(node, heartbeat("g", leader), HEARTBEAT_VERSION)
    assert [member.member_id for member in describe(node, "g").members] == [leader.member_id]


# Connections, timers, topics -----------------------------------------------------------------------------------------


def test_a_member_whose_connection_broke_is_removed_where_the_broker_is_configured_so() -> None:
    node, _, clock = start_node(ottla_group_evict_on_disconnect_ms=0)
    make_topic(node, "t")
    peer = Peer()
    joined = join(node, "g", peer=peer)
    sync(node, "g", joined, peer=peer)
    (ended,) = peer.endings.values()
    ended()
    pass_time(node, clock, 1)
    assert describe(node, "g").group_state == "Empty"


def test_a_connection_without_groups_costs_nothing_at_its_end(life: Life) -> None:
    node, _, _ = life
    peer = Peer()
    begin(node, fetch_request("warm", [0]), FETCH_VERSION, peer)
    begin(node, commit_request("warm", {0: 2}), COMMIT_VERSION, peer)
    begin(node, HeartbeatRequest(group_id="nobody", generation_id=1, member_id="x"), HEARTBEAT_VERSION, peer)
    node.settle()
    assert peer.endings == {}


def test_a_connection_does_not_remember_groups_that_are_gone(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else bounds them: a group is gone soon after its members, and one connection may make any number."""
    monkeypatch.setattr(coordinator, "GROUPS_BEFORE_A_LOOK", 10)
    node, _, _ = life
    peer = Peer()
    sync(node, "stays", join(node, "stays", peer=peer), peer=peer)
    for number in range(95):
        joined = join(node, f"g{number}", peer=peer)
        leaving = LeaveGroupRequest.MemberIdentity(member_id=joined.member_id)
        ask(node, LeaveGroupRequest(group_id=f"g{number}", members=[leaving]), 4, peer=peer)
        assert delete_group(node, f"g{number}") == 0
    remembered = node.services.groups.get()._groups_of[peer]
    assert "stays" in remembered
    assert len(remembered) <= 10


def test_one_timer_serves_all_members_of_all_groups(life: Life) -> None:
    node, _, _ = life
    sync(node, "a", join(node, "a"))
    before = len(node.services.timers)
    for group in ("b", "c", "d"):
        sync(node, group, join(node, group))
    assert len(node.services.timers) == before


def test_offsets_of_a_deleted_topic_are_gone_also_after_a_restart(life: Life) -> None:
    node, files, clock = life
    make_topic(node, "other")
    commit(node, "g", {0: 5})
    commit(node, "g", {0: 8}, topic="other")
    done: list[object] = []
    node.services.catalog.delete_topics(["t"], done.append)
    node.settle()
    assert done
    assert (committed(node, "g"), committed(node, "g", topic="other")) == (-1, 8)
    node.stop()
    node, _, _ = start_node(files, clock)
    assert (committed(node, "g"), committed(node, "g", topic="other")) == (-1, 8)


# The topic -----------------------------------------------------------------------------------------------------------


def test_the_topic_is_made_on_first_need_compacted_and_internal() -> None:
    node, _, _ = start_node(offsets_topic_num_partitions=3, offsets_topic_segment_bytes=1_000_000)
    assert OFFSETS_TOPIC not in node.services.catalog.topics
    make_topic(node, "t")
    assert commit(node, "g", {0: 5}) == ErrorCode.NONE
    topic = node.services.catalog.topics[OFFSETS_TOPIC]
    assert topic.is_internal
    assert len(topic.partitions) == 3
    assert topic.config.cleanup_policy == ("compact",)
    assert topic.config.segment_bytes == 1_000_000
    assert topic.config.compression_type == "producer"


def test_looking_at_groups_makes_no_topic() -> None:
    node, _, _ = start_node()
    assert group_ids(node) == set()
    assert OFFSETS_TOPIC not in node.services.catalog.topics


def test_requests_that_meet_the_making_of_the_topic_are_all_answered() -> None:
    node, _, _ = start_node()
    make_topic(node, "t")
    pendings = [begin(node, commit_request(f"g{i}", {0: i}), COMMIT_VERSION) for i in range(5)]
    for pending in pendings:
        settled(node, pending, OffsetCommitResponse)
    assert [committed(node, f"g{i}") for i in range(5)] == [0, 1, 2, 3, 4]


def test_groups_are_spread_by_javas_hash_and_found_again() -> None:
    node, files, clock = start_node(offsets_topic_num_partitions=50)
    make_topic(node, "t")
    names = ["", "a", "group-1", "käse", "\U0001d4b3", "polygenelubricants", *(f"g{i}" for i in range(40))]
    for place, name in enumerate(names):
        assert commit(node, name, {0: place}) == ErrorCode.NONE
    used = [
        index
        for index in range(50)
        if (partition := node.services.catalog.partition(OFFSETS_TOPIC, index)) is not None
        and partition.log.log_end_offset
    ]
    assert len(used) > 20
    node.stop()
    node, _, _ = start_node(files, clock, offsets_topic_num_partitions=50)
    assert [committed(node, name) for name in names] == list(range(len(names)))


def test_a_deleted_offsets_topic_is_created_again_when_it_is_needed(life: Life) -> None:
    node, _, _ = life
    node.services.catalog.delete_topics([OFFSETS_TOPIC], lambda outcomes: None)
    node.settle()
    assert group_ids(node) == set()
    assert commit(node, "g", {0: 3}) == ErrorCode.NONE
    assert (committed(node, "g"), committed(node, "warm")) == (3, -1)


def test_a_group_may_have_a_session_timeout_of_its_own(life: Life) -> None:
    node, _, _ = life
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=GROUP_RESOURCE,
        resource_name="g",
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(
                name="consumer.session.timeout.ms", config_operation=0, value="50000"
            )
        ],
    )
    ask(node, IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    settings = node.services.groups.get().settings
    assert settings.consumer_session_timeout_ms_of("g") == 50_000
    assert settings.consumer_session_timeout_ms_of("h") == 45_000


def test_a_scrape_shows_groups_offsets_and_what_loading_brought(life: Life) -> None:
    node, files, clock = life
    joined = join(node, "g")
    sync(node, "g", joined)
    commit(node, "h", {0: 1, 1: 2})
    text = Exposition(node.services, node.cleaner).render().decode()
    assert 'ottla_groups{state="Stable",type="classic"} 1.0' in text
    assert 'ottla_groups{state="Empty",type="classic"} 2.0' in text
    assert "kafka_coordinator_group_groupmetadatamanager_numoffsets 3.0" in text
    assert "kafka_server_group_coordinator_metrics_offset_commit_total 3.0" in text
    assert "kafka_server_group_coordinator_metrics_group_completed_rebalance_total 1.0" in text
    node.stop()
    node, _, _ = start_node(files, clock)
    text = Exposition(node.services, node.cleaner).render().decode()
    assert "ottla_group_loads_total 1.0" in text
    assert "kafka_coordinator_group_groupmetadatamanager_numgroups 3.0" in text


# Limits and failures -------------------------------------------------------------------------------------------------


def test_a_commit_that_the_disk_keeps_waiting_is_refused_in_time_and_kept_all_the_same() -> None:
    node, _, clock = start_node(ottla_acks_all="sync", offsets_commit_timeout_ms=500)
    make_topic(node, "t")
    commit(node, "g", {0: 1})
    pending = begin(node, commit_request("g", {0: 2}), COMMIT_VERSION)
    node.services.turn.end()
    clock.advance(499)
    node.services.timers.run_due(clock.monotonic_ms())
    assert not pending.done
    clock.advance(2)
    node.services.timers.run_due(clock.monotonic_ms())
    assert code_of(pending) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    node.settle()
    assert committed(node, "g") == 2


def limit_batches(node: Node, most_bytes: int) -> None:
    topic = node.services.catalog.topics[OFFSETS_TOPIC]
    partition = topic.partitions[0]
    assert partition is not None
    overrides = {**topic.overrides, "max.message.bytes": str(most_bytes)}
    partition.log.configure(TopicConfig.resolve(overrides, node.services.config))


def test_a_commit_is_one_batch_or_is_refused_as_a_whole(life: Life) -> None:
    node, _, _ = life
    make_topic(node, "wide", 30)
    limit_batches(node, 1_000)
    end = log_end(node)
    large = begin(
        node, commit_request("g", dict.fromkeys(range(30), 1), topic="wide", metadata="x" * 100), COMMIT_VERSION
    )
    waiting = begin(node, commit_request("g", {0: 3}), COMMIT_VERSION)
    node.settle()
    assert code_of(large) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert waiting.error is None
    assert log_end(node) == end + 1
    assert [committed(node, "g", index, topic="wide") for index in range(30)] == [-1] * 30


def test_what_takes_more_than_a_batch_to_remove_takes_several_and_is_removed_whole(life: Life) -> None:
    node, files, clock = life
    make_topic(node, "wide", 30)
    assert commit(node, "g", {index: index for index in range(30)}, topic="wide", metadata="x" * 100) == 0
    node.stop()
    node, _, _ = start_node(files, clock)
    assert [committed(node, "g", index, topic="wide") for index in range(30)] == list(range(30))
    limit_batches(node, 1_000)
    assert delete_group(node, "g") == ErrorCode.NONE
    node.stop()
    node, _, _ = start_node(files, clock)
    assert group_ids(node) == {"warm"}


@pytest.mark.parametrize("seed", range(10))
def test_a_crash_in_the_middle_of_a_removal_of_several_batches_leaves_a_group_that_works(life: Life, seed: int) -> None:
    node, files, clock = life
    make_topic(node, "wide", 30)
    commit(node, "g", {index: index for index in range(30)}, topic="wide")
    limit_batches(node, 1_000)
    pending = begin(node, delete_groups_request("g"), 2)
    node.services.turn.end()  # written and not synced
    assert not pending.done
    node, _, _ = start_node(files.crash(random.Random(seed)), clock)
    left = [committed(node, "g", index, topic="wide") for index in range(30)]
    gone = left.index(0) if 0 in left else sum(offset == -1 for offset in left)
    assert left == [-1] * gone + list(range(gone, 30)), "what is left is as it was"
    if "g" in group_ids(node):
        assert delete_group(node, "g") == ErrorCode.NONE
    assert commit(node, "g", {0: 9}, topic="wide") == ErrorCode.NONE
    assert committed(node, "g", 0, topic="wide") == 9


LONG = "g" * 900


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (commit_request(LONG, {0: 3}), COMMIT_VERSION),
        (commit_request("g", {0: 3}, metadata="x" * 400), COMMIT_VERSION),
        (join_request(LONG), JOIN_VERSION),
        (ConsumerGroupHeartbeatRequest(**HEARTBEAT | {"group_id": LONG}), 1),
        (ConsumerGroupHeartbeatRequest(**HEARTBEAT | {"rack_id": "r" * 900}), 1),
    ],
    ids=["commit", "text of a commit", "join", "consumer heartbeat", "rack of a member"],
)
def test_what_no_record_holds_is_refused_and_the_other_groups_do_not_notice(
    life: Life, request_: Request, version: int
) -> None:
    node, _, _ = life
    limit_batches(node, 600)
    end = log_end(node)
    waiting = begin(node, commit_request("h", {0: 3}), COMMIT_VERSION)
    large = begin(node, request_, version)
    node.settle()
    code = code_of(large) or getattr(large.response, "error_code", None)
    assert code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert waiting.error is None
    assert log_end(node) == end + 1
    assert (committed(node, "h"), committed(node, "warm")) == (3, 1)


def test_a_target_that_no_record_holds_is_left_out_and_the_member_stays(
    life: Life, caplog: pytest.LogCaptureFixture
) -> None:
    node, _, _ = life
    make_topic(node, "wide", 300)
    limit_batches(node, 1_500)
    wide = HEARTBEAT | {"subscribed_topic_names": ["wide"]}
    joined = settled(node, begin(node, ConsumerGroupHeartbeatRequest(**wide), 1), ConsumerGroupHeartbeatResponse)
    assert joined.error_code == ErrorCode.NONE
    assert joined.assignment is not None
    assert joined.assignment.topic_partitions == []
    assert "the target of member 'm' is left out" in caplog.text
    assert committed(node, "warm") == 1


def test_an_id_that_became_too_long_for_the_log_is_refused_when_its_group_is_deleted(life: Life) -> None:
    node, _, clock = life
    commit(node, LONG, {0: 3})
    limit_batches(node, 600)
    assert delete_group(node, LONG) == ErrorCode.UNKNOWN_SERVER_ERROR
    pass_time(node, clock, 30 * 24 * 3_600_000, step_ms=3_600_000)  # and it cannot expire
    assert committed(node, LONG) == 3


def test_groups_of_an_offline_partition_have_no_coordinator_and_the_others_do() -> None:
    node, files, _ = start_node(ottla_acks_all="sync", offsets_topic_num_partitions=2, log_dirs="/data,/other")
    make_topic(node, "t")
    commit(node, "warm", {0: 1})
    directories = [node.services.log_manager.directory_of(OFFSETS_TOPIC, index) for index in (0, 1)]
    assert directories[0] is not directories[1], "the two partitions share no disk"
    lost, kept = (
        next(g for g in "abcdefgh" if node.services.groups.get().shards.partition_of(g) == index) for index in (0, 1)
    )
    assert directories[0] is not None
    files.fail("fdatasync", f"{directories[0].path}/*", error=errno.EIO)
    failed = begin(node, commit_request(lost, {0: 1}), COMMIT_VERSION)
    node.settle()
    assert code_of(failed) is ErrorCode.NOT_COORDINATOR
    answer = ask(node, FindCoordinatorRequest(key_type=0, coordinator_keys=[lost, kept]), 4)
    assert isinstance(answer, FindCoordinatorResponse)
    assert [each.error_code for each in answer.coordinators] == [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE]
    assert commit(node, kept, {0: 5}) == ErrorCode.NONE
    assert lost not in group_ids(node)


def test_a_client_that_goes_away_while_the_topic_is_made_leaves_nothing_behind() -> None:
    node, _, _ = start_node()
    make_topic(node, "t")
    peer = Peer()
    pending = begin(node, join_request("g"), JOIN_VERSION, peer)
    pending.cancel()
    node.settle()
    assert group_ids(node) == set()
    assert peer.endings == {}


def test_expiry_goes_over_many_groups_in_steps(life: Life) -> None:
    node, _, _ = life
    for number in range(2 * GROUPS_PER_STEP + 50):
        commit(node, f"g{number}", {0: 1})
    steps = 1
    while node.services.groups.get().expire_some():
        steps += 1
    assert steps == 3
