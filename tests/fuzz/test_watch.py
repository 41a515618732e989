"""The fuzzer's own test: what it must notice, it notices."""

from __future__ import annotations

import json
import logging
import random
import struct
from pathlib import Path
from unittest.mock import patch

import pytest
from kit.fuzz import files
from kit.fuzz.corpus import edits_to_json, replay, steps_to_json
from kit.fuzz.life import Cost, Life
from kit.fuzz.run import bound_problem, execute, kind_of
from kit.fuzz.watch import Finding, Watch
from kit.handlers import stub_handler

from ottla.broker.api import HANDLERS
from ottla.broker.context import Context
from ottla.protocol.api import ApiKey
from ottla.protocol.api.delete_groups import DeleteGroupsResponse
from ottla.protocol.api.describe_cluster import DescribeClusterRequest
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import encode


def _ask_for_the_cluster(number: int = 1) -> bytes:
    key = ApiKey.DESCRIBE_CLUSTER
    body = encode_request_header(key, 0, number, "t") + encode(
        DescribeClusterRequest(include_cluster_authorized_operations=False), 0
    )
    return struct.pack(">i", len(body)) + body


def test_a_handler_that_fails_is_a_finding() -> None:
    def broken(request: DescribeClusterRequest, context: Context) -> None:
        raise KeyError("broken on purpose")

    with (
        patch.dict(HANDLERS, {ApiKey.DESCRIBE_CLUSTER: stub_handler(broken)}),
        Life() as life,
        pytest.raises(Finding, match="broken on purpose"),
    ):
        life.step({"line": 0, "send": _ask_for_the_cluster()})


@pytest.mark.parametrize("said", ["bug: something", "two\nlines"])
def test_a_line_of_the_log_that_should_not_be_is_a_finding(said: str) -> None:
    with Watch() as watch:
        logging.getLogger("ottla.test").info(said)
        with pytest.raises(Finding):
            watch.check()


def test_a_refused_request_that_changes_something_is_a_finding() -> None:
    with Life() as life:
        before = life.stored()
        life.step({"wait_ms": 1})
        life.frames = 1
        refused = DeleteGroupsResponse(results=[DeleteGroupsResponse.DeletableGroupResult(group_id="g", error_code=69)])
        with pytest.raises(Finding, match="changed something"):
            life.check_refusals([(ApiKey.DELETE_GROUPS, refused)], (*before, "another"))


def test_memory_and_time_beyond_their_bounds_are_findings() -> None:
    assert "memory" in bound_problem(Cost(memory_bytes=1 << 30, memory_for_bytes=100), is_timed=False)
    assert "CPU" in bound_problem(Cost(seconds=9.0), is_timed=True)
    assert bound_problem(Cost(seconds=9.0), is_timed=False) == ""


def test_a_start_that_raises_is_a_finding_and_is_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(data: bytes) -> None:
        raise KeyError("broken on purpose")

    files.template("stop")  # made before anything is broken
    monkeypatch.setattr("ottla.broker.metadata.quorum_state.decode_quorum_state", broken)
    monkeypatch.setattr(files, "live", lambda chance: ("stop", {"replication-offset-checkpoint": None, "more": b"x"}))
    reported = execute("files", random.Random(1), name="files:1")
    assert "broken on purpose" in reported.problem
    assert json.loads(reported.case)["edits"] == {}  # nothing that was bent is needed for it


def test_problems_that_differ_in_names_and_numbers_are_one_kind() -> None:
    assert kind_of("topic 'a' at 12") == kind_of("topic 'b c' at 7")


def test_a_case_is_saved_and_lives_again(tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    path.write_text(steps_to_json("why it is kept", [{"line": 0, "send": _ask_for_the_cluster()}, {"wait_ms": 5}]))
    assert replay(path).seconds > 0
    path.write_text(edits_to_json("why it is kept", "stop", {"meta.properties": None, "quorum": b"x" * 5000}))
    assert replay(path).seconds > 0
