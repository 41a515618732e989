"""A moderate number of fresh inputs in each run of the tests; `scripts/fuzz` is for more.

Hypothesis makes the choices from a seed that is fixed, so a failure here comes again. The command that is printed
saves the case.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kit.fuzz.choices import BytesRandom
from kit.fuzz.run import execute

CASES = {"framing": 8, "logins": 8, "tls": 6, "requests": 16, "batches": 12, "files": 24}
SEEDS = {"framing": 6, "logins": 10, "tls": 8, "requests": 12, "batches": 8, "files": 20}


@pytest.mark.parametrize("kind", SEEDS)
def test_hostile_input_of_fixed_seeds_breaks_no_promise(kind: str) -> None:
    for seed in range(SEEDS[kind]):
        reported = execute(kind, random.Random(seed), name=f"{kind}:{seed}")
        assert not reported.problem, f"{reported.problem}\nscripts/fuzz --replay {kind}:{seed}\n{reported.case}"


@pytest.mark.parametrize("kind", CASES)
def test_hostile_input_chosen_by_hypothesis_breaks_no_promise(kind: str) -> None:
    @settings(
        max_examples=CASES[kind],
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.binary(max_size=1000))
    def one(data: bytes) -> None:
        reported = execute(kind, BytesRandom(data), name=f"{kind}:hypothesis")
        assert not reported.problem, f"{reported.problem}\n{reported.case}"

    one()


def test_bytes_make_the_choices_and_the_same_bytes_the_same_ones() -> None:
    data = bytes(range(256)) * 8
    first = [BytesRandom(data).choice("abcdef") for _ in range(3)]
    assert len(set(first)) == 1
    assert [BytesRandom(bytes([byte]) * 64).randrange(200) for byte in (0, 90)] == [0, 90]
    reported = [execute("requests", BytesRandom(data), name="bytes") for _ in range(2)]
    assert reported[0].executions == reported[1].executions > 0
