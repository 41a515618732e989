"""Transactions as programs use them, with three client libraries: commit, abort, offsets, fencing, timeouts, restarts.

Every test but those that restart the broker is to be judged by Apache Kafka too:

    scripts/interop/apache-kafka --override transaction.abort.timed.out.transaction.cleanup.interval.ms=100 \\
        -- .venv/bin/pytest tests/integration/test_transactions.py
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import TransactionalIdNotFoundError
from kit.broker import BrokerProcess
from kit.transactional_clients import LIBRARIES, Library
from kit.wire import Wire

from ottla.protocol.api.create_topics import CreateTopicsRequest
from ottla.protocol.api.list_offsets import ListOffsetsRequest
from ottla.protocol.api.offset_fetch import OffsetFetchRequest
from ottla.protocol.errors import ErrorCode

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
END = "the end"
A_MOMENT_S = 0.3
SHORT_TIMEOUT_MS = 1000
QUICK_ABORTS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
NO_OFFSET = -1
Answer = TypeVar("Answer")


@pytest.fixture
def transactional_id() -> str:
    return f"tx-{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def aborting_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that looks for transactions that are open too long ten times in a second."""
    peer = os.environ.get("OTTLA_TEST_BOOTSTRAP")
    broker = BrokerProcess(tmp_path_factory.mktemp("aborting"), QUICK_ABORTS)
    if peer:
        broker.port = int(peer.rpartition(":")[2])
        yield broker
        return
    with broker:
        yield broker


