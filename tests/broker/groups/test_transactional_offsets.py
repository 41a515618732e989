"""Offsets committed in transactions, by the rules of Kafka: when they count, who may commit, what holds what back."""

from __future__ import annotations

import errno
from random import Random

import pytest
from kit.clock import ManualClock
from kit.group_requests import (
    begin,
    code_of,
    commit,
    committed,
    delete_group,
    delete_offsets,
    fetch_request,
    group_ids,
    join,
    make_topic,
    settled,
    sync,
)
from kit.nodes import ask, partition_of, pass_time, start_node
from kit.simulated_files import SimulatedFiles
from kit.transactional_offsets import (
    UNSTABLE,
    Admitted,
    begin_end,
    begin_in_transaction,
    commit_in_transaction,
    end,
    stable_offset,
    transactional_request,
)

from ottla.broker.node import Node
from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.protocol.api.delete_topics import DeleteTopicsRequest
from ottla.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import iter_batches
from ottla.storage.formats.layout import OFFSETS_TOPIC

MINUTE_MS = 60_000
CHECK_MS = 10 * MINUTE_MS
FULL_DISK_MS = 30_000
"""Until a disk that had no room is tried again, and what died of it is loaded."""
Life = tuple[Node, SimulatedFiles, ManualClock]


@pytest.fixture
def life() -> Life:
    node, files, clock = start_node(offsets_retention_minutes=60, offset_metadata_max_bytes=10, ottla_acks_all="sync")
    make_topic(node, "t", 4)
    make_topic(node, "u", 2)
    assert commit(node, "warm", {0: 1}) == ErrorCode.NONE
    return node, files, clock


@pytest.fixture
def node(life: Life) -> Node:
    return life[0]


def restart(life: Life) -> Node:
    node, files, clock = life
    node.stop()
    return start_node(files, clock, offsets_retention_minutes=60)[0]


def after_power_cut(life: Life) -> Node:
    _, files, clock = life
    return start_node(files.crash(Random(1)), clock, offsets_retention_minutes=60)[0]


# When they count -----------------------------------------------------------------------------------------------------


def test_an_offset_counts_from_the_commit_of_its_transaction_on(node: Node) -> None:
    assert commit_in_transaction(node, "g", {0: 5, 1: 6}) == ErrorCode.NONE
    assert (committed(node, "g", 0), committed(node, "g", 1)) == (-1, -1)
    assert end(node) is None
    assert (committed(node, "g", 0), committed(node, "g", 1)) == (5, 6)


def test_an_aborted_offset_never_counts(node: Node) -> None:
    commit(node, "g", {0: 1})
    commit_in_transaction(node, "g", {0: 5})
    assert end(node, commits=False) is None
    assert committed(node, "g") == 1


def test_a_reader_of_stable_offsets_is_refused_while_a_transaction_is_open(node: Node) -> None:
    commit(node, "g", {0: 1, 1: 2})
    commit_in_transaction(node, "g", {0: 5})
    assert (stable_offset(node, "g", 0), stable_offset(node, "g", 1), stable_offset(node, "g", 2)) == (UNSTABLE, 2, -1)
    assert committed(node, "g") == 1
    end(node)
    assert stable_offset(node, "g") == 5


@pytest.mark.parametrize("version", [7, 8, 9])
def test_every_version_that_can_ask_for_stable_offsets_is_refused_for_one_and_for_all_of_them(
    node: Node, version: int
) -> None:
    commit(node, "g", {0: 1, 1: 2})
    commit_in_transaction(node, "g", {0: 5, 2: 7})
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    for asked, expected in (
        ([0, 1, 2], {0: (unstable, -1), 1: (0, 2), 2: (unstable, -1)}),
        (None, {0: (unstable, -1), 1: (0, 2)}),
    ):
        if version == 7:
            topic = OffsetFetchRequest.OffsetFetchRequestTopic
            topics = None if asked is None else [topic(name="t", partition_indexes=asked)]
            request = OffsetFetchRequest(group_id="g", topics=topics, require_stable=True)
        else:
            request = fetch_request("g", asked)
            request.require_stable = True
        answer = ask(node, request, version)
        assert isinstance(answer, OffsetFetchResponse)
        found = answer.topics[0] if version == 7 else answer.groups[0].topics[0]
        assert {each.partition_index: (each.error_code, each.committed_offset) for each in found.partitions} == expected


def test_the_newer_of_a_plain_and_a_pending_offset_counts(node: Node) -> None:
    commit_in_transaction(node, "g", {0: 5, 1: 5})
    commit(node, "g", {0: 9})
    assert stable_offset(node, "g") == UNSTABLE
    end(node)
    assert (committed(node, "g", 0), committed(node, "g", 1)) == (9, 5)


