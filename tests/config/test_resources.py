"""Configurations of groups and of client metrics subscriptions."""

from __future__ import annotations

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.options import ConfigSource
from ottla.config.resources import INTERNAL_KEYS, ClientMetricsConfig, GroupConfig

BROKER = BrokerConfig.of({"group.consumer.session.timeout.ms": 20_000, "group.consumer.min.session.timeout.ms": 10_000})


def test_a_group_has_the_brokers_default_until_it_sets_its_own() -> None:
    (inherited,) = GroupConfig.describe({}, BROKER, ["consumer.session.timeout.ms"])
    broker = ("group.consumer.session.timeout.ms", "20000", ConfigSource.STATIC_BROKER_CONFIG)
    default = ("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT_CONFIG)
    assert (inherited.value, inherited.source) == ("20000", ConfigSource.STATIC_BROKER_CONFIG)
    assert [(one.name, one.value, one.source) for one in inherited.synonyms] == [broker, default]
    (own,) = GroupConfig.describe({"consumer.session.timeout.ms": "30000"}, BROKER, ["consumer.session.timeout.ms"])
    assert (own.value, own.source, own.is_default) == ("30000", ConfigSource.GROUP_CONFIG, False)
    assert [(one.name, one.value, one.source) for one in own.synonyms] == [
        ("consumer.session.timeout.ms", "30000", ConfigSource.GROUP_CONFIG),
        broker,
        default,
    ]


def test_a_groups_key_without_one_of_the_broker_has_its_own_default_as_synonym() -> None:
    (entry,) = GroupConfig.describe({}, BROKER, ["share.auto.offset.reset"])
    assert [(one.name, one.value) for one in entry.synonyms] == [("share.auto.offset.reset", "latest")]


def test_client_metrics_have_no_synonym_for_a_default() -> None:
    (entry,) = ClientMetricsConfig.describe({}, ["interval.ms"])
    assert (entry.value, entry.source, entry.synonyms) == ("300000", ConfigSource.DEFAULT_CONFIG, ())
    (entry,) = ClientMetricsConfig.describe({"interval.ms": "1000"}, ["interval.ms"])
    assert [(one.value, one.source) for one in entry.synonyms] == [("1000", ConfigSource.CLIENT_METRICS_CONFIG)]


OF_KAFKA = [
    "consumer.assignment.interval.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "errors.deadletterqueue.copy.record.enable",
    "errors.deadletterqueue.topic.name",
    "share.assignment.interval.ms",
    "share.auto.offset.reset",
    "share.delivery.count.limit",
    "share.heartbeat.interval.ms",
    "share.isolation.level",
    "share.partition.max.record.locks",
    "share.record.lock.duration.ms",
    "share.renew.acknowledge.enable",
    "share.session.timeout.ms",
    "streams.assignment.interval.ms",
    "streams.assignor.name",
    "streams.heartbeat.interval.ms",
    "streams.initial.rebalance.delay.ms",
    "streams.num.standby.replicas",
    "streams.rack.aware.assignment.tags",
    "streams.session.timeout.ms",
]
"""What a broker of Kafka 4.4.0 returns for a group that sets nothing."""


def test_a_group_has_the_keys_of_kafka_4_4() -> None:
    entries = GroupConfig.describe({}, BROKER)
    assert [entry.name for entry in entries] == OF_KAFKA
    assert all(entry.documentation for entry in entries)


def test_internal_keys_are_described_for_groups_that_set_them() -> None:
    values = {key: "false" if key.endswith("enable") else "20000" for key in INTERNAL_KEYS}
    assert values.keys() <= GroupConfig.by_key.keys()
    entries = {entry.name: entry.value for entry in GroupConfig.describe(values, BROKER)}
    assert entries.items() >= values.items()
    assert GroupConfig.describe({}, BROKER, [*values]) == []


def test_the_key_of_the_broker_from_which_a_value_comes_is_a_synonym() -> None:
    key, of_broker = "share.partition.max.record.locks", "group.share.partition.max.record.locks"
    (entry,) = GroupConfig.describe({}, BrokerConfig.of({of_broker: 700}), [key])
    assert (entry.value, entry.source) == ("700", ConfigSource.STATIC_BROKER_CONFIG)
    assert [(one.name, one.value, one.source) for one in entry.synonyms] == [
        (of_broker, "700", ConfigSource.STATIC_BROKER_CONFIG),
        (of_broker, "2000", ConfigSource.DEFAULT_CONFIG),
    ]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("nope", "5", "Unknown group config name: nope"),
        ("consumer.session.timeout.ms", "x", "Invalid value x for configuration consumer.session.timeout.ms"),
        ("consumer.session.timeout.ms", "9999", "consumer.session.timeout.ms must be greater than or equal to group."),
        ("consumer.session.timeout.ms", "60001", "consumer.session.timeout.ms must be less than or equal to group."),
        ("consumer.heartbeat.interval.ms", "15001", "consumer.heartbeat.interval.ms must be less than or equal to"),
        ("share.auto.offset.reset", "never", "Invalid value never for configuration share.auto.offset.reset"),
        (
            "share.auto.offset.reset",
            "by_duration:1h",
            "Invalid value by_duration:1h for configuration share.auto",
        ),
        (
            "share.record.lock.duration.ms",
            "99",
            "share.record.lock.duration.ms must be greater than or equal to",
        ),
        (
            "share.delivery.count.limit",
            "11",
            "share.delivery.count.limit must be less than or equal to group.share.",
        ),
        ("share.partition.max.record.locks", "4001", "share.partition.max.record.locks must be less than or equal to"),
    ],
)
def test_what_a_group_cannot_have_is_refused(key: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        GroupConfig.validate({key: value}, BROKER)
    assert refused.value.for_client().startswith(words)


def test_both_ends_of_the_brokers_bounds_are_allowed() -> None:
    for value in ("10000", "60000"):
        GroupConfig.validate({"consumer.session.timeout.ms": value}, BROKER)


def test_what_another_kafka_wrote_and_cannot_be_read_is_not_described() -> None:
    entries = {one.name: one for one in GroupConfig.describe({"consumer.session.timeout.ms": "x", "new": "1"}, BROKER)}
    assert "new" not in entries
    assert entries["consumer.session.timeout.ms"].value == "20000"


@pytest.mark.parametrize(
    ("key", "value"),
    [("interval.ms", "99"), ("interval.ms", "3600001"), ("match", "client_id"), ("match", "shoe=9"), ("nope", "1")],
)
def test_what_client_metrics_cannot_have_is_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigError):
        ClientMetricsConfig.validate({key: value})


def test_client_metrics_are_chosen_by_what_clients_say_of_themselves() -> None:
    ClientMetricsConfig.validate({"match": "client_id=a.*,client_software_name=librdkafka", "interval.ms": "100"})
    ClientMetricsConfig.validate({"metrics": "*", "interval.ms": "3600000"})
