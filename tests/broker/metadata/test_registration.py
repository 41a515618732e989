"""What a run of the broker registers about itself."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.broker.metadata.registration import Registration
from ottla.config.broker import BrokerConfig
from ottla.protocol.stored.metadata import RegisterBrokerRecord


@pytest.mark.parametrize(
    ("advertised", "address"),
    [("", ("localhost", 40001)), ("A://here:0", ("here", 40001)), ("A://here:7", ("here", 7))],
)
def test_the_port_of_the_socket_is_registered_in_place_of_port_0(advertised: str, address: tuple[str, int]) -> None:
    """As `withEphemeralPortsCorrected` of Kafka's `ListenerInfo` does."""
    keys = {"listeners": "A://:0", "listener.security.protocol.map": "A:PLAINTEXT", "advertised.listeners": advertised}
    config = BrokerConfig.of({key: value for key, value in keys.items() if value})
    record, _ = Registration(1, 5).records(config, UUID(int=7), [UUID(int=8)], {"A": 40001})
    assert isinstance(record, RegisterBrokerRecord)
    assert [(one.host, one.port) for one in record.end_points] == [address]


@pytest.mark.parametrize(("protocol", "number"), [("PLAINTEXT", 0), ("SSL", 1), ("SASL_PLAINTEXT", 2), ("SASL_SSL", 3)])
def test_an_endpoint_has_kafkas_number_of_its_protocol(protocol: str, number: int) -> None:
    """`SecurityProtocol.id` of Kafka; and its own name, which need not be the protocol's."""
    keys = {"listeners": "INTERNAL://:9093", "listener.security.protocol.map": f"INTERNAL:{protocol}"}
    config = BrokerConfig.of({**keys, "sasl.enabled.mechanisms": "SCRAM-SHA-256"})
    record, _ = Registration(1, 5).records(config, UUID(int=7), [UUID(int=8)])
    assert isinstance(record, RegisterBrokerRecord)
    (endpoint,) = record.end_points
    assert (endpoint.name, endpoint.security_protocol, endpoint.port) == ("INTERNAL", number, 9093)