def test_a_pending_offset_that_is_committed_again_after_a_plain_one_counts(node: Node) -> None:
    commit_in_transaction(node, "g", {0: 5})
    commit(node, "g", {0: 9})
    commit_in_transaction(node, "g", {0: 6})
    end(node)
    assert committed(node, "g") == 6


def test_transactions_of_several_producers_do_not_end_each_other(node: Node) -> None:
    commit_in_transaction(node, "g", {0: 5}, producer=7)
    commit_in_transaction(node, "g", {0: 6, 1: 6}, producer=8)
    end(node, 7)
    assert (committed(node, "g"), stable_offset(node, "g")) == (5, UNSTABLE)
    end(node, 8, commits=False)
    assert (committed(node, "g"), committed(node, "g", 1), stable_offset(node, "g")) == (5, -1, 5)


def test_a_transaction_may_have_offsets_of_several_groups(node: Node) -> None:
    commit_in_transaction(node, "g", {0: 5})
    commit_in_transaction(node, "h", {0: 6})
    end(node)
    assert (committed(node, "g"), committed(node, "h")) == (5, 6)


def test_several_commits_of_a_transaction_may_come_in_one_turn(node: Node) -> None:
    first = begin_in_transaction(node, transactional_request("g", {0: 5}))
    second = begin_in_transaction(node, transactional_request("g", {1: 6}))
    results = begin_end(node)
    node.settle()
    assert (first.error, second.error, results) == (None, None, [None])
    assert (committed(node, "g", 0), committed(node, "g", 1)) == (5, 6)


def test_a_marker_without_a_transaction_changes_nothing(node: Node) -> None:
    commit(node, "g", {0: 1})
    assert end(node) is None
    assert committed(node, "g") == 1


def test_the_batches_are_those_of_kafkas_coordinator_but_for_sequences_that_count_on(node: Node) -> None:
    commit_in_transaction(node, "g", {0: 5, 1: 6}, producer=7, epoch=2)
    commit_in_transaction(node, "g", {2: 7}, producer=7, epoch=2)
    partition = partition_of(node, OFFSETS_TOPIC)
    data = partition.read(partition.log_start_offset, 1 << 20, at_least_one=True).read_blocking()
    headers = [header for _, header in iter_batches(data) if header.producer_id == 7]
    assert [(header.producer_epoch, header.base_sequence, header.attributes & 0x30) for header in headers] == [
        (2, 0, 0x10),
        (2, 2, 0x10),
    ]


# What an answer waits for --------------------------------------------------------------------------------------------


def test_a_commit_is_answered_once_it_and_what_the_coordinator_wrote_are_durable(node: Node) -> None:
    verdict = Admitted(is_durable=False)
    pending = begin_in_transaction(node, transactional_request("g", {0: 5}), verdict)
    node.settle()
    assert not pending.done
    verdict.settle()
    assert pending.done
    assert pending.error is None


def test_a_commit_is_not_answered_before_it_is_synced(node: Node) -> None:
    pending = begin_in_transaction(node, transactional_request("g", {0: 5}))
    node.services.turn.end()
    assert not pending.done
    node.settle()
    assert pending.done


def test_a_commit_fails_when_what_the_coordinator_wrote_does(node: Node) -> None:
    verdict = Admitted(is_durable=False)
    pending = begin_in_transaction(node, transactional_request("g", {0: 5}), verdict)
    node.settle()
    verdict.settle(KafkaError(ErrorCode.NOT_COORDINATOR))
    assert code_of(pending) is ErrorCode.NOT_COORDINATOR


def test_what_the_coordinator_refuses_changes_nothing(node: Node) -> None:
    verdict = Admitted(KafkaError(ErrorCode.INVALID_TXN_STATE))
    pending = begin_in_transaction(node, transactional_request("g", {0: 5}), verdict)
    assert code_of(pending) is ErrorCode.INVALID_TXN_STATE
    assert stable_offset(node, "g") == -1
    assert "g" not in group_ids(node)


def test_an_end_is_reported_once_its_marker_is_synced_and_so_are_its_offsets(node: Node) -> None:
    commit_in_transaction(node, "g", {0: 5})
    results = begin_end(node)
    read = begin(node, fetch_request("g", [0]), 9)
    node.services.turn.end()
    assert (results, read.done) == ([], False)
    node.settle()
    assert results == [None]
    answer = settled(node, read, OffsetFetchResponse)
    assert answer.groups[0].topics[0].partitions[0].committed_offset == 5


# Who may commit ------------------------------------------------------------------------------------------------------


def test_a_group_without_an_id_is_refused(node: Node) -> None:
    assert commit_in_transaction(node, "", {0: 5}) == ErrorCode.INVALID_GROUP_ID


def test_a_generation_of_a_group_that_is_not_there_is_illegal(node: Node) -> None:
    assert commit_in_transaction(node, "g", {0: 5}, generation=1, member_id="m") == ErrorCode.ILLEGAL_GENERATION
    assert "g" not in group_ids(node)


