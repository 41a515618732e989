"""`topics delete-records` against a real broker: what it deletes, what it asks, and what it refuses."""

from __future__ import annotations

import json
from unittest import mock

import pytest
from click.testing import CliRunner
from kit.broker import BrokerProcess
from kit.command import Said, run

from ottla.cli.failures import Failure
from ottla.cli.main import main
from ottla.cli.topics_delete_records import Before, Trim, parse_before, plan_trim
from ottla.client import TopicPartition
from ottla.client.blocking import Admin, Producer
from ottla.diagnosis.group_facts import Edges


@pytest.fixture
def filled(broker: BrokerProcess, topic: str) -> str:
    """A topic with two partitions: ten records in the first, stamped 0 to 9 s, and four in the second, 0 to 3 s."""
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic, partitions=2, replication_factor=1, configs={"retention.ms": "-1"})
    with Producer(broker.bootstrap) as producer:
        for partition, count in ((0, 10), (1, 4)):
            for number in range(count):
                producer.send(topic, b"%d" % number, partition=partition, timestamp_ms=1000 * number)
    return topic


def delete_records(broker: BrokerProcess, *arguments: object, status: int = 0) -> Said:
    said = run("topics", "delete-records", *arguments, "-b", broker.bootstrap)
    assert said.status == status, said.err
    return said


def starts(broker: BrokerProcess, topic: str) -> list[int]:
    (row,) = map(json.loads, run("topics", "describe", topic, "--json", "-b", broker.bootstrap).out.splitlines())
    return [one["start_offset"] for one in row["partitions"]]


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        (["--before", "3", "-p", "0"], [3, 0]),
        (["--before", "4", "-p", "1"], [0, 4]),
        (["--before", "-3"], [7, 1]),
        (["--before", "-7"], [3, 0]),
        (["--before", "latest"], [10, 4]),
        (["--before", "latest", "-p", "1"], [0, 4]),
        (["--before", "@2500"], [3, 3]),
        (["--before", "1970-01-01T00:00:05Z"], [5, 4]),
    ],
)
def test_each_partition_begins_where_that_was_asked_for(
    broker: BrokerProcess, filled: str, arguments: list[str], left: list[int]
) -> None:
    delete_records(broker, filled, *arguments, "--yes")
    assert starts(broker, filled) == left


def test_the_new_starts_are_printed(broker: BrokerProcess, filled: str) -> None:
    assert delete_records(broker, filled, "--before", "-5", "--yes").out.splitlines() == [
        f"{filled}-0: 5 records deleted, the log starts at 5",
        f"{filled}-1: the log starts at 0",
    ]
    rows = [
        json.loads(line) for line in delete_records(broker, filled, "--before", "-2", "-y", "--json").out.splitlines()
    ]
    assert rows == [
        {
            "topic": filled,
            "partition": 0,
            "start_offset": 5,
            "end_offset": 10,
            "new_start_offset": 8,
            "records_deleted": 3,
        },
        {
            "topic": filled,
            "partition": 1,
            "start_offset": 0,
            "end_offset": 4,
            "new_start_offset": 2,
            "records_deleted": 2,
        },
    ]


def test_a_dry_run_deletes_nothing_and_shows_what_would_be(broker: BrokerProcess, filled: str) -> None:
    assert delete_records(broker, filled, "--before", "@2500", "--dry-run").out.splitlines() == [
        "  partition  start  end  new start  records deleted",
        "          0      0   10          3                3",
        "          1      0    4          3                3",
        "6 records can be deleted (not done, only checked)",
    ]
    (row,) = map(
        json.loads, delete_records(broker, filled, "--before", "2", "-p", 1, "--dry-run", "--json").out.splitlines()
    )
    assert (row["new_start_offset"], row["records_deleted"]) == (2, 2)
    assert starts(broker, filled) == [0, 0]


def test_it_asks_before_it_deletes(broker: BrokerProcess, filled: str) -> None:
    words = ["topics", "delete-records", filled, "--before", "latest", "-b", broker.bootstrap]
    with mock.patch("ottla.cli.questions.is_terminal", return_value=True):
        answers = [CliRunner().invoke(main, words, input=answer) for answer in ("n\n", "\n")]
        assert [one.exit_code for one in answers] == [1, 1]
        assert f"Delete 14 records of {filled} permanently? [y/N]: " in answers[0].stderr
        assert starts(broker, filled) == [0, 0]
        yes = CliRunner().invoke(main, words, input="y\n")
    assert yes.exit_code == 0
    assert starts(broker, filled) == [10, 4]


