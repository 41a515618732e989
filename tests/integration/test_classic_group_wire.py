"""The classic group protocol by raw frames, each test to be judged by Apache Kafka too (`OTTLA_TEST_BOOTSTRAP`).

Where we differ from Kafka on purpose there is no test here, but one in `tests/broker/groups`.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator

import pytest
from kit.broker import BrokerProcess
from kit.classic_groups import subscription
from kit.wire import Wire
from kit.wire_groups import WireMember, await_coordinator, join_request, sync_request

from ottla.protocol.api.api_versions import ApiVersionsRequest
from ottla.protocol.api.describe_groups import DescribeGroupsRequest
from ottla.protocol.api.heartbeat import HeartbeatRequest
from ottla.protocol.api.join_group import JoinGroupRequest
from ottla.protocol.api.leave_group import LeaveGroupRequest
from ottla.protocol.errors import ErrorCode

MemberOf = Callable[..., WireMember]
CHANGED = subscription("something else")  # bytes that are no subscription Kafka 4.1 may leave without an answer


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.port) as connection:
        yield connection


@pytest.fixture
def group(wire: Wire) -> str:
    group_id = f"g-{uuid.uuid4().hex}"
    await_coordinator(wire, group_id)
    return group_id


@pytest.fixture
def member(broker: BrokerProcess, group: str) -> Iterator[MemberOf]:
    """Makes members of the group, each with a connection of its own."""
    made: list[WireMember] = []

    def make(instance: str | None = None) -> WireMember:
        made.append(WireMember(broker.port, group, instance=instance))
        return made[-1]

    yield make
    for each in made:
        each.close()


def stable(*members: WireMember, version: int = 9, **options: object) -> WireMember:
    """Bring members into a stable group, each with its own id as its assignment; the leader."""
    for count in range(1, len(members) + 1):
        joining = members[:count]
        joining[-1].send_join(version, **options)
        if count > 1:
            joining[0].await_rebalance()
        for each in joining[:-1]:
            each.send_join(version, **options)
        answers = [each.read_join() for each in joining]
        assert {answer.error_code for answer in answers} == {0}
    leader = next(each for each in members if each.member_id == answers[0].leader)
    leader.sync({each.member_id: each.member_id.encode() for each in members})
    for each in members:
        assert each.sync().assignment == each.member_id.encode()
    return leader


def described(wire: Wire, group: str) -> object:
    return wire.call(DescribeGroupsRequest(groups=[group]), 5).groups[0]


@pytest.mark.parametrize("version", range(10))
def test_a_member_lives_its_life_in_every_version(member: MemberOf, version: int) -> None:
    one = member("i" if version >= 5 and version % 2 else None)
    answer = one.join(version)
    assert (answer.generation_id, answer.protocol_name, answer.leader) == (1, "range", one.member_id)
    assert answer.protocol_type == ("consumer" if version >= 7 else None)
    assert [m.metadata for m in answer.members] == [b"m"]
    sync_version = min(version, 5) if one.instance is None else max(3, min(version, 5))
    synced = one.sync({one.member_id: b"assigned"}, sync_version)
    assert (synced.error_code, synced.assignment) == (0, b"assigned")
    heartbeat_version = min(version, 4) if one.instance is None else max(3, min(version, 4))
    assert one.heartbeat(heartbeat_version) == ErrorCode.NONE
    left = one.leave(min(version, 5) if one.instance is None else max(3, min(version, 5)))
    assert left.error_code == 0
    assert [m.error_code for m in left.members] in ([], [0])
    assert one.heartbeat(heartbeat_version) == ErrorCode.UNKNOWN_MEMBER_ID


def test_trap_04_join_group_is_advertised_from_0(wire: Wire) -> None:
    ranges = {api.api_key: (api.min_version, api.max_version) for api in wire.call(ApiVersionsRequest(), 0).api_keys}
    assert ranges[11] == (0, 9)
    assert (ranges[12], ranges[13], ranges[14]) == ((0, 4), (0, 5), (0, 5))


@pytest.mark.parametrize("version", range(10))
def test_trap_09_only_dynamic_members_from_version_4_on_have_to_come_back(wire: Wire, group: str, version: int) -> None:
    answer = wire.call(join_request(group), version)
    assert answer.error_code == (ErrorCode.MEMBER_ID_REQUIRED if version >= 4 else ErrorCode.NONE)
    assert answer.member_id.startswith("wire-")
    if version >= 5:
        answer = wire.call(join_request(f"{group}-static", instance="i"), version)
        assert answer.error_code == ErrorCode.NONE
        assert answer.member_id.startswith("i-")


def test_a_group_id_must_not_be_empty_but_may_be_blank(wire: Wire, group: str) -> None:
    answer = wire.call(join_request("", "m"), 9)
    assert (answer.error_code, answer.member_id) == (ErrorCode.INVALID_GROUP_ID, "m")
    assert wire.call(sync_request("", "m", 1), 5).error_code == ErrorCode.INVALID_GROUP_ID
    heartbeat = HeartbeatRequest(group_id="", generation_id=1, member_id="m")
    assert wire.call(heartbeat, 4).error_code == ErrorCode.INVALID_GROUP_ID
    leave = LeaveGroupRequest(group_id="", members=[LeaveGroupRequest.MemberIdentity(member_id="m")])
    answer = wire.call(leave, 5)
    assert (answer.error_code, answer.members) == (ErrorCode.INVALID_GROUP_ID, [])
    await_coordinator(wire, " ")
    assert wire.call(join_request(" "), 9).error_code == ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize("session_ms", [-1, 0, 50, 1_800_001, 2**31 - 1])
def test_an_illegal_session_timeout_is_refused_and_changes_nothing(wire: Wire, group: str, session_ms: int) -> None:
    answer = wire.call(join_request(group, "m", session_ms=session_ms), 9)
    assert (answer.error_code, answer.member_id) == (ErrorCode.INVALID_SESSION_TIMEOUT, "m")
    assert described(wire, group).group_state == "Dead"


@pytest.mark.parametrize("version", [0, 3, 9])
def test_a_group_that_does_not_exist_has_no_members(wire: Wire, group: str, version: int) -> None:
    answer = wire.call(join_request(group, "m"), version)
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "m")
    assert wire.call(sync_request(group, "m", 1), 5).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    heartbeat = HeartbeatRequest(group_id=group, generation_id=1, member_id="m")
    assert wire.call(heartbeat, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    leave = LeaveGroupRequest(group_id=group, members=[LeaveGroupRequest.MemberIdentity(member_id="m")])
    answer = wire.call(leave, 5)
    assert answer.error_code == ErrorCode.NONE
    assert [m.error_code for m in answer.members] == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert wire.call(LeaveGroupRequest(group_id=group, member_id="m"), 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert described(wire, group).group_state == "Dead"


def test_a_stranger_changes_nothing_in_a_stable_group(wire: Wire, group: str, member: MemberOf) -> None:
    one = member()
    stable(one)
    before = described(wire, group)
    assert wire.call(join_request(group, "stranger"), 9).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert wire.call(join_request(group, one.member_id, instance="x"), 9).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert wire.call(sync_request(group, "stranger", 1), 5).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    for generation in (-1, 0, 2):
        sync = sync_request(group, one.member_id, generation, {one.member_id: b"x"})
        assert wire.call(sync, 5).error_code == ErrorCode.ILLEGAL_GENERATION
        heartbeat = HeartbeatRequest(group_id=group, generation_id=generation, member_id=one.member_id)
        assert wire.call(heartbeat, 4).error_code == ErrorCode.ILLEGAL_GENERATION
    for kind, name, code in (
        ("connect", "range", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", "sticky", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (None, "range", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", None, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", "range", ErrorCode.NONE),
    ):
        sync = sync_request(group, one.member_id, 1, protocol_type=kind, protocol_name=name)
        assert wire.call(sync, 5).error_code == code
    leave = LeaveGroupRequest(group_id=group, members=[LeaveGroupRequest.MemberIdentity(member_id="stranger")])
    assert wire.call(leave, 5).members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert described(wire, group) == before


@pytest.mark.parametrize(
    ("kind", "protocols"),
    [("consumer", []), ("", [("range", b"")]), ("", [])],
    ids=["no protocol", "no type", "neither"],
)
def test_who_brings_no_protocol_is_refused(
    wire: Wire, group: str, kind: str, protocols: list[tuple[str, bytes]]
) -> None:
    answer = wire.call(join_request(group, protocol_type=kind, protocols=protocols), 9)
    assert (answer.error_code, answer.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")


@pytest.mark.parametrize(("kind", "name"), [("connect", "range"), ("consumer", "sticky")])
def test_who_has_nothing_in_common_with_the_group_is_refused(
    wire: Wire, group: str, member: MemberOf, kind: str, name: str
) -> None:
    stable(member())
    before = described(wire, group)
    answer = wire.call(join_request(group, protocol_type=kind, protocols=[(name, b"")]), 9)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert described(wire, group) == before


@pytest.mark.parametrize("blob", [b"", b"\x00", b"\x00\x01"])  # on a count that is too large Kafka 4.1 never answers
def test_a_malformed_subscription_is_the_members_own_affair(
    wire: Wire, group: str, member: MemberOf, blob: bytes
) -> None:
    one = member()
    stable(one, protocols=[("range", blob)])
    assert one.heartbeat() == ErrorCode.NONE
    assert described(wire, group).members[0].member_metadata == blob


def test_the_whole_group_joins_again_when_a_member_comes(member: MemberOf) -> None:
    one, two = member(), member()
    stable(one)
    two.send_join()
    one.await_rebalance()
    assert one.sync().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    one.send_join()
    first, second = one.read_join(), two.read_join()
    assert first.generation_id == second.generation_id == 2
    assert first.leader == second.leader == one.member_id
    assert {m.member_id for m in first.members} == {one.member_id, two.member_id}
    assert second.members == []


def test_the_protocol_with_most_votes_is_chosen(member: MemberOf) -> None:
    one, two, three = member(), member(), member()
    protocols = {one: ["a", "x", "y"], two: ["y", "x"], three: ["b", "y", "x"]}
    for count in (1, 2, 3):
        joining = [one, two, three][:count]
        joining[-1].send_join(protocols=[(name, b"") for name in protocols[joining[-1]]])
        if count > 1:
            one.await_rebalance()
        for each in joining[:-1]:
            each.send_join(protocols=[(name, b"") for name in protocols[each]])
        answers = [each.read_join() for each in joining]
    assert {answer.protocol_name for answer in answers} == {"y"}


def test_a_follower_that_joins_again_unchanged_disturbs_nobody_and_a_leader_does(member: MemberOf) -> None:
    one, two = member(), member()
    leader = stable(one, two)
    follower = two if leader is one else one
    answer = follower.join()
    assert (answer.generation_id, answer.members) == (2, [])
    assert leader.heartbeat() == ErrorCode.NONE
    leader.send_join()
    follower.await_rebalance()
    follower.send_join()
    assert leader.read_join().generation_id == follower.read_join().generation_id == 3


def test_changed_metadata_makes_a_rebalance(member: MemberOf) -> None:
    one, two = member(), member()
    leader = stable(one, two)
    follower = two if leader is one else one
    follower.send_join(protocols=[("range", CHANGED)])
    leader.await_rebalance()
    metadata = {m.member_id: m.metadata for m in leader.join().members}
    assert metadata == {leader.member_id: b"m", follower.member_id: CHANGED}
    assert follower.read_join().generation_id == 3


def test_several_leave_by_one_request_each_with_its_own_code(wire: Wire, group: str, member: MemberOf) -> None:
    one, two = member(), member("i")
    stable(one, two)
    pending = wire.call(join_request(group), 9).member_id
    identity = LeaveGroupRequest.MemberIdentity
    who = [
        identity(member_id=one.member_id, reason="tired"),
        identity(member_id="stranger"),
        identity(member_id="", group_instance_id="i"),
        identity(member_id="", group_instance_id="nobody"),
        identity(member_id=""),
        identity(member_id=pending),
    ]
    answer = wire.call(LeaveGroupRequest(group_id=group, members=who), 5)
    assert [m.error_code for m in answer.members] == [0, 25, 0, 25, 25, 0]
    assert [(m.member_id, m.group_instance_id) for m in answer.members] == [
        (m.member_id, m.group_instance_id) for m in who
    ]
    assert described(wire, group).group_state == "Empty"


def test_a_static_member_is_replaced_and_its_old_run_fenced(wire: Wire, group: str, member: MemberOf) -> None:
    one, old, new = member("a"), member("b"), member("b")
    stable(one, old)
    answer = new.join()
    assert (answer.generation_id, answer.leader, answer.skip_assignment) == (2, one.member_id, False)
    assert new.member_id != old.member_id
    assert new.sync().assignment == old.member_id.encode()
    assert one.heartbeat() == new.heartbeat() == ErrorCode.NONE
    assert old.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert old.sync().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert wire.call(join_request(group, old.member_id, instance="b"), 9).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert old.leave().members[0].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert described(wire, group).group_state == "Stable"


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_static_leader_that_returns_does_not_assign(member: MemberOf, version: int) -> None:
    old, other, new = member("a"), member("b"), member("a")
    assert stable(old, other) is old
    answer = new.join(version)
    assert answer.generation_id == 2
    if version >= 9:
        assert answer.skip_assignment
        assert answer.leader == new.member_id
        assert {m.group_instance_id for m in answer.members} == {"a", "b"}
    else:
        assert (answer.leader, answer.members) == (old.member_id, [])


def test_two_runs_of_a_static_member_that_wait_at_once_do_not_both_get_in(member: MemberOf) -> None:
    one, old, new = member("a"), member("b"), member("b")
    stable(one, old)
    old.send_join(protocols=[("range", CHANGED)])
    one.await_rebalance()
    new.send_join()
    assert old.read_join().error_code == ErrorCode.FENCED_INSTANCE_ID
    one.send_join()
    assert one.read_join().generation_id == new.read_join().generation_id == 3


def test_a_static_member_that_returns_between_join_and_sync_makes_a_rebalance(member: MemberOf) -> None:
    one, old, new = member("a"), member("b"), member("b")
    assert stable(one, old) is one
    one.send_join()
    old.await_rebalance()
    old.send_join()
    assert one.read_join().generation_id == old.read_join().generation_id == 3
    new.send_join()
    one.await_rebalance()
    one.send_join()
    assert one.read_join().generation_id == new.read_join().generation_id == 4


def test_a_group_is_described_in_each_of_its_states(wire: Wire, group: str, member: MemberOf) -> None:
    one, two = member(), member()
    stable(one)
    seen = described(wire, group)
    assert (seen.group_state, seen.protocol_type, seen.protocol_data) == ("Stable", "consumer", "range")
    (only,) = seen.members
    assert (only.member_id, only.client_id, only.client_host) == (one.member_id, "wire", "/127.0.0.1")
    assert (only.member_metadata, only.member_assignment) == (b"m", one.member_id.encode())
    two.send_join()
    one.await_rebalance()
    seen = described(wire, group)
    assert (seen.group_state, seen.protocol_data) == ("PreparingRebalance", "")
    assert sorted(m.member_assignment for m in seen.members) == [b"", one.member_id.encode()]
    one.send_join()
    one.read_join()
    two.read_join()
    assert described(wire, group).group_state == "CompletingRebalance"
    one.leave()
    two.leave()
    seen = described(wire, group)
    assert (seen.group_state, seen.protocol_type, seen.protocol_data, seen.members) == ("Empty", "consumer", "", [])


def test_a_member_that_falls_silent_is_removed_and_the_others_go_on(member: MemberOf) -> None:
    one, silent = member(), member()
    stable(one, silent, session_ms=6_000)
    silent.close()
    while (code := one.heartbeat()) == ErrorCode.NONE:
        one.wire.call(ApiVersionsRequest(), 0)
    assert code == ErrorCode.REBALANCE_IN_PROGRESS
    answer = one.join(session_ms=6_000)
    assert [m.member_id for m in answer.members] == [one.member_id]


def test_a_join_of_a_newer_version_than_ours_closes_the_connection(wire: Wire, group: str) -> None:
    wire.send_request(join_request(group), 9)
    wire.read_answer(JoinGroupRequest, 9)
    wire.send_frame(struct.pack(">hhihx", 11, 10, 1, -1))
    assert wire.is_closed_by_peer()
