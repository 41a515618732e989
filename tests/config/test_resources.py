"""Configurations of groups and of client metrics subscriptions."""

from __future__ import annotations

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.options import ConfigSource
from ottla.config.resources import ClientMetricsConfig, GroupConfig

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


def test_a_group_has_the_keys_of_kafka_4_1_and_those_of_later_ones_for_share_and_streams_groups() -> None:
    entries = GroupConfig.describe({}, BROKER)
    assert len(entries) == 23
    assert all(entry.documentation for entry in entries)


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
