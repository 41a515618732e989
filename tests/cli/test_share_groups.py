"""`groups` about a share group, against a real broker: what it shows, what it changes, and what it refuses."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from kit.broker import BrokerProcess
from kit.share_groups import WAIT_S, acknowledge, begin_with_the_first_record, received, share_member

from ottla.cli.main import main
from ottla.client.blocking import Admin, Producer


def run(broker: BrokerProcess, *arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(main, [*arguments, "--bootstrap-server", broker.bootstrap])
    assert result.exit_code == status, result.output
    return result


def lines(broker: BrokerProcess, *arguments: str) -> list[str]:
    return run(broker, *arguments).stdout.splitlines()


def objects(broker: BrokerProcess, *arguments: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in lines(broker, *arguments, "--json")]


@pytest.fixture
def filled(broker: BrokerProcess, topic: str) -> str:
    """A topic with two partitions, ten records in the first, stamped 0 to 9."""
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic, partitions=2, replication_factor=1, configs={"retention.ms": "-1"})
    with Producer(broker.bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=0, timestamp_ms=number)
    return topic


@pytest.fixture
def group(broker: BrokerProcess, topic: str) -> str:
    """The name of a share group that begins with the first record."""
    begin_with_the_first_record(broker.bootstrap, f"g-{topic}")
    return f"g-{topic}"


@pytest.fixture
def half_done(broker: BrokerProcess, filled: str, group: str) -> str:
    """The share group, without members, that has done the records before 4 of the first partition, and the 5."""
    with share_member(broker.bootstrap, group, filled) as member:
        records = received(member, 10)
        acknowledge(member, [*records[:4], records[5]])
    return group


def start_offsets(broker: BrokerProcess, group: str) -> list[int | None]:
    with Admin(broker.bootstrap) as admin:
        found = admin.share_group_offsets({group: None})[group]
    return [None if found[one] is None else found[one].start_offset for one in sorted(found)]


def test_a_share_group_is_listed_and_described_with_its_lag(broker: BrokerProcess, filled: str, group: str) -> None:
    with share_member(broker.bootstrap, group, filled) as member:
        acknowledge(member, received(member, 10)[1:8])
        (row,) = [one for one in objects(broker, "groups", "list") if one["group"] == group]
        assert row == {
            "group": group,
            "state": "Stable",
            "type": "share",
            "protocol": "share",
            "assignor": "simple",
            "members": 1,
        }
        assert group in lines(broker, "groups", "list", "-q", "--type", "share")
        assert group not in lines(broker, "groups", "list", "-q", "--type", "consumer")
        (shown,) = objects(broker, "groups", "describe", group)
        text = lines(broker, "groups", "describe", group)
    assert (shown["group"], shown["state"], shown["type"], shown["assignor"]) == (group, "Stable", "share", "simple")
    (about,) = shown["members"]  # type: ignore[misc]  # what JSON gives
    assert (about["client"], about["topics"], about["assignment"]) == ("sharer", [filled], [[filled, 0], [filled, 1]])
    first, second = shown["partitions"]  # type: ignore[misc]
    name = about["member"]
    assert first == {"topic": filled, "partition": 0, "start_offset": 0, "end": 10, "lag": 3, "members": [name]}
    assert (second["end"], second["members"]) == (0, [name])
    assert text[0].startswith(f"{group}   Stable   share, simple, coordinator")
    assert any(line.split() == [filled, "0", "0", "10", "3", "1"] for line in text)
    assert group in [one["group"] for one in objects(broker, "groups", "describe")]


def test_why_names_what_stands_in_the_way_of_a_share_group(broker: BrokerProcess, filled: str, group: str) -> None:
    with share_member(broker.bootstrap, group, filled) as member:
        records = received(member, 10)
        first = lines(broker, "groups", "why", group)[0]
        # Kafka has no start offset before the first acknowledgement.
        there = "nothing is acknowledged yet, and 10 records are there from 0 to 9"
        locked = "10 records from 0 on are not acknowledged: members have them locked"
        assert first.startswith((f"? {filled}-0: {locked}", f"? {filled}-0: {there}"))
        acknowledge(member, records)
        assert f"- {filled}-0: read to its end (lag 0)" in "\n".join(lines(broker, "groups", "why", group)).replace(
            f", {filled}-1", ""
        )
    run(broker, "groups", "reset", group, "--topic", f"{filled}:0", "--to-offset", "6", "--execute")
    (first, *_) = objects(broker, "groups", "why", group)
    assert (first["weight"], first["finding"]) == ("cause", "it has no members; 4 records wait for it")


def test_why_knows_how_many_records_a_share_group_may_have(broker: BrokerProcess, filled: str, topic: str) -> None:
    group = f"few-{topic}"
    begin_with_the_first_record(broker.bootstrap, group, partition_max_record_locks="100")
    with Producer(broker.bootstrap, linger_ms=0) as producer:
        for _ in range(100):
            producer.send_and_wait(filled, b"x", partition=0)  # in batches of one: a batch is delivered whole
    with share_member(broker.bootstrap, group, filled) as member:
        acknowledge(member, received(member, 10)[1:])
        first = lines(broker, "groups", "why", group)[0]
    assert ": 100 may be in flight, so later ones wait while 0 is not" in first


@pytest.mark.parametrize(
    ("choice", "offset"),
    [
        (("--to-earliest",), 0),
        (("--to-latest",), 10),
        (("--to-offset", "3"), 3),
        (("--to-offset", "30"), 10),
        (("--to-datetime", "1970-01-01T00:00:00.006"), 6),
        (("--to-current",), 4),
        (("--shift-by", "-3"), 1),
    ],
)
def test_a_share_group_continues_where_a_reset_says(
    broker: BrokerProcess, filled: str, half_done: str, choice: tuple[str, ...], offset: int
) -> None:
    shown = lines(broker, "groups", "reset", half_done, "--topic", f"{filled}:0", *choice)
    assert shown[0].split() == ["topic", "partition", "start", "offset", "new", "lag"]
    assert shown[1].split()[:5] == [filled, "0", "4", str(offset), str(10 - offset)]
    assert shown[-1] == "nothing was changed; --execute does it"
    assert start_offsets(broker, half_done)[0] == 4
    lines(broker, "groups", "reset", half_done, "--topic", f"{filled}:0", *choice, "--execute")
    assert start_offsets(broker, half_done)[0] == offset
    with share_member(broker.bootstrap, half_done, filled) as member:
        assert [one.offset() for one in received(member, 10 - offset, 20 if offset < 10 else 1)] == [*range(offset, 10)]


def test_a_reset_of_all_topics_is_one_of_those_that_the_share_group_has(
    broker: BrokerProcess, filled: str, half_done: str
) -> None:
    lines(broker, "groups", "reset", half_done, "--all-topics", "--to-latest", "--execute")
    assert start_offsets(broker, half_done) == [10, 0]
    lines(broker, "groups", "delete", half_done, "--topic", filled)
    refused = run(broker, "groups", "reset", half_done, "--all-topics", "--to-latest", status=1)
    assert refused.stderr == f"ottla: {half_done} has read nothing yet; name topics with --topic\n"
    refused = run(broker, "groups", "reset", half_done, "--topic", f"{filled}:0", "--to-current", status=1)
    assert f"there is no start offset yet for {filled}-0, so there is nothing to start from" in refused.stderr


def test_a_reset_makes_a_share_group_where_that_is_wanted(broker: BrokerProcess, filled: str, topic: str) -> None:
    group = f"new-{topic}"
    choice = ("--topic", f"{filled}:0", "--to-offset", "7", "--share")
    shown = lines(broker, "groups", "reset", group, *choice)
    assert shown[-2:] == [
        f"there is no group {group}: --execute makes a share group of this name",
        "nothing was changed; --execute does it",
    ]
    shown = lines(broker, "groups", "reset", group, *choice, "--execute")
    assert shown[-1] == f"there was no group {group}: a share group of this name was made"
    assert start_offsets(broker, group)[0] == 7
    with share_member(broker.bootstrap, group, filled) as member:
        assert [one.offset() for one in received(member, 3)] == [7, 8, 9]


def test_a_share_group_with_members_is_not_changed(broker: BrokerProcess, filled: str, group: str) -> None:
    with share_member(broker.bootstrap, group, filled) as member:
        received(member, 10)
        said = f"ottla: {group} is a share group with 1 member (Stable): stop it before\n"
        for arguments in (
            ("reset", group, "--topic", filled, "--to-latest"),
            ("reset", group, "--topic", filled, "--to-latest", "--execute"),
            ("delete", group, "--topic", filled),
            ("delete", group, "--topic", filled, "--dry-run"),
        ):
            assert run(broker, "groups", *arguments, status=1).stderr == said
        for more in ((), ("--dry-run",)):
            assert "NON_EMPTY_GROUP" in run(broker, "groups", "delete", group, *more, status=1).stderr


def test_members_of_a_share_group_cannot_be_kicked(broker: BrokerProcess, half_done: str) -> None:
    for more in (("--all",), ("--all", "--dry-run"), ("somebody",)):
        refused = run(broker, "groups", "kick", half_done, *more, status=1)
        assert f"{half_done} is a share group, and Kafka cannot remove members of share groups" in refused.stderr
        assert "after 30 s (share.record.lock.duration.ms)" in refused.stderr


def test_topics_and_groups_are_forgotten(broker: BrokerProcess, filled: str, half_done: str) -> None:
    refused = run(broker, "groups", "delete", half_done, "--topic", f"{filled}:0", status=1)
    assert "forgets whole topics" in refused.stderr
    assert f"{half_done} has not read x" in run(broker, "groups", "delete", half_done, "-t", "x", status=1).stderr
    assert lines(broker, "groups", "delete", half_done, "-t", filled, "--dry-run") == [
        f"{half_done}: {filled} can be forgotten (not done, only checked)"
    ]
    assert lines(broker, "groups", "delete", half_done, "--dry-run") == [
        f"{half_done} can be deleted: state of 2 partitions (not done, only checked)"
    ]
    assert start_offsets(broker, half_done)[0] == 4
    assert lines(broker, "groups", "delete", half_done, "-t", filled) == [f"{half_done}: forgot {filled}"]
    assert start_offsets(broker, half_done) == []
    assert lines(broker, "groups", "delete", half_done) == [f"deleted {half_done}"]
    assert group_is_gone(broker, half_done)


def group_is_gone(broker: BrokerProcess, group: str) -> bool:
    refused = run(broker, "groups", "describe", group, status=1)
    return refused.stderr == f"ottla: there is no group {group}\n"


def test_where_share_groups_are_switched_off_their_refusal_says_so(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        run(broker, "topics", "create", "orders")
        with share_member(broker.bootstrap, "mailers", "orders") as member:
            give_up = time.monotonic() + WAIT_S
            while "mailers" not in lines(broker, "groups", "list", "-q"):  # it joins in the background
                assert time.monotonic() < give_up
                member.poll(timeout=0.2)
        run(broker, "groups", "reset", "billing", "--topic", "orders", "--to-latest", "--execute")
        run(broker, "features", "downgrade", "share.version", "0", "--unsafe")
        assert [(one["group"], one["type"]) for one in objects(broker, "groups", "list")] == [
            ("billing", "classic"),
            ("mailers", "share"),
        ]
        assert [one["group"] for one in objects(broker, "groups", "describe")] == ["billing"]
        for arguments in (("describe",), ("why",), ("kick", "--all"), ("reset", "--topic", "orders", "--to-latest")):
            refused = run(broker, "groups", arguments[0], "mailers", *arguments[1:], status=1)
            assert "mailers: this broker does not serve share groups: share.version is 0" in refused.stderr
            assert "`ottla features upgrade share.version 1` turns them on" in refused.stderr
        assert "there is no group x" in run(broker, "groups", "describe", "x", status=1).stderr


def test_the_state_of_share_groups_is_not_deleted_unasked(broker: BrokerProcess) -> None:
    refused = run(broker, "topics", "delete", "__share_group_state", status=1)
    assert "__share_group_state has the state of all share groups; --force" in refused.stderr


def test_the_keys_of_a_share_group_are_set_and_shown(broker: BrokerProcess, group: str) -> None:
    run(broker, "configs", "alter", "--group", group, "--set", "share.isolation.level=read_committed")
    shown = run(broker, "configs", "describe", "--group", group).stdout
    assert "share.auto.offset.reset" in shown
    assert any(line.split() == ["share.isolation.level", "read_committed", "group"] for line in shown.splitlines())
    refused = run(broker, "configs", "alter", "--group", group, "--set", "share.delivery.count.limit=11", status=1)
    assert "group.share.max.delivery.count.limit" in refused.stderr
