"""What a start logs: listeners that serve every client, and features, one line where `transaction.version` can be
raised, none where it cannot.
"""

from __future__ import annotations

import pytest
from kit.nodes import start_node

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
