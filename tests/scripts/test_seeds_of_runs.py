"""Runs of the tests: the seed that they share, and what a failure prints of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kit.seeds import RECORDED, replay_command, run_seed, seed_of

TESTS = Path(__file__).parents[1]
FAILING = """
import random

from hypothesis import Phase, given, settings, strategies as st
from kit.seeds import seed_of

DRAWN = []


@settings(max_examples=5, phases=[Phase.generate])
@given(st.integers())
def test_hypothesis(number):
    DRAWN.append(number)


def test_failing():
    assert not ("drawn", random.random(), seed_of("mine"), *DRAWN)
"""


def drawn(directory: Path, seed: str) -> tuple[list[str], str]:
    """What the tests of a run with this seed have drawn, and all that was printed."""
    test = directory / "test_failing.py"
    test.write_text(FAILING, encoding="utf-8")
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "--rootdir", directory, test],
        env={**os.environ, "TEST_SEED": seed, "PYTHONPATH": path, "PYTHONHASHSEED": "5"},
        cwd=directory,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert run.returncode == 1, run.stdout
    return [line for line in run.stdout.splitlines() if line.startswith("E ") and "drawn" in line], run.stdout


def test_the_same_seed_draws_the_same_and_a_failure_says_how_to_run_it_again(tmp_path: Path) -> None:
    first, printed = drawn(tmp_path, "123")
    assert first
    assert "TEST_SEED=123 PYTHONHASHSEED=5 scripts/test test_failing.py::test_failing" in printed
    assert "seed of this run: TEST_SEED=123" in printed
    assert drawn(tmp_path, "123")[0] == first
    assert drawn(tmp_path, "124")[0] != first


def test_ci_takes_the_recorded_seed_and_others_a_fresh_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_SEED", raising=False)
    monkeypatch.setenv("CI", "true")
    assert run_seed() == RECORDED
    assert os.environ["TEST_SEED"] == str(RECORDED)  # as child processes see it
    monkeypatch.delenv("TEST_SEED")
    monkeypatch.delenv("CI")
    fresh = run_seed()
    assert run_seed() == fresh
    monkeypatch.delenv("TEST_SEED")
    assert run_seed() != fresh


def test_each_name_has_a_seed_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SEED", "9")
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    assert seed_of("one") == seed_of("one")
    assert seed_of("one") != seed_of("another")
    assert replay_command("tests/test_a.py::test_b[c d]") == "TEST_SEED=9 scripts/test 'tests/test_a.py::test_b[c d]'"
