"""The kinds of tests: their table is true, what starts a broker has a kind, and a quick run leaves that out."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from kit.examples import LEAST, QUICK_VARIABLE, examples
from kit.kinds import PLACES, TESTS, is_left_out, kind_of, what_is_left_out

ROOT = TESTS.parent


def test_every_place_is_there_and_every_kind_is_a_mark_and_explained() -> None:
    assert [place for places in PLACES.values() for place in places if not (TESTS / place).exists()] == []
    marks = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    assert PLACES.keys() <= {mark.partition(":")[0] for mark in marks}
    page = (ROOT / "CONTRIBUTING.md").read_text()
    assert [kind for kind in PLACES if f"| `{kind}` |" not in page] == []


def test_what_starts_a_broker_for_its_tests_has_a_kind() -> None:
    starts = re.compile(r"BrokerProcess\(|\((broker|own_broker): BrokerProcess|, (broker|own_broker): BrokerProcess")
    found = [path for path in TESTS.rglob("test_*.py") if kind_of(path) is None and starts.search(path.read_text())]
    assert found == [TESTS / "broker" / "runtime" / "test_threads.py"]  # two of its many tests do, for half a second


def test_a_file_has_the_kind_of_its_longest_place() -> None:
    assert kind_of(TESTS / "integration" / "test_kcat.py") == "processes"
    assert kind_of(TESTS / "integration" / "test_old_clients.py") == "old_clients"
    assert kind_of(TESTS / "storage" / "log" / "test_log_read.py") is None
    assert kind_of(Path("/elsewhere/integration/test_kcat.py")) is None


def test_sparks_own_tests_are_quick_where_numpy_and_pyarrow_are(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = TESTS / "spark" / "test_decoder.py"
    monkeypatch.setattr("kit.kinds.find_spec", lambda name: object())
    assert not is_left_out(decoder)
    assert is_left_out(TESTS / "spark" / "test_sink.py")
    monkeypatch.setattr("kit.kinds.find_spec", lambda name: None if name == "pyarrow" else object())
    assert is_left_out(decoder)
    assert not is_left_out(TESTS / "storage")


def test_a_quick_run_says_what_it_leaves_out_and_runs_what_is_named() -> None:
    named = "tests/protocol/test_old_kafka_python_oracle.py"
    command = [sys.executable, "-m", "pytest", "--quick", "--collect-only", "-q", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*command, "tests/docs/test_compatibility_page.py", "tests/crash", named],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert what_is_left_out() in run.stdout.splitlines()
    assert "tests/docs/test_compatibility_page.py::" in run.stdout
    assert named in run.stdout
    assert "tests/crash/test_promises.py" in run.stdout
    assert "tests/crash/test_simulator.py" not in run.stdout


def test_a_quick_run_makes_a_fifth_of_the_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(QUICK_VARIABLE, raising=False)
    assert examples(300) == 300
    monkeypatch.setenv(QUICK_VARIABLE, "1")
    assert (examples(300), examples(10)) == (60, LEAST)
