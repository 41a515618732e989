"""A broker that hears nobody for a while: members whose heartbeats wait in its sockets meanwhile are not given up.

The order is that of the loop: after a stop, timers that are due run before the sockets are read.
"""

from __future__ import annotations

from typing import Any

import pytest
from kit.clock import ManualClock
from kit.group_requests import HEARTBEAT_VERSION, begin, commit, heartbeat, join, make_topic, settled, sync
from kit.nodes import pass_time, start_node

from ottla.broker.node import Node
from ottla.broker.runtime.listening_time import MOST_MS
from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.protocol.api.heartbeat import HeartbeatResponse
from ottla.protocol.errors import ErrorCode, KafkaError

SESSION_MS = 10_000
MOST = int(MOST_MS)
Broker = tuple[Node, ManualClock]


@pytest.fixture
def broker() -> Broker:
    node, _, clock = start_node(
        group_consumer_session_timeout_ms=SESSION_MS,
        group_consumer_min_session_timeout_ms=SESSION_MS,
        group_consumer_heartbeat_interval_ms=3_000,
        group_initial_rebalance_delay_ms=0,
    )
    make_topic(node, "t", 4)
    commit(node, "warm", {0: 1})
    node.services.listening.listen()
    return node, clock


class Classic:
    """A member of a group of the classic protocol."""

    def __init__(self, node: Node) -> None:
        self._node, self._joined = node, join(node, "g")
        sync(node, "g", self._joined)

    def beat(self) -> int:
        pending = begin(self._node, heartbeat("g", self._joined), HEARTBEAT_VERSION)
        return settled(self._node, pending, HeartbeatResponse).error_code


class Consumer:
    """A member of a group of the consumer protocol."""

    def __init__(self, node: Node) -> None:
        self._node, self._epoch = node, 0
        joined = self._ask(rebalance_timeout_ms=60_000, subscribed_topic_names=["t"], topic_partitions=[])
        self._epoch = joined.member_epoch

    def beat(self) -> int:
        try:
            return self._ask().error_code
        except KafkaError as refusal:
            return refusal.code

    def _ask(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=self._epoch, **fields)
        return settled(self._node, begin(self._node, request, 1), ConsumerGroupHeartbeatResponse)


BOTH = pytest.mark.parametrize("kind", [Classic, Consumer])


@BOTH
def test_a_member_whose_heartbeat_waits_in_the_socket_is_not_removed(
    broker: Broker, kind: type[Classic | Consumer]
) -> None:
    node, clock = broker
    member = kind(node)
    clock.advance(10 * SESSION_MS)
    node.run_due()
    assert member.beat() == ErrorCode.NONE


@BOTH
def test_a_member_that_has_sent_nothing_is_removed_a_session_later(
    broker: Broker, kind: type[Classic | Consumer]
) -> None:
    node, clock = broker
    member = kind(node)
    clock.advance(10 * SESSION_MS)
    for _ in range(SESSION_MS // MOST):
        node.services.listening.now_ms()  # as the watch of the loop does
        pass_time(node, clock, MOST, step_ms=MOST)
    assert member.beat() == ErrorCode.UNKNOWN_MEMBER_ID


@BOTH
def test_the_time_of_a_start_does_not_count(kind: type[Classic | Consumer]) -> None:
    node, _, clock = start_node()
    make_topic(node, "t", 4)
    node.services.listening.hold()
    member = kind(node)
    pass_time(node, clock, 600_000)
    node.services.listening.listen()
    node.run_due()
    assert member.beat() == ErrorCode.NONE
