"""Every key of Apache Kafka 4.4 is known, with Kafka's default or a note of it in docs/configuration.md.

`scripts/interop/config-golden` writes the golden file from Kafka's own definitions.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.config.accepted import ACCEPTED_BROKER_KEYS, ACCEPTED_TOPIC_KEYS
from ottla.config.broker import BrokerConfig
from ottla.config.options import Option
from ottla.config.topic import TopicConfig

GOLDEN = Path(__file__).parent / "golden" / "kafka-4.4.0-keys.tsv"
OURS: dict[str, dict[str, Option]] = {
    "broker": {**BrokerConfig.by_key, **ACCEPTED_BROKER_KEYS},
    "topic": {**TopicConfig.by_key, **ACCEPTED_TOPIC_KEYS},
}
REFUSED = {"sasl.oauthbearer.allow.unverified.audience", "sasl.oauthbearer.allow.unverified.issuer"}
"""Kafka's defaults of these protect, which Ottla does by other means: a file that sets them gets a warning."""
NOTED = {
    "advertised.listeners": "= listeners",
    "metadata.log.dir": "(the first of log.dirs)",
    "node.id": "-1 (must be set)",
    "controller.listener.names": "(none)",
}
"""Kafka's defaults in other words than those of its definition."""


class KafkaKey(NamedTuple):
    scope: str
    name: str
    kind: str
    default: str
    changes: str


KEYS = [KafkaKey(*line.split("\t")) for line in GOLDEN.read_text().splitlines()]


def test_the_golden_file_has_kafkas_keys() -> None:
    assert len([key for key in KEYS if key.scope == "topic"]) > 30
    assert len(KEYS) > 350


@pytest.mark.parametrize("key", KEYS, ids=lambda key: f"{key.scope}-{key.name}")
def test_each_key_of_kafka_is_known_with_its_default(key: KafkaKey) -> None:
    option = OURS[key.scope].get(key.name)
    assert (option is None) == (key.name in REFUSED)
    if option is None or (option.inherits or option).coarser:  # the default is that of a coarser key
        return
    shown = option.kafka if option.kafka is not None else option.show(option.default) or "(none)"
    assert shown == (NOTED.get(key.name) or key.default or "(none)")


@pytest.mark.parametrize("key", [key for key in KEYS if key.changes and key.name in ACCEPTED_BROKER_KEYS])
def test_a_tool_may_change_an_accepted_key_if_kafka_allows_it(key: KafkaKey) -> None:
    is_of_a_listener = key.name.startswith(("ssl.", "sasl.")) or key.name == "config.providers"
    assert ACCEPTED_BROKER_KEYS[key.name].is_dynamic or is_of_a_listener
