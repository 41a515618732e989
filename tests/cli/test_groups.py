"""`groups` against a real broker: what it tells, what it changes, and what it refuses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition
from kit.broker import BrokerProcess

from ottla.cli.main import main
from ottla.client import TopicPartition
from ottla.client.blocking import Admin, Consumer, Producer


def run(broker: BrokerProcess, *arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(main, [*arguments, "--bootstrap-server", broker.bootstrap])
    assert result.exit_code == status, result.output
    return result


def lines(broker: BrokerProcess, *arguments: str) -> list[str]:
    return run(broker, *arguments).stdout.splitlines()


def objects(broker: BrokerProcess, *arguments: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in lines(broker, *arguments, "--json")]


@pytest.fixture
def group(topic: str) -> str:
    """A group id of the test's own."""
    return f"g-{topic}"


@pytest.fixture
def filled(broker: BrokerProcess, topic: str) -> str:
    """A topic with two partitions, ten records in each, stamped 0 to 9."""
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic, partitions=2, replication_factor=1, configs={"retention.ms": "-1"})
    with Producer(broker.bootstrap) as producer:
        for number in range(20):
            producer.send(topic, b"%d" % number, partition=number % 2, timestamp_ms=number // 2)
    return topic


@contextmanager
def member(broker: BrokerProcess, topic: str, group: str, **options: object) -> Iterator[Consumer]:
    """A consumer that has its partitions."""
    options = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **options}
    with Consumer(broker.bootstrap, group_id=group, **options) as consumer:
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.getmany(timeout_ms=50)
        yield consumer


def commit_at(broker: BrokerProcess, group: str, topic: str, *offsets: int) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.alter_group_offsets(group, {TopicPartition(topic, index): at for index, at in enumerate(offsets)})


def committed(broker: BrokerProcess, group: str) -> list[int]:
    with Admin(broker.bootstrap) as admin:
        found = admin.list_group_offsets({group: None})[group]
    return [found[partition].offset for partition in sorted(found)]


# list and describe ----------------------------------------------------------------------------------------------------


def test_groups_are_listed_with_their_state_and_members(broker: BrokerProcess, filled: str, group: str) -> None:
    with member(broker, filled, group):
        (row,) = [one for one in objects(broker, "groups", "list") if one["group"] == group]
        assert row == {
            "group": group,
            "state": "Stable",
            "type": "classic",
            "protocol": "consumer",
            "assignor": "range",
            "members": 1,
        }
        assert group in lines(broker, "groups", "list", "--quiet", "--state", "stable", "--type", "classic")
        assert group not in lines(broker, "groups", "list", "--quiet", "--type", "consumer")
    assert group not in lines(broker, "groups", "list", "--quiet", "--state", "Stable")


@pytest.mark.parametrize("option", ["--state", "--type"])
def test_a_state_and_a_type_that_no_group_can_have_are_refused(broker: BrokerProcess, option: str) -> None:
    assert "'stabel' is not one of " in run(broker, "groups", "list", option, "stabel", status=2).stderr


def test_a_group_is_described_with_its_lag(broker: BrokerProcess, filled: str, group: str) -> None:
    with member(broker, filled, group, client_id="reader") as consumer:
        consumer.commit({TopicPartition(filled, 0): 7})
        (reported,) = objects(broker, "groups", "describe", group)
        name = consumer.group_metadata().member_id
        shown = lines(broker, "groups", "describe", group)
    assert (reported["group"], reported["state"], reported["type"], reported["assignor"]) == (
        group,
        "Stable",
        "classic",
        "range",
    )
    (about,) = reported["members"]  # type: ignore[misc]  # what JSON gives
    assert (about["member"], about["client"], about["topics"]) == (name, "reader", [filled])
    nothing = {"metadata": None, "committed": None, "lag": None}
    assert reported["partitions"] == [
        {"topic": filled, "partition": 0, "committed": 7, "metadata": "", "end": 10, "lag": 3, "member": name},
        {"topic": filled, "partition": 1, "end": 10, "member": name, **nothing},
    ]
    assert shown[0].startswith(f"{group}   Stable   classic, range, coordinator")
    assert any(line.split() == [filled, "0", "7", "10", "3", name] for line in shown)


def test_without_a_name_all_groups_are_described(broker: BrokerProcess, filled: str, group: str) -> None:
    for name in (group, f"{group}-2"):
        run(broker, "groups", "reset", name, "--topic", filled, "--to-latest", "--execute")
    assert {group, f"{group}-2"} <= {one["group"] for one in objects(broker, "groups", "describe")}
    headings = [line.split()[0] for line in lines(broker, "groups", "describe") if line and not line.startswith(" ")]
    assert {group, f"{group}-2"} <= set(headings)


