"""`ottla.create.topics`: its syntax, and what a configuration refuses without a broker."""

from __future__ import annotations

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.created_topic_settings import check_created_topics
from ottla.config.created_topics import BROKER_DEFAULT, CreatedTopic
from ottla.config.errors import ConfigError

KEY = "ottla.create.topics"


def created(text: str, **keys: object) -> tuple[CreatedTopic, ...]:
    config = BrokerConfig.of({KEY: text, **keys})
    check_created_topics(config)
    return config.ottla_create_topics


def shown(text: str) -> str | None:
    (entry,) = BrokerConfig.of({KEY: text}).describe([KEY])
    return entry.value


def test_an_entry_has_a_name_partitions_replicas_and_settings() -> None:
    topics = created("orders, users:3 ,events:6:1:compact,times:1:1:retention.ms=5:segment.bytes=2048")
    assert [topic[1:] for topic in topics] == [
        ("orders", BROKER_DEFAULT, 1, ()),
        ("users", 3, 1, ()),
        ("events", 6, 1, (("cleanup.policy", "compact"),)),
        ("times", 1, 1, (("retention.ms", "5"), ("segment.bytes", "2048"))),
    ]


def test_nothing_is_no_topic() -> None:
    assert BrokerConfig.of({}).ottla_create_topics == created("") == created(" , ") == ()


def test_semicolons_leave_commas_to_values() -> None:
    (topic,) = created("users:1:1:compact,delete;")
    assert topic.configs == (("cleanup.policy", "compact,delete"),)
    assert [topic.name for topic in created("users:1:1:compact,delete; orders:2")] == ["users", "orders"]


def test_each_line_may_have_an_entry() -> None:
    assert [topic.name for topic in created("orders:3\nusers:1\n")] == ["orders", "users"]


@pytest.mark.parametrize("text", ["orders:3,users:1:1:compact", "users:1:1:compact,delete;", ""])
def test_the_value_is_shown_as_it_can_be_set(text: str) -> None:
    assert shown(text) == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("orders:0", "orders:0: the number of partitions must be at least 1, not '0'"),
        ("a:1,orders:-1", "orders:-1: the number of partitions must be at least 1, not '-1'"),
        ("orders:2147483648", "the number of partitions must be at least 1, not '2147483648'"),
        ("orders:", "orders:: the number of partitions must be at least 1, not ''"),
        ("orders:1:x", "orders:1:x: the number of replicas must be at least 1, not 'x'"),
        ("orders:1:3", "orders:1:3: there is one broker, so the number of replicas must be 1"),
        ("two words:1", "two words:1: Topic name is invalid: 'two words' has characters other than"),
        (":1", ":1: Topic name is invalid: the empty string is not allowed"),
        ("orders,users,orders:2", "names the topic orders more than once"),
        ("__consumer_offsets:1", "__consumer_offsets is the broker's own"),
        ("__cluster_metadata", "__cluster_metadata is the broker's own"),
        ("orders:1:1:compacted", "orders:1:1:compacted: cleanup.policy=compacted: must"),
        ("orders:1:1:retention.ms=soon", "retention.ms=soon: must be"),
        ("orders:1:1:retention.msec=5", "retention.msec: is not a key of a topic"),
        ("orders:1:1:retention.ms=5:retention.ms=6", "retention.ms is set more than once"),
        ("orders:1:1:compact,delete", "delete: is a cleanup policy; with a semicolon"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_key_and_the_entry(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        created(text)
    line = str(refused.value)
    assert line.startswith(f"{KEY}={text}: ")
    assert says in line
    assert "\n" not in line


def test_more_replicas_count_as_one_where_requests_may_name_them() -> None:
    (topic,) = created("orders:1:3", **{"ottla.replication.factor.lenient": True})
    assert topic.replicas == 3
