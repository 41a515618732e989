"""The pytest plugin, in runs of pytest of its own: the fixtures, the marker, and the reports of failures."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLUGIN = "ottla.testing.plugin"


def run(directory: Path, tests: str, *options: str, conftest: str = "") -> str:
    """The output of a run of these tests, with this plugin alone."""
    (directory / "test_them.py").write_text(tests)
    (directory / "conftest.py").write_text(conftest)
    command = [sys.executable, "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider", "--strict-markers", *options]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_XDIST_WORKER"):
        environment.pop(name, None)
    ended = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    return ended.stdout + ended.stderr


def test_each_test_has_a_new_broker(tmp_path: Path) -> None:
    output = run(
        tmp_path,
        """
import pytest
from ottla import Producer

@pytest.mark.parametrize("number", range(3))
def test_it_is_empty(ottla_broker, number):
    assert ottla_broker.admin.list_topics() == []
    with Producer(ottla_broker.bootstrap_servers) as producer:
        producer.send("orders", b"tea")
    assert [record.value for record in ottla_broker.records("orders")] == [b"tea"]
""",
    )
    assert "3 passed" in output, output


def test_the_session_has_one_broker(tmp_path: Path) -> None:
    output = run(
        tmp_path,
        """
ADDRESSES = set()

def test_one(ottla_session_broker, ottla_broker):
    ADDRESSES.add(ottla_session_broker.bootstrap_servers)
    assert ottla_session_broker.create_topic("orders") == "orders"
    ottla_session_broker.fail("Produce", "NOT_ENOUGH_REPLICAS")
    assert ottla_broker.bootstrap_servers not in ADDRESSES

def test_two(ottla_session_broker):
    assert ottla_session_broker.admin.list_topics() == ["orders"]
    assert not ottla_session_broker.faults
    assert ottla_session_broker.bootstrap_servers in ADDRESSES
""",
    )
    assert "2 passed" in output, output


def test_the_configuration_comes_from_a_fixture_and_a_marker(tmp_path: Path) -> None:
    output = run(
        tmp_path,
        """
import pytest

def partitions(broker):
    broker.admin.create_topic("orders")
    return len(broker.admin.describe_topics(["orders"])["orders"].partitions)

def test_fixture(ottla_broker, ottla_session_broker):
    assert partitions(ottla_broker) == partitions(ottla_session_broker) == 3

@pytest.mark.ottla_config({"num.partitions": 5})
class TestMarked:
    def test_of_the_class(self, ottla_broker):
        assert partitions(ottla_broker) == 5

    @pytest.mark.ottla_config({"num.partitions": 7})
    def test_of_the_test(self, ottla_broker):
        assert partitions(ottla_broker) == 7
""",
        conftest="""
import pytest

@pytest.fixture(scope="session")
def ottla_config():
    return {"num.partitions": 3}
""",
    )
    assert "3 passed" in output, output


def test_a_failure_shows_what_was_there(tmp_path: Path) -> None:
    output = run(
        tmp_path,
        """
from ottla import Consumer, Producer

def test_fails(ottla_broker):
    with Producer(ottla_broker.bootstrap_servers) as producer:
        for number in range(7):
            producer.send("orders", b"tea %d" % number, key=b"anna", headers=[("trace", b"t")])
        producer.send("long", bytes(1000))
        producer.send("nothing", None)
    options = {"group_id": "kitchen", "auto_offset_reset": "earliest"}
    with Consumer(ottla_broker.bootstrap_servers, **options) as consumer:
        consumer.subscribe(["orders"])
        consumer.getone()
        consumer.commit()
    ottla_broker.fail("Produce", "NOT_ENOUGH_REPLICAS")
    assert False

def test_passes(ottla_broker):
    pass

def test_ends_without_it(ottla_broker):
    ottla_broker.kill()
    assert False
""",
    )
    assert "2 failed, 1 passed" in output, output
    for line in (
        "topic orders: 7 records",
        "  partition 0, offset 2: 'anna' = 'tea 2', trace='t'",
        "  partition 0, offset 6: 'anna' = 'tea 6', trace='t'",
        "... (1,000 bytes)",
        "  partition 0, offset 0: null = null",
        "group kitchen: Empty, orders-0 at 1",
        "fault: <Fault: Produce: NOT_ENOUGH_REPLICAS, 0 hit>",
        "the broker does not run",
    ):
        assert line in output, output
    assert "tea 1" not in output.partition("topic orders")[2], output
    assert output.count("- Ottla -") == 2, output


def test_a_failure_is_reported_where_nothing_can_be_described(tmp_path: Path) -> None:
    output = run(
        tmp_path,
        """
import pytest

KEYS = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "PLAIN"}
KEYS["listener.name.sasl_plaintext.plain.sasl.jaas.config"] = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required user_anna="secret";'
)

@pytest.mark.ottla_config(KEYS)
def test_fails(ottla_broker):
    assert False
""",
    )
    assert "1 failed" in output, output
    assert "cannot be described" in output, output


def test_a_wrong_marker_is_explained(tmp_path: Path) -> None:
    output = run(
        tmp_path,
        """
import pytest

@pytest.mark.ottla_config(num_partitions=3)
def test_it(ottla_broker):
    pass
""",
    )
    assert 'ottla_config takes one mapping: @pytest.mark.ottla_config({"num.partitions": 3})' in output, output
    assert "plugin.py" not in output, output


def test_a_broker_that_cannot_start_is_one_line_without_its_frames(tmp_path: Path) -> None:
    output = run(
        tmp_path,
        """
import pytest

@pytest.mark.ottla_config({"num.partitons": 3})
def test_key(ottla_broker):
    pass

@pytest.mark.ottla_config({"num.partitions": "many"})
def test_value(ottla_broker):
    pass

@pytest.mark.ottla_config({"listeners": "SSL://127.0.0.1:0"})
def test_listener(ottla_broker):
    pass

@pytest.mark.ottla_config({"log.dirs": "/dev/null/data"})
def test_directory(ottla_broker):
    pass
""",
    )
    assert "4 errors" in output, output
    for line in (
        "num.partitons: is not a key; did you mean num.partitions?",
        "num.partitions=many: must be an integer of at least 1",
        "ssl.keystore.location: must be set: a TLS listener needs a key and a certificate (default)",
        "no log directory can be used: /dev/null/data: Not a directory",
    ):
        assert f"the broker of this test cannot start: {line}\n" in output, output
    for frame in ("Error:", "plugin.py", "embedded_broker.py"):
        assert frame not in output, output


def test_it_is_on_the_lists_of_fixtures_and_markers(tmp_path: Path) -> None:
    fixtures = run(tmp_path, "", "--fixtures")
    for name in ("ottla_broker", "ottla_session_broker [session scope]", "ottla_config [session scope]"):
        assert name.partition(" ")[0] in fixtures, fixtures
    assert "ottla_config(keys)" in run(tmp_path, "", "--markers")


def test_pytest_finds_it_by_its_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"ottla": PLUGIN}


def test_a_run_without_its_fixtures_imports_little() -> None:
    program = f"import sys, {PLUGIN}; print([name for name in sys.modules if name.startswith('ottla')])"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.strip() == str(["ottla.version", "ottla", "ottla.testing", PLUGIN])
