"""The image without a container engine: the Dockerfile's steps are run, and its entry point is used as a person would.

In a clean Debian root made by debootstrap where that can be, else in a clean virtual environment; a warning in the
summary says in which of both.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from kit.dockerfile import only
from kit.image_root import BuildFailed, DebianRoot, EnvironmentRoot, ImageRoot, why_no_debian_root
from kit.testcontainers_modules import BY_MODULES, CONFLUENT_RUN, MODULES, STORAGE, Module, Ports

from ottla.testing.reserved_port import ReservedPort

TIMEOUT_S = 60.0
CLUSTER_ID = "abcdefghijklmnopqrstuv"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageRoot]:
    """The image, built once; a warning in pytest's summary says in what."""
    top = tmp_path_factory.mktemp("image")
    root, reason = make_root(top)
    form = "Debian root" if isinstance(root, DebianRoot) else "virtual environment"
    warnings.warn(pytest.PytestWarning(f"the image is tested in a clean {form}{reason}"), stacklevel=1)
    try:
        root.build()
    except BuildFailed as error:
        if not os.environ.get("CI") and re.search(r"Temporary failure|No route|Could not find a version", str(error)):
            pytest.skip(f"what the image needs cannot be fetched here (no network?): {str(error).splitlines()[-1]}")
        raise
    yield root
    shutil.rmtree(top, ignore_errors=True)


def make_root(top: Path) -> tuple[ImageRoot, str]:
    """A Debian root where one can be made; else an environment, and why."""
    reason = why_no_debian_root()
    if reason is None:
        try:
            return DebianRoot(top / "root", top / "wheels"), ""
        except BuildFailed as error:
            reason = str(error).splitlines()[-1]
    root = EnvironmentRoot(top / "environment")
    root.top.mkdir()
    return root, f" ({reason})"


@pytest.fixture
def volume(image: ImageRoot) -> Path:
    """An empty volume, as the image leaves it."""
    place = image.path("/var/lib/ottla")
    for entry in place.iterdir():
        shutil.rmtree(entry)
    image.path("/etc/ottla/server.properties").unlink(missing_ok=True)
    return place


def needs_users(image: ImageRoot) -> None:
    if not isinstance(image, DebianRoot):
        pytest.skip("a virtual environment has no users of its own")


def said(image: ImageRoot, *words: str, **environment: str) -> tuple[int, str]:
    """Exit status and output of a container that ends."""
    running = image.start(*words, environment=environment)
    out, _ = running.communicate(timeout=TIMEOUT_S)
    return running.returncode, out


@contextmanager
def container(image: ImageRoot, *words: str, user: str = "1000:0", **environment: str) -> Iterator[list[str]]:
    """A container that serves; its output. At the end it is stopped as `docker stop` does and must end by itself."""
    running = image.start(*words, user=user, environment=environment)
    lines: list[str] = []
    ready = threading.Event()

    def read() -> None:
        assert running.stdout is not None
        for line in running.stdout:
            lines.append(line)
            if line.startswith("listening on "):
                ready.set()
        ready.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        assert ready.wait(TIMEOUT_S), "".join(lines)
        assert running.poll() is None, "".join(lines)
        yield lines
        running.send_signal(signal.SIGTERM)
        assert running.wait(TIMEOUT_S) == 0, "".join(lines)
    finally:
        if running.poll() is None:
            running.kill()
            running.wait(TIMEOUT_S)
        reader.join(TIMEOUT_S)


def test_a_container_serves_is_healthy_and_stops_cleanly(image: ImageRoot, volume: Path) -> None:
    reserved = ReservedPort()  # which the health check can know beforehand
    port = reserved.number
    environment = {
        "KAFKA_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",
        "KAFKA_NUM_PARTITIONS": "3",
        "CLUSTER_ID": CLUSTER_ID,
    }
    check = only("HEALTHCHECK").arguments
    assert check.endswith('CMD ["ottla-entrypoint", "ping"]')
    assert said(image, "ping", **environment)[0] == 1, "nobody serves yet"
    with container(image, **environment):
        status, out = said(image, "ping", **environment)
        assert (status, out.split(" answers ")[0]) == (0, f"127.0.0.1:{port}")
        server = ("-b", f"127.0.0.1:{port}")
        assert said(image, "topics", "create", "orders", *server) == (0, "created orders\n")
        assert sorted(path.name for path in (volume / "data").glob("orders-*")) == ["orders-0", "orders-1", "orders-2"]
    assert f"cluster.id={CLUSTER_ID}" in (volume / "data/meta.properties").read_text()
    assert (volume / "data/.kafka_cleanshutdown").exists()


