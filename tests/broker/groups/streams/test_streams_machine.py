"""A streams group by itself through restarts, crashes within a step, and everything at once."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kit.consumer_groups import FakeTopics
from kit.examples import examples
from kit.streams_machines import (
    REBALANCE_TIMEOUT_MS,
    STATEFUL,
    StreamsGroupUnderTest,
    StreamsMemberClient,
    heartbeat,
    settle,
    snapshot,
)

from ottla.broker.groups.streams.settings import StreamsSettings
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Struct

SESSION_MS = 45_000
ALL = {("0", partition) for partition in range(4)}


@pytest.fixture
def topics() -> FakeTopics:
    return FakeTopics({"t": 4})


@pytest.fixture
def group(topics: FakeTopics) -> StreamsGroupUnderTest:
    return StreamsGroupUnderTest(topics)


def member(group: StreamsGroupUnderTest, member_id: str, **fields: Any) -> StreamsMemberClient:
    return StreamsMemberClient(group, member_id, **fields).join()


# --- restarts --------------------------------------------------------------------------------------------------------


def test_the_tombstones_of_a_group_forget_all_of_it(group: StreamsGroupUnderTest) -> None:
    member(group, "a").leave()
    tombstones = group.group.tombstones()
    kept: list[Struct] = []
    for key, value in group.records:
        kept = [one for one in kept if one != key] + ([key] if value is not None else [])
    assert all(value is None for _, value in tombstones)
    assert sorted(repr(key) for key, _ in tombstones) == sorted(repr(key) for key in kept)


def test_a_restart_finds_the_group_as_it_was(group: StreamsGroupUnderTest) -> None:
    a, b = member(group, "a"), member(group, "b", instance_id="i")
    a.heartbeat()
    before = snapshot(group.group)
    group.restart()
    assert snapshot(group.group) == before
    settle([a, b])
    assert a.active | b.active == ALL
    epoch = group.group.durable.group_epoch
    assert epoch == before["epochs"][0], "the search for lost tasks has found none"  # type: ignore[index]
    group.pass_time(SESSION_MS)
    assert group.group.is_empty, "sessions begin again with the restart"


def test_a_member_that_had_tasks_to_give_up_has_its_time_again_after_a_restart(group: StreamsGroupUnderTest) -> None:
    a, b = member(group, "a"), member(group, "b")
    a.is_slow = True
    a.heartbeat()
    group.restart()
    group.pass_time(REBALANCE_TIMEOUT_MS - 1)
    for one in (a, b):
        one.heartbeat()
    group.pass_time(1)
    assert set(group.group.durable.members) == {"b"}


LIVES: dict[str, list[tuple[str, str]]] = {
    "a join": [("join", "a"), ("join", "b")],
    "a leave": [("join", "a"), ("join", "b"), ("settle", ""), ("leave", "a")],
    "the last leave": [("join", "a"), ("leave", "a")],
}


@pytest.mark.parametrize("life", LIVES.values(), ids=LIVES)
def test_a_crash_may_keep_any_part_of_the_last_step(life: list[tuple[str, str]]) -> None:
    """The records of a step may need several batches. Those who got no answer come again; all tasks are assigned."""
    whole = lived(life)
    last = whole.batches[-1]
    for kept in range(len(last) + 1):
        group = lived(life)
        group.restart(group.records[: len(group.records) - len(last) + kept])
        clients = {one: StreamsMemberClient(group, one) for one in "abc"}
        for client in clients.values():
            client.join()
        settle(clients.values(), rounds=5)
        assert set().union(*(one.active for one in clients.values())) == ALL
        assert sum(len(one.active) for one in clients.values()) == len(ALL)
        assert group.state == "Stable", kept


@pytest.mark.parametrize("kept", range(5))
def test_tasks_of_a_member_whose_leave_was_kept_in_part_find_another(kept: int) -> None:
    """The others have heard of nothing, and go on as before."""
    group = lived(LIVES["a leave"])
    last = group.batches[-1]
    b = StreamsMemberClient(group, "b")
    b.epoch = group.group.durable.members["b"].member_epoch
    b.tasks = group.group.durable.members["b"].assigned.without_epochs()
    group.restart(group.records[: len(group.records) - len(last) + kept])
    b.heartbeat()
    group.pass_time(SESSION_MS - 1)
    b.heartbeat()
    group.pass_time(1)
    b.heartbeat().heartbeat()
    assert b.active == ALL


def lived(life: list[tuple[str, str]]) -> StreamsGroupUnderTest:
    group = StreamsGroupUnderTest(FakeTopics({"t": 4}))
    clients: dict[str, StreamsMemberClient] = {}
    for what, who in life:
        if what == "join":
            clients[who] = StreamsMemberClient(group, who).join()
        elif what == "leave":
            clients.pop(who).leave()
        else:
            settle(clients.values())
    return group


# --- everything at once ----------------------------------------------------------------------------------------------


PROCESSES = {"a": "p", "b": "p", "c": "q", "d": "q", "e": "r"}
"""A member is a thread of one process, as long as it lives."""


class StreamsGroups(RuleBasedStateMachine):
    """Members that lose answers and are slow, topics that change, time, restarts: no task is active twice, and after
    some rounds of heartbeats all are assigned.
    """

    @initialize(standbys=st.integers(0, 1))
    def begin(self, standbys: int) -> None:
        self.topics = FakeTopics({"t": 3, "log": 3})
        streams = StreamsSettings(assignment_interval_ms=0, num_standby_replicas=standbys)
        self.group = StreamsGroupUnderTest(self.topics, streams=streams)
        self.members: dict[str, StreamsMemberClient] = {}
        self.epochs = (0, 0)

    @rule(member_id=st.sampled_from("abcde"))
    def join(self, member_id: str) -> None:
        client = StreamsMemberClient(self.group, member_id, topology=STATEFUL, process_id=PROCESSES[member_id])
        self.members[member_id] = client.join()

    @precondition(lambda self: self.members)
    @rule(data=st.data(), is_lost=st.booleans(), is_slow=st.booleans(), is_short=st.booleans())
    def heartbeat(self, data: st.DataObject, is_lost: bool, is_slow: bool, is_short: bool) -> None:
        client = self.members[data.draw(st.sampled_from(sorted(self.members)))]
        request = heartbeat(client.member_id, client.epoch) if is_short else client.request()
        try:
            answer = self.group.ask(request)
        except KafkaError as refusal:
            del self.members[client.member_id]
            gone = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.INVALID_REQUEST}
            if refusal.code not in gone:
                raise
        else:
            client.is_slow = is_slow
            if not is_lost:
                client.note(answer)
            client.is_slow = False

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = self.members.pop(data.draw(st.sampled_from(sorted(self.members))))
        if client.member_id in self.group.group.durable.members:
            client.leave()

    @rule(partitions=st.integers(1, 4))
    def change_topics(self, partitions: int) -> None:
        for name in ("t", "log"):
            topic_id = self.topics.id_of(name)
            if topic_id is None:
                self.topics.create(name, partitions)
            elif partitions > self.topics.partition_count(topic_id):
                self.topics.grow(name, partitions)
            else:
                self.topics.delete(name)

    @rule(ms=st.sampled_from([1_000, REBALANCE_TIMEOUT_MS, SESSION_MS]))
    def pass_time(self, ms: int) -> None:
        self.group.pass_time(ms)

    @rule()
    def restart(self) -> None:
        before = snapshot(self.group.group)
        self.group.restart()
        assert snapshot(self.group.group) == before

    @rule()
    def everybody_asks(self) -> None:
        """All members that the group has come again, and heartbeat in turn: then all tasks are assigned."""
        known = list(self.group.group.durable.members)
        self.members = {
            one: StreamsMemberClient(self.group, one, topology=STATEFUL, process_id=PROCESSES[one]).join()
            for one in known
        }
        settle(self.members.values(), rounds=5)
        if not known or not self.topics.exists("t"):
            return
        topic_id = self.topics.id_of("t")
        assert topic_id is not None
        wanted = {("0", index) for index in range(self.topics.partition_count(topic_id))}
        active = [task for client in self.members.values() for task in client.active]
        assert sorted(active) == sorted(wanted)
        assert self.group.state == "Stable"
        assert all(
            client.tasks == self.group.group.durable.members[client.member_id].assigned.without_epochs()
            for client in self.members.values()
        )

    @invariant()
    def no_process_has_a_task_twice_and_no_task_is_active_twice(self) -> None:
        members = self.group.group.durable.members.values()
        active = [
            task for one in members for owned in (one.assigned, one.pending_revocation) for task in each(owned.active)
        ]
        assert len(active) == len(set(active))
        by_process: dict[tuple[str, str, int], int] = {}
        for one in members:
            for task in itertools.chain(each(one.assigned.active), each(one.assigned.standby)):
                place = (one.process_id, *task)
                by_process[place] = by_process.get(place, 0) + 1
        assert all(times == 1 for times in by_process.values())

    @invariant()
    def epochs_never_go_back(self) -> None:
        state = self.group.group.durable
        epochs = (state.group_epoch, state.assignment_epoch)
        assert epochs >= self.epochs
        assert state.assignment_epoch <= state.group_epoch
        assert all(member.member_epoch <= state.assignment_epoch for member in state.members.values())
        self.epochs = epochs

    @invariant()
    def the_group_keeps_nothing_of_members_that_are_gone(self) -> None:
        state = self.group.group.durable
        assert state.target.keys() <= state.members.keys()
        assert self.group.group.task_offsets.keys() <= state.members.keys()
        assert (self.group.group.next_deadline_ms is None) == (not state.members)


def each(tasks: Any) -> list[tuple[str, int]]:
    return [(one, partition) for one, partitions in tasks.items() for partition in partitions]


StreamsGroups.TestCase.settings = hypothesis_settings(max_examples=examples(50), stateful_step_count=30)
TestStreamsGroups = StreamsGroups.TestCase
