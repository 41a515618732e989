from __future__ import annotations

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.options import ConfigSource
from ottla.config.topic import ALL_TOPIC_KEYS, TopicConfig

PROMISED = """
cleanup.policy min.cleanable.dirty.ratio retention.ms min.compaction.lag.ms retention.bytes max.compaction.lag.ms
segment.bytes delete.retention.ms segment.ms segment.jitter.ms file.delete.delay.ms segment.index.bytes
index.interval.bytes max.message.bytes flush.messages flush.ms compression.type compression.gzip.level
compression.lz4.level compression.zstd.level preallocate message.timestamp.type min.insync.replicas
message.timestamp.before.max.ms message.timestamp.after.max.ms unclean.leader.election.enable remote.storage.enable
local.retention.ms local.retention.bytes message.format.version message.downconversion.enable
message.timestamp.difference.max.ms ottla.acks.all
"""


@pytest.mark.parametrize("key", PROMISED.split())
def test_every_promised_key_is_known(key: str) -> None:
    assert key in ALL_TOPIC_KEYS


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("retention.ms", "604800000"),
        ("segment.ms", "604800000"),
        ("segment.bytes", "1073741824"),
        ("max.message.bytes", "1048588"),
        ("flush.ms", str(2**63 - 1)),
        ("message.timestamp.after.max.ms", "3600000"),
        ("cleanup.policy", "delete"),
        ("compression.type", "producer"),
    ],
)
def test_the_defaults_are_kafkas(key: str, default: str) -> None:
    (entry,) = TopicConfig.resolve({}, BrokerConfig.of()).describe([key])
    assert entry.value == default
    assert entry.source is ConfigSource.DEFAULT_CONFIG
    assert entry.is_default


def test_a_topic_has_the_brokers_value_unless_it_sets_its_own() -> None:
    broker = BrokerConfig.of({"log.segment.bytes": 2 << 20, "log.retention.minutes": 5})
    config = TopicConfig.resolve({"segment.bytes": "1048576"}, broker)
    assert config.segment_bytes == 1 << 20
    assert config.retention_ms == 300_000
    sources = {entry.name: entry.source.name for entry in config.describe()}
    assert sources["segment.bytes"] == "TOPIC_CONFIG"
    assert sources["retention.ms"] == "STATIC_BROKER_CONFIG"
    assert sources["segment.ms"] == "DEFAULT_CONFIG"


