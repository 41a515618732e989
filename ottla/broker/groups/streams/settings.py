"""The settings of a streams group, from its own configuration and from its broker's: plain numbers.

A group's own keys (`streams.session.timeout.ms` of a GROUP resource) are limited by the broker's bounds
(`group.streams.min.session.timeout.ms`), as in Kafka's `GroupConfigManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.config.resources import GroupConfig

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

STREAMS_PROTOCOL_TYPE = "streams"
NUM_STANDBY_REPLICAS = "num.standby.replicas"
RACK_AWARE_ASSIGNMENT_TAGS = "rack.aware.assignment.tags"
"""The settings of an assignment, as records name them."""


class StreamsSettings(NamedTuple):
    """The settings of one group. The defaults are Ottla's. Times in milliseconds."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = (1 << 31) - 1
    num_standby_replicas: int = 0
    initial_rebalance_delay_ms: int = 0
    assignment_interval_ms: int = 1_000
    task_offset_interval_ms: int = 60_000
    acceptable_recovery_lag: int = 10_000
    rack_aware_assignment_tags: tuple[str, ...] = ()

    @property
    def of_assignment(self) -> dict[str, str]:
        """The settings that an assignment depends on, as records have them."""
        settings = {NUM_STANDBY_REPLICAS: str(self.num_standby_replicas)}
        if self.rack_aware_assignment_tags:
            settings[RACK_AWARE_ASSIGNMENT_TAGS] = ",".join(self.rack_aware_assignment_tags)
        return settings


SettingsOfGroup: TypeAlias = Callable[[str], StreamsSettings]
"""Return the current settings of a group, by its id."""


def default_settings(group_id: str) -> StreamsSettings:
    """Ottla's defaults, for a group that sets nothing itself."""
    return StreamsSettings()


def settings_of(config: BrokerConfig, group_configs: Callable[[str], Mapping[str, str]]) -> SettingsOfGroup:
    """The settings by the broker's configuration, which may change while it runs, and by those of groups."""

    def read(group_id: str) -> StreamsSettings:
        texts = group_configs(group_id)
        own = GroupConfig.readable(texts) if texts else {}

        def within(key: str, of_broker: int, least: int, most: int | None) -> int:
            value = own.get(key)
            if not isinstance(value, int):
                return of_broker
            return max(value, least) if most is None else min(max(value, least), most)

        tags = own.get("streams.rack.aware.assignment.tags", config.group_streams_rack_aware_assignment_tags)
        lag = own.get("streams.acceptable.recovery.lag", config.group_streams_acceptable_recovery_lag)
        delay_ms = own.get("streams.initial.rebalance.delay.ms", config.group_streams_initial_rebalance_delay_ms)
        assert isinstance(tags, tuple)
        assert isinstance(lag, int)
        assert isinstance(delay_ms, int)
        return StreamsSettings(
            session_timeout_ms=within(
                "streams.session.timeout.ms",
                config.group_streams_session_timeout_ms,
                config.group_streams_min_session_timeout_ms,
                config.group_streams_max_session_timeout_ms,
            ),
            heartbeat_interval_ms=within(
                "streams.heartbeat.interval.ms",
                config.group_streams_heartbeat_interval_ms,
                config.group_streams_min_heartbeat_interval_ms,
                config.group_streams_max_heartbeat_interval_ms,
            ),
            max_size=config.group_streams_max_size,
            num_standby_replicas=within(
                "streams.num.standby.replicas",
                config.group_streams_num_standby_replicas,
                0,
                config.group_streams_max_standby_replicas,
            ),
            initial_rebalance_delay_ms=delay_ms,
            assignment_interval_ms=within(
                "streams.assignment.interval.ms",
                config.group_streams_assignment_interval_ms,
                config.group_streams_min_assignment_interval_ms,
                config.group_streams_max_assignment_interval_ms,
            ),
            task_offset_interval_ms=within(
                "streams.task.offset.interval.ms",
                config.group_streams_task_offset_interval_ms,
                config.group_streams_min_task_offset_interval_ms,
                None,
            ),
            acceptable_recovery_lag=lag,
            rack_aware_assignment_tags=tags,
        )

    return read
