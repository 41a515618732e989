"""The promises of docs/ordering.md, against a real broker."""

from __future__ import annotations

import threading

from kit.broker import BrokerProcess

from ottla.client.blocking import Admin, Consumer, Producer

COUNT = 500


def read(broker: BrokerProcess, topic: str, count: int) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """(partition, offset, key, value) as a consumer of all partitions gets them."""
    with Consumer(broker.bootstrap, auto_offset_reset="earliest", fetch_max_bytes=2_000) as consumer:
        consumer.assign_topics(topic)
        records = [next(consumer) for _ in range(count)]
    return [(one.partition, one.offset, one.key, one.value) for one in records]


def test_every_reader_of_a_partition_sees_one_order(broker: BrokerProcess, topic: str) -> None:
    with Producer(broker.bootstrap, batch_size=500) as producer:
        for number in range(COUNT):
            producer.send(topic, b"%d" % number, partition=0)
    seen = [read(broker, topic, COUNT) for _ in range(2)]
    assert seen[0] == seen[1]
    assert [(offset, value) for _, offset, _, value in seen[0]] == [(n, b"%d" % n) for n in range(COUNT)]


def test_producers_of_one_partition_keep_each_their_own_order(broker: BrokerProcess, topic: str) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic, partitions=1)

    def write(name: int) -> None:
        with Producer(broker.bootstrap, batch_size=500, linger_ms=0) as producer:
            for number in range(COUNT):
                producer.send(topic, b"%d:%d" % (name, number))

    threads = [threading.Thread(target=write, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    values = [value or b"" for _, _, _, value in read(broker, topic, 3 * COUNT)]
    for name in range(3):
        mine = [value for value in values if value.startswith(b"%d:" % name)]
        assert mine == [b"%d:%d" % (name, number) for number in range(COUNT)]


def test_the_records_of_a_key_are_in_order_until_the_topic_grows(broker: BrokerProcess, topic: str) -> None:
    keys = [b"key %d" % number for number in range(10)]
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic, partitions=2)
    with Producer(broker.bootstrap, batch_size=500) as producer:
        for number in range(COUNT):
            producer.send(topic, b"%d" % number, key=keys[number % 10])
    found = read(broker, topic, COUNT)
    homes = {key: {partition for partition, _, its, _ in found if its == key} for key in keys}
    assert all(len(partitions) == 1 for partitions in homes.values())
    for place, key in enumerate(keys):
        assert [value for _, _, its, value in found if its == key] == [b"%d" % n for n in range(place, COUNT, 10)]
    with Admin(broker.bootstrap) as admin:
        admin.create_partitions({topic: 5})
    with Producer(broker.bootstrap) as producer:
        moved = {key: {producer.send_and_wait(topic, b"later", key=key).partition} for key in keys}
    assert moved != homes, "some keys have another partition now, and their records no order between the two"
