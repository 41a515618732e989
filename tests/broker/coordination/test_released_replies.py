"""The replies of a step: a few in each turn where a whole group waits."""

from __future__ import annotations

from collections.abc import Callable

from kit.exchange import Exchange
from kit.nodes import start_node

from ottla.broker.coordination.effects import Reply
from ottla.broker.coordination.writes import REPLIES_PER_STEP, release
from ottla.broker.runtime.pending import Pending
from ottla.protocol.api.heartbeat import HeartbeatResponse
from ottla.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.errors import ErrorCode, KafkaError

MANY = 2 * REPLIES_PER_STEP + 30


def waiting(count: int) -> tuple[list[Pending[HeartbeatResponse]], list[Reply]]:
    pendings: list[Pending[HeartbeatResponse]] = [Pending() for _ in range(count)]
    return pendings, [(pending, HeartbeatResponse()) for pending in pendings]


def answered(pendings: list[Pending[HeartbeatResponse]]) -> int:
    return sum(pending.done for pending in pendings)


def test_so_many_are_completed_in_each_step_in_their_order() -> None:
    pendings, replies = waiting(MANY)
    steps: list[Callable[[], None]] = []
    release(replies, steps.append)(None)
    counts = [answered(pendings)]
    while steps:
        steps.pop()()
        counts.append(answered(pendings))
        assert all(pending.done for pending in pendings[: counts[-1]])
    assert counts == [REPLIES_PER_STEP, 2 * REPLIES_PER_STEP, MANY]


def test_few_are_completed_at_once() -> None:
    pendings, replies = waiting(REPLIES_PER_STEP)
    steps: list[Callable[[], None]] = []
    release(replies, steps.append)(None)
    assert (answered(pendings), steps) == (REPLIES_PER_STEP, [])


def test_a_failure_is_the_reply_of_all_at_once() -> None:
    pendings, replies = waiting(MANY)
    release(replies, lambda step: None)(KafkaError(ErrorCode.NOT_COORDINATOR))
    assert {type(pending.error) for pending in pendings} == {KafkaError}


def test_a_rebalance_answers_the_members_of_a_group_some_in_each_turn() -> None:
    node, _, clock = start_node(ottla_acks_all="page-cache", group_initial_rebalance_delay_ms=1_000)
    members = [Exchange(node) for _ in range(MANY)]
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")
    join = JoinGroupRequest(
        group_id="g", member_id="", session_timeout_ms=30_000, rebalance_timeout_ms=30_000,
        protocol_type="consumer", protocols=[protocol],
    )  # fmt: skip
    for member in members:
        member.send(join, 3)
    node.settle()
    node.run_due()

    def turns() -> list[int]:
        """How many members are answered in each turn, until all are."""
        counts, before = [], 0
        for _ in range(20):
            clock.advance(500)
            node.run_due()
            node.settle()
            after = sum(bool(member.transport.written) for member in members)
            counts.append(after - before)
            before = after
        return [count for count in counts if count]

    assert turns() == [REPLIES_PER_STEP, REPLIES_PER_STEP, 30]
    joined = [member.reply() for member in members]
    assert all(isinstance(answer, JoinGroupResponse) and answer.error_code == 0 for answer in joined)
    given = [SyncGroupRequest.SyncGroupRequestAssignment(member_id=one.member_id, assignment=b"a") for one in joined]
    # The leader comes last: the others wait for it.
    for member, answer in sorted(
        zip(members, joined, strict=True), key=lambda pair: pair[1].member_id == pair[1].leader
    ):
        sync = SyncGroupRequest(
            group_id="g",
            generation_id=answer.generation_id,
            member_id=answer.member_id,
            assignments=given if answer.member_id == answer.leader else [],
        )
        member.send(sync, 2)
    assert turns() == [REPLIES_PER_STEP, REPLIES_PER_STEP, 30]
    for member in members:
        synced = member.reply()
        assert isinstance(synced, SyncGroupResponse)
        assert (synced.error_code, synced.assignment) == (0, b"a")
