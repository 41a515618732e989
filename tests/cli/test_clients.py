"""`topics`, `produce` and `consume` against a real broker; as processes of their own where signals and pipes matter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from click.testing import CliRunner
from kit.broker import BrokerProcess

from ottla.cli.main import main

TIMEOUT_S = 60.0


class Done(NamedTuple):
    """What a command has said."""

    stdout: bytes
    stderr: bytes


def ottla(broker: BrokerProcess | str, *arguments: str, stdin: bytes = b"", status: int = 0) -> Done:
    servers = broker if isinstance(broker, str) else broker.bootstrap
    result = CliRunner().invoke(main, [*arguments, "--bootstrap-server", servers], input=stdin)
    assert result.exit_code == status, result.output
    if status == 0:
        assert result.stderr == "", "nothing is said where nobody watches"
    return Done(result.stdout_bytes, result.stderr_bytes)


def line_of(done: Done) -> str:
    """The one line on standard error."""
    (line,) = done.stderr.decode().splitlines()
    return line


def consumed(broker: BrokerProcess, topic: str, *arguments: str) -> list[bytes]:
    done = ottla(broker, "consume", topic, "--from-beginning", "--exit-at-end", *arguments)
    return done.stdout.splitlines()


def json_of(broker: BrokerProcess, topic: str, *arguments: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in ottla(broker, "consume", topic, "--json", *arguments).stdout.splitlines()]


def test_lines_come_back_in_their_order(broker: BrokerProcess, topic: str) -> None:
    lines = [b"%d" % number for number in range(5000)]
    ottla(broker, "produce", topic, "--partition", "0", stdin=b"\n".join(lines) + b"\n")
    assert consumed(broker, topic) == lines


def test_bytes_that_are_no_text_and_a_last_line_without_an_end_survive(broker: BrokerProcess, topic: str) -> None:
    ottla(broker, "produce", topic, stdin=b"\xff\x00\r\n\n\xe4")
    assert ottla(broker, "consume", topic, "-B", "-e").stdout == b"\xff\x00\r\n\n\xe4\n"
    records = json_of(broker, topic, "-B", "-e")
    assert [record["value"] for record in records] == [{"base64": "/wAN"}, "", {"base64": "5A=="}]


@pytest.mark.parametrize(
    ("compression", "acks"),
    [
        ("none", "all"),
        ("gzip", "all"),
        ("snappy", "all"),
        ("lz4", "all"),
        ("zstd", "all"),
        ("none", "1"),
        ("none", "0"),
    ],
)
def test_keys_and_headers_with_each_compression(broker: BrokerProcess, topic: str, compression: str, acks: str) -> None:
    ottla(broker, "topics", "create", topic)
    arguments = ("-k", ":", "-H", "source=test", "-H", "n=1", "-z", compression, "--acks", acks)
    ottla(broker, "produce", topic, *arguments, stdin=b"ada:1815\nalan:19:12\n:none\n")
    records = json_of(broker, topic, "--from-beginning", "--max-messages", "3")
    assert [(one["key"], one["value"]) for one in records] == [("ada", "1815"), ("alan", "19:12"), ("", "none")]
    assert records[0]["headers"] == [["source", "test"], ["n", "1"]]
    fields = consumed(broker, topic, "--keys", "--headers", "--offsets", "--separator", "|")[0]
    assert fields == b"0:0|ada|source=test,n=1|1815"


def test_separators_know_the_escapes_of_a_format(broker: BrokerProcess, topic: str) -> None:
    ottla(broker, "produce", topic, "-k", r"\t", stdin=b"key\tvalue\n")
    ottla(broker, "produce", topic, "-k", r"\x3a\\", stdin=b"key:\\value\n")
    assert consumed(broker, topic, "--keys", "-s", r"\t|\\") == [b"key\t|\\value"] * 2
    ottla(broker, "produce", topic, "-k", r"\xff", stdin=b"no separator\n", status=1)
    for command in (["produce", topic, "-k"], ["consume", topic, "-s"]):
        refused = ottla(broker, *command, r"\q", status=2).stderr.decode()
        assert r"there is no escape \q; there are \n \r \t \\ \xHH" in " ".join(refused.split())


def test_a_line_without_the_separator_stops_and_keeps_what_was_sent(broker: BrokerProcess, topic: str) -> None:
    done = ottla(broker, "produce", topic, "-k", ":", stdin=b"a:1\nbroken\nb:2\n", status=1)
    assert line_of(done) == "ottla: line 2 was not sent: it has no separator ':'"
    assert consumed(broker, topic, "--keys") == [b"a\t1"]


def test_offsets_times_and_partitions_choose_where_to_start(broker: BrokerProcess, topic: str) -> None:
    ottla(broker, "topics", "create", topic, "--partitions", "2")
    for partition in ("0", "1"):
        ottla(broker, "produce", topic, "-p", partition, stdin=b"".join(b"%d\n" % n for n in range(10)))
    chosen = json_of(broker, topic, "-p", "1", "--offset", "7", "--exit-at-end")
    assert [(one["partition"], one["offset"]) for one in chosen] == [(1, 7), (1, 8), (1, 9)]
    last = json_of(broker, topic, "--offset", "-1", "--exit-at-end")
    assert sorted((int(str(one["partition"])), one["value"]) for one in last) == [(0, "9"), (1, "9")]
    since = str(chosen[0]["timestamp"])
    by_time = json_of(broker, topic, "-p", "1", "--timestamp", since, "--max-messages", "1")
    assert str(by_time[0]["timestamp"]) >= since
    assert json_of(broker, topic, "--timestamp", "2999-01-01", "--exit-at-end") == []


def test_max_messages_stops_after_exactly_so_many(broker: BrokerProcess, topic: str) -> None:
    ottla(broker, "produce", topic, stdin=b"a\nb\nc\n")
    assert consumed(broker, topic, "--max-messages", "2") == [b"a", b"b"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["-p", "7"], "has no partition 7; it has 0 to 1"),
        (["-p", "1", "-o", "5"], "-1 has no offset 5; it begins at 0 and ends before 0"),
        (["-o", "0"], "has 2 partitions; say with --partition whose offset you mean"),
    ],
)
def test_a_place_that_is_not_there_is_one_line(
    broker: BrokerProcess, topic: str, arguments: Sequence[str], line: str
) -> None:
    ottla(broker, "topics", "create", topic, "--partitions", "2")
    assert line_of(ottla(broker, "consume", topic, *arguments, status=1)).endswith(line)


@pytest.mark.parametrize(
    "command",
    [["consume", "no-such-topic"], ["topics", "describe", "no-such-topic"], ["topics", "delete", "no-such-topic"]],
)
def test_an_unknown_topic_is_one_line(broker: BrokerProcess, command: list[str]) -> None:
    line = line_of(ottla(broker, *command, status=1))
    assert line.startswith(("ottla: no-such-topic: ", "ottla: there is no topic no-such-topic: "))
    assert line.endswith("(UNKNOWN_TOPIC_OR_PARTITION)")


@pytest.mark.parametrize("command", [["topics", "describe"], ["configs", "describe", "--topic"]])
def test_a_misspelt_topic_is_answered_with_the_one_that_was_meant(
    broker: BrokerProcess, topic: str, command: list[str]
) -> None:
    ottla(broker, "topics", "create", topic)
    line = line_of(ottla(broker, *command, f"{topic}x", status=1))
    assert line.endswith(f"(UNKNOWN_TOPIC_OR_PARTITION). Did you mean {topic}?")


@pytest.mark.parametrize("command", [["ping"], ["topics", "list"]])
def test_a_name_without_an_address_is_no_broker_that_does_not_run(command: list[str]) -> None:
    line = line_of(ottla("no-such-host.invalid:9092", *command, status=1))
    assert "no-such-host.invalid:9092: the name cannot be resolved: " in line
    assert "Is it running" not in line


def test_a_keyless_record_of_a_compacted_topic_is_refused_in_one_sentence(broker: BrokerProcess, topic: str) -> None:
    ottla(broker, "topics", "create", topic, "-c", "cleanup.policy=compact")
    line = line_of(ottla(broker, "produce", topic, stdin=b"x\n", status=1))
    assert line == f"ottla: {topic}-0: a compacted topic takes no record without a key (INVALID_RECORD)"


@pytest.mark.parametrize("command", [["topics", "list"], ["consume", "t"], ["produce", "t"]])
def test_a_broker_that_is_not_there_is_one_line(command: list[str]) -> None:
    line = line_of(ottla("127.0.0.1:1", *command, stdin=b"x\n", status=1))
    assert line.startswith("ottla: no broker answers: ")
    assert "127.0.0.1:1" in line


def test_an_address_that_is_none_is_a_wrong_command_line() -> None:
    for address, more in (("nonsense:x", ""), ("localhost:99999", ": ports are from 1 to 65535"), ("", "")):
        said = ottla(address, "topics", "list", status=2).stderr.decode()
        assert said.endswith(f"Invalid value for '-b' / '--bootstrap-server': {address!r} is not HOST:PORT{more}\n")


def test_a_topics_life(broker: BrokerProcess, topic: str) -> None:
    created = ottla(broker, "topics", "create", topic, "-p", "3", "-c", "retention.ms=-1")
    assert created.stdout.decode() == f"created {topic}\n"
    assert topic in ottla(broker, "topics", "list").stdout.decode().split()
    assert "(TOPIC_ALREADY_EXISTS)" in line_of(ottla(broker, "topics", "create", topic, status=1))
    again = ottla(broker, "topics", "create", topic, "--if-not-exists")
    assert again.stdout.decode() == f"{topic} exists already\n"
    ottla(broker, "produce", topic, "-p", "2", stdin=b"x\ny\n")
    described = ottla(broker, "topics", "describe", topic).stdout.decode()
    assert "retention.ms=-1" in described
    assert described.splitlines()[-1].split() == ["2", "1", "0", "0", "2", "2"]
    reported = json.loads(ottla(broker, "topics", "describe", topic, "--json", "--configs").stdout)
    assert reported["configs"]["retention.ms"] == "-1"
    assert reported["configs"]["segment.bytes"] == "1073741824"
    assert [one["records"] for one in reported["partitions"]] == [0, 0, 2]
    assert ottla(broker, "topics", "delete", topic).stdout.decode() == f"deleted {topic}\n"
    assert topic not in ottla(broker, "topics", "list").stdout.decode().split()


def test_a_record_that_the_broker_refuses_is_one_line(broker: BrokerProcess, topic: str) -> None:
    ottla(broker, "topics", "create", topic, "-c", "max.message.bytes=100")
    line = line_of(ottla(broker, "produce", topic, stdin=b"x" * 200 + b"\n", status=1))
    assert line.startswith(f"ottla: {topic}-0: ")
    assert line.endswith("(MESSAGE_TOO_LARGE)")


def test_a_fenced_transaction_is_one_line(broker: BrokerProcess, topic: str) -> None:
    ottla(broker, "topics", "create", topic)
    command = [sys.executable, "-m", "ottla", "produce", topic, "-b", broker.bootstrap]
    with subprocess.Popen(
        [*command, "--producer-property", f"transactional.id={topic}"], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        while b"first" not in consumed(broker, topic):
            assert process.poll() is None
        ottla(broker, "produce", topic, "--producer-property", f"transactional.id={topic}", stdin=b"second\n")
        _, stderr = process.communicate(b"third\n", timeout=TIMEOUT_S)
    (line,) = stderr.decode().splitlines()
    assert line.startswith("ottla: ")
    assert "The transaction was not aborted" in line


def test_internal_topics_are_deleted_only_by_force(broker: BrokerProcess, topic: str) -> None:
    ottla(broker, "topics", "create", topic)
    ottla(broker, "consume", topic, "--group", f"group-of-{topic}", "--exit-at-end")
    refused = line_of(ottla(broker, "topics", "delete", topic, "__consumer_offsets", status=1))
    assert refused.startswith("ottla: nothing is deleted: __consumer_offsets has the committed offsets of all groups;")
    assert "--force" in refused
    assert topic in ottla(broker, "topics", "list").stdout.decode().split()
    assert "--force" in line_of(ottla(broker, "topics", "delete", "__transaction_state", "--dry-run", status=1))
    forced = ottla(broker, "topics", "delete", "__consumer_offsets", "--force", "--dry-run").stdout.decode()
    assert forced.startswith("__consumer_offsets can be deleted: ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-c", "segment.bytes=1"], "Invalid value 1 for configuration segment.bytes: must be an integer of at"),
        (
            ["-c", "segment.byte=1"],
            "Unknown topic config name: segment.byte; did you mean segment.bytes? (INVALID_CONFIG)",
        ),
        (["--replication-factor", "3"], "(INVALID_REPLICATION_FACTOR)"),
    ],
)
def test_a_topic_that_cannot_be_is_one_line(
    broker: BrokerProcess, topic: str, arguments: list[str], words: str
) -> None:
    assert words in line_of(ottla(broker, "topics", "create", topic, *arguments, status=1))


def test_the_null_marker_writes_tombstones_and_records_without_a_key(broker: BrokerProcess, topic: str) -> None:
    given = b"anna:NULL\nNULL:tea\nben:NULLS\n"
    ottla(broker, "produce", topic, "-k", ":", "--null-marker", "NULL", stdin=given)
    out = ottla(broker, "consume", topic, "--from-beginning", "--exit-at-end", "--json").stdout
    records = [json.loads(line) for line in out.splitlines()]
    assert [(one["key"], one["value"]) for one in records] == [("anna", None), (None, "tea"), ("ben", "NULLS")]


def test_a_reader_that_goes_away_ends_a_waiting_consumer(broker: BrokerProcess, topic: str) -> None:
    ottla(broker, "produce", topic, stdin=b"a\nb\nc\n")
    command = f"{sys.executable} -m ottla consume {topic} -b {broker.bootstrap} --from-beginning | head -2"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, timeout=TIMEOUT_S, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"a\nb\n", b"")


def test_ctrl_c_ends_a_consumer_at_once_and_quietly(broker: BrokerProcess, topic: str) -> None:
    ottla(broker, "produce", topic, stdin=b"a\n")
    command = [sys.executable, "-m", "ottla", "consume", topic, "-b", broker.bootstrap, "--from-beginning"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdout is not None
    assert running.stdout.readline() == b"a\n"  # it runs, and what it read is there without waiting for more
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=TIMEOUT_S)
    assert (running.returncode, out, err) == (130, b"", b"")


def test_ctrl_c_ends_a_producer_that_waits_for_somebody_to_type(broker: BrokerProcess, topic: str) -> None:
    reader, writer = os.pipe()
    command = [sys.executable, "-m", "ottla", "produce", topic, "-b", broker.bootstrap]
    running = subprocess.Popen(command, stdin=reader, stderr=subprocess.PIPE)
    os.close(reader)
    os.write(writer, b"typed\n")
    try:
        ottla(broker, "topics", "create", topic, "--if-not-exists")  # so that the consumer finds it
        first = ottla(broker, "consume", topic, "--from-beginning", "--max-messages", "1")
        assert first.stdout == b"typed\n", "a line is sent when it is typed, not when the input ends"
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=TIMEOUT_S)
    finally:
        os.close(writer)
    assert (running.returncode, err) == (130, b"")


def test_ctrl_c_ends_a_producer_in_the_middle_of_its_input_quietly(broker: BrokerProcess, topic: str) -> None:
    ottla(broker, "topics", "create", topic)
    command = [sys.executable, "-m", "ottla", "produce", topic, "-b", broker.bootstrap]
    endless = subprocess.Popen(["yes"], stdout=subprocess.PIPE)
    running = subprocess.Popen(command, stdin=endless.stdout, stderr=subprocess.PIPE)
    assert endless.stdout is not None
    endless.stdout.close()
    try:
        ottla(broker, "consume", topic, "--from-beginning", "--max-messages", "1")
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=TIMEOUT_S)
    finally:
        endless.kill()
        endless.wait()
    assert (running.returncode, err) == (130, b""), "no task and no thread complains about the closed producer"
