"""The blocking consumer in a group: the listener runs in the thread that reads, and the end commits and leaves."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from kit.fake_broker import FakeCluster
from kit.fake_group import FakeGroup
from kit.threaded_cluster import threaded

from ottla.client import (
    ClientClosed,
    CommitFailed,
    ErrorCode,
    RebalanceListener,
    RebalanceListenerFailed,
    TopicPartition,
)
from ottla.client.blocking import Consumer
from ottla.protocol.api.heartbeat import HeartbeatRequest
from ottla.protocol.api.leave_group import LeaveGroupRequest
from ottla.protocol.records.batch import Record, encode_batch

RUN_LIMIT_S = 60
QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "heartbeat_interval_ms": 5, "auto_offset_reset": "earliest"}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def group():
    """A coordinator, with a topic of two partitions with ten records each."""
    cluster = FakeCluster()
    for partition in cluster.add_topic("t", 0, 0):
        partition.batches.append(bytes(encode_batch([Record(n, n, None, b"%d" % n) for n in range(10)])))
        partition.end = 10
    with threaded(cluster):
        yield FakeGroup(cluster)


@pytest.fixture
def make(group):
    return lambda **options: Consumer(group.cluster.bootstrap, group_id="g", **{**QUICK, **options})


def poll_until(consumer, fact):
    while not fact():
        consumer.getmany(timeout_ms=20)


def test_records_are_read_and_what_was_read_is_committed_at_the_end(group, make):
    with make() as consumer:
        consumer.subscribe(["t"])
        assert sorted(int(next(consumer).value) for _ in range(20)) == sorted([*range(10)] * 2)
        assert consumer.subscription() == ["t"]
        assert consumer.group_metadata().member_id == "member-1"
    assert group.committed == {("t", 0): (10, "", -1), ("t", 1): (10, "", -1)}
    assert group.count(LeaveGroupRequest) == 1


def test_the_listener_is_called_in_the_thread_that_reads_and_may_use_the_consumer(group, make):
    heard = []

    class Listener(RebalanceListener):
        def on_assigned(self, partitions):
            heard.append(("assigned", threading.get_ident()))
            for partition in partitions:
                assert consumer.position(partition) == 0
                consumer.seek(partition, 6)

        def on_revoked(self, partitions):
            consumer.commit({T0: 8})
            heard.append(("revoked", threading.get_ident()))

    here = threading.get_ident()
    with make(enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"], listener=Listener())
        assert sorted(next(consumer).offset for _ in range(8)) == [6, 6, 7, 7, 8, 8, 9, 9]
    assert heard == [("assigned", here), ("revoked", here)]
    assert group.committed == {("t", 0): (8, "", -1)}


def test_another_thread_that_reads_is_the_one_that_hears(group, make):
    heard = []

    class Listener(RebalanceListener):
        def on_assigned(self, partitions):
            heard.append(threading.get_ident())

    with make() as consumer:
        consumer.subscribe(["t"], listener=Listener())
        reader = threading.Thread(target=poll_until, args=(consumer, lambda: heard))
        reader.start()
        ident = reader.ident
        reader.join(RUN_LIMIT_S)
        assert heard == [ident]


def test_a_listener_that_raises_or_is_async_fails_the_poll(group, make):
    class Raising(RebalanceListener):
        def on_assigned(self, partitions):
            raise LookupError("no database")

    class Async(RebalanceListener):
        async def on_assigned(self, partitions):
            pass

    for listener, cause in ((Raising(), LookupError), (Async(), TypeError)):
        with make() as consumer:
            consumer.subscribe(["t"], listener=listener)
            with pytest.raises(RebalanceListenerFailed) as failed:
                poll_until(consumer, lambda: False)
            assert isinstance(failed.value.__cause__, cause)


def test_a_listener_may_neither_read_nor_end_the_subscription(group, make):
    refused = []

    class Listener(RebalanceListener):
        def on_assigned(self, partitions):
            for attempt in (consumer.getmany, consumer.getone, consumer.unsubscribe, consumer.close):
                with pytest.raises(RuntimeError, match="rebalance listener"):
                    attempt()
                refused.append(attempt)

    with make() as consumer:
        consumer.subscribe(["t"], listener=Listener())
        poll_until(consumer, lambda: len(refused) == 4)


def test_unsubscribing_calls_the_listener_here(group, make):
    heard = []

    class Listener(RebalanceListener):
        def on_revoked(self, partitions):
            heard.append((len(partitions), threading.get_ident()))

    with make() as consumer:
        consumer.subscribe(["t"], listener=Listener())
        poll_until(consumer, consumer.assignment)
        consumer.unsubscribe()
        assert heard == [(2, threading.get_ident())]
        assert consumer.assignment() == []


def test_commits_and_what_is_committed(group, make):
    with make(enable_auto_commit=False) as consumer:
        consumer.assign([T0, T1])
        consumer.commit({T0: 4})
        assert consumer.committed(T0, T1) == {T0: (4, "", -1), T1: None}
        consumer.unsubscribe()
        consumer.subscribe(["t"])
        with pytest.raises(CommitFailed):
            consumer.commit({T0: 5})


def test_a_record_in_hands_is_not_committed(group, make):
    with make(auto_commit_interval_ms=1) as consumer:
        consumer.assign([T0])
        for number in range(1, 8):
            assert next(consumer).offset == number - 1
            beats = len(group.cluster.requests)
            consumer.committed(T1)  # time goes by
            assert len(group.cluster.requests) > beats
            assert group.committed.get(("t", 0), (0,))[0] < number


def test_a_fenced_member_raises_in_the_thread_that_reads(group, make):
    with make(group_instance_id="i") as consumer:
        consumer.subscribe(["t"])
        poll_until(consumer, consumer.assignment)
        group.refuse(HeartbeatRequest, ErrorCode.FENCED_INSTANCE_ID)
        with pytest.raises(Exception, match="FENCED_INSTANCE_ID"):
            poll_until(consumer, lambda: False)


def test_close_from_another_thread_ends_a_reader(group, make):
    consumer = make()
    consumer.start()
    consumer.subscribe(["t"])
    poll_until(consumer, consumer.assignment)
    raised = []

    def read():
        try:
            while True:
                next(consumer)
        except ClientClosed as closed:
            raised.append(closed)

    reader = threading.Thread(target=read)
    reader.start()
    consumer.close()
    reader.join(RUN_LIMIT_S)
    assert raised


def test_a_program_that_ends_without_closing_commits_and_leaves(group):
    code = """
