"""The life of an embedded broker: starts, stops, kills, its directory and its address."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ottla import Producer
from ottla.broker.net.listening import StartError
from ottla.config.errors import ConfigError
from ottla.protocol.errors import KafkaError
from ottla.storage.errors import StorageError
from ottla.testing import EmbeddedBroker


def values_of(broker: EmbeddedBroker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "ottla-broker"}


def test_records_are_written_and_read() -> None:
    with EmbeddedBroker() as broker:
        broker.send("orders", b"tea", b"coffee")
        assert values_of(broker, "orders") == [b"tea", b"coffee"]


def test_brokers_run_beside_each_other() -> None:
    with EmbeddedBroker() as one, EmbeddedBroker() as other:
        one.send("orders", b"tea")
        assert one.bootstrap_servers != other.bootstrap_servers
        assert one.admin.list_topics() == ["orders"]
        assert other.admin.list_topics() == []


def test_the_end_of_a_block_leaves_nothing() -> None:
    before = threads()
    with EmbeddedBroker() as broker:
        directory = broker.directory
        broker.send("orders", b"tea")
        assert (directory / "orders-0").is_dir()
    assert not directory.exists()
    assert threads() == before
    assert not broker.is_running


def test_a_restart_keeps_the_address_and_the_records() -> None:
    with EmbeddedBroker() as broker, Producer(broker.bootstrap_servers) as producer:
        producer.send("orders", b"tea").result()
        address = broker.bootstrap_servers
        assert broker.restart().bootstrap_servers == address
        producer.send("orders", b"coffee").result()  # the client finds it again
        assert values_of(broker, "orders") == [b"tea", b"coffee"]


def test_a_stop_marks_the_directory_clean_and_a_kill_does_not() -> None:
    with EmbeddedBroker() as broker:
        mark = broker.directory / ".kafka_cleanshutdown"
        broker.stop()
        assert mark.exists()
        broker.start()
        broker.kill()
        assert not mark.exists()


def test_records_survive_a_kill() -> None:
    with EmbeddedBroker() as broker:
        broker.send("orders", b"tea")
        broker.kill()
        assert values_of(broker.start(), "orders") == [b"tea"]


def test_configured_topics_exist_when_it_has_started_and_after_a_reset() -> None:
    with EmbeddedBroker({"ottla.create.topics": "orders:3,users"}) as broker:
        broker.admin.create_topic("more")
        assert sorted(broker.admin.list_topics()) == ["more", "orders", "users"]
        assert len(broker.admin.describe_topics(["orders"])["orders"].partitions) == 3
        broker.reset()
        assert sorted(broker.admin.list_topics()) == ["orders", "users"]


def test_a_configured_topic_that_is_refused_refuses_the_start_which_may_be_tried_again() -> None:
    keys = {"ottla.create.topics": "orders:3", "ottla.max.partitions": 2}
    broker = EmbeddedBroker(keys)
    for _ in range(2):
        with pytest.raises(StartError, match=r"^ottla\.create\.topics: orders:3: "):
            broker.start()
    broker.close()


def test_a_kill_answers_nobody() -> None:
    with EmbeddedBroker() as broker, Producer(broker.bootstrap_servers, retries=0) as producer:
        producer.send("orders", b"tea").result()
        broker.delay("Produce", 60)
        delivery = producer.send("orders", b"coffee")
        broker.wait_for_records("orders", 2)  # it is written, and its answer held back
        broker.kill()
        with pytest.raises(KafkaError, match="NETWORK_EXCEPTION"):
            delivery.result()


def test_a_reset_leaves_only_the_address() -> None:
    with EmbeddedBroker() as broker:
        broker.send("orders", b"tea")
        broker.fail("Produce", "NOT_ENOUGH_REPLICAS")
        broker.advance(3600)
        address = broker.bootstrap_servers
        assert broker.reset().bootstrap_servers == address
        assert broker.admin.list_topics() == []
        broker.send("orders", b"coffee")
        assert values_of(broker, "orders") == [b"coffee"]


def test_a_kept_directory_stays(tmp_path: Path) -> None:
    with EmbeddedBroker(directory=tmp_path / "data") as broker:
        broker.send("orders", b"tea")
        with pytest.raises(RuntimeError, match="would delete"):
            broker.reset()
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    with EmbeddedBroker(directory=tmp_path / "data") as broker:
        assert values_of(broker, "orders") == [b"tea"]


def test_it_has_kafkas_keys() -> None:
    keys = {"num.partitions": 3, "auto.create.topics.enable": False, "listeners": "A://127.0.0.1:0,B://127.0.0.1:0"}
    keys["listener.security.protocol.map"] = "A:PLAINTEXT,B:PLAINTEXT"
    with EmbeddedBroker(keys) as broker:
        assert broker.bootstrap_servers == broker.address_of("A")
        assert broker.address_of("a") != broker.address_of("B")
        broker.admin.create_topic("orders")
        assert len(broker.admin.describe_topics(["orders"])["orders"].partitions) == 3
        with pytest.raises(KeyError, match="there is no listener 'C'; there are A, B"):
            broker.address_of("C")


def test_mistakes_have_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        EmbeddedBroker({"num.partitions": "three"}).start()
    with EmbeddedBroker(directory=tmp_path) as broker:
        with pytest.raises(StorageError, match="another"):
            EmbeddedBroker(directory=tmp_path).start()
        with pytest.raises(StartError, match="another process uses this port"):
            EmbeddedBroker({"listeners": f"PLAINTEXT://{broker.bootstrap_servers}"}).start()
    for use in (lambda: broker.bootstrap_servers, lambda: broker.advance(1), lambda: broker.address_of("PLAINTEXT")):
        with pytest.raises(RuntimeError, match="does not run"):
            use()
    with pytest.raises(RuntimeError, match="no directory"):
        assert EmbeddedBroker().directory


def test_second_calls_do_nothing() -> None:
    broker = EmbeddedBroker()
    broker.stop()
    broker.kill()
    address = broker.start().bootstrap_servers
    assert broker.start().bootstrap_servers == address
    broker.close()
    broker.close()
    assert not threads()


def test_a_forgotten_broker_ends() -> None:
    before = threads()
    broker = EmbeddedBroker().start()
    assert threads() > before
    directory = broker.directory
    del broker
    gc.collect()
    assert threads() == before
    assert not directory.exists()


def test_a_program_ends_beside_a_running_broker() -> None:
    program = """
