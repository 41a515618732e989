"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup through a whole node: what handlers refuse, and what parks."""

from __future__ import annotations

import pytest
from kit.nodes import ask, start_node
from kit.wire_groups import join_request, sync_request

from ottla.broker.api import HANDLERS
from ottla.broker.context import Context
from ottla.broker.node import Node
from ottla.broker.peer import Peer
from ottla.broker.runtime.pending import Pending
from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.api.heartbeat import HeartbeatRequest
from ottla.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.api.leave_group import LeaveGroupRequest
from ottla.protocol.api.sync_group import SyncGroupRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, decode, encode


@pytest.fixture
def node() -> Node:
    node, _, _ = start_node(group_min_session_timeout_ms=1_000, group_max_session_timeout_ms=60_000)
    return node


def join(node: Node, member_id: str = "", **options: object) -> JoinGroupResponse:
    answer = ask(node, join_request("g", member_id, **options), 9)  # type: ignore[arg-type]  # as join_request's own
    assert isinstance(answer, JoinGroupResponse)
    return answer


@pytest.mark.parametrize(("session_ms", "is_legal"), [(999, False), (1_000, True), (60_000, True), (60_001, False)])
def test_the_bounds_of_session_timeouts_are_those_of_the_configuration(
    node: Node, session_ms: int, is_legal: bool
) -> None:
    code = join(node, session_ms=session_ms).error_code
    assert code == (ErrorCode.MEMBER_ID_REQUIRED if is_legal else ErrorCode.INVALID_SESSION_TIMEOUT)


def test_a_life_of_one_member(node: Node) -> None:
    member_id = join(node).member_id
    assert join(node, member_id).generation_id == 1
    synced = ask(node, sync_request("g", member_id, 1, {member_id: b"mine"}), 5)
    assert (synced.error_code, synced.assignment) == (0, b"mine")
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    assert ask(node, heartbeat, 4).error_code == ErrorCode.NONE
    leave = LeaveGroupRequest(group_id="g", members=[LeaveGroupRequest.MemberIdentity(member_id=member_id)])
    assert [m.error_code for m in ask(node, leave, 5).members] == [0]
    assert ask(node, heartbeat, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_join_parks_its_connection_and_one_that_ended_is_forgotten(node: Node) -> None:
    member_id = join(node).member_id
    join(node, member_id)
    ask(node, sync_request("g", member_id, 1, {}), 5)
    second = join(node).member_id
    peer = Peer()
    context = Context(node.services, int(ApiKey.JOIN_GROUP), 9, client_id="c", connection=peer)
    pending = HANDLERS[ApiKey.JOIN_GROUP]().handle(join_request("g", second), context)
    assert isinstance(pending, Pending)
    assert pending.parks
    node.settle()
    assert not pending.done
    pending.cancel()
    node.services.groups.get().on_disconnect(peer)
    context = Context(node.services, int(ApiKey.JOIN_GROUP), 9, client_id="c")
    again = HANDLERS[ApiKey.JOIN_GROUP]().handle(join_request("g", member_id), context)
    node.settle()
    assert not again.done, "the one whose connection ended has not joined"


@pytest.mark.parametrize(
    ("request_", "versions"),
    [
        (join_request("g", "m"), range(10)),
        (SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[]), range(6)),
        (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), range(5)),
        (LeaveGroupRequest(group_id="g"), range(6)),
    ],
    ids=["join", "sync", "heartbeat", "leave"],
)
def test_what_refuses_all_of_a_request_is_reported_in_every_version(request_: Request, versions: range) -> None:
    for version in versions:
        answer = REGISTRY[request_.message_key].refused(request_, version, ErrorCode.NOT_COORDINATOR, "elsewhere")
        assert answer is not None
        assert decode(type(answer), encode(answer, version), version).error_code == ErrorCode.NOT_COORDINATOR
    if isinstance(request_, JoinGroupRequest):
        assert answer.member_id == "m"
