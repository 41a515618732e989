"""Clients of other times, each installed beside the environment and run in a process of its own.

`install` puts a pinned release from PyPI into a directory of the cache (~/.cache/ottla/old-clients; XDG_CACHE_HOME
moves it), by pip, once; the process finds it by PYTHONPATH before the release that the environment has. Where pip
cannot get it the test is skipped, but in CI (`CI` is set) it fails: there it must run. A release that ends with a newer
Python than it knew is skipped there, too.

A program (tests/integration/old_clients) reads its jobs from standard input and prints what became of them; see `run`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

PROGRAMS = Path(__file__).parent.parent / "integration" / "old_clients"
INSTALL_TIMEOUT_S = 180
RUN_TIMEOUT_S = 90


class Client(NamedTuple):
    """A client at a release. `requirements` empty: the one of the environment.

    `newest_python`: the last one on which that release runs, or for which there is a wheel of it; None: no such bound.
    """

    program: str
    requirements: tuple[str, ...] = ()
    newest_python: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """For test ids."""
        return self.requirements[0].replace("==", "-") if self.requirements else f"{self.program}-current"


class Job(NamedTuple):
    """Write `values` to partition 0 of `topic` as codec `codec`, then read `expect` records from its start.

    `version` is the broker's version that the client is configured with; "auto" lets it ask. With a `group` the
    records are read by two of its members, one after the other: the first commits after half of them, the second
    continues there.
    """

    topic: str
    version: str
    codec: str
    values: list[str]
    expect: int
    group: str = ""


class Outcome(NamedTuple):
    """Offsets of what was written; (offset, timestamp or None, key, value) of what was read."""

    offsets: list[int]
    read: list[list[object]]


def run(client: Client, bootstrap: str, jobs: Sequence[Job]) -> list[Outcome]:
    """Let the client do all jobs, in one process. Fails with what it printed when it does not end well."""
    if client.newest_python is not None and sys.version_info[:2] > client.newest_python:
        pytest.skip(f"{client.name} needs Python {'.'.join(map(str, client.newest_python))} or older")
    environment = dict(os.environ)
    if client.requirements:
        environment["PYTHONPATH"] = str(install(client.requirements))
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / f"{client.program}.py")],
        input=json.dumps({"bootstrap": bootstrap, "jobs": [job._asdict() for job in jobs]}),
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return [Outcome(*one) for one in json.loads(done.stdout.splitlines()[-1])]


def install(requirements: tuple[str, ...]) -> Path:
    """The directory that holds the release, installed if it is not there yet."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla" / "old-clients"
    name = "_".join(requirements).replace("==", "-").replace("<", "-before-")
    place = cache / f"{name}-py{sys.version_info.major}{sys.version_info.minor}"
    if place.is_dir():
        return place
    cache.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=cache))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(fresh)]
    try:
        done = subprocess.run(
            [*command, *requirements], capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
        )
        problem = done.stderr if done.returncode else ""
    except subprocess.TimeoutExpired:
        problem = f"pip took more than {INSTALL_TIMEOUT_S} s"
    if problem:
        shutil.rmtree(fresh)
        if os.environ.get("CI"):
            pytest.fail(f"{name} cannot be installed: {problem}")
        pytest.skip(f"{name} cannot be installed here: {problem.strip().splitlines()[-1]}")
    try:
        fresh.rename(place)
    except OSError:  # another worker was faster
        shutil.rmtree(fresh)
    return place