@pytest.fixture(params=LIBRARIES, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> type[Library]:
    found: type[Library] = request.param
    return found


@pytest.fixture
def library(kind: type[Library], broker: BrokerProcess) -> Iterator[Library]:
    with kind(broker.bootstrap) as opened:
        yield opened


def create(broker: BrokerProcess, topic: str, partitions: int = 1) -> None:
    wanted = CreateTopicsRequest.CreatableTopic(
        name=topic, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    with Wire(broker.port) as wire:
        answer = wire.call(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 7)
    assert [each.error_code for each in answer.topics] == [0]


def put(broker: BrokerProcess, topic: str, *values: str, partition: int = 0) -> None:
    """Records without a transaction."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(60) == 0


def end_offset(broker: BrokerProcess, topic: str, isolation_level: int) -> int:
    """The high watermark (level 0) or the last stable offset (level 1)."""
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    asked = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition])
    with Wire(broker.port) as wire:
        answer = wire.call(ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[asked]), 7)
    return int(answer.topics[0].partitions[0].offset)


def committed_offset(broker: BrokerProcess, group: str, topic: str, *, require_stable: bool) -> tuple[ErrorCode, int]:
    topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=topics)
    with Wire(broker.port) as wire:
        answer = wire.call(OffsetFetchRequest(groups=[asked], require_stable=require_stable), 8)
    assert answer.groups[0].error_code == 0
    found = answer.groups[0].topics[0].partitions[0]
    return ErrorCode(found.error_code), int(found.committed_offset)


def stable_offset(broker: BrokerProcess, group: str, topic: str) -> int:
    """The offset, as soon as none is pending: Apache Kafka acknowledges an end before its markers are written."""
    error, offset = until(
        lambda: committed_offset(broker, group, topic, require_stable=True),
        lambda answer: answer[0] is not ErrorCode.UNSTABLE_OFFSET_COMMIT,
    )
    assert error is ErrorCode.NONE
    return offset


def until(ask: Callable[[], Answer], is_it: Callable[[Answer], bool]) -> Answer:
    """The first answer that is as it should be; the last one after a minute."""
    deadline = time.monotonic() + 60
    while not is_it(answer := ask()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return answer


def test_committed_records_are_read_and_aborted_ones_are_not(
    library: Library, broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    create(broker, topic)
    producer = library.producer(transactional_id)
    for name, end in (("one", producer.commit), ("two", producer.abort), ("three", producer.commit)):
        producer.begin()
        for number in range(3):
            producer.send(topic, 0, f"{name}-{number}")
        end()
    put(broker, topic, END)
    committed = [f"{name}-{number}" for name in ("one", "three") for number in range(3)]
    every = [f"{name}-{number}" for name in ("one", "two", "three") for number in range(3)]
    assert library.read_until(END, topic, COMMITTED) == committed
    assert library.read_until(END, topic, UNCOMMITTED) == every


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_an_open_transaction_holds_committed_readers_until_it_ends(
    library: Library, broker: BrokerProcess, topic: str, transactional_id: str, end: str
) -> None:
    create(broker, topic)
    put(broker, topic, "before")
    producer = library.producer(transactional_id)
    producer.begin()
    producer.send(topic, 0, "inside")
    put(broker, topic, "after")
    reader = library.reader(topic, COMMITTED)
    assert reader.poll(60) == "before"
    assert reader.poll(A_MOMENT_S) is None
    assert (end_offset(broker, topic, 0), end_offset(broker, topic, 1)) == (3, 1)
    producer.commit() if end == "commit" else producer.abort()
    if end == "commit":
        assert reader.poll(60) == "inside"
    assert reader.poll(60) == "after"
    assert end_offset(broker, topic, 0) == end_offset(broker, topic, 1) == 4  # the marker has one, too


def test_a_transaction_of_several_partitions_ends_in_all_of_them(
    library: Library, broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    create(broker, topic, partitions=5)
    producer = library.producer(transactional_id)
    for name, end in (("kept", producer.commit), ("gone", producer.abort)):
        producer.begin()
        for partition in range(5):
            producer.send(topic, partition, f"{name}-{partition}")
        end()
    for partition in range(5):
        put(broker, topic, END, partition=partition)
    assert sorted(library.read_until(END, topic, COMMITTED, partitions=5)) == [f"kept-{index}" for index in range(5)]


def test_offsets_move_with_the_transaction(
    library: Library, broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    create(broker, topic)
    group = f"group-of-{transactional_id}"
    producer = library.producer(transactional_id)
    for offset, end, expected in ((7, producer.abort, NO_OFFSET), (8, producer.commit, 8), (9, producer.abort, 8)):
        producer.begin()
        producer.send(topic, 0, f"upto-{offset}")
        producer.send_offset(group, topic, 0, offset)
        pending = committed_offset(broker, group, topic, require_stable=True)
        assert pending == (ErrorCode.UNSTABLE_OFFSET_COMMIT, NO_OFFSET)
        end()
        assert stable_offset(broker, group, topic) == expected
    put(broker, topic, END)
    assert library.read_until(END, topic, COMMITTED) == ["upto-8"]


def test_a_pending_offset_is_not_read_without_require_stable(
    library: Library, broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    create(broker, topic)
    group = f"group-of-{transactional_id}"
    producer = library.producer(transactional_id)
    producer.begin()
    producer.send_offset(group, topic, 0, 5)
    assert committed_offset(broker, group, topic, require_stable=False) == (ErrorCode.NONE, NO_OFFSET)
    producer.commit()
    assert stable_offset(broker, group, topic) == 5


def test_a_second_producer_fences_the_first_and_aborts_its_transaction(
    library: Library, broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    create(broker, topic)
    first = library.producer(transactional_id)
    first.begin()
    first.send(topic, 0, "of the first")
    second = library.producer(transactional_id)
    second.begin()
    second.send(topic, 0, "of the second")
    error = refusal_of(first.commit)
    assert library.is_fenced(error), repr(error)
    second.commit()
    put(broker, topic, END)
    assert library.read_until(END, topic, COMMITTED) == ["of the second"]


def test_a_fenced_producer_writes_no_record(
    library: Library, broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    create(broker, topic)
    first = library.producer(transactional_id)
    first.begin()
    first.send(topic, 0, "of the first")
    library.producer(transactional_id)
    error = refusal_of(lambda: first.send(topic, 0, "too late"))
    assert error is not None
    put(broker, topic, END)
    assert library.read_until(END, topic, UNCOMMITTED) == ["of the first"]
    assert library.read_until(END, topic, COMMITTED) == []


def test_a_transaction_that_is_open_too_long_is_aborted(
    kind: type[Library], aborting_broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    create(aborting_broker, topic)
    with kind(aborting_broker.bootstrap) as library:
        producer = library.producer(transactional_id, SHORT_TIMEOUT_MS)
        producer.begin()
        producer.send(topic, 0, "forgotten")
        put(aborting_broker, topic, END)
        assert library.read_until(END, topic, COMMITTED) == []  # it waits for the abort
        assert refusal_of(producer.commit) is not None
        again = library.producer(transactional_id)
        again.begin()
        again.send(topic, 0, "again")
        again.commit()
        put(aborting_broker, topic, "last")
        assert library.read_until("last", topic, COMMITTED) == [END, "again"]


def test_an_administrator_sees_the_transaction_in_each_state(
    broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    create(broker, topic)
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    place = KafkaPythonPartition(topic, 0)
    with LIBRARIES[0](broker.bootstrap) as library:
        with pytest.raises(TransactionalIdNotFoundError):
            admin.describe_transactions([transactional_id])
        producer = library.producer(transactional_id, 50_000)
        assert state_of(admin, transactional_id) == ("Empty", set())
        producer.begin()
        producer.send(topic, 0, "one")
        assert state_of(admin, transactional_id) == ("Ongoing", {place})
        described = admin.describe_transactions([transactional_id])[transactional_id]
        assert described.transaction_timeout_ms == 50_000
        (active,) = admin.describe_producers([place])[place].active_producers
        assert active.producer_id == described.producer_id
        assert active.current_transaction_start_offset == 0
        producer.commit()
        assert ended_state(admin, transactional_id) == ("CompleteCommit", set())
        producer.begin()
        producer.send(topic, 0, "two")
        producer.abort()
        assert ended_state(admin, transactional_id) == ("CompleteAbort", set())
        (idle,) = admin.describe_producers([place])[place].active_producers
        assert idle.current_transaction_start_offset == -1
    admin.close()


def state_of(admin: KafkaAdminClient, transactional_id: str) -> tuple[str, set[KafkaPythonPartition]]:
    described = admin.describe_transactions([transactional_id])[transactional_id]
    return str(described.state.value), set(described.topic_partitions)


def ended_state(admin: KafkaAdminClient, transactional_id: str) -> tuple[str, set[KafkaPythonPartition]]:
    """The state after its end, when it is no longer prepared."""
    return until(lambda: state_of(admin, transactional_id), lambda state: state[0].startswith("Complete"))


@pytest.mark.parametrize("how", ["restarted", "killed"])
def test_a_transaction_outlives_its_broker(
    kind: type[Library], tmp_path: Path, topic: str, transactional_id: str, how: str
) -> None:
    with BrokerProcess(tmp_path / "data") as broker, kind(broker.bootstrap) as library:
        create(broker, topic, partitions=2)
        group = f"group-of-{transactional_id}"
        producer = library.producer(transactional_id)
        producer.begin()
        producer.send(topic, 0, "before")
        producer.send_offset(group, topic, 0, 4)
        if how == "restarted":
            broker.restart()
        else:
            broker.kill()
            broker.start()
        assert committed_offset(broker, group, topic, require_stable=True)[0] is ErrorCode.UNSTABLE_OFFSET_COMMIT
        producer.send(topic, 1, "after")
        producer.commit()
        assert stable_offset(broker, group, topic) == 4
        for partition in range(2):
            put(broker, topic, END, partition=partition)
        assert sorted(library.read_until(END, topic, COMMITTED, partitions=2)) == ["after", "before"]


def test_what_a_dead_producer_left_open_ends_with_its_successor(
    kind: type[Library], own_broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    create(own_broker, topic)
    with kind(own_broker.bootstrap) as library:
        dead = library.producer(transactional_id)
        dead.begin()
        dead.send(topic, 0, "left open")
    own_broker.kill()
    own_broker.start()
    with kind(own_broker.bootstrap) as library:
        heir = library.producer(transactional_id)
        heir.begin()
        heir.send(topic, 0, "of the heir")
        heir.commit()
        put(own_broker, topic, END)
        assert library.read_until(END, topic, COMMITTED) == ["of the heir"]


def refusal_of(act: Callable[[], object]) -> Exception:
    """What `act` raises, of whatever class of the library; it has to."""
    try:
        act()
    except Exception as error:
        return error
    pytest.fail("it was not refused")
