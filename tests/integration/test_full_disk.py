"""Real clients on a small file system: records stop at the reserve, everything that they need to get on does not."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer
from kafka.errors import KafkaStorageError
from kit.broker import BrokerProcess

MIB = 1 << 20
VOLUME_BYTES, RESERVE_BYTES = 24 * MIB, 8 * MIB
VALUE = random.Random("what does not compress").randbytes(100_000)
MOUNT = 'for d in one two; do mkdir -p "$0/$d" && mount -t tmpfs -o size=24m tmpfs "$0/$d" || exit 1; done; exec "$@"'
INODES = 200
MOUNT_INODES = f'mkdir -p "$0/few" && mount -t tmpfs -o size=24m,nr_inodes={INODES} tmpfs "$0/few" || exit 1; exec "$@"'
HOLD = ["sh", "-c", "echo mounted; exec cat"]
DEADLINE_S = 60


@pytest.fixture
def prefix(tmp_path: Path) -> list[str]:
    """Words before a command that give it `one` and `two`, of 24 MiB each, in a mount namespace of its own."""
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT, str(tmp_path)]
    if sys.platform != "linux" or subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("small file systems need Linux's user and mount namespaces (unshare)")
    return words


@pytest.fixture
def broker(tmp_path: Path, prefix: list[str]) -> Iterator[BrokerProcess]:
    """A broker with a log directory on each of the two."""
    overrides = {
        "log.dirs": f"{tmp_path / 'one'},{tmp_path / 'two'}",
        "log.segment.bytes": str(MIB),
        "log.segment.delete.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "ottla.log.dir.reserve.bytes": str(RESERVE_BYTES),
    }
    with BrokerProcess(tmp_path, overrides, prefix=prefix) as process:
        yield process
    assert "Traceback" not in process.output


def free_bytes(broker: BrokerProcess, directory: str) -> int:
    """What the broker's namespace says is free on one of its volumes."""
    enter = ["nsenter", "--target", str(broker.pid), "--user", "--mount", "--preserve-credentials"]
    stat = ["stat", "--file-system", "--format", "%a %S", str(broker.directory / directory)]
    blocks, size = subprocess.run([*enter, *stat], check=True, capture_output=True, text=True).stdout.split()
    return int(blocks) * int(size)


