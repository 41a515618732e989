"""Blocking clients from their making to the program's end: the first use starts them, nothing is lost in silence."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from kit.fake_broker import SILENCE, FakeCluster
from kit.inside_clients import asyncio_client, cluster_view
from kit.threaded_cluster import threaded

import ottla
from ottla.client import ClientClosed, NoBrokersAvailable, blocking
from ottla.client.blocking import Admin, Consumer, Producer, ShareConsumer
from ottla.client.blocking.loop_thread import LoopThread
from ottla.protocol.api.produce import ProduceRequest

RUN_LIMIT_S = 60
NOWHERE = "127.0.0.1:1"


@pytest.fixture
def cluster():
    with threaded(FakeCluster(brokers=1)) as running:
        yield running


def run(code, *arguments):
    """Run a program to its end; one that hangs is killed and fails the test."""
    return subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=RUN_LIMIT_S,
        check=False,
    )


# The first use -----------------------------------------------------------------------------------------------------


def test_clients_work_when_made(cluster):
    (partition,) = cluster.add_topic("t")
    producer = Producer(cluster.bootstrap)
    producer.send("t", b"x")
    producer.flush()
    assert partition.values == [b"x"]
    consumer = Consumer(cluster.bootstrap, auto_offset_reset="earliest")
    consumer.assign_topics("t")
    assert next(consumer).value == b"x"
    admin = Admin(cluster.bootstrap)
    assert admin.list_topics() == ["t"]
    for client in (producer, consumer, admin):
        client.close()


def test_making_a_client_dials_nothing_and_starts_no_thread():
    program = (
        "import threading, ottla\n"
        "clients = [ottla.Producer('127.0.0.1:1'), ottla.Consumer('127.0.0.1:1'), ottla.Admin('127.0.0.1:1')]\n"
        "print(threading.active_count())\n"
        "for client in clients:\n"
        "    client.close()\n"
    )
    done = run(program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_start_may_be_called_and_called_again(cluster):
    cluster.add_topic("t")
    for make in (Producer, Consumer, Admin):
        client = make(cluster.bootstrap)
        client.start()
        inner = cluster_view(client)
        client.start()
        with client:
            assert cluster_view(client) is inner, "a second start would leave the first one's connections open"


@pytest.mark.parametrize("make", [ottla.client.Producer, ottla.client.Consumer, ottla.client.Admin])
async def test_an_asyncio_client_starts_once_and_not_after_its_end(make):
    async with FakeCluster() as running:
        client = make(running.bootstrap)
        await client.start()
        inner = cluster_view(client)
        await client.start()
        assert cluster_view(client) is inner
        await client.close()
        with pytest.raises(ClientClosed, match="is closed"):
            await client.start()


def test_threads_that_use_a_client_first_start_it_once(cluster):
    (partition,) = cluster.add_topic("t")
    producer = Producer(cluster.bootstrap)
    together = threading.Barrier(8)

    def send():
        together.wait()
        producer.send("t", b"x")

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(RUN_LIMIT_S)
    started = cluster_view(producer)
    producer.close()
    assert partition.values == [b"x"] * 8
    assert cluster_view(producer) is started


def test_a_first_use_that_finds_no_broker_says_where_and_may_be_tried_again(cluster):
    cluster.add_topic("t")
    admin = Admin(NOWHERE)
    for _ in range(2):
        with pytest.raises(NoBrokersAvailable) as absent:
            admin.list_topics()
        assert "cannot connect to 127.0.0.1:1: Connection refused" in str(absent.value)
        assert "\n" not in str(absent.value)
    asyncio_client(admin)._servers = [tuple_of(cluster.bootstrap)]
    assert admin.list_topics() == ["t"]
    admin.close()


def tuple_of(address):
    host, _, port = address.rpartition(":")
    return host, int(port)


# The end -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_started", [False, True])
def test_a_closed_client_refuses_every_use_by_its_name(cluster, is_started):
    cluster.add_topic("t")
    uses = {
        Producer: [lambda it: it.send("t", b"x"), lambda it: it.flush(), lambda it: it.partitions_for("t")],
        Consumer: [next, lambda it: it.getmany(), lambda it: it.assign_topics("t")],
        ShareConsumer: [next, lambda it: it.getmany(), lambda it: it.commit()],
        Admin: [lambda it: it.list_topics()],
    }
    names = {Producer: "producer", Consumer: "consumer", ShareConsumer: "share consumer", Admin: "admin"}
    for make, ways in uses.items():
        client = make(cluster.bootstrap, **{"group_id": "g"} if make is ShareConsumer else {})
        if is_started:
            client.start()
        client.close()
        client.close()
        for use in [*ways, lambda it: it.start(), lambda it: it.__enter__()]:
            with pytest.raises(ClientClosed, match=f"the {names[make]} is closed: make another one"):
                use(client)


def test_closing_a_client_that_another_thread_starts_leaves_nothing_open(cluster):
    admin = Admin(cluster.bootstrap)
    begun, go_on = threading.Event(), threading.Event()
    start = asyncio_client(admin).start

    async def slow_start():
        begun.set()
        while not go_on.is_set():
            await asyncio.sleep(0)
        await start()

    asyncio_client(admin).start = slow_start
    refused = []

    def use():
        try:
            admin.list_topics()
        except ClientClosed as closed:
            refused.append(closed.message)

    thread = threading.Thread(target=use)
    thread.start()
    assert begun.wait(RUN_LIMIT_S)
    admin.close()
    go_on.set()
    thread.join(RUN_LIMIT_S)
    assert refused == ["the admin is closed: make another one"]
    assert asyncio_client(admin)._is_closed


def test_a_delivery_can_be_asked_while_the_producer_closes(cluster):
    (partition,) = cluster.add_topic("t")
    producer = Producer(cluster.bootstrap, linger_ms=0)
    deliveries = [producer.send("t", b"%d" % n) for n in range(100)]
    asked = []
    thread = threading.Thread(target=lambda: asked.extend(one.result().offset for one in deliveries))
    thread.start()
    producer.close()
    thread.join(RUN_LIMIT_S)
    assert asked == list(range(100))
    assert len(partition.values) == 100


def test_a_dropped_producer_delivers_and_ends_its_connections(cluster):
    (partition,) = cluster.add_topic("t")
    producer = Producer(cluster.bootstrap, linger_ms=60_000, delivery_timeout_ms=200_000)
    inner = asyncio_client(producer)
    producer.send("t", b"x")
    del producer
    gc.collect()
    wait_until_closed(inner)
    assert partition.values == [b"x"]


def test_a_dropped_consumer_and_admin_are_closed(cluster):
    cluster.add_topic("t")
    for make in (Consumer, Admin):
        client = make(cluster.bootstrap)
        client.start()
        inner = asyncio_client(client)
        del client
        gc.collect()
        wait_until_closed(inner)


def wait_until_closed(inner):
    """The closing of a dropped client was handed to the loop thread before its object was gone."""
    thread = LoopThread.of_this_process()

    async def closing():
        while not inner._is_closed:
            await asyncio.sleep(0)
        await asyncio.gather(*thread._dropped)

    thread.wait_for(closing())


# The program's end -------------------------------------------------------------------------------------------------

UNSENT = """
import sys
from ottla import Producer
producer = Producer(sys.argv[1])
for n in range(3):
    producer.send("t", b"%d" % n)
{drop}
"""


@pytest.mark.parametrize("drop", ["", "del producer"], ids=["open", "dropped"])
def test_what_was_not_sent_at_the_programs_end_is_counted(cluster, drop):
    cluster.add_topic("t")
    cluster.handlers[ProduceRequest] = lambda request, version: SILENCE
    done = run(UNSENT.format(drop=drop), cluster.bootstrap)
    assert done.returncode == 0
    assert done.stderr == (
        f"3 records were not sent to {cluster.bootstrap} when the program ended: call close() or use `with`, "
        "which wait for them and raise their errors\n"
    )


ENDING = """
import sys
from ottla import Admin, Consumer, Producer
def use():
    Producer(sys.argv[1]).send(sys.argv[2], b"dropped")
