"""`groups` about a streams group, against a real broker: what it shows, what it changes, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kit.broker import BrokerProcess
from kit.streams_groups import streams_member
from kit.streams_wire import StreamsWireMember, new_streams_group, subtopology, topology
from kit.wire import Wire

from ottla.cli.main import main
from ottla.client.blocking import Admin, Producer
from ottla.client.structs import TopicPartition


def run(broker: BrokerProcess, *arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(main, [*arguments, "--bootstrap-server", broker.bootstrap])
    assert result.exit_code == status, result.output
    return result


def lines(broker: BrokerProcess, *arguments: str) -> list[str]:
    return run(broker, *arguments).stdout.splitlines()


def objects(broker: BrokerProcess, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(broker, *arguments, "--json")]


@pytest.fixture
def filled(broker: BrokerProcess, topic: str) -> str:
    """A topic with two partitions, ten records in the first."""
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic, partitions=2, replication_factor=1)
    with Producer(broker.bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=0)
    return topic


@pytest.fixture
def group(topic: str) -> str:
    return f"g-{topic}"


@pytest.fixture
def half_read(broker: BrokerProcess, filled: str, group: str) -> str:
    """A streams group without members that has committed 4 for the first partition."""
    with streams_member(broker.port, group, filled):
        pass
    with Admin(broker.bootstrap) as admin:
        admin.alter_group_offsets(group, {TopicPartition(filled, 0): 4})
    return group


def committed(broker: BrokerProcess, group: str) -> dict[tuple[str, int], int]:
    with Admin(broker.bootstrap) as admin:
        return {one: place.offset for one, place in admin.list_group_offsets({group: None})[group].items()}


def test_a_streams_group_is_listed_and_described_with_its_tasks(broker: BrokerProcess, filled: str, group: str) -> None:
    with streams_member(broker.port, group, filled) as member:
        (row,) = [one for one in objects(broker, "groups", "list") if one["group"] == group]
        assert row == {
            "group": group,
            "state": "Stable",
            "type": "streams",
            "protocol": "streams",
            "assignor": "sticky",
            "members": 1,
        }
        assert group in lines(broker, "groups", "list", "-q", "--type", "streams", "--state", "stable")
        assert group not in lines(broker, "groups", "list", "-q", "--type", "share")
        (shown,) = objects(broker, "groups", "describe", group)
        text = lines(broker, "groups", "describe", group)
    assert (shown["group"], shown["state"], shown["type"], shown["assignor"]) == (group, "Stable", "streams", "sticky")
    internal, changelog = f"{group}-repartition", f"{group}-changelog"
    (about,) = shown["members"]
    assert about["assignment"] == [[internal, 0], [internal, 1], [filled, 0], [filled, 1]]
    assert (about["process"], about["active"], about["standby"], about["warmup"]) == (
        member.process,
        ["0_0", "0_1", "1_0", "1_1"],
        [],
        [],
    )
    assert shown["topology"] == {
        "epoch": 0,
        "subtopologies": [
            {"subtopology": "0", "reads": [filled], "repartitions_to": [internal], "changelogs": []},
            {"subtopology": "1", "reads": [internal], "repartitions_to": [], "changelogs": [changelog]},
        ],
    }
    first = next(one for one in shown["partitions"] if one["topic"] == filled)
    assert (first["committed"], first["end"], first["member"]) == (None, 10, member.member_id)
    assert text[0].startswith(f"{group}   Stable   streams, sticky, coordinator")
    words = [line.split() for line in text]
    assert [member.member_id, member.process, "0_0", "0_1", "1_0", "1_1", "-", "-"] in words
    assert ["0", filled, internal, "-"] in words
    assert ["1", internal, "-", changelog] in words
    assert group in [one["group"] for one in objects(broker, "groups", "describe")]


def test_why_names_what_stands_in_the_way_of_a_streams_group(broker: BrokerProcess, filled: str, group: str) -> None:
    with streams_member(broker.port, group, filled):
        said = "\n".join(lines(broker, "groups", "why", group))
        assert f"{filled}-0" in said
        assert "speak" not in said
    (first, *_) = objects(broker, "groups", "why", group)
    assert (first["weight"], str(first["finding"]).startswith("it has no members")) == ("cause", True)


def test_why_says_that_topics_are_missing(broker: BrokerProcess, group: str) -> None:
    with Wire(broker.port) as wire:
        new_streams_group(wire, group)
    member = StreamsWireMember(broker.port, group)
    try:
        member.join(topology(subtopology("0", f"{group}-gone")))
        findings = [str(one["finding"]) for one in objects(broker, "groups", "why", group)]
        member.heartbeat(-1)
    finally:
        member.close()
    assert any(one.startswith("its members have no tasks: topics are missing") for one in findings)
    assert any(one.startswith(f"{group}-gone: subscribed to, but there is no such topic") for one in findings)


def test_a_streams_group_with_members_is_not_reset_deleted_or_kicked(
    broker: BrokerProcess, filled: str, group: str
) -> None:
    with streams_member(broker.port, group, filled):
        for arguments, words in (
            (("reset", group, "--topic", filled, "--to-earliest", "--execute"), "has 1 member"),
            (("delete", group), "NON_EMPTY_GROUP"),
            (("delete", group, "--dry-run"), "NON_EMPTY_GROUP"),
            (("kick", group, "--all"), "is removed after 45 s (streams.session.timeout.ms)"),
            (("kick", group, "--all", "--dry-run"), "is a streams group"),
        ):
            assert words in run(broker, "groups", *arguments, status=1).output


def test_a_refused_reset_of_a_streams_group_names_what_its_user_can_do(
    broker: BrokerProcess, filled: str, group: str
) -> None:
    reset = ("groups", "reset", group, "--topic", filled, "--to-earliest")
    with streams_member(broker.port, group, filled):
        said = run(broker, *reset, status=1).stderr
        assert "stop the application (a dead member is removed after streams.session.timeout.ms)" in said
        assert "kick" not in said, "which is refused"
    said = run(broker, *reset, "--share", status=1).stderr
    assert said == f"ottla: {group} is a streams group: --share is for share groups\n"


def test_why_says_that_the_application_of_an_empty_streams_group_has_to_start(
    broker: BrokerProcess, half_read: str
) -> None:
    (first, *_) = objects(broker, "groups", "why", half_read)
    assert str(first["remedy"]).startswith("start the application; if it runs, it has lost its session")


def test_the_offsets_of_an_empty_streams_group_are_reset_and_deleted(
    broker: BrokerProcess, filled: str, half_read: str
) -> None:
    group = half_read
    shown = lines(broker, "groups", "reset", group, "--all-topics", "--shift-by", "3")
    assert any(line.split() == [filled, "0", "4", "7", "3"] for line in shown)
    assert committed(broker, group) == {(filled, 0): 4}, "nothing was changed"
    run(broker, "groups", "reset", group, "--topic", filled, "--to-earliest", "--execute")
    assert committed(broker, group) == {(filled, 0): 0, (filled, 1): 0}
    run(broker, "groups", "delete", group, "--topic", f"{filled}:1")
    assert committed(broker, group) == {(filled, 0): 0}
    run(broker, "groups", "delete", group)
    assert "there is no group" in run(broker, "groups", "describe", group, status=1).output
    assert committed(broker, group) == {}