def test_a_group_that_is_none_is_said_to_be_none(broker: BrokerProcess, group: str) -> None:
    refused = run(broker, "groups", "describe", group, status=1)
    assert refused.stderr == f"ottla: there is no group {group}\n"


# why ------------------------------------------------------------------------------------------------------------------


def test_why_names_what_stands_in_the_way(broker: BrokerProcess, filled: str, group: str) -> None:
    assert lines(broker, "groups", "why", group)[0].startswith("! there is no such group")
    with member(broker, filled, group) as consumer:
        said = lines(broker, "groups", "why", group)
        assert any("nothing is committed, and 10 records are there from 0 to 9" in line for line in said)
        consumer.commit({TopicPartition(filled, 0): 10, TopicPartition(filled, 1): 10})
        said = lines(broker, "groups", "why", group)
        assert said == [
            f"- {filled}-0, {filled}-1: read to its end",
            "- nothing is in the way: what is written next will be received",
        ]
        with Admin(broker.bootstrap) as admin:
            admin.delete_records({TopicPartition(filled, 0): 10})
        consumer.commit({TopicPartition(filled, 0): 4})
        assert "which is deleted (the log begins at 10)" in lines(broker, "groups", "why", group)[0]
        consumer.commit({TopicPartition(filled, 0): 99})
        assert "past the end (10)" in lines(broker, "groups", "why", group)[0]
    commit_at(broker, group, filled, 10, 4)
    (first, *_) = objects(broker, "groups", "why", group)
    assert (first["weight"], first["finding"]) == ("cause", "it has no members; 6 records wait for it")


def test_why_tells_records_from_ends_of_transactions(
    broker: BrokerProcess, topic: str, group: str, tmp_path: Path
) -> None:
    """Clients that commit the offset after the last record, such as librdkafka's, stay before the ends."""
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic, partitions=2, replication_factor=1)
    with Producer(broker.bootstrap, transactional_id=f"tx-{topic}") as producer:
        for ends in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            for partition in (0, 1):
                producer.send(topic, b"tea", partition=partition)
            ends()
    commit_at(broker, group, topic, 1, 0)
    file = tmp_path / "application.properties"
    file.write_text(f"group.id={group}\nisolation.level=read_uncommitted\n")
    said = lines(broker, "groups", "why", group, "--command-config", str(file))
    assert said[0].startswith("! it has no members; 4 records wait for it")
    ends_only = "read to its end: from 1 on are only ends of transactions and aborted records, which count as lag"
    assert said[1] == f"- {topic}-0: {ends_only}"
    assert committed(broker, group) == [1, 0]  # the file may be the application's, and nothing is committed for it


def test_why_names_the_transaction_that_holds_records_back(broker: BrokerProcess, filled: str, group: str) -> None:
    commit_at(broker, group, filled, 10, 10)
    transactional_id = f"tx-{filled}"
    producer = ConfluentProducer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(filled, b"held back", partition=0)
    assert producer.flush(30) == 0
    (found,) = [line for line in lines(broker, "groups", "why", group) if "holds back" in line]
    assert found.startswith(f"! {filled}-0: an open transaction holds back the records from 10 to 10")
    assert f"transactional id '{transactional_id}'" in found
    run(broker, "transactions", "abort", transactional_id)
    assert not [line for line in lines(broker, "groups", "why", group) if "holds back" in line]


def test_why_names_the_transaction_whose_offsets_a_new_consumer_waits_for(
    broker: BrokerProcess, filled: str, group: str
) -> None:
    commit_at(broker, group, filled, 10, 10)
    transactional_id = f"tx-offsets-{filled}"
    producer = ConfluentProducer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(30)
    producer.begin_transaction()
    reader = ConfluentConsumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    offsets = [ConfluentPartition(filled, 0, 5)]
    producer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), 30)
    (found,) = [line for line in lines(broker, "groups", "why", group) if "does not count yet" in line]
    assert found.startswith(f"? {filled}-0: an open transaction has committed an offset")
    assert f"transactional id '{transactional_id}'" in found
    producer.abort_transaction(30)
    reader.close()
    assert not [line for line in lines(broker, "groups", "why", group) if "does not count yet" in line]


