"""The blocking twins: every method of the asyncio clients, from any thread, through forks and to the program's end."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from kit.fake_broker import SILENCE, FakeCluster, Fault
from kit.inside_clients import asyncio_client
from kit.threaded_cluster import threaded

import ottla.client
from ottla.client import (
    BufferExhausted,
    ClientClosed,
    ClientTimeout,
    ErrorCode,
    KafkaError,
    NoBrokersAvailable,
    ProducerInterceptor,
    RecordTooLarge,
    TopicPartition,
    producer_options,
)
from ottla.client.blocking import Admin, Consumer, Producer
from ottla.client.blocking.loop_thread import LoopThread
from ottla.protocol.api.produce import ProduceRequest

ROOT = Path(__file__).resolve().parents[2]
RUN_LIMIT_S = 60
QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2}
NEVER_AGAIN = {"retry_backoff_ms": 600_000, "retry_backoff_max_ms": 600_000}
"""A pause beyond every timeout: the first failure is the last."""


@pytest.fixture
def cluster():
    with threaded(FakeCluster(brokers=2)) as running:
        yield running


def run(code, *arguments):
    """Run a program to its end and return what it printed; a program that hangs is killed and fails the test."""
    return subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=RUN_LIMIT_S,
        check=False,
    )


# The twins as such -----------------------------------------------------------------------------------------------


def test_the_generated_methods_are_those_of_the_asyncio_clients():
    """If this fails: scripts/generate-blocking."""
    script = ROOT / "scripts" / "generate-blocking"
    made = subprocess.run([sys.executable, str(script), "--print"], capture_output=True, text=True, check=True).stdout
    assert (ROOT / "ottla" / "client" / "blocking" / "twins.py").read_text() == made


@pytest.mark.parametrize("blocking", [Producer, Consumer, Admin])
def test_each_twin_has_every_method_with_the_same_parameters(blocking):
    twin = getattr(ottla.client, blocking.__name__)
    names = [name for name, _ in inspect.getmembers(twin, inspect.isfunction) if not name.startswith("_")]
    assert names
    for name in ["__init__", *names]:
        ours, theirs = (inspect.signature(getattr(kind, name)) for kind in (blocking, twin))
        assert list(ours.parameters.values()) == list(theirs.parameters.values()), name
        assert name == "__init__" or getattr(blocking, name).__doc__
        assert not inspect.iscoroutinefunction(getattr(blocking, name))


# Producing -------------------------------------------------------------------------------------------------------


def test_records_arrive_in_the_order_of_the_calls(cluster):
    (partition,) = cluster.add_topic("t")
    with Producer(cluster.bootstrap) as producer:
        deliveries = [producer.send("t", b"%d" % n, key=b"k", headers=[("h", b"")]) for n in range(5000)]
        assert [delivery.result().offset for delivery in deliveries] == list(range(5000))
        assert all(delivery.done() for delivery in deliveries)
        assert producer.send_and_wait("t", b"last", timestamp_ms=7) == ("t", 0, 5000, 7)
        assert producer.partitions_for("t") == [0]
        assert producer.metrics()["record-send-total"] == 5001
    assert partition.values == [b"%d" % n for n in range(5000)] + [b"last"]


def test_by_default_a_record_that_a_thread_waits_for_does_not_linger(cluster, monkeypatch):
    monkeypatch.setattr(producer_options, "_LINGER_MS", 60_000.0)
    (partition,) = cluster.add_topic("t")
    with Producer(cluster.bootstrap) as producer:
        producer.send_and_wait("t", b"0")
        assert producer.send("t", b"1").result(30_000).offset == 1
        lingering = producer.send("t", b"2")
        with pytest.raises(ClientTimeout):
            lingering.result(0)
        assert not lingering.done()
        for delivery in [producer.send("t", b"%d" % number) for number in range(3, 100)]:
            delivery.result(30_000)
        assert lingering.done()
        threads = [threading.Thread(target=producer.send_and_wait, args=("t", b"x")) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        producer.send_many("t", [b"y"] * 3).result(30_000)
        assert partition.values == [*(b"%d" % number for number in range(100)), *[b"x"] * 8, *[b"y"] * 3]


def test_several_threads_share_a_producer_and_each_keeps_its_order(cluster):
    (partition,) = cluster.add_topic("t")
    with Producer(cluster.bootstrap, batch_size=2000) as producer:

        def send(name):
            for n in range(500):
                producer.send("t", b"%d:%d" % (name, n))

        threads = [threading.Thread(target=send, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
        assert len(partition.values) == 4000
    for name in range(8):
        mine = [value for value in partition.values if value.startswith(b"%d:" % name)]
        assert mine == [b"%d:%d" % (name, n) for n in range(500)]


def test_what_is_wrong_with_a_record_its_delivery_tells(cluster):
    cluster.add_topic("t")
    with Producer(cluster.bootstrap, max_request_size=1000, **NEVER_AGAIN) as producer:
        large = producer.send("t", bytes(2000))
        with pytest.raises(RecordTooLarge):
            large.result()
        with pytest.raises(ValueError, match="partitions 0 to 0"):
            producer.send_and_wait("t", b"", partition=3)
        with pytest.raises(TypeError, match="must be bytes"):
            producer.send("t", "text")
        with pytest.raises(KafkaError) as unknown:
            producer.send("nowhere", b"")
        assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("headers", [[("a", 1)], [("a", "text")], [(b"a", b"")], {"a": b""}, 5])
def test_headers_that_are_no_pairs_are_refused_by_the_call(cluster, headers):
    (partition,) = cluster.add_topic("t")
    heard = []

    class Hearing(ProducerInterceptor):
        def on_acknowledgement(self, metadata, error):
            heard.append(type(error))

    with Producer(cluster.bootstrap) as producer:
        for call in (producer.send, producer.send_and_wait):
            with pytest.raises(TypeError, match="headers must be pairs of a str and bytes or None"):
                call("t", b"refused", headers=headers)
        with pytest.raises(TypeError, match="record 1: headers must be pairs of a str and bytes or None"):
            producer.send_many("t", [b"0", b"1"], headers=[None, headers])
        producer.flush()
    with Producer(cluster.bootstrap, interceptors=[Hearing()]) as producer:
        with pytest.raises(TypeError, match="headers must be pairs of a str and bytes or None"):
            producer.send("t", b"refused", headers=headers)
        producer.send("t", b"sent", headers=[("a", b""), ("b", None)])
    assert heard == [TypeError, type(None)]
    assert partition.values == [b"sent"]


def test_flush_and_close_raise_what_nobody_asked(cluster):
    (partition,) = cluster.add_topic("t")
    producer = Producer(cluster.bootstrap, max_request_size=1000)
    producer.start()
    producer.send("t", bytes(2000))
    with pytest.raises(RecordTooLarge):
        producer.flush()
    producer.flush()
    partition.faults.append(Fault(ErrorCode.INVALID_RECORD))
    producer.send("t", b"refused")
    with pytest.raises(KafkaError, match="INVALID_RECORD"):
        producer.close()
    producer.close()
    with pytest.raises(ClientClosed):
        producer.send("t", b"late")


def test_the_programs_own_error_is_the_one_to_be_seen(cluster):
    cluster.add_topic("t")

    def fail():
        with Producer(cluster.bootstrap, max_request_size=1000) as producer:
            producer.send("t", bytes(2000))
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        fail()


NO_ROOM = {"buffer_memory": 10_000, "batch_size": 0, "linger_ms": 0}


def test_senders_wait_for_room(cluster):
    (partition,) = cluster.add_topic("t")
    with Producer(cluster.bootstrap, **NO_ROOM) as producer:
        for _ in range(200):
            producer.send("t", bytes(5000))
    assert partition.values == [bytes(5000)] * 200


def test_senders_hear_that_room_did_not_come(cluster):
    cluster.add_topic("t")
    cluster.handlers[ProduceRequest] = lambda request, version: SILENCE
    producer = Producer(cluster.bootstrap, **NO_ROOM)
    producer.start()
    producer.send("t", b"")
    # Not before: a busy machine may take longer.
    producer._max_block_ms = asyncio_client(producer)._room._max_block_ms = 300

    def send_on():
        for _ in range(200):
            producer.send("t", bytes(5000))

    with pytest.raises(BufferExhausted):
        send_on()
    with pytest.raises(KafkaError):
        producer.close(timeout_ms=0)


def test_threads_may_wait_for_one_delivery_and_leave_nothing_behind(cluster):
    (partition,) = cluster.add_topic("t")
    with Producer(cluster.bootstrap, linger_ms=60_000) as producer:
        delivery = producer.send("t", b"x")
        for _ in range(3):
            with pytest.raises(ClientTimeout):
                delivery.result(timeout_ms=1)
        places = []
        threads = [threading.Thread(target=lambda: places.append(delivery.result())) for _ in range(4)]
        for thread in threads:
            thread.start()
        producer.flush()
        for thread in threads:
            thread.join(RUN_LIMIT_S)
        assert [place.offset for place in places] == [0] * 4
        assert delivery.batch.at_end == set()
    assert partition.values == [b"x"]


def test_a_delivery_is_awaited_through_the_splitting_of_its_batch(cluster):
    (partition,) = cluster.add_topic("t")
    partition.max_message_bytes = 200
    with Producer(cluster.bootstrap, linger_ms=60_000, batch_size=100_000) as producer:
        deliveries = [producer.send("t", bytes(50)) for _ in range(8)]
        flushing = threading.Thread(target=producer.flush)
        flushing.start()
        assert [delivery.result().offset for delivery in deliveries] == list(range(8))
        flushing.join(RUN_LIMIT_S)


def test_waiting_for_a_delivery_may_end_before_it(cluster):
    (partition,) = cluster.add_topic("t")
    cluster.handlers[ProduceRequest] = lambda request, version: SILENCE
    producer = Producer(cluster.bootstrap)
    producer.start()
    delivery = producer.send("t", b"x")
    with pytest.raises(ClientTimeout):
        delivery.result(timeout_ms=1)
    assert not delivery.done()
    with pytest.raises(ClientClosed):
        producer.close(timeout_ms=0)
    with pytest.raises(ClientClosed):
        delivery.result()
    assert partition.values == []


def test_serializers_and_interceptors_run_where_the_program_sends(cluster):
    (partition,) = cluster.add_topic("t")
    seen = []

    class Seeing(ProducerInterceptor):
        def on_send(self, record):
            seen.append(threading.current_thread())
            return record

        def on_acknowledgement(self, metadata, error):
            seen.append(metadata.offset)

    with Producer(cluster.bootstrap, interceptors=[Seeing()], value_serializer=str.encode) as producer:
        producer.send_and_wait("t", "x")
    assert seen == [threading.current_thread(), 0]
    assert partition.values == [b"x"]


def test_a_call_from_the_loop_thread_is_refused_instead_of_hanging(cluster):
    cluster.add_topic("t")
    seen = []

    class Calling(ProducerInterceptor):
        def on_acknowledgement(self, metadata, error):
            try:
                producer.flush()
            except RuntimeError as refused:
                seen.append(str(refused))

    with Producer(cluster.bootstrap, interceptors=[Calling()]) as producer:
        producer.send_and_wait("t", b"x")
    assert len(seen) == 1
    assert "its own thread" in seen[0]


# Consuming and administering -------------------------------------------------------------------------------------


def test_a_consumer_reads_by_iteration_and_in_handfuls_and_keeps_its_position(cluster):
    cluster.add_topic("t")
    t0 = TopicPartition("t", 0)
    with Producer(cluster.bootstrap, batch_size=500) as producer:
        for n in range(1000):
            producer.send("t", b"%d" % n)
    with Consumer(cluster.bootstrap, auto_offset_reset="earliest", value_deserializer=int) as consumer:
        assert consumer.assign_topics("t") == [t0]
        assert [next(consumer).value for _ in range(10)] == list(range(10))
        assert consumer.position(t0) == 10
        assert consumer.getmany(timeout_ms=5000, max_records=1)[t0][0].value == 10
        consumer.seek(t0, 990)
        taken = []
        for record in consumer:
            taken.append(record.value)
            if record.offset == 999:
                break
        assert taken == list(range(990, 1000))
        assert consumer.getmany() == consumer.getmany(timeout_ms=-1) == {}  # a time that is over
        assert consumer.end_offsets([t0]) == {t0: 1000}
        assert consumer.lag(t0) == 0
        with pytest.raises(ValueError, match="not assigned"):
            consumer.seek(("t", 5), 0)
    with pytest.raises(ClientClosed):
        next(consumer)


def test_several_threads_share_the_records_each_once(cluster):
    cluster.add_topic("t")
    with Producer(cluster.bootstrap, batch_size=500) as producer:
        for n in range(2000):
            producer.send("t", b"%d" % n)
    taken = [[] for _ in range(4)]
    with Consumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign_topics("t")

        def read(mine):
            for _ in range(500):
                mine.append(int(consumer.getone().value))

        threads = [threading.Thread(target=read, args=(mine,)) for mine in taken]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(value for mine in taken for value in mine) == list(range(2000))
    assert all(mine == sorted(mine) for mine in taken)


def test_closing_a_consumer_ends_the_thread_that_waits_for_a_record(cluster):
    cluster.add_topic("t")
    consumer = Consumer(cluster.bootstrap)
    consumer.start()
    consumer.assign_topics("t")
    ended = []

    def read():
        try:
            consumer.getone()
        except ClientClosed as closed:
            ended.append(closed)

    thread = threading.Thread(target=read)
    thread.start()
    consumer.close()
    thread.join(RUN_LIMIT_S)
    assert len(ended) == 1


def test_nobody_there_is_said_at_the_start():
    with pytest.raises(NoBrokersAvailable, match=r"127\.0\.0\.1:1"):
        Admin("127.0.0.1:1").start()
    with pytest.raises(NoBrokersAvailable, match=r"127\.0\.0\.1:1"):
        Admin("127.0.0.1:1").list_topics()
    Admin("127.0.0.1:1").close()


def test_all_clients_share_one_thread(cluster):
    cluster.add_topic("t")
    with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap), Consumer(cluster.bootstrap):
        assert admin.list_topics() == ["t"]
        assert [thread.name for thread in threading.enumerate()].count("ottla-client") == 1
        assert admin._thread is LoopThread.of_this_process()


# Against a real broker, as a person would use it -----------------------------------------------------------------


def test_a_whole_session_against_a_broker(broker, topic):
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic, partitions=3, replication_factor=1)
        assert topic in admin.list_topics()
    with Producer(broker.bootstrap, compression_type="lz4") as producer:
        for n in range(3000):
            producer.send(topic, b"value %d" % n, key=b"%d" % n)
    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        partitions = consumer.assign_topics(topic)
        values = {next(consumer).value for _ in range(3000)}
        assert values == {b"value %d" % n for n in range(3000)}
        assert sum(consumer.position(partition) for partition in partitions) == 3000
    with Admin(broker.bootstrap) as admin:
        admin.delete_topics([topic])


AT_EXIT = """
import sys
from ottla.client.blocking import Consumer, Producer
producer = Producer(sys.argv[1], linger_ms=1000)
producer.start()
for n in range(100):
    producer.send(sys.argv[2], b"%d" % n)
