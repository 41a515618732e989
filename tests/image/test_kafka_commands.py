"""Kafka's commands in the image: those of health checks and init containers, translated; all else refused in one line.

A program in place of `ottla` reports how it was called.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from kit.dockerfile import TOP

SCRIPTS = TOP / "packaging/image/kafka"
TOPICS = "opt/kafka/bin/kafka-topics.sh"
VERSIONS = "opt/kafka/bin/kafka-broker-api-versions.sh"
CUB = "usr/local/bin/cub"
TIMEOUT_S = 60.0
B = "--bootstrap-server"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory with the program; each call is a line of `calls`. It fails while there is a file `absent`."""
    program = tmp_path / "ottla"
    program.write_text(
        f'#!/bin/sh\necho "$*" >>"{tmp_path}/calls"\nrm "{tmp_path}/absent" 2>/dev/null && exit 1\nexit 0\n'
    )
    program.chmod(0o755)
    return tmp_path


def run(programs: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", str(SCRIPTS / script), *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={"PATH": f"{programs}:{os.defpath}"},
    )


def calls(programs: Path) -> list[str]:
    return (programs / "calls").read_text().splitlines()


@pytest.mark.parametrize(
    ("script", "arguments", "meaning"),
    [
        (TOPICS, f"{B} localhost:9092 --list", f"topics list {B} localhost:9092 --all"),
        (TOPICS, f"--list {B}=localhost:9092 --exclude-internal", f"topics list {B} localhost:9092"),
        (
            TOPICS,
            f"{B} k:1 --create --if-not-exists --topic a --partitions 3 --replication-factor=1 --config a=b",
            f"topics create {B} k:1 --if-not-exists --partitions 3 --replication-factor 1 --config a=b a",
        ),
        (TOPICS, f"--describe --topic=a {B} k:1 --command-config f", f"topics describe {B} k:1 --command-config f a"),
        (TOPICS, f"--describe {B} k:1", f"topics describe {B} k:1"),
        (VERSIONS, f"{B} localhost:9092", f"ping {B} localhost:9092"),
        (VERSIONS, f"{B}=k:1 --command-config f", f"ping {B}=k:1 --command-config f"),
        (CUB, "kafka-ready -b localhost:9092 1 20", "ping -q -b localhost:9092"),
        (CUB, "kafka-ready 1 20 -b k:1 -c f", "ping -q -b k:1 --command-config f"),
    ],
)
def test_what_a_health_check_calls_is_a_call_of_ottla(
    programs: Path, script: str, arguments: str, meaning: str
) -> None:
    done = run(programs, script, *arguments.split())
    assert (done.returncode, done.stderr) == (0, "")
    assert calls(programs) == [meaning]


@pytest.mark.parametrize(
    ("script", "arguments", "words"),
    [
        (TOPICS, "--zookeeper zoo:2181 --list", "--zookeeper is not known here"),
        (TOPICS, f"{B} k:1 --delete --topic a", "--delete is not known here"),
        (TOPICS, f"{B} k:1 --alter --topic a", "--alter is not known here"),
        (TOPICS, f"{B} k:1 --list --topic a", "--list with --topic"),
        (TOPICS, f"{B} k:1", "there is nothing to do"),
        (TOPICS, f"--list {B}", f"{B} has no value"),
        (VERSIONS, "", f"name a broker by {B}"),
        (CUB, "zk-ready zoo:2181 20", "zk-ready is not known here"),
        (CUB, "kafka-ready -z zoo:2181 1 20", "-z is not known here"),
        (CUB, "kafka-ready -b k:1 3 20", "3 brokers cannot be"),
        (CUB, "kafka-ready -b k:1 1", "the seconds to wait are missing"),
        (CUB, "kafka-ready 1 20", "-b is missing"),
        (CUB, "kafka-ready 1 20 -b", "-b is missing"),
    ],
)
def test_all_else_is_refused_in_one_line(programs: Path, script: str, arguments: str, words: str) -> None:
    done = run(programs, script, *arguments.split())
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert words in line
    assert not (programs / "calls").exists()


def test_cub_waits_until_a_broker_answers(programs: Path) -> None:
    (programs / "absent").touch()
    assert run(programs, CUB, "kafka-ready", "-b", "k:1", "1", "5").returncode == 0
    assert len(calls(programs)) == 2


def test_cub_gives_up_after_its_seconds(programs: Path) -> None:
    """Each call takes 5 of them where nobody answers. A clock of files stands still otherwise."""
    now = programs / "now"
    now.write_text("100")
    later = f'echo $(($(cat "{now}") + %s)) >"{now}.new" && mv "{now}.new" "{now}"'
    for name, script in {
        "date": f'cat "{now}"',
        "sleep": later % "$1",
        "ottla": f'echo "$*" >>"{programs}/calls"; {later % 5}; exit 1',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    done = run(programs, CUB, "kafka-ready", "-b", "k:1", "1", "08")
    assert (done.returncode, done.stderr) == (1, "")
    assert len(calls(programs)) == 2