def test_why_finds_members_that_have_no_partition(broker: BrokerProcess, filled: str, group: str) -> None:
    from contextlib import ExitStack

    with ExitStack() as members:
        consumers = [
            members.enter_context(
                Consumer(broker.bootstrap, group_id=group, group_protocol="consumer", group_instance_id=f"member-{n}")
            )
            for n in range(3)
        ]
        for consumer in consumers:
            consumer.subscribe([filled])
        while sum(len(consumer.assignment()) for consumer in consumers) < 2 or not all(
            consumer.group_metadata().generation > 0 for consumer in consumers
        ):
            for consumer in consumers:
                consumer.getmany(timeout_ms=20)
        said: list[str] = []
        while not any("got no partition" in line for line in said):
            for consumer in consumers:
                consumer.getmany(timeout_ms=20)
            said = lines(broker, "groups", "why", group)
    (found,) = [line for line in said if "got no partition" in line]
    assert "3 members share 2 partitions" in found


# reset ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "offsets"),
    [
        (("--to-earliest",), [0, 0]),
        (("--to-latest",), [10, 10]),
        (("--to-offset", "3"), [3, 3]),
        (("--to-offset", "30"), [10, 10]),
        (("--to-datetime", "1970-01-01T00:00:00.004"), [4, 4]),
        (("--to-datetime", "5000"), [10, 10]),
        (("--shift-by", "-2"), [3, 4]),
        (("--shift-by", "5"), [10, 10]),
        (("--to-current",), [5, 6]),
    ],
)
def test_a_reset_shows_its_plan_and_is_carried_out_when_asked(
    broker: BrokerProcess, filled: str, group: str, choice: tuple[str, ...], offsets: list[int]
) -> None:
    commit_at(broker, group, filled, 5, 6)
    shown = lines(broker, "groups", "reset", group, "--topic", filled, *choice)
    assert shown[-1] == "nothing was changed; --execute does it"
    assert [int(line.split()[3]) for line in shown[1:3]] == offsets
    assert committed(broker, group) == [5, 6]
    lines(broker, "groups", "reset", group, "--topic", filled, *choice, "--execute")
    assert committed(broker, group) == offsets


def test_a_reset_may_concern_some_partitions_or_all_that_are_committed(
    broker: BrokerProcess, filled: str, group: str
) -> None:
    commit_at(broker, group, filled, 5, 6)
    lines(broker, "groups", "reset", group, "--topic", f"{filled}:1", "--to-earliest", "--execute")
    assert committed(broker, group) == [5, 0]
    lines(broker, "groups", "reset", group, "--all-topics", "--to-latest", "--execute")
    assert committed(broker, group) == [10, 10]


def test_a_reset_says_that_it_makes_a_group(broker: BrokerProcess, filled: str, group: str) -> None:
    choice = ("--topic", filled, "--to-latest")
    shown = lines(broker, "groups", "reset", group, *choice)
    assert shown[-2:] == [
        f"there is no group {group}: --execute makes a consumer group of this name (with --share, a share group)",
        "nothing was changed; --execute does it",
    ]
    assert group not in run(broker, "groups", "list").stdout
    shown = lines(broker, "groups", "reset", group, *choice, "--execute")
    assert shown[-1] == f"there was no group {group}: a consumer group of this name was made"
    assert committed(broker, group) == [10, 10]
    assert lines(broker, "groups", "reset", group, *choice, "--execute")[-1].split()[0] == filled
    refused = run(broker, "groups", "reset", group, *choice, "--share", status=1)
    assert refused.stderr == f"ottla: {group} is a consumer group: --share is for share groups\n"


def test_a_group_in_use_is_not_reset(broker: BrokerProcess, filled: str, group: str) -> None:
    with member(broker, filled, group):
        refused = run(broker, "groups", "reset", group, "--topic", filled, "--to-latest", "--execute", status=1)
    assert "has 1 member (Stable)" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ((), 2, "give one of the --to- options"),
        (("--to-earliest", "--to-latest"), 2, "give one of the --to- options"),
        (("--to-earliest", "--all-topics", "--topic", "t"), 2, "give --topic, or --all-topics"),
        (("--to-earliest",), 2, "give --topic, or --all-topics"),
        (("--to-earliest", "--topic", "t:x"), 2, "is not TOPIC or TOPIC:P,P"),
        (("--to-datetime", "-5", "--all-topics"), 2, "must not lie before 1970"),
        (("--to-datetime", "soon", "--all-topics"), 2, "Invalid value for --to-datetime: 'soon' is neither"),
        (("--to-earliest", "--all-topics"), 1, "there is no group"),
        (("--to-earliest", "--topic", "nowhere"), 1, "nowhere"),
    ],
)
def test_a_reset_that_makes_no_sense_is_refused(
    broker: BrokerProcess, group: str, arguments: tuple[str, ...], status: int, said: str
) -> None:
    assert said in run(broker, "groups", "reset", group, *arguments, status=status).stderr