def create(broker: BrokerProcess, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(DEADLINE_S)


def fill(broker: BrokerProcess, topic: str, partition: int) -> int:
    """Produce with kafka-python until the broker refuses; how many records it took."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all", retries=0)
    try:
        for count in range(1000):
            try:
                producer.send(topic, VALUE, partition=partition).get(DEADLINE_S)
            except KafkaStorageError:
                return count
        raise AssertionError("nothing was refused")
    finally:
        producer.close()


def produce(broker: BrokerProcess, topic: str, partition: int) -> KafkaError | None:
    """One record with librdkafka, which tries again until the message is too old."""
    outcome: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": DEADLINE_S * 1000})
    producer.produce(topic, VALUE, partition=partition, on_delivery=lambda error, _: outcome.append(error))
    producer.flush(DEADLINE_S + 10)
    return outcome[0]


def test_records_stop_at_the_reserve_while_clients_read_commit_and_delete_until_there_is_room(
    broker: BrokerProcess,
) -> None:
    create(broker, "t", 2)
    create(broker, "keep")
    first_home = ["one", "two"]
    count = fill(broker, "t", 0)
    free = {name: free_bytes(broker, name) for name in first_home}
    full, other = sorted(first_home, key=free.__getitem__)
    # A sixteenth of the reserve and what one append brought, at most, and what segments' indexes take.
    assert RESERVE_BYTES - MIB - 2 * len(VALUE) < free[full] < RESERVE_BYTES
    assert free[other] > VOLUME_BYTES - 2 * MIB
    assert produce(broker, "t", 1) is None, "the other directory takes records"

    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    read = 0
    while read < count:
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert message.error() is None
        assert message.value() == VALUE
        read += 1
    consumer.commit(offsets=[TopicPartition("t", 0, count)], asynchronous=False)
    assert consumer.committed([TopicPartition("t", 0)], DEADLINE_S)[0].offset == count
    consumer.close()

    create(broker, "u", 4)  # the other directory takes all of them
    for partition in range(4):
        assert produce(broker, "u", partition) is None

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics(["t"])["t"].result(DEADLINE_S)
    deadline = time.monotonic() + DEADLINE_S
    while "has room again and takes writes" not in broker.output:  # the chore has looked
        assert time.monotonic() < deadline, "the files of a deleted topic were not removed, or nobody has looked"
        time.sleep(0.1)
    assert free_bytes(broker, full) >= RESERVE_BYTES + RESERVE_BYTES // 8
    create(broker, "again", 2)
    assert [produce(broker, "again", partition) for partition in range(2)] == [None, None]
    assert "is full: " in broker.output


def test_a_producer_that_tries_again_gets_through_once_retention_has_made_room(
    tmp_path: Path, prefix: list[str]
) -> None:
    """librdkafka sees KAFKA_STORAGE_ERROR as passing: no record is lost, none is there twice."""
    overrides = {
        "log.dirs": str(tmp_path / "one"),
        "log.segment.bytes": str(MIB),
        "log.segment.delete.delay.ms": "0",
        "log.retention.bytes": str(4 * MIB),
        "log.retention.check.interval.ms": "1000",
        "ottla.log.dir.reserve.bytes": str(RESERVE_BYTES),
    }
    with BrokerProcess(tmp_path, overrides, prefix=prefix) as broker:
        create(broker, "t")
        errors: list[KafkaError | None] = []
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "message.timeout.ms": DEADLINE_S * 1000}
        )
        total = 400  # 40 MB through 16 MiB
        for _ in range(total):
            producer.produce("t", VALUE, partition=0, on_delivery=lambda error, _: errors.append(error))
            producer.poll(0)
        assert producer.flush(DEADLINE_S) == 0
        assert errors == [None] * total
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        low, high = consumer.get_watermark_offsets(TopicPartition("t", 0), DEADLINE_S)
        consumer.close()
        assert high == total
        assert low > 0
        assert "is full: " in broker.output
    assert "Traceback" not in broker.output


@pytest.fixture
def few_inodes(tmp_path: Path, prefix: list[str]) -> Iterator[list[str]]:
    """Words before a command that give it `few`, a volume of 200 inodes, which outlives the command."""
    holder = subprocess.Popen(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT_INODES, str(tmp_path), *HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"mounted\n"
    yield ["nsenter", "--target", str(holder.pid), "--user", "--mount", "--preserve-credentials"]
    holder.communicate()  # its standard input ends, and so does it


def test_inodes_are_kept_for_deletions_and_a_broker_starts_without_any(tmp_path: Path, few_inodes: list[str]) -> None:
    overrides = {"log.dirs": str(tmp_path / "few" / "data"), "log.segment.delete.delay.ms": "0"}
    broker = BrokerProcess(tmp_path, overrides, prefix=few_inodes)
    with broker:
        made = 0

        def make_topics() -> None:
            nonlocal made
            while True:
                create(broker, f"t{made}", 3)
                made += 1

        with pytest.raises(KafkaException) as refused:
            make_topics()
        assert refused.value.args[0].code() == KafkaError.KAFKA_STORAGE_ERROR
        assert "ottla.log.dir.reserve.inodes" in refused.value.args[0].str()
        assert made >= 5
        assert produce(broker, "t0", 0) is None
        broker.kill()
    fill_up = 'i=0; while touch "$0/few/fill-$i" 2>/dev/null; do i=$((i+1)); done; exec "$@"'
    broker.prefix = [*few_inodes, "sh", "-c", fill_up, str(tmp_path)]
    with broker:
        assert "0 inodes free" in broker.output
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        assert consumer.get_watermark_offsets(TopicPartition("t0", 0), DEADLINE_S) == (0, 1)
        consumer.close()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.delete_topics(["t1", "t2"])["t1"].result(DEADLINE_S)
        deadline = time.monotonic() + DEADLINE_S
        while "has room again and takes writes" not in broker.output:
            assert time.monotonic() < deadline, "the inodes of deleted topics are not free, or nobody has looked"
            time.sleep(0.1)
        assert produce(broker, "t0", 1) is None
    assert "Traceback" not in broker.output
