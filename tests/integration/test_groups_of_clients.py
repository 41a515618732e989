"""Consumer groups of the classic protocol as programs use them: three client libraries, each member a process.

Every test but those that restart the broker is to be judged by Apache Kafka too (`OTTLA_TEST_BOOTSTRAP`).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kit.broker import BrokerProcess
from kit.group_members import SHORT_SESSION_MS, Member, Place
from kit.wire import Wire

from ottla.protocol.api.create_topics import CreateTopicsRequest

LIBRARIES = ["confluent", "aiokafka", "kafka-python"]
COOPERATIVE = ["confluent", "kafka-python"]
PARTITIONS = 4
WAIT_S = 30.0

Start = Callable[..., Member]


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex}"


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts members; those that are still there at the end are killed."""
    members: list[Member] = []

    def begin(*arguments: object, **options: object) -> Member:
        members.append(Member(*arguments, **options))  # type: ignore[arg-type]  # as Member's own
        return members[-1]

    yield begin
    for member in members:
        member.kill()


def create(broker: BrokerProcess, *topics: str) -> None:
    wanted = [
        CreateTopicsRequest.CreatableTopic(
            name=topic, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[]
        )
        for topic in topics
    ]
    with Wire(broker.port) as wire:
        answer = wire.call(CreateTopicsRequest(topics=wanted, timeout_ms=30_000), 7)
    assert {topic.error_code for topic in answer.topics} == {0}


