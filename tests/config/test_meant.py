"""Which key is named in the place of one that cannot be set."""

from __future__ import annotations

import pytest

from ottla.config.meant import instead_on_broker, instead_on_group, instead_on_topic


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("log.retention.hours", "3", "; set retention.ms=10800000 instead"),
        ("log.retention.minutes", "3", "; set retention.ms=180000 instead"),
        ("log.retention.ms", "3", "; set retention.ms=3 instead"),
        ("log.retention.hours", "-1", "; set retention.ms=-1 instead"),
        ("retention.hours", "1", "; set retention.ms=3600000 instead"),
        ("log.roll.hours", "2", "; set segment.ms=7200000 instead"),
        ("message.max.bytes", "5", "; set max.message.bytes=5 instead"),
        ("log.cleanup.policy", "compact", "; set cleanup.policy=compact instead"),
        ("log.retention.hours", "soon", "; set retention.ms instead"),
        ("log.retention.hours", None, "; set retention.ms instead"),
        ("retention.m", "1", "; did you mean retention.ms?"),
        ("nothing.like.it", "1", ""),
        ("x" * 30_000, "1", ""),
    ],
)
def test_a_topic(key: str, value: str | None, words: str) -> None:
    assert instead_on_topic(key, value) == words


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("log.retention.hours", "3", "; set log.retention.ms=10800000 instead"),
        ("retention.ms", "3", "; set log.retention.ms=3 instead"),
        ("max.message.bytes", "3", "; set message.max.bytes=3 instead"),
        ("log.retention.m", "3", "; did you mean log.retention.ms?"),
        ("node.id", "3", ""),
    ],
)
def test_a_broker_that_runs(key: str, value: str, words: str) -> None:
    assert instead_on_broker(key, value) == words


def test_a_group() -> None:
    assert instead_on_group("group.consumer.heartbeat.interval.ms", "7") == (
        "; set consumer.heartbeat.interval.ms=7 instead"
    )
