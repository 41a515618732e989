"""Topologies, targets and steps of members as Apache Kafka 4.4.0's own classes compute them, without a difference.

`scripts/interop/streams-golden` makes the file. Among the topologies are missing and wrongly partitioned topics, loops,
and errors that name several topics; among the targets are those of groups whose members come and go.
"""

from __future__ import annotations

import json
from random import Random

import pytest
from kit.streams_cases import SEED, Golden, answer, cases, golden

CASES = golden()


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_the_answer_is_that_of_kafka(case: Golden) -> None:
    assert json.loads(json.dumps(answer(case.case))) == case.answer


def test_the_script_would_put_the_same_cases_to_kafka_again() -> None:
    assert cases(Random(SEED)) == [case.case for case in CASES]


def test_the_cases_are_of_all_kinds() -> None:
    statuses = {case.answer.get("status") for case in CASES if "topology" in case.case}
    assert statuses == {None, 1, 2, 3}
    assert {case.answer.get("error") for case in CASES} == {None, "STREAMS_INVALID_TOPOLOGY", "FENCED_MEMBER_EPOCH"}
    assert {case.answer.get("state") for case in CASES if "target" in case.case} >= {1, 2, 3}
    assert any(case.case.get("standby_replicas") for case in CASES)
