"""What a request of the classic protocol must be like before any group is looked at."""

from __future__ import annotations

import pytest

from ottla.broker.groups.classic_answers import refuse_heartbeat, refuse_join, refuse_leave, refuse_sync
from ottla.broker.groups.settings import GroupSettings
from ottla.protocol.api.heartbeat import HeartbeatRequest
from ottla.protocol.api.join_group import JoinGroupRequest
from ottla.protocol.api.leave_group import LeaveGroupRequest
from ottla.protocol.api.sync_group import SyncGroupRequest
from ottla.protocol.errors import ErrorCode

SETTINGS = GroupSettings(min_session_timeout_ms=6_000, max_session_timeout_ms=60_000)


def joining(**values: object) -> JoinGroupRequest:
    fields: dict[str, object] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "member_id": "m",
        "protocol_type": "consumer",
        "protocols": [],
    }
    return JoinGroupRequest(**(fields | values))  # type: ignore[arg-type]  # names and values above


@pytest.mark.parametrize("version", range(10))
def test_a_group_must_have_a_name(version: int) -> None:
    answer = refuse_join(joining(group_id=""), version, SETTINGS)
    assert answer is not None
    assert (answer.error_code, answer.member_id) == (ErrorCode.INVALID_GROUP_ID, "m")
    sync = SyncGroupRequest(
        group_id="", generation_id=1, member_id="m", protocol_type="c", protocol_name="r", assignments=[]
    )
    heartbeat = HeartbeatRequest(group_id="", generation_id=1, member_id="m")
    for refused in (refuse_sync(sync, 5), refuse_heartbeat(heartbeat), refuse_leave(LeaveGroupRequest(group_id=""))):
        assert refused is not None
        assert refused.error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize(
    ("session_ms", "is_legal"),
    [(5_999, False), (6_000, True), (60_000, True), (60_001, False), (0, False), (-1, False), (2**31 - 1, False)],
)
def test_a_session_timeout_must_lie_between_the_bounds(session_ms: int, is_legal: bool) -> None:
    answer = refuse_join(joining(session_timeout_ms=session_ms), 9, SETTINGS)
    assert (answer is None) is is_legal
    if answer is not None:
        assert (answer.error_code, answer.member_id) == (ErrorCode.INVALID_SESSION_TIMEOUT, "m")


@pytest.mark.parametrize(("kind", "name"), [(None, "range"), ("consumer", None), (None, None)])
def test_from_version_5_sync_must_name_its_protocol(kind: str | None, name: str | None) -> None:
    request = SyncGroupRequest(
        group_id="g", generation_id=1, member_id="m", protocol_type=kind, protocol_name=name, assignments=[]
    )
    answer = refuse_sync(request, 5)
    assert answer is not None
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert refuse_sync(request, 4) is None


def test_good_requests_go_on_to_the_group() -> None:
    assert refuse_heartbeat(HeartbeatRequest(group_id=" ", generation_id=1, member_id="m")) is None
    assert refuse_leave(LeaveGroupRequest(group_id="g")) is None