def test_synonyms_go_from_the_topic_to_the_default() -> None:
    broker = BrokerConfig.of({"log.segment.bytes": 2 << 20})
    (entry,) = TopicConfig.resolve({"segment.bytes": "1048576"}, broker).describe(["segment.bytes"])
    assert [(one.name, one.value, one.source.name) for one in entry.synonyms] == [
        ("segment.bytes", "1048576", "TOPIC_CONFIG"),
        ("log.segment.bytes", "2097152", "STATIC_BROKER_CONFIG"),
        ("log.segment.bytes", "1073741824", "DEFAULT_CONFIG"),
    ]


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        ({"segment.byte": "1"}, "segment.byte: is not a key of a topic"),
        ({"log.segment.bytes": "1048576"}, "log.segment.bytes: is not a key of a topic"),
        ({"segment.bytes": "1"}, "segment.bytes=1: must be an integer of at least 1024"),
        ({"segment.bytes": None}, "segment.bytes: must have a value"),
        ({"compression.gzip.level": "0"}, "compression.gzip.level=0: must be an integer from -1 to 9 and not 0"),
        ({"remote.storage.enable": "True"}, "remote.storage.enable=True: must be false: there is no remote storage"),
        ({"local.retention.ms": "-3"}, "local.retention.ms=-3: must be an integer of at least -2"),
        (
            {"leader.replication.throttled.replicas": "0:1,1"},
            "leader.replication.throttled.replicas=0:1,1: must be `*`, or a list of partition:broker",
        ),
        ({"follower.replication.throttled.replicas": "*,0:1"}, "follower.replication.throttled.replicas=*,0:1: must"),
        ({"cleanup.policy": "compact,delet"}, "cleanup.policy=compact,delet: must be a list of delete, compact"),
        (
            {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
            "min.compaction.lag.ms=2: must not be above max.compaction.lag.ms, which is 1",
        ),
    ],
)
def test_what_a_topic_cannot_have_is_one_line(overrides: dict[str, str | None], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TopicConfig.validate(overrides)
    assert str(caught.value).startswith(line)


def test_a_topic_may_have_no_cleanup_policy_which_is_said_to_keep_every_record() -> None:
    (warning,) = TopicConfig.validate({"cleanup.policy": ""})
    assert warning == "cleanup.policy=: neither delete nor compact: every record is kept for ever"
    assert TopicConfig.resolve({"cleanup.policy": ""}, BrokerConfig.of()).cleanup_policy == ()


@pytest.mark.parametrize("value", ["", "*", "0:1", "0:1, 1:1"])
def test_replicas_to_be_throttled_are_listed_as_for_kafka(value: str) -> None:
    key = "leader.replication.throttled.replicas"
    TopicConfig.validate({key: value})
    (entry,) = TopicConfig.resolve({key: value}, BrokerConfig.of()).describe([key])
    assert entry.value == value.replace(" ", "")


def test_no_replica_is_to_be_throttled_by_default() -> None:
    (entry,) = TopicConfig.resolve({}, BrokerConfig.of()).describe(["follower.replication.throttled.replicas"])
    assert (entry.value, entry.is_default) == ("", True)


def test_a_stored_setting_for_remote_storage_does_not_stop_the_topic() -> None:
    (entry,) = TopicConfig.resolve({"remote.storage.enable": "true"}, BrokerConfig.of()).describe(
        ["remote.storage.enable"]
    )
    assert entry.value == "true"


def test_what_has_no_effect_is_accepted_with_a_warning() -> None:
    (warning,) = TopicConfig.validate({"message.format.version": "2.8", "retention.ms": "-1"})
    assert warning == "message.format.version=2.8: no effect: Kafka 4 has removed it"


def test_a_stored_key_that_nobody_knows_does_not_stop_the_topic() -> None:
    config = TopicConfig.resolve({"other.vendor.key": "x", "segment.bytes": "1048576"}, BrokerConfig.of())
    assert config.segment_bytes == 1 << 20
    assert config.overrides["other.vendor.key"] == "x"


def test_a_stored_value_that_cannot_be_used_stops_rather_than_deletes() -> None:
    with pytest.raises(ConfigError):
        TopicConfig.resolve({"cleanup.policy": "keep"}, BrokerConfig.of())


def test_keys_that_kafka_has_removed_are_described_only_where_they_are_set() -> None:
    broker = BrokerConfig.of()
    assert TopicConfig.resolve({}, broker).describe(["message.format.version"]) == []
    (entry,) = TopicConfig.resolve({"message.format.version": "3.0"}, broker).describe(["message.format.version"])
    assert entry.value == "3.0"


def test_a_key_without_effect_follows_the_brokers_too() -> None:
    config = TopicConfig.resolve({}, BrokerConfig.of({"log.local.retention.ms": 1000}))
    (entry,) = config.describe(["local.retention.ms"])
    assert entry.value == "1000"
    assert [(one.name, one.value, one.source.name) for one in entry.synonyms] == [
        ("log.local.retention.ms", "1000", "STATIC_BROKER_CONFIG"),
        ("log.local.retention.ms", "-2", "DEFAULT_CONFIG"),
    ]


def test_accepted_keys_are_described_with_their_default() -> None:
    (entry,) = TopicConfig.resolve({}, BrokerConfig.of()).describe(["remote.storage.enable"])
    assert (entry.value, entry.is_default) == ("false", True)


@pytest.mark.parametrize(
    ("key", "broker_key", "default", "wrong"),
    [
        ("remote.copy.lag.ms", "log.remote.copy.lag.ms", "0", "-2"),
        ("remote.copy.lag.bytes", "log.remote.copy.lag.bytes", "-1", "-2"),
        ("max.decompressed.message.bytes", "max.decompressed.message.bytes", "2147483639", "0"),
    ],
)
def test_keys_that_came_with_kafka_4_4_are_accepted(key: str, broker_key: str, default: str, wrong: str) -> None:
    topic = TopicConfig.resolve({key: "5"}, BrokerConfig.of())
    (entry,) = topic.describe([key])
    assert [(one.name, one.value) for one in entry.synonyms] == [(key, "5"), (broker_key, default)]
    with pytest.raises(ConfigError, match=f"{key}={wrong}: must be an integer"):
        TopicConfig.validate({key: wrong})