def test_without_a_terminal_it_needs_yes(broker: BrokerProcess, filled: str) -> None:
    said = delete_records(broker, filled, "--before", "latest", status=1)
    assert said.line == "ottla: nothing is deleted: there is no terminal to ask at; --yes does it without a question"
    assert starts(broker, filled) == [0, 0]


def test_records_that_are_written_after_the_question_are_kept(broker: BrokerProcess, filled: str) -> None:
    def answer(*_: object, **__: object) -> None:
        with Producer(broker.bootstrap) as producer:
            producer.send(filled, b"late", partition=1).result()

    with mock.patch("ottla.cli.topics_delete_records.ask", answer):
        delete_records(broker, filled, "--before", "latest")
    assert starts(broker, filled) == [10, 4]


def test_what_is_deleted_already_is_no_question(broker: BrokerProcess, filled: str) -> None:
    delete_records(broker, filled, "--before", "5", "-p", "0", "--yes")
    assert delete_records(broker, filled, "--before", "3", "-p", "0").out.endswith("there is nothing to delete\n")
    assert starts(broker, filled) == [5, 0]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--before", "5"], 1, " has 2 partitions; say with --partition whose offset you mean"),
        (["--before", "11", "-p", "0"], 1, "-0 ends before offset 10: 11 is after it; latest deletes all records"),
        (["--before", "latest", "-p", "7"], 1, " has no partition 7; it has 0 to 1"),
        (["--before", "yesterday"], 2, "neither an offset nor a time such as 2023-11-14T22:13:20 nor latest"),
        (["--before", "earliest"], 2, "there is nothing before it; latest deletes all records"),
        (["--before", "@-1"], 2, "must not lie before 1970"),
        (["--before", "1969-01-01"], 2, "must not lie before 1970"),
        (["--before", str(2**63)], 2, "no partition has so many offsets"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_deletes_nothing(
    broker: BrokerProcess, filled: str, arguments: list[str], status: int, words: str
) -> None:
    assert words in delete_records(broker, filled, *arguments, "--yes", status=status).line
    assert starts(broker, filled) == [0, 0]


def test_a_topic_that_is_only_compacted_is_refused_with_its_reason(broker: BrokerProcess, topic: str) -> None:
    run("topics", "create", topic, "-c", "cleanup.policy=compact", "-b", broker.bootstrap)
    for how in ("--dry-run", "--yes"):
        said = delete_records(broker, topic, "--before", "latest", how, status=1)
        assert said.line.startswith(f"ottla: {topic} has cleanup.policy=compact: ")


def test_internal_topics_are_refused(broker: BrokerProcess, filled: str) -> None:
    run("consume", filled, "-g", f"g-{filled}", "-B", "-n", "1", "-b", broker.bootstrap)
    said = delete_records(broker, "__consumer_offsets", "--before", "latest", "--yes", status=1)
    assert said.line == "ottla: __consumer_offsets is internal: no broker deletes records of it by offset"


@pytest.mark.parametrize("name", ["trim-prefix", "truncate", "purge"])
def test_the_names_of_other_tools_lead_to_it(name: str) -> None:
    assert "did you mean delete-records?" in run("topics", name).err


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("0", Before(offset=0)),
        ("-10", Before(offset=-10)),
        ("latest", Before(is_latest=True)),
        ("@1700000000000", Before(timestamp_ms=1_700_000_000_000)),
        ("2023-11-14T22:13:20", Before(timestamp_ms=1_700_000_000_000)),
        ("@2023-11-14T22:13:20", Before(timestamp_ms=1_700_000_000_000)),
    ],
)
def test_an_offset_and_a_time_are_told_apart(text: str, meant: Before) -> None:
    assert parse_before(text) == meant


def test_a_log_never_begins_outside_of_itself() -> None:
    partition, edges = TopicPartition("t", 0), Edges(5, 20, 20)
    assert plan_trim(partition, Before(offset=2), edges, None) == Trim(5, 20, 5)
    assert plan_trim(partition, Before(offset=-100), edges, None) == Trim(5, 20, 5)
    assert plan_trim(partition, Before(offset=20), edges, None) == Trim(5, 20, 20)
    # A record that was written since the end was asked for, and is the first of that time.
    assert plan_trim(partition, Before(timestamp_ms=1), edges, 25) == Trim(5, 20, 20)
    assert plan_trim(partition, Before(timestamp_ms=1), edges, None) == Trim(5, 20, 20)
    with pytest.raises(Failure, match="t-0 ends before offset 20"):
        plan_trim(partition, Before(offset=21), edges, None)
