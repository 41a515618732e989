"""Topics that come or go: no consumer group has a step for it, and the next heartbeat of a member sees it."""

from __future__ import annotations

import pytest
from kit.group_requests import begin, commit, make_topic, settled
from kit.nodes import start_node
from kit.topics import create, delete

from ottla.broker.catalog.catalog import NewTopic
from ottla.broker.groups.shard import GroupShard
from ottla.broker.node import Node
from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.protocol.errors import ErrorCode

GROUPS = 20


def heartbeat(node: Node, group: str, epoch: int) -> ConsumerGroupHeartbeatResponse:
    """One of the group's member, which subscribes to `t` and `later` and owns what it was assigned."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=epoch,
        rebalance_timeout_ms=60_000 if epoch == 0 else -1,
        subscribed_topic_names=["later", "t"] if epoch == 0 else None,
        topic_partitions=[] if epoch == 0 else None,
    )
    answer = settled(node, begin(node, request, 1), ConsumerGroupHeartbeatResponse)
    assert answer.error_code == ErrorCode.NONE
    return answer


def sizes(answer: ConsumerGroupHeartbeatResponse) -> list[int]:
    """How many partitions of each topic are assigned."""
    assert answer.assignment is not None
    return sorted(len(topic.partitions) for topic in answer.assignment.topic_partitions)


def test_a_topic_that_comes_or_goes_makes_no_step_of_any_group(monkeypatch: pytest.MonkeyPatch) -> None:
    node, _, _ = start_node()
    make_topic(node, "t", 2)
    groups = [f"g{number}" for number in range(GROUPS)]
    commit(node, "warm", {0: 1})  # makes the groups' topic
    epochs = {group: heartbeat(node, group, 0).member_epoch for group in groups}
    steps: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(GroupShard, "finish", lambda shard, group_id, effects: steps.append(group_id))
        create(node, NewTopic("later", partitions=3))
        create(node, NewTopic("other"))
        delete(node, "other")
    assert steps == []
    for group in groups:
        answer = heartbeat(node, group, epochs[group])
        assert answer.member_epoch > epochs[group]
        assert sizes(answer) == [2, 3]