def test_a_mounted_file_and_variables_are_merged_over_the_defaults(image: ImageRoot, volume: Path) -> None:
    image.path("/etc/ottla/server.properties").write_text("log.dirs=other\nnum.partitions=2\nlog.retention.hours=5\n")
    status, out = said(image, "config", "/etc/ottla/server.properties", "--effective", KAFKA_NUM_PARTITIONS="4")
    if isinstance(image, EnvironmentRoot):
        path = image.text("/etc/ottla/server.properties")
        status, out = said(image, "config", path, "--effective", KAFKA_NUM_PARTITIONS="4")
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()[1:]}
    assert status == 0
    assert rows["num.partitions"] == ["4", "environment", "KAFKA_NUM_PARTITIONS"]
    assert rows["log.retention.hours"] == ["5", "server.properties:3"]
    assert rows["message.max.bytes"] == ["1048588", "default"]
    ports = ("--override", "listeners=PLAINTEXT://127.0.0.1:0", "--override", "ottla.http.listener=127.0.0.1:0")
    with container(image, *ports) as lines:
        assert (volume / "other/meta.properties").exists()
    assert "WARNING" not in "".join(lines)


def test_what_a_start_imports_of_ottla_and_its_packages_is_compiled(image: ImageRoot) -> None:
    (packages,) = image.path("/opt/ottla/lib").glob("python3*/site-packages")
    assert list(packages.glob("ottla/broker/__pycache__/server.*.pyc"))
    assert list(packages.glob("uvloop/__pycache__/__init__.*.pyc"))


def test_the_image_holds_no_installer(image: ImageRoot) -> None:
    (packages,) = image.path("/opt/ottla/lib").glob("python3*/site-packages")
    assert (packages / "ottla/cli/entry.py").exists()
    assert not (packages / "pip").exists()
    assert not (packages / "setuptools").exists()


@pytest.mark.parametrize("user", ["1000:0", "54321:0"])
def test_any_user_may_run_it(image: ImageRoot, volume: Path, user: str) -> None:
    needs_users(image)
    with container(image, "--override", "listeners=PLAINTEXT://127.0.0.1:0", user=user):
        assert (volume / "data").stat().st_uid == int(user.partition(":")[0])


def test_a_user_without_the_right_to_write_learns_what_to_do(image: ImageRoot, volume: Path) -> None:
    needs_users(image)
    running = image.start(user="54321:54321")
    out, _ = running.communicate(timeout=TIMEOUT_S)
    assert running.returncode == 1
    (line,) = out.splitlines()
    assert line.startswith("ottla: user 54321:54321 cannot write to /var/lib/ottla, which belongs to 1000:0: ")


def test_a_stop_in_the_first_moment_ends_it(image: ImageRoot, volume: Path) -> None:
    running = image.start("serve", "--override", "listeners=PLAINTEXT://127.0.0.1:0")
    running.send_signal(signal.SIGTERM)
    try:
        running.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        running.kill()
        raise
    assert running.returncode in (0, 143, -signal.SIGTERM)


# --- Kafka's own commands


def test_health_checks_and_init_containers_for_kafkas_images_work(image: ImageRoot, volume: Path) -> None:
    reserved = ReservedPort()
    server = f"127.0.0.1:{reserved.number}"
    there = ("--bootstrap-server", server)
    topics, versions = (image.text(f"/opt/kafka/bin/kafka-{name}.sh") for name in ("topics", "broker-api-versions"))
    create = (topics, *there, "--create", "--if-not-exists", "--topic", "orders", "--partitions", "3")
    assert said(image, versions, *there)[0] == 1, "nobody serves yet"
    with container(image, KAFKA_LISTENERS=f"PLAINTEXT://{server}"):
        assert said(image, "sh", "-c", f"cub kafka-ready -b {server} 1 20") == (0, "")
        assert said(image, *create)[0] == said(image, *create)[0] == 0
        assert said(image, topics, *there, "--list") == (0, "orders\n")
        assert said(image, topics, *there, "--describe", "--topic", "orders")[0] == 0
        assert said(image, versions, *there)[0] == 0
        if isinstance(image, DebianRoot):
            for name in ("kafka-topics", "kafka-topics.sh", "/opt/bitnami/kafka/bin/kafka-topics.sh"):
                assert said(image, "sh", "-c", f"{name} {' '.join(there)} --list") == (0, "orders\n")
            for name in ("kafka-broker-api-versions", "kafka-broker-api-versions.sh"):
                assert said(image, "sh", "-c", f"{name} {' '.join(there)}")[0] == 0


# --- Testcontainers


@pytest.fixture
def ports() -> Iterator[Ports]:
    held = [ReservedPort() for _ in Ports._fields]
    yield Ports(*(one.number for one in held))
    for one in held:
        one.close()


