"""Ctrl-C while a blocking share consumer waits: records that it had taken, and the program never saw, are not lost."""

from __future__ import annotations

import pytest
from kit.fake_broker import FakeCluster
from kit.fake_share_group import FakeShareGroup
from kit.threaded_cluster import threaded

from ottla.client.blocking import ShareConsumer
from ottla.client.blocking.loop_thread import LoopThread
from ottla.protocol.records.batch import Record, encode_batch

QUICK = {"group_id": "g", "retry_backoff_ms": 1, "retry_backoff_max_ms": 2}
READS = {
    "getmany": lambda consumer: consumer.getmany(timeout_ms=60_000, max_records=2),
    "getone": lambda consumer: consumer.getone(),
}


@pytest.fixture
def group():
    """A share group, with a topic of one partition with ten records."""
    cluster = FakeCluster()
    (partition,) = cluster.add_topic("t")
    partition.batches.append(bytes(encode_batch([Record(n, n, None, b"%d" % n) for n in range(10)])))
    partition.end = 10
    with threaded(cluster):
        yield FakeShareGroup(cluster, {"t": [0]})


@pytest.fixture
def interrupt_next_wait(monkeypatch):
    """Have the next wait of a blocking client interrupted when what it waits for has just come."""
    wait_for = LoopThread.wait_for

    def arm():
        def interrupted(self, coroutine, wait=None):
            monkeypatch.setattr(LoopThread, "wait_for", wait_for)
            wait_for(self, coroutine, wait)
            raise KeyboardInterrupt

        monkeypatch.setattr(LoopThread, "wait_for", interrupted)

    return arm


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_records_that_an_interrupt_kept_from_the_program_come_with_the_next_poll(
    group, interrupt_next_wait, read, mode
):
    with ShareConsumer(group.cluster.bootstrap, share_acknowledgement_mode=mode, **QUICK) as consumer:
        consumer.subscribe(["t"])
        interrupt_next_wait()
        with pytest.raises(KeyboardInterrupt):
            read(consumer)
        records = [next(consumer) for _ in range(10)]
        assert [(one.offset, one.delivery_count) for one in records] == [(offset, 1) for offset in range(10)]
        if mode == "explicit":
            for record in records:
                consumer.acknowledge(record)
        assert consumer.commit() == {("t", 0): None}
    assert group.accepted("t", 0) == list(range(10))


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_records_that_an_interrupt_kept_from_the_program_are_not_accepted(group, interrupt_next_wait, read):
    with ShareConsumer(group.cluster.bootstrap, **QUICK) as consumer:
        consumer.subscribe(["t"])
        interrupt_next_wait()
        with pytest.raises(KeyboardInterrupt):
            read(consumer)
        assert consumer.commit() == {}
    assert group.accepted("t", 0) == []
    assert group.acquired == {}
