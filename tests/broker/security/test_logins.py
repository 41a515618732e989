"""What is counted of logins by SASL, and how a scrape shows it (`net/test_tls_layer.py` has the handshakes of TLS)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit.sasl_connections import ALICE, LISTENER, SaslNode
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.runtime.metrics import LoginCounters
from ottla.broker.security.logins import NO_MECHANISM
from ottla.broker.telemetry.exposition import Exposition
from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.api.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.api.sasl_handshake import SaslHandshakeRequest

WRONG = b"\0alice\0wrong"


@pytest.fixture
def at() -> Iterator[SaslNode]:
    made = SaslNode(connections_max_reauth_ms=10_000)
    yield made
    made.node.stop()


def counters(at: SaslNode, mechanism: str = "PLAIN") -> LoginCounters:
    return at.node.services.metrics.logins[LISTENER, mechanism]


def test_a_login_counts_when_it_is_complete(at: SaslNode) -> None:
    client = at.connect()
    client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert counters(at).successful == 0
    client.ask(SaslAuthenticateRequest(auth_bytes=ALICE), 2)
    assert (counters(at).successful, counters(at).failed) == (1, 0)
    assert counters(at, "SCRAM-SHA-256").successful == 0


def test_a_login_that_fails_counts_once(at: SaslNode) -> None:
    client = at.connect()
    client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    client.send_request(SaslAuthenticateRequest(auth_bytes=WRONG), 2)
    at.pass_time(100_000)
    assert (counters(at).successful, counters(at).failed) == (0, 1)


def test_a_client_that_names_no_known_mechanism_adds_no_label(at: SaslNode) -> None:
    for number in range(3):
        client = at.connect()
        client.send_request(SaslHandshakeRequest(mechanism=f"MINE-{number}"), 1)
        at.pass_time(1_000)
    assert counters(at, NO_MECHANISM).failed == 3
    known = {NO_MECHANISM, "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}
    assert {mechanism for _, mechanism in at.node.services.metrics.logins} == known


@pytest.mark.parametrize(("version", "count"), [(0, 1), (1, 0)])
def test_a_client_that_cannot_log_in_again_is_counted(at: SaslNode, version: int, count: int) -> None:
    at.connect().log_in(version=version)
    assert counters(at).successful_without_reauthentication == count


def test_another_login_of_a_session_is_counted_with_its_time(at: SaslNode) -> None:
    client = at.connect()
    client.log_in()
    at.pass_time(5_000)
    client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    at.pass_time(20)
    client.ask(SaslAuthenticateRequest(auth_bytes=ALICE), 2)
    counted = counters(at)
    assert (counted.successful, counted.successful_reauthentications) == (1, 1)
    assert (counted.reauthentication_times.count, counted.reauthentication_times.sum_us) == (1, 20_000)


def test_another_login_that_fails_is_counted_apart(at: SaslNode) -> None:
    client = at.connect()
    client.log_in()
    client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    client.send_request(SaslAuthenticateRequest(auth_bytes=WRONG), 2)
    counted = counters(at)
    assert (counted.successful, counted.failed, counted.failed_reauthentications) == (1, 0, 1)


def test_a_connection_that_goes_on_after_its_session_is_counted(at: SaslNode) -> None:
    client = at.connect()
    client.log_in()
    at.pass_time(10_001)
    assert counters(at).expired_connections_killed == 0
    client.send_request(MetadataRequest(topics=[]), 9)
    assert client.is_closed
    assert counters(at).expired_connections_killed == 1


def test_a_scrape_shows_all_mechanisms_of_a_listener_from_the_start(at: SaslNode) -> None:
    text = Exposition(at.node.services, at.node.cleaner).render().decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    server = "kafka_server_socketservermetrics"
    for name in (
        "successful_authentication",
        "failed_authentication",
        "successful_authentication_no_reauth",
        "successful_reauthentication",
        "failed_reauthentication",
        "expired_connections_killed",
    ):
        samples = families[f"{server}_{name}"].samples
        assert {(sample.labels["listener"], sample.labels["mechanism"], sample.value) for sample in samples} == {
            (LISTENER, "PLAIN", 0.0),
            (LISTENER, "SCRAM-SHA-256", 0.0),
            (LISTENER, "SCRAM-SHA-512", 0.0),
        }
    assert families[f"{server}_reauthentication_latency_seconds"].type == "histogram"
