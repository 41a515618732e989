"""What groups know of their broker: its settings as plain numbers, its topics, its counters.

State machines get `GroupSettings` instead of the whole configuration. So a test creates one in a line, and no heartbeat
looks up a key by name. A group may set its own session timeout and heartbeat interval for the consumer protocol
(`consumer.session.timeout.ms`, `consumer.heartbeat.interval.ms` of a GROUP resource). They are limited to the broker's
bounds, as in Kafka's `GroupConfigManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.broker.groups.streams.settings import SettingsOfGroup, default_settings, settings_of

if TYPE_CHECKING:
    from ottla.broker.groups.topics import TopicView
    from ottla.broker.runtime.metrics import GroupCounters
    from ottla.config.broker import BrokerConfig

MS_PER_MINUTE = 60_000
NEVER_EVICT = -1
GROUP_SESSION_TIMEOUT = "consumer.session.timeout.ms"
GROUP_HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
SHARE_SESSION_TIMEOUT = "share.session.timeout.ms"
SHARE_HEARTBEAT_INTERVAL = "share.heartbeat.interval.ms"

GroupConfigs = Callable[[str], Mapping[str, str]]
"""A group's own settings by key; empty for a group that has none."""


def _no_group_configs(group_id: str) -> Mapping[str, str]:
    return {}


@dataclass(slots=True)
class GroupSettings:
    """Named like the keys, without `group.`; the defaults are Ottla's. Times in milliseconds."""

    initial_rebalance_delay_ms: int = 0
    min_session_timeout_ms: int = 100
    max_session_timeout_ms: int = 1_800_000
    max_size: int = (1 << 31) - 1
    rebalance_protocols: tuple[str, ...] = ("classic", "consumer", "streams")
    consumer_session_timeout_ms: int = 45_000
    consumer_min_session_timeout_ms: int = 100
    consumer_max_session_timeout_ms: int = 60_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_min_heartbeat_interval_ms: int = 10
    consumer_max_heartbeat_interval_ms: int = 15_000
    consumer_max_size: int = (1 << 31) - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"
    consumer_regex_refresh_interval_ms: int = 600_000
    share_session_timeout_ms: int = 45_000
    share_min_session_timeout_ms: int = 100
    share_max_session_timeout_ms: int = 60_000
    share_heartbeat_interval_ms: int = 5_000
    share_min_heartbeat_interval_ms: int = 10
    share_max_heartbeat_interval_ms: int = 15_000
    share_max_size: int = 200
    streams: SettingsOfGroup = default_settings
    """Returns the settings of a streams group, by its id."""
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 60 * MS_PER_MINUTE
    evict_on_disconnect_ms: int = NEVER_EVICT
    """How long after its connection ended a member is removed; -1 waits for the session timeout, as Kafka does."""
    record_max_bytes: int = 1 << 20
    """The largest record that the log of the groups accepts; the shard sets it by the topic's configuration."""
    group_configs: GroupConfigs = field(default=_no_group_configs)

    @classmethod
    def of(cls, config: BrokerConfig, group_configs: GroupConfigs = _no_group_configs) -> GroupSettings:
        """The settings of `config`."""
        return cls(
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            max_size=config.group_max_size,
            rebalance_protocols=tuple(config.group_coordinator_rebalance_protocols),
            consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
            consumer_min_session_timeout_ms=config.group_consumer_min_session_timeout_ms,
            consumer_max_session_timeout_ms=config.group_consumer_max_session_timeout_ms,
            consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
            consumer_min_heartbeat_interval_ms=config.group_consumer_min_heartbeat_interval_ms,
            consumer_max_heartbeat_interval_ms=config.group_consumer_max_heartbeat_interval_ms,
            consumer_max_size=config.group_consumer_max_size,
            consumer_assignors=tuple(config.group_consumer_assignors),
            consumer_migration_policy=config.group_consumer_migration_policy,
            consumer_regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
            share_session_timeout_ms=config.group_share_session_timeout_ms,
            share_min_session_timeout_ms=config.group_share_min_session_timeout_ms,
            share_max_session_timeout_ms=config.group_share_max_session_timeout_ms,
            share_heartbeat_interval_ms=config.group_share_heartbeat_interval_ms,
            share_min_heartbeat_interval_ms=config.group_share_min_heartbeat_interval_ms,
            share_max_heartbeat_interval_ms=config.group_share_max_heartbeat_interval_ms,
            share_max_size=config.group_share_max_size,
            streams=settings_of(config, group_configs),
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * MS_PER_MINUTE,
            evict_on_disconnect_ms=config.ottla_group_evict_on_disconnect_ms,
            group_configs=group_configs,
        )

    def consumer_session_timeout_ms_of(self, group_id: str) -> int:
        """The session timeout of this group's members in the consumer protocol."""
        return _bounded(
            self.group_configs(group_id).get(GROUP_SESSION_TIMEOUT),
            self.consumer_session_timeout_ms,
            self.consumer_min_session_timeout_ms,
            self.consumer_max_session_timeout_ms,
        )

    def consumer_heartbeat_interval_ms_of(self, group_id: str) -> int:
        """The heartbeat interval of this group's members in the consumer protocol."""
        return _bounded(
            self.group_configs(group_id).get(GROUP_HEARTBEAT_INTERVAL),
            self.consumer_heartbeat_interval_ms,
            self.consumer_min_heartbeat_interval_ms,
            self.consumer_max_heartbeat_interval_ms,
        )

    def share_session_timeout_ms_of(self, group_id: str) -> int:
        """The session timeout of this share group's members."""
        return _bounded(
            self.group_configs(group_id).get(SHARE_SESSION_TIMEOUT),
            self.share_session_timeout_ms,
            self.share_min_session_timeout_ms,
            self.share_max_session_timeout_ms,
        )

    def share_heartbeat_interval_ms_of(self, group_id: str) -> int:
        """The heartbeat interval of this share group's members."""
        return _bounded(
            self.group_configs(group_id).get(SHARE_HEARTBEAT_INTERVAL),
            self.share_heartbeat_interval_ms,
            self.share_min_heartbeat_interval_ms,
            self.share_max_heartbeat_interval_ms,
        )


@dataclass(frozen=True, slots=True)
class GroupServices:
    """What all shards of a broker share. `new_id` makes the random part of a member's id; a simulation passes a
    reproducible one."""

    settings: GroupSettings
    topics: TopicView
    counters: GroupCounters
    new_id: Callable[[], str]


def _bounded(own: str | None, default_ms: int, min_ms: int, max_ms: int) -> int:
    return default_ms if own is None else min(max(int(own), min_ms), max_ms)
