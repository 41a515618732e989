"""What a run of the broker registers about itself."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.broker.metadata.registration import Registration
from ottla.config.broker import BrokerConfig
from ottla.protocol.stored.metadata import RegisterBrokerRecord


@pytest.mark.parametrize(("protocol", "number"), [("PLAINTEXT", 0), ("SSL", 1), ("SASL_PLAINTEXT", 2), ("SASL_SSL", 3)])
def test_an_endpoint_has_kafkas_number_of_its_protocol(protocol: str, number: int) -> None:
    """`SecurityProtocol.id` of Kafka; and its own name, which need not be the protocol's."""
    keys = {"listeners": "INTERNAL://:9093", "listener.security.protocol.map": f"INTERNAL:{protocol}"}
    config = BrokerConfig.of({**keys, "sasl.enabled.mechanisms": "SCRAM-SHA-256"})
    record, _ = Registration(1, 5).records(config, UUID(int=7), [UUID(int=8)])
    assert isinstance(record, RegisterBrokerRecord)
    (endpoint,) = record.end_points
    assert (endpoint.name, endpoint.security_protocol, endpoint.port) == ("INTERNAL", number, 9093)