from ottla import Producer
from ottla.testing import EmbeddedBroker
broker = EmbeddedBroker().start()
producer = Producer(broker.bootstrap_servers)
producer.send("orders", b"tea").result()
print(broker.directory)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not Path(ended.stdout.strip()).exists()


def test_a_forked_process_takes_nothing_away() -> None:
    """It ends as a program does, and runs what is registered for the end."""
    program = """
import os, sys
from ottla.testing import EmbeddedBroker
broker = EmbeddedBroker().start()
broker.send("orders", b"tea")
child = os.fork()
if not child:
    sys.exit(7)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), len(broker.records("orders")), broker.directory.exists())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "7 1 True\n"), ended.stderr


def test_a_forked_process_knows_the_address_and_is_refused_the_rest() -> None:
    program = """
import os, sys
from ottla.testing import EmbeddedBroker
with EmbeddedBroker() as broker:
    address = broker.bootstrap_servers
    child = os.fork()
    if not child:
        assert broker.bootstrap_servers == broker.address_of("plaintext") == address
        try:
            broker.requests("Produce")
        except RuntimeError as error:
            print(error, flush=True)
        sys.exit(7)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), broker.requests("Produce"))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    refused = "the broker runs in the process from which this one was forked: only its address is here"
    assert (ended.returncode, ended.stdout) == (0, f"{refused}\n7 0\n"), ended.stderr


def test_it_restarts_while_a_forked_process_lives_and_its_clients_notice() -> None:
    """The child has copies of all descriptors: with one of a listening socket, the port would stay taken."""
    program = """
import os, socket
from ottla.testing import EmbeddedBroker
with EmbeddedBroker() as broker:
    broker.send("orders", b"tea")
    host, port = broker.bootstrap_servers.split(":")
    client = socket.create_connection((host, int(port)))
    for _ in range(2):  # after two round trips the client that connected before is known to the broker
        broker.admin.list_topics()
    goes_on, ends = os.pipe()
    child = os.fork()
    if not child:
        os.close(ends)
        os.read(goes_on, 1)
        os._exit(7)
    broker.send("orders", b"after the fork")
    broker.restart()
    print(client.recv(1), len(broker.records("orders")), flush=True)
    os.close(ends)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "b'' 2\n7\n"), ended.stderr


def test_threads_start_it_once_and_share_its_clients() -> None:
    before = threads()
    broker = EmbeddedBroker()
    together = threading.Barrier(8)
    admins: list[object] = []

    def use() -> None:
        together.wait()
        broker.start()
        together.wait()
        admins.append(broker.admin)

    users = [threading.Thread(target=use) for _ in range(8)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert (len(admins), len(set(map(id, admins)))) == (8, 1)
    assert len(threads() - before) == 1
    broker.close()
    assert threads() == before


def test_a_wait_ends_when_another_thread_kills_the_broker() -> None:
    """Whatever the moment of the kill: the step that asks the broker may be queued, and never run."""
    broker = EmbeddedBroker().start()
    broker.create_topic("orders")
    waits = threading.Semaphore(0)
    ends: list[str] = []

    def wait() -> None:
        try:
            waits.release()
            while True:
                broker.requests("Produce")
        except RuntimeError as error:
            ends.append(str(error))

    for _ in range(20):
        waiting = [threading.Thread(target=wait, daemon=True) for _ in range(4)]
        for one in waiting:
            one.start()
            waits.acquire()
        broker.kill()
        for one in waiting:
            one.join(30)
        broker.start()
    broker.close()
    assert ends == ["the broker does not run: use `with`, or call start()"] * 80


def test_windows_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(RuntimeError, match="needs Linux or macOS"):
        EmbeddedBroker().start()