def test_members_of_the_classic_protocol_are_fenced_by_id_and_generation(node: Node) -> None:
    joined = join(node, "g")
    sync(node, "g", joined)
    member, generation = joined.member_id, joined.generation_id
    assert commit_in_transaction(node, "g", {0: 5}, member_id="other", generation=generation) == (
        ErrorCode.UNKNOWN_MEMBER_ID
    )
    assert commit_in_transaction(node, "g", {0: 5}, member_id=member, generation=generation + 1) == (
        ErrorCode.ILLEGAL_GENERATION
    )
    assert commit_in_transaction(node, "g", {0: 5}, member_id=member, generation=generation, instance_id="i") == (
        ErrorCode.UNKNOWN_MEMBER_ID
    )
    assert stable_offset(node, "g") == -1
    assert commit_in_transaction(node, "g", {0: 5}, member_id=member, generation=generation) == ErrorCode.NONE


def test_old_producers_that_name_no_member_may_commit_into_any_group(node: Node) -> None:
    sync(node, "g", join(node, "g"))
    assert commit_in_transaction(node, "g", {0: 5}) == ErrorCode.NONE


def test_a_stale_epoch_of_the_consumer_protocol_is_an_illegal_generation(node: Node) -> None:
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id="k",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    answer = settled(node, begin(node, heartbeat, 1), ConsumerGroupHeartbeatResponse)
    epoch = answer.member_epoch
    assert commit_in_transaction(node, "k", {0: 5}, member_id="m", generation=epoch + 1) == ErrorCode.ILLEGAL_GENERATION
    assert commit_in_transaction(node, "k", {0: 5}, member_id="x", generation=epoch) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_in_transaction(node, "k", {0: 5}, member_id="m", generation=epoch) == ErrorCode.NONE
    assert commit_in_transaction(node, "k", {0: 5}) == ErrorCode.NONE