import sys
from ottla.client import RebalanceListener
from ottla.client.blocking import Consumer

class Listener(RebalanceListener):
    def on_revoked(self, partitions):
        print("never: nobody reads any more")

consumer = Consumer(sys.argv[1], group_id="g", auto_offset_reset="earliest", heartbeat_interval_ms=5)
consumer.start()
consumer.subscribe(["t"], listener=Listener())
for _ in range(20):
    next(consumer)
print("done")
"""
    done = subprocess.run(
        [sys.executable, "-c", code, group.cluster.bootstrap],
        capture_output=True,
        text=True,
        timeout=RUN_LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert group.committed == {("t", 0): (10, "", -1), ("t", 1): (10, "", -1)}
    assert group.count(LeaveGroupRequest) == 1


def test_an_interrupt_in_the_listener_ends_the_poll_and_not_the_client(group, make):
    class Interrupted(RebalanceListener):
        def on_assigned(self, partitions):
            raise KeyboardInterrupt

    with make() as consumer:
        consumer.subscribe(["t"], listener=Interrupted())
        with pytest.raises(KeyboardInterrupt):
            poll_until(consumer, lambda: False)
        assert consumer._thread._thread.is_alive()
        with pytest.raises(RebalanceListenerFailed, match="KeyboardInterrupt"):
            poll_until(consumer, lambda: False)
        assert next(consumer).value == b"0"
