"""`topics alter`, `configs describe` and `config`: growing, and who set which key."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kit.broker import BrokerProcess
from kit.certificates import certificates
from kit.command import Said, run

from ottla.cli.main import main
from ottla.client import blocking


def ask(broker: BrokerProcess, *arguments: str) -> Said:
    return run(*arguments, "--bootstrap-server", broker.bootstrap)


def reported(*arguments: object, environment: dict[str, str] | None = None) -> dict[str, dict[str, Any]]:
    said = run("config", *arguments, "--json", environment=environment)
    assert said.status == 0, said.err
    return {row["name"]: row for row in map(json.loads, said.out.splitlines())}


# --- topics alter


def test_a_topic_grows_and_takes_records_at_once(broker: BrokerProcess, topic: str) -> None:
    ask(broker, "topics", "create", topic, "-p", "2")
    checked = f"{topic} can have 3 partitions (not done, only checked)\n"
    assert ask(broker, "topics", "alter", topic, "--partitions", "3", "--dry-run").out == checked
    assert ask(broker, "topics", "alter", topic, "-p", "3", "--validate-only").out == checked, (
        "as it was spelled before"
    )
    assert ask(broker, "topics", "alter", topic, "-p", "5").out == f"{topic} has 5 partitions\n"
    described = json.loads(ask(broker, "topics", "describe", topic, "--json").out)
    assert [one["partition"] for one in described["partitions"]] == [0, 1, 2, 3, 4]


def test_a_topic_never_shrinks(broker: BrokerProcess, topic: str) -> None:
    ask(broker, "topics", "create", topic, "-p", "2")
    said = ask(broker, "topics", "alter", topic, "-p", "2")
    assert said.status == 1
    assert said.line.startswith(f"ottla: {topic}: ")
    assert said.line.endswith("(INVALID_PARTITIONS)")


def test_one_unknown_topic_does_not_keep_the_others_from_growing(broker: BrokerProcess, topic: str) -> None:
    ask(broker, "topics", "create", topic)
    said = ask(broker, "topics", "alter", topic, "no-such-topic", "-p", "2")
    assert (said.status, said.out) == (1, f"{topic} has 2 partitions\n")
    assert said.line.endswith("(UNKNOWN_TOPIC_OR_PARTITION)")


# --- configs describe


def test_a_topics_own_keys_are_shown_with_what_set_them(broker: BrokerProcess, topic: str) -> None:
    ask(broker, "topics", "create", topic, "-c", "retention.ms=1000")
    lines = ask(broker, "configs", "describe", "--topic", topic).out.splitlines()
    assert lines[0] == f"topic {topic}"
    assert [line.split() for line in lines[1:]] == [["key", "value", "set", "by"], ["retention.ms", "1000", "topic"]]
    full = ask(broker, "configs", "describe", "--topic", topic, "--all").out
    assert ["segment.bytes", "1073741824", "default"] in [line.split() for line in full.splitlines()]


def test_what_a_topic_inherits_names_the_brokers_key(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", overrides={"log.retention.hours": "3"}) as own:
        ask(own, "topics", "create", "t")
        said = ask(own, "configs", "describe", "-t", "t")
        assert said.out.splitlines()[-1].split() == ["retention.ms", "10800000", "broker", "(log.retention.hours=3)"]
        (row,) = map(json.loads, ask(own, "configs", "describe", "--broker", "--json").out.splitlines())
    assert (row["type"], row["name"]) == ("broker", "1")
    by_name = {one["name"]: one for one in row["configs"]}
    assert by_name["log.retention.hours"]["origin"] == "STATIC_BROKER"
    assert "node.id" not in by_name


def test_an_unknown_resource_is_one_line(broker: BrokerProcess) -> None:
    assert "UNKNOWN_TOPIC_OR_PARTITION" in ask(broker, "configs", "describe", "-t", "no-such-topic").line
    for arguments in (["describe", "--broker", "77"], ["alter", "--broker", "77", "--set", "log.retention.ms=1"]):
        assert "the cluster has no broker 77 at the moment; it has 1 (" in ask(broker, "configs", *arguments).line
    assert ask(broker, "configs", "describe", "--broker", "x").status == 2


# --- config


def test_each_key_names_the_place_that_set_it(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlog.retention.hours=3\nsasl.jaas.config=secret\n")
    environment = {"KAFKA_NUM_PARTITIONS": "4", "CLUSTER_ID": "abc"}
    rows = reported(file, "--override", "log.segment.bytes=2048", "--effective", environment=environment)
    origins = {name: (rows[name]["value"], rows[name]["origin"]) for name in rows}
    assert origins["num.partitions"] == ("4", "environment KAFKA_NUM_PARTITIONS")
    assert origins["ottla.cluster.id"] == ("abc", "environment CLUSTER_ID")
    assert origins["log.segment.bytes"] == ("2048", "--override")
    assert origins["log.retention.ms"] == ("10800000", "server.properties:2")
    assert rows["log.retention.ms"]["set_by_key"] == "log.retention.hours"
    assert origins["message.max.bytes"] == ("1048588", "default")
    assert origins["sasl.jaas.config"] == ("[hidden]", "server.properties:3")


def test_one_variable_makes_no_default_vanish(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("")
    plain = reported(file, "--effective")
    changed = reported(file, "--effective", environment={"KAFKA_LOG_SEGMENT_BYTES": "2048"})
    assert [name for name in plain if plain[name] != changed[name]] == ["log.segment.bytes"]


def test_without_effective_only_what_is_set_is_shown() -> None:
    assert list(reported("--override", "num.partitions=4")) == ["num.partitions"]
    assert run("config").out == "nothing is set; --effective shows every key\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--override", "num.partitions=x"], "num.partitions=x: must be an integer of at least 1 (--override)"),
        (["nothing.properties"], "nothing.properties: cannot be read"),
    ],
)
def test_a_wrong_configuration_is_one_line(arguments: list[str], words: str) -> None:
    said = run("config", *arguments)
    assert (said.status, said.out) == (1, "")
    assert words in said.line


@pytest.mark.parametrize("command", [["config"], ["serve"], ["ping", "--serving"]])
def test_a_file_that_may_not_be_read_is_one_line(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=4\n")

    def refuse(self: Path, mode: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(os, "access", lambda *_, **__: False)  # the tests may run as root, who may read everything
    monkeypatch.setattr(Path, "open", refuse)
    said = run(*command, path)
    assert (said.status, said.line) == (1, f"ottla: {path}: cannot be read: Permission denied")


def test_warnings_do_not_mix_with_the_rows() -> None:
    said = run("config", "--override", "num.partition=4")
    assert "did you mean num.partitions?" in said.line
    assert said.status == 0


# --- configs alter


def test_a_secret_that_is_set_is_not_shown(tmp_path: Path) -> None:
    overrides = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", **certificates().server_overrides()}
    key = "listener.name.ssl.ssl.key.password"
    with BrokerProcess(tmp_path, overrides) as broker:
        said = ask(broker, "configs", "alter", "--broker", "1", "--set", f"{key}=s3cret")
    assert said.out == f"broker 1: {key}=[hidden]\n"


def rows(broker: BrokerProcess, *arguments: str) -> list[list[str]]:
    """The rows of a description, without its heads."""
    lines = ask(broker, "configs", "describe", *arguments).out.splitlines()
    return [line.split() for line in lines[2:]]


def test_a_topics_keys_are_set_and_deleted_and_its_lists_grow(broker: BrokerProcess, topic: str) -> None:
    ask(broker, "topics", "create", topic, "-c", "segment.ms=5000")
    said = ask(
        broker, "configs", "alter", "-t", topic, "--set", "retention.ms=7", "--delete", "segment.ms",
        "--append", "cleanup.policy=compact",
    )  # fmt: skip
    assert said.out == f"topic {topic}: retention.ms=7, segment.ms deleted, cleanup.policy+=compact\n"
    reported = rows(broker, "-t", topic)
    assert reported == [["cleanup.policy", "delete,compact", "topic"], ["retention.ms", "7", "topic"]]
    ask(broker, "configs", "alter", "-t", topic, "--subtract", "cleanup.policy=delete")
    assert rows(broker, "-t", topic)[0] == ["cleanup.policy", "compact", "topic"]


@pytest.mark.parametrize(
    ("resource", "key", "line"),
    [
        (["-t", "{topic}"], "retention.mss", "retention.mss is not a key of topic {topic}: did you mean retention.ms?"),
        (["--broker", "1"], "nothing.like.it", "nothing.like.it is not a key of broker 1"),
        (["--broker", "1"], "listeners", "broker 1: listeners cannot be changed while the broker runs"),
        (["--all-brokers"], "log.retention.mss", "log.retention.mss is not a key of all brokers: did you mean"),
        (["--group", "g"], "session.timeout", "session.timeout is not a key of group g"),
        (["--loggers", "1"], "nobody", "loggers of broker 1: Logger nobody does not exist! (INVALID_CONFIG)"),
    ],
)
def test_a_key_that_cannot_be_there_is_not_deleted(
    broker: BrokerProcess, topic: str, resource: list[str], key: str, line: str
) -> None:
    ask(broker, "topics", "create", topic)
    arguments = [one.format(topic=topic) for one in resource]
    said = run("configs", "alter", *arguments, "--delete", key, "--bootstrap-server", broker.bootstrap)
    assert said.status == 1
    assert said.err.startswith(f"ottla: {line.format(topic=topic)}")
    assert said.err.count("\n") == 1


def test_a_key_that_is_not_set_may_be_deleted(broker: BrokerProcess, topic: str) -> None:
    ask(broker, "topics", "create", topic)
    said = ask(broker, "configs", "alter", "-t", topic, "--broker", "1", "--delete", "compression.type")
    assert said.out == f"topic {topic}: compression.type deleted\nbroker 1: compression.type deleted\n"


def test_errors_name_the_broker_and_all_brokers(broker: BrokerProcess) -> None:
    for resource, words in ((["--broker", "1"], "broker 1"), (["--all-brokers"], "all brokers")):
        said = run("configs", "alter", *resource, "--set", "log.retention.ms=x", "-b", broker.bootstrap)
        assert (said.status, said.err.split(": ")[:2]) == (1, ["ottla", words])


def test_a_dry_run_changes_nothing(broker: BrokerProcess, topic: str) -> None:
    ask(broker, "topics", "create", topic)
    said = ask(broker, "configs", "alter", "-t", topic, "--set", "retention.ms=7", "--dry-run")
    assert said.out == f"topic {topic}: retention.ms=7 (not done, only checked)\n"
    assert rows(broker, "-t", topic) == []


def test_brokers_groups_and_loggers_are_changed_and_survive_a_restart(own_broker: BrokerProcess) -> None:
    alter = ("configs", "alter")
    assert (
        ask(own_broker, *alter, "--broker", "1", "--set", "log.retention.ms=7").out == "broker 1: log.retention.ms=7\n"
    )
    assert ask(own_broker, *alter, "--all-brokers", "--set", "log.roll.ms=9").out == "all brokers: log.roll.ms=9\n"
    assert ask(own_broker, *alter, "-g", "g", "--set", "consumer.session.timeout.ms=50000").out.startswith("group g: ")
    assert ask(own_broker, *alter, "--loggers", "1", "--set", "ottla.dispatch=DEBUG").out.startswith("loggers of ")
    assert ["ottla.dispatch", "DEBUG", "logger"] in rows(own_broker, "--loggers")
    own_broker.kill()
    own_broker.start()
    by_key = {row[0]: row[1:] for row in rows(own_broker, "--broker")}
    assert by_key["log.retention.ms"] == ["7", "broker,", "while", "it", "runs"]
    assert by_key["log.roll.ms"] == ["9", "all", "brokers,", "while", "they", "run"]
    assert rows(own_broker, "--all-brokers") == [["log.roll.ms", "9", "all", "brokers,", "while", "they", "run"]]
    assert rows(own_broker, "--group", "g") == [["consumer.session.timeout.ms", "50000", "group"]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-t", "no-such-topic", "--set", "retention.ms=1"], "The topic 'no-such-topic' does not exist."),
        (
            ["-t", "TOPIC", "--set", "log.retention.hours=3"],
            "Unknown topic config name: log.retention.hours; set retention.ms=10800000 instead (INVALID_CONFIG)",
        ),
        (["-t", "TOPIC", "--set", "retention.minutes=-1"], "; set retention.ms=-1 instead"),
        (["-t", "TOPIC", "--set", "log.cleanup.policy=compact"], "; set cleanup.policy=compact instead"),
        (["-t", "TOPIC", "--set", "log.retention.hours=x"], "; set retention.ms instead"),
        (["-t", "TOPIC", "--set", "retention.mss=1"], "; did you mean retention.ms?"),
        (["--broker", "1", "--set", "log.retention.hours=3"], "; set log.retention.ms=10800000 instead"),
        (["--all-brokers", "--set", "retention.ms=3"], "; set log.retention.ms=3 instead"),
        (["--all-brokers", "--set", "log.retention.m=3"], "; did you mean log.retention.ms?"),
        (["-g", "g", "--set", "group.consumer.session.timeout.ms=50000"], "; set consumer.session.timeout.ms=50000"),
        (["--broker", "1", "--set", "node.id=5"], "Cannot update these configs dynamically: Set(node.id)"),
        (["--all-brokers", "--set", "log.retention.ms=x"], "Invalid value x for configuration log.retention.ms"),
    ],
)
def test_what_cannot_be_changed_is_one_line(
    broker: BrokerProcess, topic: str, arguments: list[str], words: str
) -> None:
    if "TOPIC" in arguments:
        ask(broker, "topics", "create", topic)
    arguments = [topic if one == "TOPIC" else one for one in arguments]
    assert words in ask(broker, "configs", "alter", *arguments).line


@pytest.mark.parametrize(
    "arguments",
    [
        ["--set", "retention.ms=1"],
        ["-t", "t"],
        ["-t", "t", "--set", "retention.ms"],
        ["-t", "t", "--delete", "retention.ms=1"],
        ["-t", "t", "--append", "=x"],
    ],
)
def test_arguments_that_say_too_little_are_refused_before_anything_is_dialled(arguments: list[str]) -> None:
    assert run("configs", "alter", *arguments, "--bootstrap-server", "127.0.0.1:1").status == 2


def test_more_insync_replicas_than_there_are_hold_nothing_up(broker: BrokerProcess, topic: str) -> None:
    """As in Kafka, which asks for no more of them than the topic has replicas (`effectiveMinIsr`)."""
    ask(broker, "topics", "create", topic, "-c", "min.insync.replicas=3")
    done = CliRunner().invoke(
        main, ["produce", topic, "--acks", "all", "-b", broker.bootstrap], input="x\n", catch_exceptions=False
    )
    assert (done.exit_code, done.output) == (0, "")
    assert rows(broker, "-t", topic) == [["min.insync.replicas", "3", "topic"]]
    assert ask(broker, "consume", topic, "-B", "-e").out == "x\n"


def test_loggers_and_brokers_are_named_one_by_one(broker: BrokerProcess) -> None:
    every = ask(broker, "configs", "describe", "--loggers").out
    assert every.startswith("loggers of broker 1\n")
    assert ask(broker, "configs", "describe", "--loggers", "1").out == every
    both = ask(broker, "configs", "describe", "--broker", "1", "--loggers", "--json").out.splitlines()
    assert [json.loads(line)["type"] for line in both] == ["broker", "broker_logger"]
    assert ask(broker, "configs", "describe", "--loggers", "x").status == 2


# --- --dry-run


def test_a_dry_run_of_topics_changes_nothing(broker: BrokerProcess, topic: str) -> None:
    checked = "(not done, only checked)"
    assert ask(broker, "topics", "create", topic, "--dry-run").out == f"{topic} can be created {checked}\n"
    assert ask(broker, "topics", "describe", topic).status == 1
    assert ask(broker, "topics", "create", topic, "--dry-run", "-c", "retention.ms=x").status == 1
    ask(broker, "topics", "create", topic)
    words = f"{topic} can be deleted: 1 partition, 0 records {checked}\n"
    assert ask(broker, "topics", "delete", topic, "--dry-run").out == words
    assert ask(broker, "topics", "describe", topic).status == 0
    assert ask(broker, "topics", "delete", "no-such-topic", "--dry-run").line.endswith("(UNKNOWN_TOPIC_OR_PARTITION)")


def test_a_dry_run_of_a_reset_is_the_default_and_excludes_execute(broker: BrokerProcess, topic: str) -> None:
    ask(broker, "topics", "create", topic)
    reset = ("groups", "reset", f"g-{topic}", "--topic", topic, "--to-earliest")
    plain = ask(broker, *reset)
    assert plain.out.endswith("nothing was changed; --execute does it\n")
    assert ask(broker, *reset, "--dry-run") == plain
    assert ask(broker, *reset, "--dry-run", "--execute").status == 2


def test_a_default_replication_factor_of_three_is_warned_of_once_and_groups_work(tmp_path: Path) -> None:
    """As in any server.properties of three nodes."""
    file = tmp_path / "server.properties"
    file.write_text("default.replication.factor=3\noffsets.topic.replication.factor=3\n")
    warning = "default.replication.factor=3: counts as 1, there is one broker (server.properties:1)"
    checked = run("config", file)
    assert [line for line in checked.err.splitlines() if "default.replication.factor" in line] == [f"ottla: {warning}"]
    overrides = {"default.replication.factor": "3", "offsets.topic.replication.factor": "3"}
    with BrokerProcess(tmp_path / "data", overrides) as own:
        ask(own, "topics", "create", "t")
        with blocking.Producer(own.bootstrap) as producer:
            producer.send("t", b"x")
        read = ask(own, "consume", "t", "-g", "g", "--from-beginning", "-n", "1")
        assert (read.status, read.out) == (0, "x\n")
        assert "INVALID_REPLICATION_FACTOR" in ask(own, "topics", "create", "u", "--replication-factor", "3").line
    warned = [line for line in own.output.splitlines() if "WARNING" in line]
    assert len([line for line in warned if "default.replication.factor=3: counts as 1" in line]) == 1


def test_an_internal_key_of_a_group_can_be_deleted_although_it_is_not_shown(broker: BrokerProcess, topic: str) -> None:
    for _ in range(2):  # it is not set the second time
        said = run(
            "configs", "alter", "--group", topic, "--delete", "streams.num.warmup.replicas", "-b", broker.bootstrap
        )
        assert (said.status, said.out) == (0, f"group {topic}: streams.num.warmup.replicas deleted\n")
