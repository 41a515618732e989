"""Ctrl-C while a blocking consumer waits: what it had taken already, and the program never saw, is read again."""

from __future__ import annotations

import pytest
from kit.fake_broker import FakeCluster
from kit.fake_group import FakeGroup
from kit.threaded_cluster import threaded

from ottla.client.blocking import Consumer
from ottla.protocol.records.batch import Record, encode_batch

RUN_LIMIT_S = 60
QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "heartbeat_interval_ms": 5, "auto_offset_reset": "earliest"}
READS = {
    "getmany": lambda consumer: consumer.getmany(timeout_ms=60_000, max_records=2),
    "getone": lambda consumer: consumer.getone(),
}


@pytest.fixture
def group():
    """A coordinator, with a topic of one partition with ten records."""
    cluster = FakeCluster()
    (partition,) = cluster.add_topic("t")
    partition.batches.append(bytes(encode_batch([Record(n, n, None, b"%d" % n) for n in range(10)])))
    partition.end = 10
    with threaded(cluster):
        yield FakeGroup(cluster)


def interrupted_once_it_is_there(consumer):
    """Have the next wait of the consumer interrupted when what it waits for has just come."""
    serve = consumer._callbacks.serve

    def interrupted(running):
        consumer._callbacks.serve = serve
        serve(running)
        raise KeyboardInterrupt

    consumer._callbacks.serve = interrupted


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_records_that_an_interrupt_kept_from_the_program_are_read_again(group, read):
    with Consumer(group.cluster.bootstrap, **QUICK) as consumer:
        consumer.assign([("t", 0)])
        interrupted_once_it_is_there(consumer)
        with pytest.raises(KeyboardInterrupt):
            read(consumer)
        assert [record.offset for record in (next(consumer), next(consumer))] == [0, 1]


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_records_that_an_interrupt_kept_from_the_program_are_not_committed(group, read):
    with Consumer(group.cluster.bootstrap, group_id="g", **QUICK) as consumer:
        consumer.assign([("t", 0)])
        assert consumer.position(("t", 0)) == 0
        interrupted_once_it_is_there(consumer)
        with pytest.raises(KeyboardInterrupt):
            read(consumer)
    assert group.committed[("t", 0)][0] == 0