consumer = Consumer(sys.argv[1])
consumer.start()
consumer.assign_topics(sys.argv[2])
print("the program ends without closing anything")
"""


def test_a_program_that_ends_without_closing_delivers_and_does_not_hang(broker, topic):
    done = run(AT_EXIT, broker.bootstrap, topic)
    assert (done.returncode, done.stderr) == (0, "")
    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign_topics(topic)
        assert [int(next(consumer).value) for _ in range(100)] == list(range(100))


FORKING = """
import os, sys, warnings
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)  # from Python 3.12 on
from ottla.client import ClientClosed
from ottla.client.blocking import Producer
with Producer(sys.argv[1]) as producer:
    producer.send_and_wait(sys.argv[2], b"parent before")
    child = os.fork()
    if child == 0:
        try:
            producer.send(sys.argv[2], b"lost")
        except ClientClosed as refused:
            print(refused, flush=True)
        producer.close()
        with Producer(sys.argv[1]) as own:
            own.send_and_wait(sys.argv[2], b"child")
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    producer.send_and_wait(sys.argv[2], b"parent after")
print("done")
"""


def test_a_forked_child_makes_its_own_clients_and_the_parents_go_on(broker, topic):
    done = run(FORKING, broker.bootstrap, topic)
    assert (done.returncode, done.stderr) == (0, "")
    assert "make another one after a fork" in done.stdout
    assert done.stdout.endswith("done\n")
    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign_topics(topic)
        assert [next(consumer).value for _ in range(3)] == [b"parent before", b"child", b"parent after"]


INTERRUPTED = """
import os, signal, sys, threading
from ottla.client.blocking import Consumer
with Consumer(sys.argv[1]) as consumer:
    consumer.assign_topics(sys.argv[2])
    consumer.position((sys.argv[2], 0))
    def interrupt():
        while not consumer._reading.locked():
            pass
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt).start()
    try:
        next(consumer)
    except KeyboardInterrupt:
        print("interrupted")
    print(consumer.end_offsets([(sys.argv[2], 0)])[sys.argv[2], 0])
"""


def test_an_interrupt_ends_the_waiting_and_leaves_the_client_sound(broker, topic):
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic, partitions=1, replication_factor=1)
    done = run(INTERRUPTED, broker.bootstrap, topic)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n0\n", "")


BROKER_GONE = """
import sys
from ottla.client.blocking import Producer
producer = Producer(sys.argv[1])
producer.start()
producer.send_and_wait(sys.argv[2], b"delivered")
print("ready", flush=True)
sys.stdin.readline()
producer.send(sys.argv[2], b"cannot be delivered")
"""


def test_a_program_ends_although_its_broker_is_gone(own_broker, topic):
    program = subprocess.Popen(
        [sys.executable, "-c", BROKER_GONE, own_broker.bootstrap, topic],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    own_broker.kill()
    _, complaints = program.communicate("go on\n", timeout=RUN_LIMIT_S)
    assert program.returncode == 0
    assert "Traceback" not in complaints
    assert f"1 record was not sent to {own_broker.bootstrap} when the program ended: call close()" in complaints
