"""The seed of a run of the tests, from which everything random in it comes.

CI's is recorded here, so that its runs are alike and a change that it refuses is the change's fault. Elsewhere each run
draws a fresh one. `TEST_SEED` sets it; the run's header and every failure print it. To look for what no seed has
shown yet is the task of `scripts/simulate`, `scripts/crash-audit` and `scripts/fuzz`, which draw their own.

It reaches Hypothesis, Python's `random` (seeded again before each test, by the test's name) and the tests that ask
`seed_of`. Not drawn from it are ids (`uuid4`; `kit.known_ids` is for those), and the order of sets, which
`PYTHONHASHSEED` decides: `scripts/test` sets it, and the command that a failure prints names it.
"""

from __future__ import annotations

import os
import random
import shlex
from typing import Final

RECORDED: Final = 17
"""Of the runs in CI (`CI=true`)."""
VARIABLE: Final = "TEST_SEED"
"""Not `OTTLA_TEST_SEED`: the brokers that tests start would inherit it, and take it for a configuration key."""
HASH_VARIABLE: Final = "PYTHONHASHSEED"


def run_seed() -> int:
    """The seed of this run. Workers of pytest-xdist and child processes inherit it through the environment."""
    known = os.environ.get(VARIABLE)
    if known is None:
        drawn = RECORDED if os.environ.get("CI") == "true" else random.SystemRandom().randrange(1 << 32)
        known = os.environ[VARIABLE] = str(drawn)
    return int(known)


def seed_of(name: str) -> int:
    """A seed for `name` alone, below 2**40: the same in every process of this run."""
    return random.Random(f"{run_seed()} {name}").randrange(1 << 40)


def replay_command(test: str) -> str:
    """The command line that runs this test again as it ran here."""
    hashes = os.environ.get(HASH_VARIABLE)
    words = [f"{VARIABLE}={run_seed()}", *([f"{HASH_VARIABLE}={hashes}"] if hashes else []), "scripts/test"]
    return " ".join([*words, shlex.quote(test)])