@contextmanager
def started_by(module: Module, image: ImageRoot, ports: Ports, **environment: str) -> Iterator[list[str]]:
    """A container as the module starts it, and waits for it; its output. At the end everything in it is killed."""
    for path in BY_MODULES:
        image.path(path).unlink(missing_ok=True)
    entry_point = ("/bin/sh", image.text("/usr/local/bin/ottla-entrypoint"))
    running = image.start(
        *map(image.text, module.words()),
        environment={**module.environment(ports), **environment},
        entry_point=module.entry_point or entry_point,
    )
    lines: list[str] = []
    ready = threading.Event()

    def read() -> None:
        assert running.stdout is not None
        for line in running.stdout:
            lines.append(line)
            if re.search(module.waits_for, line):
                ready.set()
        ready.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        script = image.path(module.script)
        script.parent.mkdir(parents=True, exist_ok=True)
        copied = script.with_name("copied")
        copied.write_text(image.text(module.content(ports)))
        copied.chmod(0o777)
        copied.rename(script)  # whole at once, as an archive is unpacked
        assert ready.wait(TIMEOUT_S), "".join(lines)
        assert any(re.search(module.waits_for, line) for line in lines), "".join(lines)
        yield lines
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait(TIMEOUT_S)
        reader.join(TIMEOUT_S)


def assert_a_client_can_use(address: str, **login: str) -> None:
    """By the address that the module hands out, which is also what the broker advertises."""
    producer = Producer({"bootstrap.servers": address, **login})
    producer.produce("orders", b"tea")
    assert producer.flush(TIMEOUT_S) == 0
    group = {"group.id": "kitchen", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": address, **group, **login})
    consumer.subscribe(["orders"])
    record = consumer.poll(TIMEOUT_S)
    consumer.close()
    assert record is not None
    assert record.value() == b"tea"


@pytest.mark.parametrize("module", MODULES, ids=[one.name for one in MODULES])
def test_a_module_of_testcontainers_starts_it_and_a_client_uses_it(
    image: ImageRoot, volume: Path, ports: Ports, module: Module
) -> None:
    with started_by(module, image, ports) as lines:
        assert_a_client_can_use(f"127.0.0.1:{ports.client}")
        if "zookeeper" in module.name:  # Node waits until this port is open, too
            socket.create_connection(("127.0.0.1", ports.zookeeper), timeout=TIMEOUT_S).close()
    complaints = [line for line in lines if re.search(r"sed:|echo|cannot|denied|not found|ERROR|Traceback", line)]
    assert complaints == []
    if "CLUSTER_ID" in module.more:
        assert f"cluster.id={module.more['CLUSTER_ID']}\n" in (volume / "data/meta.properties").read_text()


def test_users_of_kafka_storage_can_log_in(image: ImageRoot, volume: Path, ports: Ports) -> None:
    """Node's `withSaslSslListener` does this, with TLS as well."""
    add = f'{STORAGE} --add-scram "SCRAM-SHA-512=[name=ann,password=secret]"'.replace("{id}", CLUSTER_ID)
    (confluent,) = (one for one in MODULES if one.name == "java-confluent")
    add_and_run = f"echo '{add}' >> /etc/confluent/docker/configure\n{CONFLUENT_RUN}"
    module = confluent._replace(lines=confluent.lines.replace(CONFLUENT_RUN, add_and_run))
    users = {
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
        "KAFKA_SASL_ENABLED_MECHANISMS": "SCRAM-SHA-512",
    }
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "ann"}
    try:
        with started_by(module, image, ports, **users):
            assert_a_client_can_use(f"127.0.0.1:{ports.client}", **login, **{"sasl.password": "secret"})
    finally:
        image.path("/etc/confluent/docker/scram-users").unlink(missing_ok=True)


@pytest.mark.parametrize("path", ["/etc/kafka/docker/run", "/etc/confluent/docker/run"])
def test_the_scripts_of_kafkas_images_become_the_broker(image: ImageRoot, volume: Path, path: str) -> None:
    with container(image, image.text(path), KAFKA_LISTENERS="PLAINTEXT://127.0.0.1:0", KAFKA_NODE_ID="7") as lines:
        pass  # and it ends by SIGTERM
    assert any(line.startswith("[KafkaServer id=7] started") for line in lines)


def test_the_broker_itself_prints_its_addresses_only(image: ImageRoot, volume: Path) -> None:
    with container(image, KAFKA_LISTENERS="PLAINTEXT://127.0.0.1:0") as lines:
        pass
    assert [line for line in lines if "KafkaServer" in line or "RUNNING" in line] == []
