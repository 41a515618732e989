"""Keys that change while the broker runs: which value wins, what is notified, and what cannot change."""

from __future__ import annotations

import pytest

from ottla.config.accepted import ACCEPTED_BROKER_KEYS
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.options import ConfigEntry, ConfigSource
from ottla.config.topic import TopicConfig


def entry_of(config: BrokerConfig, key: str) -> ConfigEntry:
    (entry,) = config.describe([key])
    return entry


def test_this_brokers_value_wins_over_that_of_all_and_both_over_the_file() -> None:
    config = BrokerConfig.of({"log.segment.bytes": 1_000_000})
    assert config.set_dynamic(node={}, all_nodes={"log.segment.bytes": "2000000"}) == []
    assert config.log_segment_bytes == 2_000_000
    config.set_dynamic(node={"log.segment.bytes": "3000000"}, all_nodes={"log.segment.bytes": "2000000"})
    assert config.log_segment_bytes == 3_000_000
    assert [(one.value, one.source) for one in entry_of(config, "log.segment.bytes").synonyms] == [
        ("3000000", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("2000000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("1000000", ConfigSource.STATIC_BROKER_CONFIG),
        ("1073741824", ConfigSource.DEFAULT_CONFIG),
    ]
    config.set_dynamic(node={}, all_nodes={})
    assert config.log_segment_bytes == 1_000_000


def test_a_finer_key_that_is_set_while_it_runs_wins_over_a_coarser_one_of_the_file() -> None:
    config = BrokerConfig.of({"log.retention.hours": 1})
    assert config.log_retention_ms == 3_600_000
    config.set_dynamic(node={"log.retention.ms": "5"}, all_nodes={})
    assert config.log_retention_ms == 5
    assert TopicConfig.resolve({}, config).retention_ms == 5
    config.set_dynamic(node={}, all_nodes={})
    assert config.log_retention_ms == 3_600_000


def test_what_needs_a_restart_is_untouched() -> None:
    config = BrokerConfig.of()
    listeners = config.listeners
    (warning,) = config.set_dynamic(node={"node.id": "7"}, all_nodes={})
    assert warning.startswith("node.id, set while the broker ran, has no effect")
    assert (config.node_id, config.listeners) == (1, listeners)


def test_all_keys_that_cannot_change_are_named_in_one_line_before_any_value_is_looked_at() -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.check_dynamic({"log.retention.ms": "soon", "node.id": "5", "broker.rack": "r", "nope": ""})
    assert refused.value.for_client() == "Cannot update these configs dynamically: Set(broker.rack, node.id, nope)"


def test_a_refusal_for_a_client_never_shows_a_secret() -> None:
    error = ConfigError("ssl.key.password", "[hidden]", "must be text")
    assert error.for_client() == "Invalid value [hidden] for configuration ssl.key.password: must be text"


def test_the_resource_of_all_brokers_has_only_what_was_set_for_all() -> None:
    config = BrokerConfig.of({"log.roll.ms": 9})
    config.set_dynamic(node={"log.retention.ms": "5"}, all_nodes={"log.retention.bytes": "6"})
    assert [(one.name, one.value) for one in config.describe_default()] == [("log.retention.bytes", "6")]
    assert config.describe_default(["log.roll.ms"]) == []


@pytest.mark.parametrize("key", ["log.retention.ms", "max.connections", "ottla.acks.all", "num.io.threads"])
def test_what_may_change_says_so(key: str) -> None:
    assert not entry_of(BrokerConfig.of(), key).read_only


@pytest.mark.parametrize("key", ["node.id", "listeners", "log.retention.hours", "num.partitions", "log.dirs"])
def test_what_may_not_change_says_so_as_in_kafka(key: str) -> None:
    assert entry_of(BrokerConfig.of(), key).read_only


def test_every_accepted_key_says_why_it_has_no_effect() -> None:
    assert all(option.inert for option in ACCEPTED_BROKER_KEYS.values())


def test_a_retention_of_nothing_is_refused_as_it_is_at_the_start() -> None:
    with pytest.raises(ConfigError, match="must not be 0"):
        BrokerConfig.check_dynamic({"log.retention.ms": "0"})
    BrokerConfig.check_dynamic({"log.retention.ms": "-1"})


def test_the_keys_that_are_new_in_kafka_4_4_and_mean_nothing_on_one_node_are_accepted_with_its_defaults() -> None:
    """As a broker of Kafka 4.4.0 describes them."""
    of_kafka = {
        "controller.quorum.auto.join.enable": ("false", True),
        "controller.quorum.fetch.max.bytes": ("1048576", True),
        "controller.quorum.fetch.snapshot.max.bytes": ("1048576", True),
        "follower.fetch.last.tiered.offset.enable": ("false", False),
        "group.consumer.assignment.interval.ms": ("1000", False),
        "group.coordinator.background.threads": ("2", True),
        "group.coordinator.cached.buffer.max.bytes": ("1048588", False),
        "group.share.assignment.interval.ms": ("1000", False),
        "group.streams.topology.description.plugin.class": (None, True),
        "log.remote.copy.lag.bytes": ("-1", False),
        "log.remote.copy.lag.ms": ("0", False),
        "remote.log.manager.follower.thread.pool.size": ("2", False),
        "share.coordinator.cached.buffer.max.bytes": ("1048588", False),
    }
    entries = BrokerConfig.of({}).describe([*of_kafka])
    assert {one.name: (one.value, one.read_only) for one in entries} == of_kafka
    assert all("No effect" in one.documentation for one in entries)
