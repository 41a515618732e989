"""`ottla consume --share-group` accepts what it has printed, and nothing else."""

from __future__ import annotations

import signal
from subprocess import PIPE

import pytest
from click.testing import CliRunner
from kit.broker import BrokerProcess
from kit.command import COMMANDS, in_process, run
from kit.share_groups import begin_with_the_first_record
from kit.streams_groups import streams_member

from ottla.cli.main import main
from ottla.client import TopicPartition
from ottla.client.blocking import Admin, Producer

TIMEOUT_S = 60


@pytest.fixture
def group(broker: BrokerProcess, topic: str) -> str:
    """A share group that begins with the first of the ten records of a topic."""
    with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
        admin.create_topic(topic, partitions=1, replication_factor=1)
        for number in range(10):
            producer.send(topic, b"%d" % number, key=b"k")
    begin_with_the_first_record(broker.bootstrap, f"g-{topic}")
    return f"g-{topic}"


def start_offset(broker: BrokerProcess, topic: str, group: str) -> int:
    with Admin(broker.bootstrap) as admin:
        found = admin.share_group_offsets({group: None})[group][TopicPartition(topic, 0)]
    assert found is not None
    return found.start_offset


def command(broker: BrokerProcess, topic: str, group: str, *options: str) -> list[str]:
    return ["consume", topic, "--share-group", group, "-b", broker.bootstrap, *options]


def test_each_run_prints_and_accepts_the_next_records(broker: BrokerProcess, topic: str, group: str) -> None:
    for first in (0, 3, 6):
        printed = "".join(f"0:{number}\tk\t{number}\n" for number in range(first, first + 3))
        assert in_process(*command(broker, topic, group, "-n", "3", "--keys", "--offsets")) == (0, printed, "")
        assert start_offset(broker, topic, group) == first + 3
    with Admin(broker.bootstrap) as admin:
        assert admin.describe_share_groups([group])[group].members == []


def test_ctrl_c_accepts_what_was_printed_and_leaves(broker: BrokerProcess, topic: str, group: str) -> None:
    running = COMMANDS.start(["-m", "ottla", *command(broker, topic, group)], stderr=PIPE)
    assert running.stdout is not None
    assert [running.stdout.readline() for _ in range(10)] == [b"%d\n" % number for number in range(10)]
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=TIMEOUT_S)
    assert (running.returncode, out, err) == (130, b"", b"")
    assert start_offset(broker, topic, group) == 10
    with Admin(broker.bootstrap) as admin:
        assert admin.describe_share_groups([group])[group].members == []


@pytest.mark.parametrize(
    "options",
    [
        *(["--group", "g"], ["--consumer-property", "group.id=g"], ["--from-beginning"], ["--offset", "3"]),
        *(["--timestamp", "0"], ["--partition", "0"], ["--exit-at-end"], ["--isolation", "read_committed"]),
        ["--group-protocol", "consumer"],
    ],
)
def test_what_a_share_group_decides_is_refused(options: list[str]) -> None:
    result = CliRunner().invoke(main, ["consume", "t", "--share-group", "s", "-b", "127.0.0.1:1", *options])
    assert result.exit_code == 2
    assert "cannot be used with --share-group" in " ".join(result.output.split())


def test_a_group_of_another_kind_is_refused_in_one_line_that_says_how_to_read_it(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.alter_group_offsets(f"{group}-c", {TopicPartition(topic, 0): 0})
        admin.alter_share_group_offsets(group, {TopicPartition(topic, 0): 0})
    as_share = f"is a share group: read it with --share-group {group}"
    as_streams = "is a streams group: only its application can be a member"
    with streams_member(broker.port, f"{group}-s", topic, partitions=1):
        for options, words in (
            (["--share-group", f"{group}-c"], f"is a consumer group: read it with --group {group}-c"),
            (["--share-group", f"{group}-s"], as_streams),
            (["--group", group], as_share),
            (["--group", group, "--group-protocol", "consumer"], as_share),
            (["--group", f"{group}-s"], as_streams),
        ):
            said = run("consume", topic, "-b", broker.bootstrap, *options)
            assert (said.status, said.out) == (1, "")
            assert words in said.line


def test_properties_are_those_of_a_share_consumer() -> None:
    arguments = ["consume", "t", "--share-group", "s", "-b", "127.0.0.1:1", "--consumer-property"]
    result = CliRunner().invoke(main, [*arguments, "share.acquire.mode=x"])
    assert result.exit_code == 2
    assert "share.acquire.mode must be one of batch_optimized, record_limit, not 'x'" in " ".join(result.output.split())
