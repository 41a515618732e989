"""Consumer groups under everything that can happen to them: no partition is ever owned by two members at a time.

The clients of this machine tell the truth, but late: they give up, take over and report in steps of their own, lose
answers, crash, and come back. Topics come, grow and go, time passes, the broker restarts with nothing but its log.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)
from kit.consumer_groups import GROUP, FakeTopics, GroupUnderTest, Member, heartbeat, owned_structs, snapshot
from kit.examples import examples

from ottla.broker.coordination.effects import Effects
from ottla.broker.groups.group import Caller
from ottla.broker.groups.settings import GroupSettings
from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from ottla.protocol.api.heartbeat import HeartbeatRequest
from ottla.protocol.api.join_group import JoinGroupRequest
from ottla.protocol.api.leave_group import LeaveGroupRequest
from ottla.protocol.api.sync_group import SyncGroupRequest
from ottla.protocol.consumer_protocol import ConsumerProtocolSubscription, decode_assignment, encode_subscription
from ottla.protocol.errors import ErrorCode, KafkaError

SESSION_MS = 10_000
REBALANCE_MS = 4_000
CLASSIC_GONE = {ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID}
GONE = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
NAMES = ["red", "green", "blue"]
EXPRESSIONS = ["red|green", ".*e.*", "b.*", "nothing"]

subscriptions = st.one_of(
    st.just({"topics": ["red"]}),
    st.lists(st.sampled_from(NAMES), unique=True).map(lambda names: {"topics": names}),
    st.sampled_from(EXPRESSIONS).map(lambda expression: {"topics": [], "subscribed_topic_regex": expression}),
    st.tuples(st.lists(st.sampled_from(NAMES), unique=True), st.sampled_from(EXPRESSIONS)).map(
        lambda both: {"topics": both[0], "subscribed_topic_regex": both[1]}
    ),
)


class Client(Member):
    """A member that can lose answers and be fenced."""

    is_alive = True
    missed_an_answer = False

    @property
    def holding(self) -> set[tuple[UUID, int]]:
        """What it may be working on: what it has not given up, and what it was assigned."""
        both = (self.owned, self.assigned)
        return {(topic, partition) for owned in both for topic, indexes in owned.items() for partition in indexes}

    def say(self, **fields: object) -> None:
        """A heartbeat; a client that is fenced gives up everything."""
        if self.missed_an_answer:
            fields = {**self._all_fields(), **fields, "topic_partitions": owned_structs(self.owned)}
        response = self.group.ask(heartbeat(self.member_id, self.epoch, **fields))
        if isinstance(response, KafkaError):
            assert response.code in GONE, response
            self.die()
        else:
            assert isinstance(response, ConsumerGroupHeartbeatResponse)
            self.missed_an_answer = False
            self._note(response)

    def leave(self) -> None:
        self.group.ask(heartbeat(self.member_id, -1))

    def say_into_the_void(self) -> None:
        """A heartbeat that arrives, and whose answer is lost.

        It said that it does not own what it was assigned and has not taken over yet, so that may be somebody else's by
        now (as in Kafka, where the epoch fences what it does all the same): it does not hold it any more.
        """
        self.group.ask(heartbeat(self.member_id, self.epoch, topic_partitions=owned_structs(self.owned)))
        self.missed_an_answer = True
        self.assigned = self.owned

    def report(self) -> None:
        self.say(topic_partitions=owned_structs(self.owned))

    def keep_up_if_alive(self) -> None:
        if self.is_alive:
            self.revoke()
            self.take_over()
            self.report()

    def die(self) -> None:
        self.is_alive = False
        self.owned, self.assigned = {}, {}

    def _all_fields(self) -> dict[str, object]:
        named = {key: value for key, value in self.fields.items() if key != "topics"}
        return {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topic_names": self.fields["topics"], **named}


class ClassicClient(Client):
    """A cooperative member of the classic protocol, in a group that is on its way to the other one."""

    has_to_join = True

    def join(self) -> ClassicClient:
        self._join()
        return self

    def say(self, **fields: object) -> None:
        """A Heartbeat, which may tell it to join again."""
        request = HeartbeatRequest(group_id=GROUP, generation_id=self.epoch, member_id=self.member_id)
        code = self._ask(self.group.group.heartbeat, request, 4).error_code
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.has_to_join = True
        elif code != ErrorCode.NONE:
            assert code in CLASSIC_GONE, code
            self.die()

    def report(self) -> None:
        """Join again if it was asked to, naming what it owns, and fetch the assignment."""
        self.say()
        if self.is_alive and self.has_to_join:
            self._join()
        if self.is_alive:
            self._sync()

    def keep_up_if_alive(self) -> None:
        if self.is_alive:
            self.report()
            self.revoke()
            self.take_over()

    def say_into_the_void(self) -> None:
        self._ask(self.group.group.join, self._join_request(), 9)

    def leave(self) -> None:
        identity = LeaveGroupRequest.MemberIdentity(member_id=self.member_id)
        self._ask(self.group.group.leave, LeaveGroupRequest(group_id=GROUP, members=[identity]), 5)

    def _join(self) -> None:
        answer = self._ask(self.group.group.join, self._join_request(), 9)
        assert answer.error_code == ErrorCode.NONE
        self.epoch = answer.generation_id
        self.has_to_join = False

    def _sync(self) -> None:
        request = SyncGroupRequest(group_id=GROUP, generation_id=self.epoch, member_id=self.member_id, assignments=[])
        answer = self._ask(self.group.group.sync, request, 3)
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.has_to_join = True
            return
        assert answer.error_code == ErrorCode.NONE
        listed = decode_assignment(answer.assignment).assigned_partitions
        topics = self.group.topics
        found = {topics.id_of(entry.topic): frozenset(entry.partitions) for entry in listed}
        self.assigned = {topic: partitions for topic, partitions in found.items() if topic is not None}
        if any(self.owned[topic] - self.assigned.get(topic, frozenset()) for topic in self.owned):
            self.has_to_join = True

    def _join_request(self) -> JoinGroupRequest:
        owned = [
            ConsumerProtocolSubscription.TopicPartition(topic=name, partitions=sorted(partitions))
            for topic, partitions in self.owned.items()
            if (name := self.group.topics.name_of(topic)) is not None
        ]
        wanted = ConsumerProtocolSubscription(topics=list(self.fields["topics"]), owned_partitions=owned)
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="cooperative", metadata=encode_subscription(wanted))
        return JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )

    def _ask(self, method: Callable[..., Effects], request: object, version: int) -> Any:
        caller = Caller("classic", "/127.0.0.1", None)
        return self.group.run(method(request, version, caller, "waiter", self.group.now))


class ConsumerGroups(RuleBasedStateMachine):
    """The rules; `clients` are those that were not fenced."""

    clients = Bundle("clients")

    @initialize()
    def start(self) -> None:
        self.topics = FakeTopics({"red": 4, "green": 2})
        settings_ = GroupSettings(consumer_session_timeout_ms=SESSION_MS, consumer_migration_policy="upgrade")
        self.group = GroupUnderTest(self.topics, settings_)
        self.all: list[Client] = []
        self.last_epochs = (0, 0)
        self.joined = 0
        for _ in range(2):
            self._join({"topics": ["red"]}).keep_up_if_alive()

    @property
    def alive(self) -> list[Client]:
        return [client for client in self.all if client.is_alive]

    @rule(target=clients, subscription=subscriptions, assignor=st.sampled_from([None, "uniform", "range"]))
    def join(self, subscription: dict[str, object], assignor: str | None) -> Client:
        return self._join(subscription, server_assignor=assignor)

    @rule(target=clients, subscription=subscriptions, instance=st.sampled_from(["i1", "i2"]))
    def join_static(self, subscription: dict[str, object], instance: str) -> object:
        known = self.group.group.durable.member_of_instance(instance)
        if known is not None and known.member_epoch != -2:
            return multiple()  # refused, as the table tests show
        # It says all of it: null would keep the expression of its former run, as in Kafka.
        return self._join({"subscribed_topic_regex": "", **subscription}, instance_id=instance)

    @precondition(lambda self: not self.group.group.is_empty)
    @rule(target=clients, names=st.lists(st.sampled_from(NAMES), unique=True))
    def join_in_the_classic_protocol(self, names: list[str]) -> Client:
        self.joined += 1
        client = ClassicClient(self.group, f"m{self.joined}", names)
        self.all.append(client)
        return client.join()

    def _join(self, subscription: dict[str, object], **fields: object) -> Client:
        self.joined += 1
        client = Client(self.group, f"m{self.joined}", **subscription, **fields, rebalance_timeout_ms=REBALANCE_MS)
        self.all.append(client)
        client.join()
        return client

    @rule(client=clients, turn=st.sampled_from(["says nothing new", "reports", "gives up", "takes over", "keeps up"]))
    def take_a_turn(self, client: Client, turn: str) -> None:
        if not client.is_alive:
            return
        match turn:
            case "says nothing new":
                client.say()
            case "reports":
                client.report()
            case "gives up":
                client.revoke()
            case "takes over":
                client.revoke()
                client.take_over()
            case "keeps up":
                client.keep_up_if_alive()

    @rule()
    def all_say_nothing_new(self) -> None:
        for client in self.alive:
            client.say()

    @rule()
    def all_keep_up_once(self) -> None:
        for client in self.alive:
            client.keep_up_if_alive()

    @rule(client=clients)
    def lose_an_answer(self, client: Client) -> None:
        if client.is_alive:
            client.say_into_the_void()

    @rule(client=clients)
    def give_up_all_and_join_again(self, client: Client) -> None:
        if not client.is_alive or isinstance(client, ClassicClient):
            return
        known = self.group.group.durable.member_of_instance(client.fields.get("instance_id"))
        if known is not None and known.member_id != client.member_id and known.member_epoch != -2:
            return  # another process has its instance id
        client.owned, client.missed_an_answer = {}, False
        client.join()

    @rule(client=clients, subscription=subscriptions)
    def subscribe_to_something_else(self, client: Client, subscription: dict[str, object]) -> None:
        if client.is_alive and not isinstance(client, ClassicClient):
            client.fields.update({"subscribed_topic_regex": "", **subscription})
            client.say(
                subscribed_topic_names=subscription["topics"],
                subscribed_topic_regex=subscription.get("subscribed_topic_regex", ""),
            )

    @rule(client=consumes(clients), how=st.sampled_from(["leaves", "leaves for a while", "crashes"]))
    def end(self, client: Client, how: str) -> None:
        if not client.is_alive:
            return
        instance = client.fields.get("instance_id")
        if how == "leaves":
            client.leave()
        elif how == "leaves for a while" and instance is not None:
            self.group.ask(heartbeat(client.member_id, -2, instance_id=instance))
        if how == "crashes":
            client.is_alive = False
        else:
            client.die()

    @rule(ms=st.sampled_from([1, REBALANCE_MS // 2, SESSION_MS // 2]))
    def let_time_pass(self, ms: int) -> None:
        self.group.pass_time(ms)

    @rule(name=st.sampled_from(NAMES), partitions=st.integers(1, 5))
    def make_or_grow_a_topic(self, name: str, partitions: int) -> None:
        topic_id = self.topics.id_of(name)
        if topic_id is None:
            self.topics.create(name, partitions)
        elif partitions > self.topics.partition_count(topic_id):
            self.topics.grow(name, partitions)

    @rule(name=st.sampled_from(NAMES))
    def delete_a_topic(self, name: str) -> None:
        if self.topics.id_of(name) is not None:
            self.topics.delete(name)

    @rule()
    def restart(self) -> None:
        before = snapshot(self.group.group)
        self.group.restart()
        assert snapshot(self.group.group) == before

    @rule()
    def everybody_keeps_up(self) -> None:
        """Those who crashed run out of time meanwhile; then everything has an owner and the group is stable."""
        for _ in range(2 * (SESSION_MS + REBALANCE_MS) // (REBALANCE_MS // 2)):
            self.group.pass_time(REBALANCE_MS // 2)
            for client in self.alive:
                client.keep_up_if_alive()
        group = self.group.group
        assert group.state == ("Stable" if self.alive else "Empty")
        assert group.durable.members.keys() == {client.member_id for client in self.alive}
        held = [entry for client in self.alive for entry in client.holding]
        wanted = {topic for client in self.alive for topic in self.topics_of(client)}
        assert sorted(held) == sorted(
            (topic, index) for topic in wanted for index in range(self.topics.partition_count(topic))
        )
        for client in self.alive:
            assert {topic for topic, _ in client.holding} <= self.topics_of(client)
            assert client.owned == client.assigned == group.durable.members[client.member_id].assigned

    def topics_of(self, client: Client) -> set[UUID]:
        """What a client subscribes to, by Python's regular expressions."""
        expression = re.compile(client.fields.get("subscribed_topic_regex") or "(?!)")
        names = {name for name in self.topics.names() if expression.fullmatch(name)} | {*client.fields["topics"]}
        return {topic for topic in map(self.topics.id_of, names) if topic is not None}

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        members = self.group.group.durable.members
        held = [entry for client in self.all if client.member_id in members for entry in client.holding]
        assert len(held) == len(set(held))

    @invariant()
    def epochs_never_go_back(self) -> None:
        durable = self.group.group.durable
        epochs = (durable.group_epoch, durable.assignment_epoch)
        assert epochs >= self.last_epochs
        assert durable.assignment_epoch <= durable.group_epoch
        assert all(client.epoch <= durable.group_epoch for client in self.alive)
        self.last_epochs = epochs

    def teardown(self) -> None:
        if hasattr(self, "group"):
            self.restart()
            self.everybody_keeps_up()


ConsumerGroups.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=40)
TestConsumerGroups = ConsumerGroups.TestCase
