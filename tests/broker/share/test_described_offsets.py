"""What DescribeShareGroupOffsets says of a group: a start offset that never goes back, and the lag behind it."""

from __future__ import annotations

from kit.group_requests import make_topic
from kit.nodes import ask_for, pass_time, start_node
from kit.share_requests import (
    acknowledge,
    acquire_all,
    acquired_by,
    delete_records_before,
    described_offsets,
    fetch_pending,
    heartbeat,
    node_with_records,
    restarted,
)

from ottla.broker.peer import Peer
from ottla.protocol.api.alter_share_group_offsets import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
from ottla.protocol.api.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from ottla.protocol.api.share_fetch import AcknowledgeType
from ottla.protocol.errors import ErrorCode

GROUP_RESOURCE = 32


def test_the_lag_after_the_log_start_has_passed_acknowledged_records_counts_what_is_left() -> None:
    node, files, clock = node_with_records(8)
    peer = Peer()
    acquire_all(node, peer, 0)
    acknowledge(node, peer, 1, 1, 4)  # 0 and 5 to 7 are acquired still
    node, files = restarted(node, files, clock)
    delete_records_before(node, 6)
    assert described_offsets(node) == (6, 2)


def test_the_lag_counts_what_the_log_has_while_members_use_the_partition() -> None:
    node, _, _ = node_with_records(8)
    peer = Peer()
    acquire_all(node, peer, 0)
    acknowledge(node, peer, 1, 1, 4)
    acknowledge(node, peer, 2, 0, 0, AcknowledgeType.RELEASE)
    delete_records_before(node, 5)
    assert described_offsets(node) == (5, 3)


def test_the_start_offset_moves_over_records_that_are_not_delivered_when_nobody_uses_the_partition() -> None:
    """They are archived in memory alone: without a record that says so, the group would have them before it again."""
    node, _, clock = node_with_records(4)
    peer = Peer()
    acquire_all(node, peer, 0)
    acknowledge(node, peer, 1, 1, 3)
    acknowledge(node, peer, 2, 0, 0, AcknowledgeType.RELEASE)
    delete_records_before(node, 1)
    peer.end()
    node.settle()
    pass_time(node, clock, 1000)
    share_groups = node.services.share_groups.get()
    state = next(iter(share_groups.shards.ready("").states.values()))
    assert (state.start_offset, state.complete_count) == (4, 0)
    assert described_offsets(node) == (4, 0)


def test_an_acknowledgement_of_records_that_the_log_has_no_more_is_written() -> None:
    """A power cut may give the log these records back, if retention has removed them: the group does not get them."""
    node, _, clock = node_with_records(8)
    peer = Peer()
    acquire_all(node, peer, 0)
    pass_time(node, clock, 31_000)  # the locks time out
    delete_records_before(node, 5)
    assert described_offsets(node) == (5, 3)
    acknowledge(node, peer, 1, 0, 4)
    state = next(iter(node.services.share_groups.get().shards.ready("").states.values()))
    assert state.start_offset == 5


def test_a_fetch_that_brings_nothing_is_answered_when_the_group_has_begun_durably() -> None:
    """The group would begin later after a power cut, and miss what was produced between."""
    node, _, _ = node_with_records(0)
    assert acquired_by(node, Peer(), 0) == []  # the topic of states is made
    pending = fetch_pending(node, Peer(), group_id="other")
    node.services.turn.end()
    assert not pending.done
    node.settle()
    assert pending.done


def test_the_first_group_of_all_may_be_made_by_its_offsets() -> None:
    node, _, _ = start_node()
    make_topic(node, "t", 1)
    kind = AlterShareGroupOffsetsRequest
    partition = kind.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=3)
    topic = kind.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[partition])
    answer = ask_for(AlterShareGroupOffsetsResponse, node, kind(group_id="g", topics=[topic]), 0)
    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert described_offsets(node) == (3, 0)


def test_offsets_that_are_deleted_while_a_member_joins_are_answered_as_deleted() -> None:
    node, _, _ = node_with_records(3)
    peer = Peer()
    acquire_all(node, peer, 0)
    acknowledge(node, peer, 1, 0, 1)
    heartbeat(node, 0)
    heartbeat(node, -1)
    deletion = node.services.share_groups.get()
    topics = [DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic(topic_name="t")]
    forget = deletion.forget

    def joins_meanwhile(keys, answer):  # type: ignore[no-untyped-def]
        forget(keys, answer)
        heartbeat(node, 0)

    deletion.forget = joins_meanwhile  # type: ignore[method-assign]
    request = DeleteShareGroupOffsetsRequest(group_id="g", topics=topics)
    answer = ask_for(DeleteShareGroupOffsetsResponse, node, request, 0)
    assert (answer.error_code, [one.error_code for one in answer.responses]) == (ErrorCode.NONE, [ErrorCode.NONE])
    assert described_offsets(node) == (-1, -1)
