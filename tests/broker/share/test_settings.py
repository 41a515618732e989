"""The settings of a share group: its own, within the bounds of the broker, resolved again when one has changed."""

from __future__ import annotations

import pytest

from ottla.broker.share.settings import GroupSettings, ShareSettings
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


class Configurations:
    """What a group sets itself, and how often it was changed."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.changes = 0
        self.reads = 0

    def set(self, **texts: str) -> None:
        self.texts |= {key.replace("_", "."): text for key, text in texts.items()}
        self.changes += 1

    def clear(self) -> None:
        self.texts.clear()
        self.changes += 1

    def group_configs(self, group_id: str) -> dict[str, str]:
        assert group_id == "g"
        self.reads += 1
        return self.texts


@pytest.fixture
def configurations() -> Configurations:
    return Configurations()


@pytest.fixture
def group(configurations: Configurations) -> GroupSettings:
    return GroupSettings(BROKER, configurations, "g", lambda: True)


def numbers_of(settings: ShareSettings) -> tuple[int, int, int]:
    return settings.lock_duration_ms, settings.most_deliveries, settings.most_in_flight


def others_of(settings: ShareSettings) -> tuple[bool, str, bool]:
    return settings.committed_only, settings.offset_reset, settings.may_renew


def test_a_group_that_sets_nothing_has_the_brokers(group: GroupSettings) -> None:
    assert numbers_of(group.now) == (30_000, 5, 2_000)
    assert others_of(group.now) == (False, "latest", True)


def test_what_a_group_sets_counts_from_then_on(group: GroupSettings, configurations: Configurations) -> None:
    assert group.now.lock_duration_ms == 30_000
    configurations.set(
        share_record_lock_duration_ms="20000",
        share_delivery_count_limit="3",
        share_partition_max_record_locks="500",
        share_isolation_level="read_committed",
        share_auto_offset_reset="by_duration:PT1H",
        share_renew_acknowledge_enable="false",
    )
    assert numbers_of(group.now) == (20_000, 3, 500)
    assert others_of(group.now) == (True, "by_duration:PT1H", False)
    configurations.clear()
    assert group.now.lock_duration_ms == 30_000


def test_settings_are_resolved_once_until_a_configuration_changes(
    group: GroupSettings, configurations: Configurations
) -> None:
    settings = group.now
    assert group.now is settings
    assert configurations.reads == 1
    configurations.set(share_delivery_count_limit="4")
    assert group.now is group.now
    assert configurations.reads == 2


@pytest.mark.parametrize(
    ("key", "attribute", "least", "most"),
    [
        ("share.record.lock.duration.ms", "lock_duration_ms", 15_000, 60_000),
        ("share.delivery.count.limit", "most_deliveries", 2, 10),
        ("share.partition.max.record.locks", "most_in_flight", 100, 4_000),
    ],
)
def test_a_setting_of_former_bounds_counts_within_those_of_now(
    group: GroupSettings, configurations: Configurations, key: str, attribute: str, least: int, most: int
) -> None:
    for value, counts in ((1, least), (least, least), (most, most), (most + 1, most)):
        configurations.set(**{key: str(value)})
        assert getattr(group.now, attribute) == counts


def test_what_another_kafka_wrote_and_cannot_be_read_does_not_count(
    group: GroupSettings, configurations: Configurations
) -> None:
    configurations.set(share_record_lock_duration_ms="soon", share_auto_offset_reset="never", share_unknown="1")
    assert (group.now.lock_duration_ms, group.now.offset_reset) == (30_000, "latest")
