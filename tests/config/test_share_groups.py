"""Keys of share groups: both sides of each bound, and the durations of `share.auto.offset.reset`."""

from __future__ import annotations

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.resources import GroupConfig
from ottla.config.share_groups import duration_ms, offset_reset
from ottla.config.topic import TopicConfig

BROKER = BrokerConfig.of({})
GROUP_BOUNDS = [
    ("share.session.timeout.ms", 100, 60_000),
    ("share.heartbeat.interval.ms", 10, 15_000),
    ("share.record.lock.duration.ms", 100, 60_000),
    ("share.delivery.count.limit", 1, 10),
    ("share.partition.max.record.locks", 1, 4_000),
]
LEAST = [
    "group.share.session.timeout.ms",
    "group.share.heartbeat.interval.ms",
    "group.share.max.size",
    "group.share.max.share.sessions",
    "group.share.record.lock.duration.ms",
    "group.share.delivery.count.limit",
    "group.share.partition.max.record.locks",
    "share.coordinator.state.topic.num.partitions",
    "share.coordinator.state.topic.segment.bytes",
    "share.coordinator.state.topic.prune.interval.ms",
    "share.coordinator.write.timeout.ms",
]


@pytest.mark.parametrize(("key", "least", "most"), GROUP_BOUNDS)
def test_a_group_may_set_a_key_within_the_brokers_bounds(key: str, least: int, most: int) -> None:
    for value in (least, most):
        GroupConfig.validate({key: str(value)}, BROKER)
    for value in (least - 1, most + 1):
        with pytest.raises(ConfigError) as refused:
            GroupConfig.validate({key: str(value)}, BROKER)
        assert refused.value.for_client().startswith((key, f"Invalid value {value} for configuration {key}"))


@pytest.mark.parametrize("key", LEAST)
def test_a_broker_key_is_at_least_one(key: str) -> None:
    BrokerConfig.of({key: 1})
    with pytest.raises(ConfigError):
        BrokerConfig.of({key: 0})


def test_a_broker_may_write_each_change_as_a_snapshot() -> None:
    config = BrokerConfig.of({"share.coordinator.snapshot.update.records.per.snapshot": 0})
    assert config.share_coordinator_snapshot_update_records_per_snapshot == 0
    with pytest.raises(ConfigError):
        BrokerConfig.of({"share.coordinator.snapshot.update.records.per.snapshot": -1})


@pytest.mark.parametrize(("codec", "is_known"), [(-1, False), (0, True), (4, True), (5, False)])
def test_only_kafkas_compressions_are_taken(codec: int, is_known: bool) -> None:
    key = "share.coordinator.state.topic.compression.codec"
    if is_known:
        BrokerConfig.of({key: codec})
    else:
        with pytest.raises(ConfigError):
            BrokerConfig.of({key: codec})


@pytest.mark.parametrize(
    ("value", "is_allowed"),
    [("read_committed", True), ("read_uncommitted", True), ("committed", False), ("", False)],
)
def test_isolation_is_one_of_kafkas_levels(value: str, is_allowed: bool) -> None:
    if is_allowed:
        GroupConfig.validate({"share.isolation.level": value}, BROKER)
    else:
        with pytest.raises(ConfigError):
            GroupConfig.validate({"share.isolation.level": value}, BROKER)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("by_duration:PT1H", 3_600_000),
        ("by_duration:PT1H30M", 5_400_000),
        ("by_duration:P7D", 604_800_000),
        ("by_duration:P1DT2H3M4.5S", 93_784_500),
        ("by_duration:PT0.001S", 1),
        ("by_duration:PT0S", 0),
    ],
)
def test_a_duration_is_days_hours_minutes_and_seconds(text: str, ms: int) -> None:
    assert duration_ms(text) == ms
    assert offset_reset(text) == text
    GroupConfig.validate({"share.auto.offset.reset": text}, BROKER)


@pytest.mark.parametrize(
    "text",
    [
        "never",
        "",
        "by_duration",
        "by_duration:",
        "by_duration:P",
        "by_duration:PT",
        "by_duration:P1DT",
        "by_duration:1h",
        "by_duration:-PT1H",
        "by_duration:P1M",
        "by_duration:PT1234567890H",
    ],
)
def test_anything_else_is_no_reset(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        offset_reset(text)
    with pytest.raises(ConfigError):
        GroupConfig.validate({"share.auto.offset.reset": text}, BROKER)


@pytest.mark.parametrize("text", ["latest", "earliest"])
def test_the_plain_resets_are_taken_as_they_are(text: str) -> None:
    assert offset_reset(text) == text


def test_the_longest_duration_that_can_be_said_is_a_number() -> None:
    text = "by_duration:P999999999DT999999999H999999999M999999999S"
    assert duration_ms(offset_reset(text)) > 0


@pytest.mark.parametrize(
    ("name", "is_taken"), [("", True), ("dlq.t", True), ("_t", True), ("__t", False), ("__", False)]
)
def test_dead_letters_go_to_no_internal_topic(name: str, is_taken: bool) -> None:
    key = "errors.deadletterqueue.topic.name"
    if is_taken:
        GroupConfig.validate({key: name}, BROKER)
        assert GroupConfig.readable({key: name}) == {key: name}
        return
    with pytest.raises(ConfigError) as refused:
        GroupConfig.validate({key: name}, BROKER)
    assert refused.value.for_client().startswith((key, f"Invalid value {name} for configuration {key}"))


def test_a_topic_takes_no_dead_letters_unless_it_says_so_itself() -> None:
    key = "errors.deadletterqueue.group.enable"
    assert not TopicConfig.resolve({}, BROKER).errors_deadletterqueue_group_enable
    own = TopicConfig.resolve({key: "true"}, BROKER)
    assert own.errors_deadletterqueue_group_enable
    for config, value, source in ((TopicConfig.resolve({}, BROKER), "false", 5), (own, "true", 1)):
        (entry,) = config.describe([key])
        assert (entry.value, int(entry.source), entry.is_default) == (value, source, source == 5)


def test_the_broker_creates_no_topics_of_dead_letters_and_wants_a_prefix_unless_it_is_set_otherwise() -> None:
    config = BrokerConfig.of({})
    assert not config.errors_deadletterqueue_auto_create_topics_enable
    assert config.errors_deadletterqueue_topic_name_prefix == "dlq."
    assert not config.set_dynamic(
        node={},
        all_nodes={
            "errors.deadletterqueue.auto.create.topics.enable": "true",
            "errors.deadletterqueue.topic.name.prefix": "",
        },
    )
    assert config.errors_deadletterqueue_auto_create_topics_enable
    assert config.errors_deadletterqueue_topic_name_prefix == ""
