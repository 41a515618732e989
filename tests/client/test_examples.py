"""The examples run as their first line says, against a real broker, and print what is expected."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PRINTED = {
    "sensors.py": "east: 21.0 C of 1 readings\nnorth: 19.0 C of 2 readings\nsouth: 24.5 C of 2 readings\n",
    "workers.py": "each of 2 workers has 2 partitions\n40 jobs were done, 0 of them twice\n",
    "pipeline.py": "first run: 2\nsecond run: 3\nALL THESE WORDS GET LOUD\n",
    "tracing.py": (
        "refused: MESSAGE_TOO_LARGE\n3 arrived, 1 failed\n"
        + "".join(f"record {n + 1} read at example-tracing-0:{n}\n" for n in range(3))
    ),
    "exactly_once.py": "600 payments, 600 booked once, by 3 workers that were killed\n",
    "columns.py": "30000 records sent to 2 partitions\nBari: 16.5 C\nLyon: 21.5 C\nOslo: 26.5 C\n",
    "replay.py": (
        "120 records sent, 0 failed\n"
        + ", ".join(f"minute {n}" for n in range(50, 60))
        + "\n59 records behind the end\n"
    ),
}
OF_ITS_OWN_BROKER = {
    "secured.py": (
        "alice sees []\nalice sees ['example-secured']\n"
        "alice reads: for those who may read it\nwith a wrong password: refused\n"
    )
}


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_what_it_should(broker, name):
    assert run(name, broker.bootstrap) == (0, PRINTED[name], "")


@pytest.mark.parametrize("name", OF_ITS_OWN_BROKER)
def test_an_example_with_a_broker_of_its_own_prints_what_it_should(name):
    assert run(name) == (0, OF_ITS_OWN_BROKER[name], "")


def test_every_example_is_run():
    assert {path.name for path in EXAMPLES.glob("*.py")} == PRINTED.keys() | OF_ITS_OWN_BROKER.keys()


def run(name, *arguments):
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr
