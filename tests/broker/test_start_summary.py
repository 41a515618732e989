"""What a start logs: listeners that serve every client, and features, one line where `transaction.version` can be
raised, none where it cannot.
"""

from __future__ import annotations

import errno

import pytest
from kit.nodes import DATA, start_node
from kit.simulated_files import SimulatedFiles

from ottla.broker.start_summary import log_start_summary, lower_transaction_version, open_listeners
from ottla.config.broker import BrokerConfig
from ottla.protocol.stored.metadata import FeatureLevelRecord


@pytest.mark.parametrize("level", [0, 1])
def test_a_lower_transaction_version_is_one_line_that_says_how_it_is_raised(level: int) -> None:
    node, _, _ = start_node()
    node.services.catalog.image.replay(FeatureLevelRecord(name="transaction.version", feature_level=level))
    line = lower_transaction_version(node.services)
    assert line.startswith(f"transaction.version is {level}, ")
    assert "`ottla features upgrade transaction.version 2 -b HOST:PORT`" in line
    assert "\n" not in line


def test_a_new_directory_has_no_such_line() -> None:
    node, _, _ = start_node()
    assert lower_transaction_version(node.services) == ""


def test_a_profile_without_the_feature_has_no_such_line() -> None:
    node, _, _ = start_node(ottla_profile="kafka-3.9")
    node.services.catalog.image.replay(FeatureLevelRecord(name="transaction.version", feature_level=0))
    assert lower_transaction_version(node.services) == ""


@pytest.mark.parametrize(
    ("listeners", "keys", "found"),
    [
        ("PLAINTEXT://:9092", {}, ["PLAINTEXT://:9092"]),
        ("PLAINTEXT://0.0.0.0:9092,A://[::]:9093", {}, ["PLAINTEXT://0.0.0.0:9092", "A://[::]:9093"]),
        ("PLAINTEXT://127.0.0.1:9092,A://[::1]:9093,B://localhost:9094", {}, []),
        ("SSL://:9093", {}, ["SSL://:9093"]),
        ("SSL://:9093", {"ssl.client.auth": "requested"}, ["SSL://:9093"]),
        ("SSL://:9093", {"ssl.client.auth": "required"}, []),
        ("SSL://:9093,A://:9092", {"listener.name.ssl.ssl.client.auth": "required"}, ["A://:9092"]),
        ("SASL_PLAINTEXT://:9092", {"sasl.enabled.mechanisms": "SCRAM-SHA-256"}, []),
    ],
)
def test_listeners_beyond_this_machine_without_a_login_are_named(
    listeners: str, keys: dict[str, str], found: list[str]
) -> None:
    names = {"listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}
    assert [str(one) for one in open_listeners(BrokerConfig.of({"listeners": listeners, **names, **keys}))] == found


async def test_the_first_line_of_a_start_names_them(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="ottla.server")
    node, _, _ = start_node(listeners="PLAINTEXT://:9092")
    log_start_summary(node.services.config, node.services, 0)
    assert caplog.messages[0].startswith("Ottla ")
    assert caplog.messages[0].endswith("; PLAINTEXT://:9092 serves every client, without a login")


async def test_a_log_directory_is_new_or_was_stopped_cleanly_or_was_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="ottla.server")
    node, files, clock = start_node()
    starts = [node]
    node.stop()
    for _ in range(2):
        node, _, _ = start_node(files, clock)
        starts.append(node)
        files = files.successor()  # the process is killed
    files.unlink(DATA / "ottla.format")  # as if an Apache Kafka had had it
    starts.append(start_node(files, clock)[0])
    for node in starts:
        log_start_summary(node.services.config, node.services, 0)
    lines = [line for line in caplog.messages if line.startswith("log directory ")]
    assert [line.partition(";")[0].removeprefix("log directory /data: online, ") for line in lines] == [
        "new",
        "stopped cleanly before",
        "not stopped cleanly before",
        "formatted and not used yet, or not stopped cleanly by Apache Kafka",
    ]


async def test_a_log_directory_that_cannot_be_read_is_offline_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="ottla.server")
    files = SimulatedFiles()
    files.fail("lock", "/two/*", errno.EIO, times=None)
    node, _, _ = start_node(files, log_dirs="/one,/two")
    log_start_summary(node.services.config, node.services, 0)
    line = [line for line in caplog.messages if line.startswith("log directory /two")][-1]
    assert line.startswith("log directory /two: offline; ")