use()
producer = Producer(sys.argv[1], linger_ms=1000)
producer.send(sys.argv[2], b"open")
consumer = Consumer(sys.argv[1], group_id="g", auto_offset_reset="earliest")
consumer.subscribe([sys.argv[2]])
next(consumer)
Admin(sys.argv[1]).list_topics()
"""


def test_a_program_that_closes_nothing_delivers_everything_and_says_nothing(broker, topic):
    done = run(ENDING, broker.bootstrap, topic)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign_topics(topic)
        assert sorted(next(consumer).value for _ in range(2)) == [b"dropped", b"open"]


AFTER_THE_END = """
import atexit, sys
def late():
    from ottla.client import ClientClosed
    try:
        Admin(sys.argv[1]).list_topics()
    except ClientClosed as refused:
        print(refused.message)
atexit.register(late)  # before the client's own, so it runs behind it
from ottla import Admin
"""


def test_a_client_that_is_first_used_behind_the_programs_end_is_refused():
    done = run(AFTER_THE_END, NOWHERE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "the program is ending\n", "")


MULTIPROCESSING = """
import multiprocessing, sys
def work(broker, topic):
    from ottla import Producer
    producer = Producer(broker, linger_ms=1000)
    producer.send(topic, b"from a child")
if __name__ == "__main__":
    child = multiprocessing.get_context(sys.argv[3]).Process(target=work, args=sys.argv[1:3])
    child.start()
    child.join()
    print(child.exitcode)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_of_multiprocessing_delivers_at_its_end(broker, topic, tmp_path, method):
    program = tmp_path / "program.py"
    program.write_text(MULTIPROCESSING)
    done = subprocess.run(
        [sys.executable, str(program), broker.bootstrap, topic, method],
        capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("0\n", "")
    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign_topics(topic)
        assert next(consumer).value == b"from a child"


# The package -------------------------------------------------------------------------------------------------------


def test_the_blocking_clients_are_names_of_the_package():
    assert (ottla.Producer, ottla.Consumer, ottla.Admin) == (Producer, Consumer, Admin)
    assert ottla.Producer is blocking.Producer
    assert {"Producer", "Consumer", "Admin", "__version__"} <= set(dir(ottla))
    with pytest.raises(AttributeError, match="'ottla' has no attribute 'Produce'"):
        _ = ottla.Produce


def test_importing_the_package_imports_nothing_else():
    program = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "import ottla\n"
        "dir(ottla)\n"
        "print(sorted(set(sys.modules) - before - {'ottla', 'ottla.version'}))\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_the_package_is_typed_for_programs(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "from ottla import Admin, Consumer, Producer\n"
        "reveal_type(Producer('x').send('t', b'v'))\n"
        "reveal_type(next(Consumer('x', value_deserializer=int)).value)\n"
        "reveal_type(Admin('x').list_topics())\n"
    )
    cache = Path(__file__).parents[2] / ".mypy_cache" / "of-programs"  # without one it takes 10 s
    arguments = ["--strict", "--config-file", "", "--cache-dir", str(cache), str(program)]
    done = subprocess.run([sys.executable, "-m", "mypy", *arguments], capture_output=True, text=True, check=False)
    revealed = [line.split('"')[1] for line in done.stdout.splitlines() if "Revealed type" in line]
    assert revealed[0].endswith("blocking.deliveries.Delivery"), done.stdout
    assert "int" in revealed[1]
    assert "list[" in revealed[2]
