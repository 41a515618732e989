"""Keys of streams groups: both sides of each bound, and what must fit together."""

from __future__ import annotations

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.options import ConfigSource
from ottla.config.resources import GroupConfig
from ottla.config.streams_groups import tags

BROKER = BrokerConfig.of({})
GROUP_BOUNDS = [
    ("streams.session.timeout.ms", 5_001, 60_000),
    ("streams.heartbeat.interval.ms", 10, 15_000),
    ("streams.num.standby.replicas", 0, 2),
    ("streams.initial.rebalance.delay.ms", 0, (1 << 31) - 1),
    ("streams.assignment.interval.ms", 0, 15_000),
    ("streams.task.offset.interval.ms", 15_000, (1 << 31) - 1),
    ("streams.num.warmup.replicas", 0, 20),
    ("streams.acceptable.recovery.lag", 0, (1 << 63) - 1),
]
BROKER_LEAST = {
    "group.streams.min.session.timeout.ms": 1,
    "group.streams.min.heartbeat.interval.ms": 1,
    "group.streams.max.size": 1,
    "group.streams.num.standby.replicas": 0,
    "group.streams.max.standby.replicas": 0,
    "group.streams.initial.rebalance.delay.ms": 0,
    "group.streams.assignment.interval.ms": 0,
    "group.streams.min.assignment.interval.ms": 0,
    "group.streams.min.task.offset.interval.ms": 1,
    "group.streams.num.warmup.replicas": 0,
    "group.streams.acceptable.recovery.lag": 0,
}


@pytest.mark.parametrize(("key", "least", "most"), GROUP_BOUNDS)
def test_a_group_may_set_a_key_within_the_brokers_bounds(key: str, least: int, most: int) -> None:
    for value in (least, most):
        GroupConfig.validate({key: str(value)}, BROKER)
    for value in (least - 1, most + 1):
        with pytest.raises(ConfigError):
            GroupConfig.validate({key: str(value)}, BROKER)


@pytest.mark.parametrize(("key", "least"), BROKER_LEAST.items())
def test_a_broker_key_has_kafkas_lower_bound(key: str, least: int) -> None:
    BrokerConfig.of({key: least})
    with pytest.raises(ConfigError):
        BrokerConfig.of({key: least - 1})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"heartbeat.interval.ms": 15_001}, "must be from 10 "),
        ({"session.timeout.ms": 60_001}, "must be from 100 "),
        ({"min.session.timeout.ms": 60_001}, "must be at least group.streams.min.session.timeout.ms"),
        (
            {"session.timeout.ms": 5_000},
            "must be less than group.streams.session.timeout.ms, which is 5000",
        ),
        ({"assignment.interval.ms": 15_001}, "must be from 0 "),
        ({"num.standby.replicas": 3}, "must be at most group.streams.max.standby.replicas, which is 2"),
        ({"task.offset.interval.ms": 14_999}, "must be at most group.streams.task.offset.interval.ms, which is 14999"),
        ({"num.warmup.replicas": 21}, "must be at most group.streams.max.warmup.replicas, which is 20"),
        ({"assignors": "range"}, "must be a list of sticky"),
        ({"rack.aware.assignment.tags": "zone,zone"}, "must not contain duplicate tag keys"),
    ],
)
def test_a_broker_refuses_keys_that_do_not_fit_together(given: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.of({f"group.streams.{key}": value for key, value in given.items()})
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        ({"streams.session.timeout.ms": "5000"}, False),
        ({"streams.session.timeout.ms": "5001"}, True),
        ({"streams.session.timeout.ms": "1000", "streams.heartbeat.interval.ms": "999"}, True),
        ({"streams.session.timeout.ms": "1000", "streams.heartbeat.interval.ms": "1000"}, False),
    ],
)
def test_a_groups_session_is_longer_than_its_heartbeat_interval(given: dict[str, str], fits: bool) -> None:
    if fits:
        GroupConfig.validate(given, BROKER)
        return
    with pytest.raises(ConfigError, match=r"must be greater than streams\.heartbeat\.interval\.ms"):
        GroupConfig.validate(given, BROKER)


@pytest.mark.parametrize(
    ("text", "items"), [("", ()), (" ", ()), ("zone", ("zone",)), (" zone , cluster ", ("zone", "cluster"))]
)
def test_tags_are_a_list_of_different_keys(text: str, items: tuple[str, ...]) -> None:
    assert tags(text) == items


@pytest.mark.parametrize("text", ["zone,zone", "zone,", ",", "a,,b"])
def test_tags_that_are_empty_or_twice_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must not"):
        tags(text)


def test_a_group_has_the_brokers_value_of_a_key_until_it_sets_its_own() -> None:
    broker = BrokerConfig.of({"group.streams.num.standby.replicas": 1})
    key = "streams.num.standby.replicas"
    (inherited,) = GroupConfig.describe({}, broker, [key])
    (own,) = GroupConfig.describe({key: "2"}, broker, [key])
    assert (inherited.value, own.value, own.source) == ("1", "2", ConfigSource.GROUP_CONFIG)


def test_the_assignment_interval_may_change_while_the_broker_runs() -> None:
    config = BrokerConfig.of({})
    assert config.set_dynamic(node={"group.streams.assignment.interval.ms": "250"}, all_nodes={}) == []
    assert config.group_streams_assignment_interval_ms == 250
