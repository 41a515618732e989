"""The settings of a share group: its own, within the bounds of the broker, read when they are needed."""

from __future__ import annotations

import pytest

from ottla.broker.share.settings import ShareSettings
from ottla.config.broker import BrokerConfig

BROKER = BrokerConfig.of(
    {
        "group.share.record.lock.duration.ms": 30_000,
        "group.share.min.record.lock.duration.ms": 15_000,
        "group.share.max.record.lock.duration.ms": 60_000,
        "group.share.delivery.count.limit": 5,
        "group.share.min.delivery.count.limit": 2,
        "group.share.max.delivery.count.limit": 10,
        "group.share.partition.max.record.locks": 2_000,
        "group.share.min.partition.max.record.locks": 100,
        "group.share.max.partition.max.record.locks": 4_000,
    }
)


@pytest.fixture
def texts() -> dict[str, str]:
    return {}


@pytest.fixture
def settings(texts: dict[str, str]) -> ShareSettings:
    return ShareSettings(BROKER, lambda: texts, lambda: True)


def test_a_group_that_sets_nothing_has_the_brokers(settings: ShareSettings) -> None:
    assert (settings.lock_duration_ms, settings.most_deliveries, settings.most_in_flight) == (30_000, 5, 2_000)
    assert (settings.committed_only, settings.offset_reset, settings.may_renew) == (False, "latest", True)


def test_what_a_group_sets_counts_from_then_on(settings: ShareSettings, texts: dict[str, str]) -> None:
    assert settings.lock_duration_ms == 30_000
    texts |= {
        "share.record.lock.duration.ms": "20000",
        "share.delivery.count.limit": "3",
        "share.partition.max.record.locks": "500",
        "share.isolation.level": "read_committed",
        "share.auto.offset.reset": "by_duration:PT1H",
        "share.renew.acknowledge.enable": "false",
    }
    assert (settings.lock_duration_ms, settings.most_deliveries, settings.most_in_flight) == (20_000, 3, 500)
    assert (settings.committed_only, settings.offset_reset, settings.may_renew) == (True, "by_duration:PT1H", False)
    texts.clear()
    assert settings.lock_duration_ms == 30_000


@pytest.mark.parametrize(
    ("key", "attribute", "least", "most"),
    [
        ("share.record.lock.duration.ms", "lock_duration_ms", 15_000, 60_000),
        ("share.delivery.count.limit", "most_deliveries", 2, 10),
        ("share.partition.max.record.locks", "most_in_flight", 100, 4_000),
    ],
)
def test_a_setting_of_former_bounds_counts_within_those_of_now(
    settings: ShareSettings, texts: dict[str, str], key: str, attribute: str, least: int, most: int
) -> None:
    for value, counts in ((1, least), (least, least), (most, most), (most + 1, most)):
        texts[key] = str(value)
        assert getattr(settings, attribute) == counts


def test_what_another_kafka_wrote_and_cannot_be_read_does_not_count(
    settings: ShareSettings, texts: dict[str, str]
) -> None:
    texts |= {"share.record.lock.duration.ms": "soon", "share.auto.offset.reset": "never", "share.unknown": "1"}
    assert (settings.lock_duration_ms, settings.offset_reset) == (30_000, "latest")