def produce(broker: BrokerProcess, topic: str, values: set[str]) -> None:
    """Spread values over the partitions of a topic; all are kept on return."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    for index, value in enumerate(sorted(values)):
        producer.produce(topic, value.encode(), partition=index % PARTITIONS)
    assert producer.flush(WAIT_S) == 0


def numbered(prefix: str, count: int = 40) -> set[str]:
    return {f"{prefix}-{index:04d}" for index in range(count)}


def all_of(*topics: str) -> frozenset[Place]:
    return frozenset((topic, partition) for topic in topics for partition in range(PARTITIONS))


def owns(places: frozenset[Place]) -> Callable[[Member], bool]:
    return lambda member: member.assignment == places


def owns_count(count: int) -> Callable[[Member], bool]:
    return lambda member: member.assignment is not None and len(member.assignment) == count


def has(values: set[str]) -> Callable[[Member], bool]:
    return lambda member: values <= member.values


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_member_gets_all_and_begins_where_the_group_left_off(
    broker: BrokerProcess, topic: str, group: str, start: Start, library: str
) -> None:
    create(broker, topic)
    produce(broker, topic, numbered("first"))
    one = start(library, broker.bootstrap, group, [topic])
    one.wait(has(numbered("first")))
    one.leave()
    produce(broker, topic, numbered("second"))
    two = start(library, broker.bootstrap, group, [topic])
    two.wait(has(numbered("second")))
    two.leave()
    assert two.values == numbered("second")


@pytest.mark.parametrize("library", LIBRARIES)
def test_two_groups_each_get_all(broker: BrokerProcess, topic: str, group: str, start: Start, library: str) -> None:
    create(broker, topic)
    produce(broker, topic, numbered("r"))
    members = [start(library, broker.bootstrap, f"{group}-{index}", [topic]) for index in range(2)]
    for member in members:
        member.wait(has(numbered("r")))
        assert member.assignment == all_of(topic)


@pytest.mark.parametrize("library", LIBRARIES)
def test_partitions_move_when_a_member_joins_and_when_it_leaves(
    broker: BrokerProcess, topic: str, group: str, start: Start, library: str
) -> None:
    create(broker, topic)
    one = start(library, broker.bootstrap, group, [topic])
    one.wait(owns(all_of(topic)))
    produce(broker, topic, numbered("alone"))
    one.wait(has(numbered("alone")))
    two = start(library, broker.bootstrap, group, [topic])
    two.wait(owns_count(2))
    one.wait(owns(all_of(topic) - (two.assignment or frozenset())))
    produce(broker, topic, numbered("shared"))
    here = {value for index, value in enumerate(sorted(numbered("shared"))) if (topic, index % 4) in one.assignment}
    one.wait(has(here))
    two.wait(has(numbered("shared") - here))
    assert not (two.values & here)
    two.leave()
    one.wait(owns(all_of(topic)))
    produce(broker, topic, numbered("again"))
    one.wait(has(numbered("again")))


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_killed_member_is_taken_over_from(
    broker: BrokerProcess, topic: str, group: str, start: Start, library: str
) -> None:
    create(broker, topic)
    one = start(library, broker.bootstrap, group, [topic])
    one.wait(owns(all_of(topic)))
    two = start(library, broker.bootstrap, group, [topic], session_ms=SHORT_SESSION_MS)
    two.wait(owns_count(2))
    one.wait(owns_count(2))
    two.kill()
    produce(broker, topic, numbered("after"))
    one.wait(owns(all_of(topic)))
    one.wait(has(numbered("after")))


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_static_member_returns_and_nobody_else_notices(
    broker: BrokerProcess, topic: str, group: str, start: Start, library: str
) -> None:
    create(broker, topic)
    one = start(library, broker.bootstrap, group, [topic], instance="one")
    one.wait(owns(all_of(topic)))
    two = start(library, broker.bootstrap, group, [topic], instance="two")
    two.wait(owns_count(2))
    one.wait(owns_count(2))
    owned, revoked = two.assignment, len(one.revoked)
    two.kill()
    produce(broker, topic, numbered("meanwhile"))
    again = start(library, broker.bootstrap, group, [topic], instance="two")
    again.wait(owns(owned or frozenset()))
    here = {value for index, value in enumerate(sorted(numbered("meanwhile"))) if (topic, index % 4) in (owned or ())}
    again.wait(has(here))
    one.wait(has(numbered("meanwhile") - here))
    assert (len(one.revoked), len(one.assignment or ())) == (revoked, 2)


@pytest.mark.parametrize("library", COOPERATIVE)
def test_a_cooperative_group_takes_only_what_must_move(
    broker: BrokerProcess, topic: str, group: str, start: Start, library: str
) -> None:
    create(broker, topic)
    options = {"assignor": "cooperative"}
    one = start(library, broker.bootstrap, group, [topic], **options)
    one.wait(owns(all_of(topic)))
    two = start(library, broker.bootstrap, group, [topic], session_ms=SHORT_SESSION_MS, **options)
    two.wait(owns_count(2))
    one.wait(owns(all_of(topic) - (two.assignment or frozenset())))
    given_up = [places for places in one.revoked if places]
    assert given_up == [two.assignment]
    produce(broker, topic, numbered("r"))
    one.wait(lambda member: len(member.values) == len(numbered("r")) // 2)
    two.wait(lambda member: len(member.values) == len(numbered("r")) // 2)
    two.kill()
    one.wait(owns(all_of(topic)))
    assert [places for places in one.revoked if places] == given_up


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_group_reads_two_topics(broker: BrokerProcess, topic: str, group: str, start: Start, library: str) -> None:
    topics = [f"{topic}-x", f"{topic}-y"]
    create(broker, *topics)
    members = [start(library, broker.bootstrap, group, topics)]
    members[0].wait(owns(all_of(*topics)))
    members.append(start(library, broker.bootstrap, group, topics))
    for member in members:
        member.wait(owns_count(PARTITIONS))
    for each in topics:
        produce(broker, each, numbered(each))
    for member in members:
        member.wait(lambda member: len(member.values) == len(numbered("")))
    assert members[0].values | members[1].values == numbered(topics[0]) | numbered(topics[1])


@pytest.mark.skipif("OTTLA_TEST_BOOTSTRAP" in os.environ, reason="the broker is restarted")
@pytest.mark.parametrize("ending", ["stop", "kill"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_members_and_commits_outlive_the_broker(
    own_broker: BrokerProcess, topic: str, group: str, start: Start, library: str, ending: str, tmp_path: Path
) -> None:
    broker = own_broker
    create(broker, topic)
    produce(broker, topic, numbered("before"))
    one = start(library, broker.bootstrap, group, [topic])
    one.wait(has(numbered("before")))
    if ending == "stop":
        broker.restart()
    else:
        broker.kill()
        broker.start()
    produce(broker, topic, numbered("after"))
    one.wait(has(numbered("after")))
    one.leave()
    produce(broker, topic, numbered("last"))
    two = start(library, broker.bootstrap, group, [topic])
    two.wait(has(numbered("last")))
    assert two.values == numbered("last")


@pytest.mark.skipif("OTTLA_TEST_BOOTSTRAP" in os.environ, reason="an option of our own")
@pytest.mark.parametrize("library", LIBRARIES)
def test_with_the_option_a_killed_member_is_taken_over_from_long_before_its_session_ends(
    topic: str, group: str, start: Start, library: str, tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path / "data", {"ottla.group.evict.on.disconnect.ms": "0"}) as broker:
        create(broker, topic)
        one = start(library, broker.bootstrap, group, [topic], session_ms=120_000)
        one.wait(owns(all_of(topic)))
        two = start(library, broker.bootstrap, group, [topic], session_ms=120_000)
        two.wait(owns_count(2))
        one.wait(owns_count(2))
        two.kill()
        one.wait(owns(all_of(topic)))  # the patience of `wait` is less than the session