def test_a_reset_of_partitions_that_are_not_there_or_from_nothing_is_refused(
    broker: BrokerProcess, filled: str, group: str
) -> None:
    refused = run(broker, "groups", "reset", group, "--topic", f"{filled}:1,7", "--to-latest", status=1)
    assert f"{filled} has 2 partitions" in refused.stderr
    refused = run(broker, "groups", "reset", group, "--topic", filled, "--shift-by", "1", status=1)
    assert "nothing is committed for" in refused.stderr


# kick and delete ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_are_kicked_by_name_or_all(broker: BrokerProcess, filled: str, group: str, protocol: str) -> None:
    with member(broker, filled, group, group_protocol=protocol) as consumer:
        name = consumer.group_metadata().member_id
        assert "UNKNOWN_MEMBER_ID" in run(broker, "groups", "kick", group, "nobody", status=1).stderr
        assert lines(broker, "groups", "kick", group, name) == [f"removed {name}"]
    # Not before: a member that learns from its next heartbeat that it was removed joins again.
    assert lines(broker, "groups", "kick", group, "--all") == [f"{group} has no members"]
    with member(broker, filled, group, group_protocol=protocol, group_instance_id="me") as consumer:
        name = consumer.group_metadata().member_id
        assert lines(broker, "groups", "kick", group, "me") == [f"removed {name}"]
    assert "name the members, or give --all" in run(broker, "groups", "kick", group, status=2).stderr


@pytest.mark.parametrize("dashes", [(), ("--",)])
def test_a_member_id_that_begins_with_a_dash_is_no_option(
    broker: BrokerProcess, filled: str, group: str, dashes: tuple[str, ...]
) -> None:
    """Clients of KIP-848 draw their ids; one in 64 looks like this."""
    commit_at(broker, group, filled, 1)
    result = CliRunner().invoke(
        main, ["groups", "kick", "-b", broker.bootstrap, group, *dashes, "-xytcBvnQKCW1z4bDM6QhQ"]
    )
    assert (result.exit_code, "UNKNOWN_MEMBER_ID" in result.stderr) == (1, True)


def test_a_refused_deletion_does_not_hide_the_others(broker: BrokerProcess, filled: str, group: str) -> None:
    commit_at(broker, group, filled, 1)
    result = run(broker, "groups", "delete", group, "nonesuch", status=1)
    assert result.stdout.splitlines() == [f"deleted {group}"]
    assert "GROUP_ID_NOT_FOUND" in result.stderr


def test_a_list_for_programs_has_no_dashes(broker: BrokerProcess, filled: str, group: str) -> None:
    commit_at(broker, group, filled, 1)
    (row,) = [one for one in objects(broker, "groups", "list") if one["group"] == group]
    assert row["assignor"] is None
    assert row["protocol"] is None


