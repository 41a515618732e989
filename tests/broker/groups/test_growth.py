"""What a rebalance costs the broker for each member, counted in executed lines of its code, which no machine changes.

`scripts/bench-growth --only "group size"` measures its time, in which the processor's caches have their part.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from kit.group_requests import begin, join_request, make_topic, settled
from kit.nodes import start_node

import ottla
from ottla.broker.peer import Peer
from ottla.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.api.join_group import JoinGroupResponse
from ottla.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.errors import ErrorCode

JOIN, SYNC, HEARTBEAT, LEAVE = 9, 5, 4, 5
DELAY_MS = 100
"""Of the first rebalance, in which all members come."""
SOURCES = str(Path(ottla.__file__).parent)


def lines_of(work: Callable[[], None]) -> int:
    """How many lines of the package `work` executes, a line once for each time around a loop."""
    lines = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        if event == "call":
            return trace if frame.f_code.co_filename.startswith(SOURCES) else None
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


class Group:
    """A group of the classic protocol, each member by a connection of its own; all of one generation."""

    def __init__(self, count: int) -> None:
        node, _, self.clock = start_node(group_initial_rebalance_delay_ms=DELAY_MS)
        self.node = node
        make_topic(node, "t")
        ask = HeartbeatRequest(group_id="g", generation_id=1, member_id="probe")
        settled(node, begin(node, ask, HEARTBEAT), HeartbeatResponse)  # its shard is loaded
        self.peers: dict[str, Peer] = {}
        for _ in range(count):
            peer = Peer()
            known = settled(node, begin(node, join_request("g"), JOIN, peer), JoinGroupResponse)
            self.peers[known.member_id] = peer
        self.generation = -1
        self.join_and_sync()

    def join_and_sync(self) -> None:
        """Bring all members into the next generation."""
        node = self.node
        joins = {member: begin(node, join_request("g", member), JOIN, peer) for member, peer in self.peers.items()}
        for _ in range(2):  # the first rebalance waits once more, since the group has grown meanwhile
            self.clock.advance(DELAY_MS)
            node.run_due()
        syncs = []
        for member, pending in joins.items():
            joined = settled(node, pending, JoinGroupResponse)
            assert joined.error_code == ErrorCode.NONE
            self.generation = joined.generation_id
            request = SyncGroupRequest(
                group_id="g",
                generation_id=self.generation,
                member_id=member,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[
                    SyncGroupRequest.SyncGroupRequestAssignment(member_id=each.member_id, assignment=b"a" * 30)
                    for each in joined.members  # the leader's answer only
                ],
            )
            syncs.append(begin(node, request, SYNC, self.peers[member]))
        for pending in syncs:
            assert settled(node, pending, SyncGroupResponse).error_code == ErrorCode.NONE

    def rebalance(self) -> None:
        """One member leaves, the others hear of it by a heartbeat and join again."""
        node = self.node
        gone, peer = self.peers.popitem()
        identity = LeaveGroupRequest.MemberIdentity(member_id=gone)
        leave = LeaveGroupRequest(group_id="g", members=[identity])
        settled(node, begin(node, leave, LEAVE, peer), LeaveGroupResponse)
        for member, its_peer in self.peers.items():
            request = HeartbeatRequest(group_id="g", generation_id=self.generation, member_id=member)
            answer = settled(node, begin(node, request, HEARTBEAT, its_peer), HeartbeatResponse)
            assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        self.join_and_sync()


def lines_of_a_member(count: int) -> float:
    group = Group(count + 1)
    group.rebalance()  # codecs are compiled on first use
    group = Group(count + 1)
    return lines_of(group.rebalance) / count


def test_a_member_of_a_large_group_costs_a_rebalance_no_more_than_one_of_a_small_group() -> None:
    assert lines_of_a_member(120) <= lines_of_a_member(30)
