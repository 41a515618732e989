"""Streams groups through kills, restarts and timeouts of a real broker, by raw frames. Ottla alone: Kafka is slower."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from kit.broker import BrokerProcess
from kit.share_wire import create_topic
from kit.streams_wire import (
    StreamsWireMember,
    alter_streams_group,
    described,
    new_streams_group,
    partition_count,
    subtopology,
    topic_info,
    topology,
)
from kit.wire import PATIENCE_S, Wire

from ottla.protocol.errors import ErrorCode

GROUP = "app"
CHANGELOG = "app-store-changelog"


@pytest.fixture
def topic(own_broker: BrokerProcess) -> str:
    """A topic of two partitions, and a group with a standby task for each task."""
    with Wire(own_broker.port) as wire:
        name, _ = create_topic(wire, 2)
        new_streams_group(wire, GROUP, num_standby_replicas="1")
    return name


@contextmanager
def member_of(broker: BrokerProcess, before: StreamsWireMember | None = None) -> Iterator[StreamsWireMember]:
    """A member; `before`: the same one, with a connection to the broker that has started again."""
    with closing(StreamsWireMember(broker.port, GROUP)) as member:
        if before is not None:
            connection = member.wire
            member.__dict__.update(before.__dict__)
            member.wire = connection
        yield member


def settle(*members: StreamsWireMember) -> None:
    """Let the members own what they are assigned until nothing changes."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        before = [(one.member_epoch, one.active, one.standby) for one in members]
        answers = [one.own() for one in members]
        assert all(answer.error_code == ErrorCode.NONE for answer in answers), answers
        if before == [(one.member_epoch, one.active, one.standby) for one in members] and not any(
            answer.status for answer in answers
        ):
            return
        assert time.monotonic() < give_up, answers


def test_members_continue_with_their_tasks_after_a_kill(own_broker: BrokerProcess, topic: str) -> None:
    wanted = topology(subtopology("0", topic, changelogs=[topic_info(CHANGELOG, cleanup_policy="compact")]))
    with member_of(own_broker) as one, member_of(own_broker) as other:
        for member in (one, other):
            assert member.join(wanted).error_code == ErrorCode.NONE
        settle(one, other)
        had = [(member.member_epoch, member.active, member.standby) for member in (one, other)]
        assert sorted(one.active["0"] + other.active["0"]) == [0, 1]
        assert (one.standby, other.standby) == (other.active, one.active)
    own_broker.kill()
    own_broker.start()
    with member_of(own_broker, one) as one_again, member_of(own_broker, other) as other_again:
        settle(one_again, other_again)
        assert [(member.member_epoch, member.active, member.standby) for member in (one_again, other_again)] == had
        group = described(one_again.wire, GROUP)
        assert (group.group_state, group.group_epoch) == ("Stable", one_again.member_epoch)
        assert partition_count(one_again.wire, CHANGELOG) == 2
        assert one_again.heartbeat(-1).error_code == ErrorCode.NONE
        settle(other_again)
        assert other_again.active == {"0": [0, 1]}


def test_a_group_that_lost_its_members_at_a_kill_is_taken_over(own_broker: BrokerProcess, topic: str) -> None:
    with Wire(own_broker.port) as wire:
        alter_streams_group(wire, GROUP, session_timeout_ms="1000", heartbeat_interval_ms="100")
    wanted = topology(subtopology("0", topic))
    with member_of(own_broker) as one:
        one.join(wanted)
        assert one.active == {"0": [0, 1]}
    own_broker.kill()
    own_broker.start()
    with member_of(own_broker) as heir:
        heir.join(wanted)
        give_up = time.monotonic() + PATIENCE_S
        while heir.active != {"0": [0, 1]}:
            assert time.monotonic() < give_up, described(heir.wire, GROUP)
            assert heir.own().error_code == ErrorCode.NONE
            time.sleep(0.05)
        assert [member.member_id for member in described(heir.wire, GROUP).members] == [heir.member_id]


def test_internal_topics_that_a_kill_prevented_are_created_afterwards(own_broker: BrokerProcess, topic: str) -> None:
    wanted = topology(subtopology("0", topic, changelogs=[topic_info(CHANGELOG)]))
    with member_of(own_broker) as one:
        one.join(wanted)
    own_broker.kill()
    own_broker.start()
    with member_of(own_broker, one) as again:
        settle(again)
        assert (again.active, partition_count(again.wire, CHANGELOG)) == ({"0": [0, 1]}, 2)


def test_streams_groups_can_be_switched_off_and_on_again(own_broker: BrokerProcess, topic: str) -> None:
    from click.testing import CliRunner

    from ottla.cli.main import main

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(main, [*arguments, "--bootstrap-server", own_broker.bootstrap])
        assert result.exit_code == 0, result.output
        return result.output

    wanted = topology(subtopology("0", topic))
    with member_of(own_broker) as one:
        one.join(wanted)
        one.heartbeat(-1)
        run("features", "downgrade", "streams.version", "0", "--unsafe")
        assert one.join(wanted).error_code == ErrorCode.UNSUPPORTED_VERSION
        refused = described(one.wire, GROUP)
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "`ottla features upgrade streams.version 1` turns them on" in str(refused.error_message)
        run("features", "upgrade", "streams.version", "1")
        assert one.join(wanted).error_code == ErrorCode.NONE
        assert one.active == {"0": [0, 1]}