def test_groups_and_offsets_are_deleted_when_nobody_uses_them(broker: BrokerProcess, filled: str, group: str) -> None:
    with member(broker, filled, group) as consumer:
        consumer.commit({TopicPartition(filled, 0): 3, TopicPartition(filled, 1): 4})
        assert "NON_EMPTY_GROUP" in run(broker, "groups", "delete", group, status=1).stderr
        refused = run(broker, "groups", "delete", group, "--topic", filled, status=1)
        assert "GROUP_SUBSCRIBED_TO_TOPIC" in refused.stderr
    assert lines(broker, "groups", "delete", group, "--topic", f"{filled}:0") == [f"{group}: forgot {filled}-0"]
    assert committed(broker, group) == [4]
    assert "has committed nothing for" in run(broker, "groups", "delete", group, "--topic", "x", status=1).stderr
    assert lines(broker, "groups", "delete", group) == [f"deleted {group}"]
    assert "GROUP_ID_NOT_FOUND" in run(broker, "groups", "delete", group, status=1).stderr


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_dry_run_of_kick_names_the_members_and_removes_none(
    broker: BrokerProcess, filled: str, group: str, protocol: str
) -> None:
    options = {"group_protocol": protocol, "group_instance_id": "me", "client_id": "reader"}
    with member(broker, filled, group, **options) as consumer:
        name = consumer.group_metadata().member_id
        for named in (name, "me", "--all"):
            assert lines(broker, "groups", "kick", group, named, "--dry-run") == [
                f"{name} can be removed: reader at 127.0.0.1, 2 partitions (not done, only checked)"
            ]
        refused = run(broker, "groups", "kick", group, "nobody", "--dry-run", status=1)
        assert refused.stderr == run(broker, "groups", "kick", group, "nobody", status=1).stderr
        assert len(objects(broker, "groups", "describe", group)[0]["members"]) == 1  # type: ignore[arg-type]
    # A static member stays until its session expires.
    run(broker, "groups", "kick", group, "--all")
    assert lines(broker, "groups", "kick", group, "--all", "--dry-run") == [f"{group} has no members"]
    missing = run(broker, "groups", "kick", "nonesuch", "--all", "--dry-run", status=1)
    assert missing.stderr == run(broker, "groups", "kick", "nonesuch", "--all", status=1).stderr


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_dry_run_of_delete_says_what_a_deletion_would_say(
    broker: BrokerProcess, filled: str, group: str, protocol: str
) -> None:
    other = f"other-{group}"
    commit_at(broker, other, filled, 1, 2)
    with member(broker, filled, group, group_protocol=protocol) as consumer:
        consumer.commit({TopicPartition(filled, 0): 3})
        mixed = run(broker, "groups", "delete", other, group, "nonesuch", "--dry-run", status=1)
        said = f"{other} can be deleted: committed offsets of 2 partitions (not done, only checked)\n"
        assert mixed.stdout == said
        offsets = run(broker, "groups", "delete", group, "--topic", filled, "--dry-run", status=1)
        assert offsets.stderr == run(broker, "groups", "delete", group, "--topic", filled, status=1).stderr
        assert mixed.stderr == run(broker, "groups", "delete", group, "nonesuch", status=1).stderr
    assert lines(broker, "groups", "delete", other, "--topic", f"{filled}:1", "--dry-run") == [
        f"{other}: {filled}-1 can be forgotten (not done, only checked)"
    ]
    assert "has committed nothing" in run(broker, "groups", "delete", other, "-t", "x", "--dry-run", status=1).stderr
    assert committed(broker, other) == [1, 2]


# consume --group ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consuming_as_a_member_goes_on_where_the_group_was(
    broker: BrokerProcess, filled: str, group: str, protocol: str
) -> None:
    common = ("consume", filled, "--group", group, "--group-protocol", protocol, "--from-beginning")
    first = lines(broker, *common, "--max-messages", "7")
    rest = lines(broker, *common, "--exit-at-end")
    assert len(first) == 7
    assert sorted(map(int, first + rest)) == list(range(20))
    assert committed(broker, group) == [10, 10]


@pytest.mark.parametrize("more", [("--partition", "0"), ("--offset", "1"), ("--timestamp", "5")])
def test_a_group_knows_where_it_was(broker: BrokerProcess, more: tuple[str, str]) -> None:
    refused = run(broker, "consume", "t", "--group", "g", *more, status=2)
    assert "cannot be used with --group" in " ".join(refused.stderr.split())


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_member_that_is_stopped_commits_what_it_printed_and_leaves(
    broker: BrokerProcess, filled: str, group: str, number: signal.Signals, status: int
) -> None:
    command = [sys.executable, "-m", "ottla", "consume", filled, "-B", "--group", group, "-b", broker.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as consuming:
        assert consuming.stdout is not None
        assert sorted(int(consuming.stdout.readline()) for _ in range(20)) == list(range(20))
        consuming.send_signal(number)
        assert consuming.wait(60) == status
    (reported,) = objects(broker, "groups", "describe", group)
    assert (reported["state"], reported["members"]) == ("Empty", [])
    assert committed(broker, group) == [10, 10]


def test_what_a_client_has_put_into_a_groups_name_does_not_reach_the_terminal(
    broker: BrokerProcess, filled: str, group: str
) -> None:
    hostile, shown = f"{group}\x1b]0;x\x07\nadmins", rf"{group}\x1b]0;x\x07\nadmins"
    with member(broker, filled, hostile, client_id="c\x1b[2J"):
        assert shown in lines(broker, "groups", "list", "-q")
        assert [line.split()[0] for line in lines(broker, "groups", "list") if group in line] == [shown]
        text = run(broker, "groups", "describe", hostile).stdout
    assert text.startswith(f"{shown}   Stable   ")
    assert r"c\x1b[2J" in text
    assert "\x1b" not in text
    assert (
        run(broker, "groups", "describe", f"{group}\nx", status=1).stderr
        == rf"ottla: there is no group {group}\nx" + "\n"
    )