def test_an_older_epoch_than_the_log_knows_is_refused_and_the_shard_lives(node: Node) -> None:
    commit_in_transaction(node, "g", {0: 5}, epoch=2)
    assert commit_in_transaction(node, "g", {0: 6}, epoch=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert commit_in_transaction(node, "g", {0: 6}, epoch=-1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert commit_in_transaction(node, "g", {0: 6}, producer=-1) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    end(node, epoch=2)
    assert committed(node, "g") == 5


def test_an_older_epoch_in_the_same_turn_is_refused_too(node: Node) -> None:
    first = begin_in_transaction(node, transactional_request("g", {0: 5}, epoch=2))
    second = begin_in_transaction(node, transactional_request("g", {0: 6}, epoch=1))
    node.settle()
    assert (first.error, code_of(second)) == (None, ErrorCode.INVALID_PRODUCER_EPOCH)


@pytest.mark.parametrize(("metadata", "code"), [("0123456789", 0), ("0123456789a", 12), (None, 0)])
def test_the_text_of_an_offset_has_its_limit(node: Node, metadata: str | None, code: int) -> None:
    assert commit_in_transaction(node, "g", {0: 5}, metadata=metadata) == code
    assert stable_offset(node, "g") == (-1 if code else UNSTABLE)


def test_a_topic_that_is_not_there_is_refused(node: Node) -> None:
    assert commit_in_transaction(node, "g", {0: 5}, topic="nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "g" not in group_ids(node)


def test_more_offsets_than_one_batch_holds_are_refused_and_change_nothing() -> None:
    node, _, _ = start_node(offset_metadata_max_bytes=1 << 20)
    make_topic(node, "t", 1_200)
    request = transactional_request("g", dict.fromkeys(range(1_200), 1), metadata="x" * 9_000)
    pending = begin_in_transaction(node, request)
    node.settle()
    assert code_of(pending) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert stable_offset(node, "g") == -1


# Deletions and expiry ------------------------------------------------------------------------------------------------


def test_a_deleted_offset_takes_the_pending_one_with_it(node: Node) -> None:
    commit_in_transaction(node, "g", {0: 5, 1: 6})
    delete_offsets(node, "g", [0])
    assert (stable_offset(node, "g", 0), stable_offset(node, "g", 1)) == (-1, UNSTABLE)
    end(node)
    assert (committed(node, "g", 0), committed(node, "g", 1)) == (-1, 6)


def test_a_deleted_group_takes_its_pending_offsets_with_it(life: Life) -> None:
    node, _, _ = life
    commit(node, "g", {0: 1})
    commit_in_transaction(node, "g", {0: 5, 1: 6})
    assert delete_group(node, "g") == ErrorCode.NONE
    end(node)
    for each in (node, restart(life)):
        assert (committed(each, "g", 0), committed(each, "g", 1)) == (-1, -1)
        assert "g" not in group_ids(each)


def test_a_deleted_topic_takes_the_pending_offsets_with_it(life: Life) -> None:
    node, _, _ = life
    commit_in_transaction(node, "g", {0: 5})
    commit_in_transaction(node, "g", {0: 6}, topic="u")
    ask(node, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 5)
    make_topic(node, "t", 4)
    node.settle()
    end(node)
    for each in (node, restart(life)):
        assert (committed(each, "g"), committed(each, "g", topic="u")) == (-1, 6)


def test_neither_offset_nor_group_expires_while_a_transaction_is_open(life: Life) -> None:
    node, _, clock = life
    commit(node, "g", {0: 1, 1: 2})
    commit_in_transaction(node, "g", {0: 5})
    commit_in_transaction(node, "h", {0: 5})
    pass_time(node, clock, 60 * MINUTE_MS + 2 * CHECK_MS, step_ms=MINUTE_MS)
    assert (committed(node, "g", 0), committed(node, "g", 1)) == (1, -1)
    assert {"g", "h"} <= group_ids(node)
    end(node, commits=False)
    pass_time(node, clock, 2 * CHECK_MS, step_ms=MINUTE_MS)
    assert {"g", "h"}.isdisjoint(group_ids(node))


# Loads ---------------------------------------------------------------------------------------------------------------


def test_a_start_keeps_open_transactions_pending_and_their_markers_count(life: Life) -> None:
    node, _, _ = life
    commit(node, "g", {0: 1})
    commit_in_transaction(node, "g", {0: 5, 1: 6}, producer=7)
    commit_in_transaction(node, "h", {0: 8}, producer=8)
    commit(node, "g", {1: 9})
    node = restart(life)
    assert [stable_offset(node, "g", index) for index in (0, 1, 2)] == [UNSTABLE, UNSTABLE, -1]
    assert [committed(node, "g", index) for index in (0, 1)] == [1, 9]
    end(node, 7)
    end(node, 8, commits=False)
    assert [stable_offset(node, "g", index) for index in (0, 1)] == [5, 9]
    assert stable_offset(node, "h") == -1


def test_what_was_answered_survives_a_power_cut(life: Life) -> None:
    node, _, _ = life
    commit_in_transaction(node, "g", {0: 5})
    end(node)
    commit_in_transaction(node, "g", {0: 6})
    node = after_power_cut(life)
    assert (committed(node, "g"), stable_offset(node, "g")) == (5, UNSTABLE)
    end(node)
    assert committed(node, "g") == 6


def test_of_two_open_transactions_the_later_one_counts_after_a_start_too(life: Life) -> None:
    node, _, _ = life
    commit_in_transaction(node, "g", {0: 5}, producer=8)
    commit_in_transaction(node, "g", {0: 6}, producer=7)
    node = restart(life)
    end(node, 7)
    end(node, 8)
    assert committed(node, "g") == 6


def test_a_marker_of_a_partition_that_is_not_there_is_refused(node: Node) -> None:
    for partition in (-1, 1):
        (refusal,) = begin_end(node, partition=partition)
        assert isinstance(refusal, KafkaError)
        assert refusal.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_marker_waits_for_the_load(life: Life) -> None:
    node, files, clock = life
    commit_in_transaction(node, "g", {0: 5})
    files.fail("pwritev", error=errno.ENOSPC, times=None)
    assert commit_in_transaction(node, "g", {3: 1}) == ErrorCode.NOT_COORDINATOR
    assert end(node) is ErrorCode.NOT_COORDINATOR
    files.heal()
    pass_time(node, clock, FULL_DISK_MS)
    assert end(node) is None
    assert [stable_offset(node, "g", index) for index in (0, 3)] == [5, -1]


# Full and failing disks ----------------------------------------------------------------------------------------------


def test_a_marker_that_a_full_disk_refuses_changes_nothing_and_may_come_again(life: Life) -> None:
    node, files, clock = life
    commit_in_transaction(node, "g", {0: 5})
    files.fail("pwritev", error=errno.ENOSPC, times=None)
    assert end(node) is ErrorCode.KAFKA_STORAGE_ERROR
    assert stable_offset(node, "g") == UNSTABLE
    files.heal()
    pass_time(node, clock, FULL_DISK_MS)
    assert end(node) is None
    assert committed(node, "g") == 5


def test_a_commit_that_a_full_disk_refuses_is_forgotten(life: Life) -> None:
    node, files, clock = life
    files.fail("pwritev", error=errno.ENOSPC, times=None)
    assert commit_in_transaction(node, "g", {0: 5}) == ErrorCode.NOT_COORDINATOR
    files.heal()
    pass_time(node, clock, FULL_DISK_MS)
    assert stable_offset(node, "g") == -1
    assert commit_in_transaction(node, "g", {0: 5}) == ErrorCode.NONE
