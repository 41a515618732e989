"""What a shell is given to complete: asked through the variables by which bash asks."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE

import pytest
from click.testing import CliRunner
from kit.broker import BrokerProcess
from kit.command import COMMANDS, run
from kit.share_groups import begin_with_the_first_record, received, share_member

from ottla.cli.main import main
from ottla.client.blocking import Producer

WORDBREAKS = " \t\n\"'><=;|&(:"


def completed(line: str) -> list[str]:
    """What bash is given for a line whose end is typed; it puts that in the place of the last of its words."""
    spread = line.replace(":", " : ").replace("=", " = ")
    environment = {
        **os.environ,
        "_OTTLA_COMPLETE": "bash_complete",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_WORDS": spread,
        "COMP_CWORD": str(len(spread.split()) - (not line.endswith(" "))),
        "COMP_WORDBREAKS": WORDBREAKS,
    }
    process = COMMANDS.start(["-m", "ottla"], environment, stderr=PIPE)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b""), "nothing is written into the line that is typed"
    return [one.partition(",")[2] for one in out.decode().splitlines() if one]


@pytest.fixture(scope="module")
def named(broker: BrokerProcess) -> str:
    """The bootstrap address of a broker with topics, groups and a transactional id that no other test has."""
    said = run("topics", "create", "zebra", "zebra-crossing", "-b", broker.bootstrap)
    assert said.status == 0, said.err
    runner = CliRunner()
    runner.invoke(main, ["produce", "zebra", "-b", broker.bootstrap], input="x\n", catch_exceptions=False)
    read = ["consume", "zebra", "-b", broker.bootstrap, "-B", "-n", "1", "-g", "zebra-readers"]
    assert runner.invoke(main, read, catch_exceptions=False).output == "x\n"
    begin_with_the_first_record(broker.bootstrap, "zebra-sharers")
    with share_member(broker.bootstrap, "zebra-sharers", "zebra", explicit=False) as member:
        assert len(received(member, 1)) == 1
    with Producer(broker.bootstrap, transactional_id="zebra-payments") as producer:
        producer.start()
    said = run(
        "quotas", "alter", "--client-id", "zebra-app", "--set", "consumer_byte_rate=1e12", "-b", broker.bootstrap
    )
    assert said.status == 0, said.err
    return broker.bootstrap


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("consume -b {} zeb", ["zebra", "zebra-crossing"]),
        ("consume --bootstrap-server {} zebra-", ["zebra-crossing"]),
        ("produce -b {} zebra-c", ["zebra-crossing"]),
        ("topics describe -b {} zebra-c", ["zebra-crossing"]),
        ("log dirs -b {} zebra-c", ["zebra-crossing"]),
        ("topics delete-records -b {} zebra-c", ["zebra-crossing"]),
        ("topics delete -b {} zebra zebra-c", ["zebra-crossing"]),
        ("configs alter -b {} -t zebra-c", ["zebra-crossing"]),
        ("groups reset -b {} zebra-readers --topic zebra-c", ["zebra-crossing"]),
        ("groups describe -b {} zebra-r", ["zebra-readers"]),
        ("groups reset -b {} zebra", ["zebra-readers", "zebra-sharers"]),
        ("consume zebra -b {} --group zebra-r", ["zebra-readers"]),
        ("configs describe -b {} -g zebra-r", ["zebra-readers"]),
        ("transactions describe -b {} zebra", ["zebra-payments"]),
        ("transactions abort -b {} other zebra-p", ["zebra-payments"]),
        ("features upgrade -b {} trans", ["transaction.version"]),
        ("quotas list -b {} --client-id zebra", ["zebra-app"]),
        ("consume -b {} __consumer", ["__consumer_offsets"]),
    ],
)
def test_topics_and_groups_of_the_broker_that_the_line_names(named: str, line: str, expected: list[str]) -> None:
    assert completed(f"ottla {line.format(named)}") == expected


def test_internal_topics_are_not_offered_unasked(named: str) -> None:
    assert [one for one in completed(f"ottla consume -b {named} ") if one.startswith("__")] == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("configs alter --topic t --set retention.m", ["retention.ms="]),
        ("configs alter --topic t --delete retention.m", ["retention.ms"]),
        ("configs alter --group g --set consumer.session", ["consumer.session.timeout.ms="]),
        ("configs alter --all-brokers --set log.retention.m", ["log.retention.ms="]),
        ("configs alter --topic t --set log.retention.m", []),
        ("quotas alter --set pro", ["producer_byte_rate="]),
        ("quotas alter --ip 10.0.0.7 --delete c", ["connection_creation_rate"]),
        ("quotas alter --user u --set c", ["consumer_byte_rate=", "controller_mutation_rate="]),
        ("topics create t --config cleanup", ["cleanup.policy="]),
        ("serve --override num.part", ["num.partitions="]),
        ("produce t --producer-property linger", ["linger.ms="]),
        ("consume t --consumer-property isolation", ["isolation.level="]),
        ("produce t --partitioner mur", ["murmur2", "murmur2_random"]),
        ("topics cr", ["create"]),
    ],
)
def test_keys_need_no_broker(line: str, expected: list[str]) -> None:
    assert completed(f"ottla {line}") == expected


def test_what_bash_takes_for_a_word_of_its_own_is_not_said_twice(named: str) -> None:
    """Behind `--group=` bash completes what stands there alone."""
    assert completed(f"ottla consume zebra -b {named} --group=zebra-r") == ["zebra-readers"]


def test_no_broker_completes_to_nothing_and_says_nothing() -> None:
    assert completed("ottla consume -b 127.0.0.1:1 zeb") == []
    assert completed("ottla consume -b nonsense:x zeb") == []


def test_a_broker_that_does_not_answer_is_not_waited_for() -> None:
    from ottla.cli import suggestions

    assert suggestions.TIMEOUT_S <= 1
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun = time.monotonic()
        assert completed(f"ottla consume -b 127.0.0.1:{silent.getsockname()[1]} zeb") == []
        assert time.monotonic() - begun < 30, "the client's own patience is 60 s"


def test_bash_itself_completes_keys_and_topics(named: str, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    program = tmp_path / "ottla"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ottla "$@"\n')
    program.chmod(0o755)
    host, _, port = named.rpartition(":")
    script = CliRunner().invoke(main, ["completion", "bash"]).output
    steps = f"""{script}
COMP_LINE='ottla consume -b {named} zebra-c' COMP_POINT=200
COMP_WORDS=(ottla consume -b {host} : {port} zebra-c) COMP_CWORD=6
_ottla_completion ottla
echo "${{COMPREPLY[@]}}"
COMPREPLY=()
COMP_LINE='ottla configs alter -t zebra --set retention.m' COMP_POINT=200
COMP_WORDS=(ottla configs alter -t zebra --set retention.m) COMP_CWORD=6
_ottla_completion ottla
echo "${{COMPREPLY[@]}}"
"""
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [bash, "--norc"], input=steps, capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert done.stdout.split() == ["zebra-crossing", "retention.ms="], done.stderr
