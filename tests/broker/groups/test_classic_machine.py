"""A classic group driven at random by clients that behave, crash, restart and lie, against what must hold throughout.

- No partition has two owners in one generation; in a stable group every partition has one.
- The generation only grows, but for a restart, which falls back to the last record.
- What the records so far make of a fresh group is what the group was when it wrote them.
- Every request is answered once, unless its connection ended; no phase lasts for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kit.classic_groups import ClassicTable
from kit.examples import examples

from ottla.broker.groups.classic import ClassicGroup
from ottla.broker.groups.classic_rebalance import Awaited
from ottla.protocol.errors import ErrorCode

PARTITIONS = frozenset(range(6))
SESSION_MS = 1_000
REBALANCE_MS = 2_000
ROUND_MS = 100
ROUNDS_TO_SETTLE = 400
FATAL = {
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,  # a group that was loaded knows one protocol of each member
}


class Client:
    """A consumer: it joins, assigns when it leads, syncs, heartbeats, and believes the codes that it gets."""

    def __init__(self, name: str, version: int, instance: str | None, protocols: tuple[str, ...]) -> None:
        self.name = name
        self.version = version
        self.instance = instance
        self.protocols = protocols
        self.connect()
        self.restart()

    def restart(self) -> None:
        """A new process: nothing is remembered but the configuration."""
        self.connect()
        self.is_running = False
        self.has_given_up = False
        self.member_id = ""
        self.generation = -1
        self.metadata = b"0"
        self.is_joined = False
        self.to_assign: tuple[str, ...] = ()
        self.owned: frozenset[int] | None = None

    def connect(self) -> None:
        """A new connection. The group knows connections by identity."""
        self.connection = object()
        self.waiter: int | None = None


def encode_owned(partitions: frozenset[int]) -> bytes:
    return bytes(sorted(partitions))


def spread(members: tuple[str, ...]) -> dict[str, bytes]:
    """What a leader makes of the members that it receives."""
    return {
        member_id: encode_owned(frozenset(p for p in PARTITIONS if p % len(members) == index))
        for index, member_id in enumerate(members)
    }


class ClassicGroupLife(RuleBasedStateMachine):
    """See the module's text."""

    def __init__(self) -> None:
        super().__init__()
        self.clients = [
            Client("a", 9, None, ("range", "sticky")),
            Client("b", 9, None, ("sticky", "range")),
            Client("old", 3, None, ("range",)),
            Client("s", 9, "S", ("range", "sticky")),
            Client("s-again", 9, "S", ("range", "sticky")),
            Client("t", 7, "T", ("sticky", "range")),
        ]
        self.table = ClassicTable()
        self.gone: set[int] = set()
        self.open: dict[int, object] = {}
        self.generation = 0
        self.snapshot: Any = None
        self.record_count = 0

    @initialize(
        delay_ms=st.sampled_from([0, 0, 300]),
        evict_ms=st.sampled_from([-1, 0, 250]),
        max_size=st.sampled_from([3, 100, 100]),
    )
    def begin(self, delay_ms: int, evict_ms: int, max_size: int) -> None:
        self.table = ClassicTable(
            initial_rebalance_delay_ms=delay_ms, evict_on_disconnect_ms=evict_ms, max_size=max_size
        )

    # Clients

    clients_drawn = st.integers(0, 5)

    @rule(indexes=st.lists(clients_drawn, min_size=1, max_size=8))
    def go_on(self, indexes: list[int]) -> None:
        """Clients do the next thing that a consumer would do, one after the other."""
        for index in indexes:
            self.act(self.clients[index])

    @rule(indexes=st.lists(clients_drawn, min_size=2, max_size=6))
    def begin_a_rebalance(self, indexes: list[int]) -> None:
        """From a stable group to one in which some wait and some do not."""
        self.go_on(list(range(len(self.clients))) * 3)
        self.change_metadata(indexes[0])
        self.go_on(indexes[1:])

    @rule(index=clients_drawn)
    def change_metadata(self, index: int) -> None:
        client = self.clients[index]
        if client.is_running and client.waiter is None:
            client.metadata += b"+"
            self.send_join(client)

    @rule(index=clients_drawn, is_noticed=st.booleans())
    def crash(self, index: int, is_noticed: bool) -> None:
        """A process dies; the broker notices when its connection is closed, or never."""
        client = self.clients[index]
        connection = client.connection
        client.restart()
        self.forget_connection(connection, is_noticed)

    @rule(index=clients_drawn)
    def lose_connection(self, index: int) -> None:
        """The client lives on and connects again; what it had sent and not got an answer for it sends again."""
        client = self.clients[index]
        connection = client.connection
        client.connect()
        self.forget_connection(connection, True)

    @rule(index=clients_drawn)
    def leave(self, index: int) -> None:
        client = self.clients[index]
        if client.member_id and client.waiter is None:
            self.table.leave((client.member_id, client.instance))
            client.restart()

    def act(self, client: Client) -> None:
        client.is_running = True
        if client.waiter is not None:
            self.hear(client)
        elif client.has_given_up:
            return
        elif client.generation < 0:
            self.send_join(client)
        elif not client.is_joined:
            self.send_sync(client, spread(client.to_assign) if client.to_assign else {})
        else:
            code = self.table.heartbeat(
                client.member_id, client.generation, instance=client.instance, connection=client.connection
            )
            self.obey(client, code)

    def send_join(self, client: Client) -> None:
        waiter = self.table.join(
            client.member_id,
            version=client.version,
            protocols=[(name, client.metadata) for name in client.protocols],
            instance=client.instance,
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
            connection=client.connection,
        )
        client.owned, client.generation, client.is_joined = None, -1, False
        client.waiter = waiter
        self.open[waiter] = client.connection
        self.hear(client)

    def send_sync(self, client: Client, assignments: Mapping[str, bytes]) -> None:
        waiter = self.table.sync(
            client.member_id,
            client.generation,
            assignments,
            version=min(client.version, 5),
            instance=client.instance,
            connection=client.connection,
        )
        client.waiter = waiter
        self.open[waiter] = client.connection
        self.hear(client)

    def hear(self, client: Client) -> None:
        waiter = client.waiter
        assert waiter is not None
        if self.table.is_waiting(waiter):
            return
        answer = self.table.answers[waiter]
        client.waiter = None
        del self.open[waiter]
        if answer.error_code != ErrorCode.NONE:
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id = answer.member_id
            self.obey(client, ErrorCode.of(answer.error_code))
        elif hasattr(answer, "assignment"):
            client.is_joined = True
            client.owned = frozenset(answer.assignment)
        else:
            client.member_id, client.generation, client.is_joined = answer.member_id, answer.generation_id, False
            leads = answer.leader == answer.member_id and not answer.skip_assignment
            client.to_assign = tuple(member.member_id for member in answer.members) if leads else ()
            assert bool(client.to_assign) == leads
            for other in self.clients:  # the run before of a static member is fenced; it will hear of it
                if other is not client and other.instance == client.instance and client.instance is not None:
                    other.owned = None

    def obey(self, client: Client, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            return
        client.owned, client.generation, client.is_joined = None, -1, False
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            client.member_id = ""
        elif code in FATAL:
            client.member_id = ""
            client.has_given_up = True
        else:
            assert code in (
                ErrorCode.REBALANCE_IN_PROGRESS,
                ErrorCode.ILLEGAL_GENERATION,
                ErrorCode.MEMBER_ID_REQUIRED,
            ), code

    def forget_connection(self, connection: object, is_noticed: bool) -> None:
        for waiter in [waiter for waiter, of in self.open.items() if of is connection]:
            del self.open[waiter]
            if is_noticed:
                self.gone.add(waiter)
        if is_noticed:
            self.table.disconnect(connection)

    # Lies

    @rule(
        index=clients_drawn,
        generation=st.integers(-1, 6),
        instance=st.sampled_from([None, None, "S", "T", "U"]),
        kind=st.sampled_from(["sync", "heartbeat", "leave", "join", "strange-protocol", "steal"]),
    )
    def lie(self, index: int, generation: int, instance: str | None, kind: str) -> None:
        """Somebody who is no member of the group says that it is."""
        before = self.table.group.describe()
        connection = "liar"
        if kind == "sync":
            waiter = self.table.sync("liar-1", generation, {"liar-1": b"all"}, instance=instance, connection=connection)
        elif kind == "heartbeat":
            assert self.table.heartbeat("liar-1", generation, instance=instance, connection=connection)
            waiter = None
        elif kind == "leave":
            assert self.table.leave(("liar-1", instance)).members[0].error_code
            waiter = None
        elif kind == "join":
            waiter = self.table.join("liar-1", instance=instance, connection=connection)
        elif kind == "strange-protocol":
            waiter = self.table.join(protocols=(), instance=instance, connection=connection)
        else:  # a second assignment from whoever leads, in a generation that has one
            leader = self.table.group.roster.leader
            if leader is None or self.table.state != "Stable":
                return
            waiter = self.table.sync(leader, assignments={leader: bytes(PARTITIONS)}, connection=connection)
            assert self.table.code(waiter) == ErrorCode.NONE
            waiter = None
        if waiter is not None:
            assert self.table.code(waiter) != ErrorCode.NONE
        assert self.table.group.describe() == before

    @rule(index=clients_drawn, delta=st.sampled_from([-1, 1]))
    def sync_for_another_generation(self, index: int, delta: int) -> None:
        """A member that missed a rebalance, or leads a generation that is over, assigns everything to itself."""
        member_id = self.clients[index].member_id
        if member_id in self.table.group.members:
            before = self.table.group.describe()
            waiter = self.table.sync(
                member_id, self.table.generation + delta, {member_id: bytes(PARTITIONS)}, connection="late"
            )
            assert self.table.code(waiter) == ErrorCode.ILLEGAL_GENERATION
            assert self.table.group.describe() == before

    @rule()
    def all_members_do_nothing_but_heartbeat(self) -> None:
        """Sessions do not end, yet no phase outlasts the rebalance timeout: who does not join or sync is removed.

        Static members that all do not join are waited for as long as they live, as in Kafka.
        """
        for _ in range(30):
            self.table.pass_time(SESSION_MS / 2)
            for member_id in list(self.table.group.members):
                self.table.heartbeat(member_id, connection="heartbeats")
        members = self.table.group.members.values()
        awaits_static = members and all(member.is_static and member.join_wait is None for member in members)
        assert self.table.state in ("Stable", "Empty") or awaits_static

    # Time and the broker

    @rule(ms=st.sampled_from([1, 50, 250, 400, 999, 1_000, 2_500]))
    def pass_time(self, ms: int) -> None:
        self.table.pass_time(ms)

    @rule()
    def restart_broker(self) -> None:
        """Kill and load: connections and soft state are gone, records are there."""
        fresh = ClassicTable()
        fresh.settings = self.table.settings
        fresh.group = ClassicGroup(
            "g", fresh.settings, new_id=lambda: f"r{fresh.now_ms}-{next(self.table.next_waiter)}"
        )
        for key, value in self.table.records:
            fresh.group.replay(key, value)
        fresh.now_ms = self.table.now_ms
        fresh.next_waiter = self.table.next_waiter
        fresh.records = self.table.records
        self.gone |= self.open.keys()
        self.open.clear()
        for client in self.clients:
            client.connect()
        self.table = fresh
        self.generation = fresh.generation
        fresh.take(fresh.group.on_load(fresh.now))

    @rule()
    def everybody_is_silent_for_long(self) -> None:
        """No phase lasts for ever: without a sign of life the group ends up empty, all parked requests answered."""
        self.table.pass_time(400_000)
        assert self.table.state == "Empty"
        assert self.table.group.next_deadline_ms is None
        assert not self.table.group.roster.pending_joins
        self.all_answered()

    @precondition(lambda self: any(client.is_running and not client.has_given_up for client in self.clients))
    @rule()
    def all_who_live_settle(self) -> None:
        """With clients that do what they should, the group becomes stable, with all of them that have room."""
        for _ in range(ROUNDS_TO_SETTLE):
            live = [client for client in self.clients if client.is_running]
            for client in live:
                self.act(client)
            for client in live:
                if client.waiter is not None:
                    self.hear(client)
            members = {client.member_id for client in live if client.owned is not None}
            busy = any(client.owned is None and not client.has_given_up for client in live)
            if not busy and self.table.state == "Stable" and members == self.table.group.members.keys():
                return
            if not busy and not members and self.table.state == "Empty":
                return  # all of them were fenced or turned away
            self.table.pass_time(ROUND_MS)
        raise AssertionError(f"{self.table.state}: {self.table.group.roster.members}")

    # What holds

    @invariant()
    def no_partition_has_two_owners_in_one_generation(self) -> None:
        taken: set[tuple[int, int]] = set()
        for client in self.clients:
            for partition in client.owned or ():
                assert (client.generation, partition) not in taken
                taken.add((client.generation, partition))

    @invariant()
    def in_a_stable_group_every_partition_has_an_owner(self) -> None:
        group = self.table.group
        if group.state == "Stable":
            owned = [partition for member in group.members.values() for partition in member.assignment]
            assert sorted(owned) == sorted(PARTITIONS)

    @invariant()
    def the_generation_only_grows(self) -> None:
        assert self.table.generation >= self.generation
        self.generation = self.table.generation

    @invariant()
    def records_give_back_what_the_group_was(self) -> None:
        group = self.table.group
        if len(self.table.records) != self.record_count and group.state in ("Stable", "Empty"):
            self.record_count = len(self.table.records)
            self.snapshot = durable(group)
        if self.snapshot is not None and len(self.table.records) == self.record_count:
            assert durable(self.table.reload()) == self.snapshot
        if group.state == "Stable":
            assert durable(group) == durable(self.table.reload())

    @invariant()
    def the_bookkeeping_is_right(self) -> None:
        roster = self.table.group.roster
        assert roster.joined_count == sum(member.join_wait is not None for member in roster.members.values())
        assert roster.static_ids == {
            member.group_instance_id: member.member_id
            for member in roster.members.values()
            if member.group_instance_id is not None
        }
        assert (roster.leader in roster.members) if roster.members else roster.leader is None
        assert not roster.pending_joins.keys() & roster.members.keys()
        assert roster.pending_syncs <= roster.members.keys()
        is_empty = self.table.state == "Empty"
        assert bool(roster.members) <= (not is_empty)

    @invariant()
    def a_late_member_will_be_noticed(self) -> None:
        group, deadlines = self.table.group, self.table.group._deadlines
        assert ((Awaited.JOINS, "") in deadlines) == (group.state == "PreparingRebalance")
        assert ((Awaited.SYNCS, "") in deadlines) == bool(group.roster.pending_syncs)
        for member_id in group.roster.pending_joins:
            assert (Awaited.MEMBER, member_id) in deadlines
        for member in group.members.values():
            assert member.needs_no_heartbeat or (Awaited.MEMBER, member.member_id) in deadlines

    @invariant()
    def requests_are_parked_only_in_their_phase(self) -> None:
        group = self.table.group
        for member in group.members.values():
            if group.state != "PreparingRebalance":
                assert member.join_wait is None
            if group.state != "CompletingRebalance":
                assert member.sync_wait is None
            else:
                assert (member.sync_wait is None) == (member.member_id in group.roster.pending_syncs)

    @invariant()
    def only_who_waits_is_unanswered(self) -> None:
        """A request is answered or parked; one whose connection ended is not parked any more."""
        roster = self.table.group.roster
        parked = {
            wait.waiter
            for member in roster.members.values()
            for wait in (member.join_wait, member.sync_wait)
            if wait is not None
        }
        assert {waiter for waiter in self.open if self.table.is_waiting(waiter)} <= parked
        assert not parked & self.gone

    def all_answered(self) -> None:
        assert not [waiter for waiter in self.open if self.table.is_waiting(waiter)]


def durable(group: ClassicGroup) -> object:
    """What must survive a restart."""
    described = group.describe()
    return (
        described,
        group.generation_id,
        group.roster.leader,
        dict(group.roster.static_ids),
        [(member.rebalance_timeout_ms, member.session_timeout_ms) for member in group.members.values()],
        group.subscribed_topics,
        group.offsets_idle_since_ms(),
    )


TestClassicGroupLife = ClassicGroupLife.TestCase
TestClassicGroupLife.settings = settings(
    max_examples=examples(120),
    stateful_step_count=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
