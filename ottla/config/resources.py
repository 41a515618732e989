"""The configurations of consumer groups and of client metrics subscriptions (KIP-714).

    GroupConfig.validate({"consumer.session.timeout.ms": "50000"}, broker_config)
    GroupConfig.describe({"consumer.session.timeout.ms": "50000"}, broker_config)

Clients choose the names of both; a configuration exists once a key was set for it. A group's keys take their defaults
from the broker (`group.consumer.session.timeout.ms`) and stay within its bounds
(`group.consumer.min.session.timeout.ms`). Keys of client metrics are only stored: no client is asked for its metrics,
because the broker has no receiver for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from ottla.config.broker import ALL_BROKER_KEYS, BrokerConfig
from ottla.config.declare import INT_MAX, boolean, choice, inherited, int32, string, words
from ottla.config.describe import broker_synonyms, inherited_synonyms, merged, own_entry, select
from ottla.config.errors import ConfigError
from ottla.config.options import ConfigEntry, ConfigSource, Given, Option, Options, Origin, OriginKind
from ottla.config.share_groups import dead_letter_topic, offset_reset

_SET = Origin(OriginKind.TOPIC, "")
INTERNAL_KEYS = frozenset(
    {
        "consumer.assignor.offload.enable",
        "share.assignor.offload.enable",
        "streams.acceptable.recovery.lag",
        "streams.assignor.offload.enable",
        "streams.num.warmup.replicas",
        "streams.task.offset.interval.ms",
    }
)
"""Keys of groups that Kafka's `GroupConfig` defines as internal."""
_TELEMETRY = "clients are not asked for their metrics"


class GroupConfig(Options):
    """Group keys."""

    consumer_session_timeout_ms = inherited(BrokerConfig.group_consumer_session_timeout_ms)
    consumer_heartbeat_interval_ms = inherited(BrokerConfig.group_consumer_heartbeat_interval_ms)
    consumer_assignment_interval_ms = inherited(BrokerConfig.group_consumer_assignment_interval_ms)
    consumer_assignor_offload_enable = inherited(BrokerConfig.group_consumer_assignor_offload_enable)
    share_session_timeout_ms = inherited(BrokerConfig.group_share_session_timeout_ms)
    share_heartbeat_interval_ms = inherited(BrokerConfig.group_share_heartbeat_interval_ms)
    share_record_lock_duration_ms = inherited(BrokerConfig.group_share_record_lock_duration_ms)
    share_delivery_count_limit = inherited(BrokerConfig.group_share_delivery_count_limit)
    share_partition_max_record_locks = inherited(BrokerConfig.group_share_partition_max_record_locks)
    share_assignment_interval_ms = inherited(BrokerConfig.group_share_assignment_interval_ms)
    share_assignor_offload_enable = inherited(BrokerConfig.group_share_assignor_offload_enable)
    share_auto_offset_reset = string(
        "latest",
        check=offset_reset,
        allowed="latest, earliest or by_duration:PnDTnHnMn.nS",
        doc="Where a share group begins in a partition that it has not read yet.",
    )
    share_isolation_level = choice(
        "read_uncommitted",
        "read_uncommitted",
        "read_committed",
        doc="Whether a share group gets only records of transactions that were committed.",
    )
    share_renew_acknowledge_enable = boolean(
        True, doc="Whether a share group's members may ask for more time with a record (KIP-1222)."
    )
    errors_deadletterqueue_topic_name = string(
        "",
        check=dead_letter_topic,
        allowed="text that does not start with __",
        doc="The topic to which a share group's dead letters are written; empty: it has none (KIP-1191).",
    )
    errors_deadletterqueue_copy_record_enable = boolean(
        False, doc="Whether a dead letter has the key and the value of the record."
    )
    streams_session_timeout_ms = inherited(BrokerConfig.group_streams_session_timeout_ms)
    streams_heartbeat_interval_ms = inherited(BrokerConfig.group_streams_heartbeat_interval_ms)
    streams_num_standby_replicas = inherited(BrokerConfig.group_streams_num_standby_replicas)
    streams_initial_rebalance_delay_ms = inherited(BrokerConfig.group_streams_initial_rebalance_delay_ms)
    streams_assignment_interval_ms = inherited(BrokerConfig.group_streams_assignment_interval_ms)
    streams_rack_aware_assignment_tags = inherited(BrokerConfig.group_streams_rack_aware_assignment_tags)
    streams_assignor_offload_enable = inherited(BrokerConfig.group_streams_assignor_offload_enable)
    streams_task_offset_interval_ms = inherited(BrokerConfig.group_streams_task_offset_interval_ms)
    streams_num_warmup_replicas = inherited(BrokerConfig.group_streams_num_warmup_replicas)
    streams_acceptable_recovery_lag = inherited(BrokerConfig.group_streams_acceptable_recovery_lag)
    streams_assignor_name = choice("sticky", "sticky", doc="Task assignor of a streams group; there is only one.")

    @classmethod
    def validate(cls, texts: Mapping[str, str], broker: BrokerConfig) -> None:
        """Check all keys that a group is to set. Raises ConfigError for an unknown key, a wrong value, and one that is
        outside of the broker's bounds.
        """
        values = _parsed(cls.by_key, texts, "Unknown group config name")
        of_broker = merged(broker.layers)
        for name, value in values.items():
            if not isinstance(value, int):
                continue
            protocol, _, rest = name.partition(".")
            low, high = f"group.{protocol}.min.{rest}", f"group.{protocol}.max.{rest.removeprefix('num.')}"
            if low in ALL_BROKER_KEYS and value < _number(ALL_BROKER_KEYS[low].effective(of_broker)):
                raise ConfigError(name, None, f"must be greater than or equal to {low}")
            if high in ALL_BROKER_KEYS and value > _number(ALL_BROKER_KEYS[high].effective(of_broker)):
                raise ConfigError(name, None, f"must be less than or equal to {high}")
        session, heartbeat = "streams.session.timeout.ms", "streams.heartbeat.interval.ms"
        if session in values or heartbeat in values:
            of_group = {
                key: _number(values[key])
                if key in values
                else _number(ALL_BROKER_KEYS[f"group.{key}"].effective(of_broker))
                for key in (session, heartbeat)
            }
            if of_group[session] <= of_group[heartbeat]:
                raise ConfigError(session, None, f"must be greater than {heartbeat}")

    @classmethod
    def readable(cls, texts: Mapping[str, str]) -> dict[str, object]:
        """The values of the keys that a group sets, without those that cannot be read: the metadata may come from
        another Kafka.
        """
        return _readable(cls.by_key, texts)

    @classmethod
    def describe(
        cls, texts: Mapping[str, str], broker: BrokerConfig, names: Iterable[str] | None = None
    ) -> list[ConfigEntry]:
        """The entries that DescribeConfigs returns for a group that sets `texts`.

        The keys that Kafka calls internal are returned only if the group sets them.
        """
        own = cls.readable(texts)
        entries: list[ConfigEntry] = []
        for option in select(cls.by_key, names):
            if option.key in INTERNAL_KEYS and option.key not in own:
                continue
            default = option.default if option.inherits is None else getattr(broker, option.inherits.attribute)
            synonyms = inherited_synonyms(option, broker.layers) or broker_synonyms(option, ())
            value = own.get(option.key, default)
            entries.append(own_entry(option, value, own, ConfigSource.GROUP_CONFIG, synonyms))
        return entries


class OutOfPlace(ConfigError):
    """A mistake that Kafka calls an invalid request and not an invalid configuration."""


class ClientMetricsConfig(Options):
    """Client metrics keys."""

    INTERVAL_MS: ClassVar[range] = range(100, 3_600_001)
    MATCHED: ClassVar[frozenset[str]] = frozenset(
        {
            "client_instance_id",
            "client_id",
            "client_software_name",
            "client_software_version",
            "client_source_address",
            "client_source_port",
        }
    )

    metrics = words((), inert=_TELEMETRY, doc="Prefixes of the requested metrics; `*` for all.")
    interval_ms = int32(300000, at_least=-INT_MAX - 1, inert=_TELEMETRY, doc="How often clients push their metrics.")
    match = words((), inert=_TELEMETRY, doc="Clients that the subscription applies to, as selector=pattern.")

    @classmethod
    def validate(cls, texts: Mapping[str, str]) -> None:
        """Check all keys that a subscription is to set.

        Raises ConfigError for a value that cannot be read; its subclass OutOfPlace for a key that does not exist and an
        interval out of bounds: Kafka answers them with different codes.
        """
        for key in texts:
            if key not in cls.by_key:
                raise OutOfPlace(key, None, f"Unknown client metrics configuration: {key}")
        values = _parsed(cls.by_key, texts, "")
        interval_ms = values.get("interval.ms")
        if interval_ms is not None and interval_ms not in cls.INTERVAL_MS:
            reason = "interval must be between 100 and 3600000 (1 hour)"
            raise OutOfPlace("interval.ms", str(interval_ms), reason)
        patterns = values.get("match", ())
        for pattern in patterns if isinstance(patterns, tuple) else ():
            selector, equals, _ = pattern.partition("=")
            if not equals or selector.strip() not in cls.MATCHED:
                raise ConfigError("match", pattern, "Illegal client matching pattern")

    @classmethod
    def expressions(cls, texts: Mapping[str, str]) -> list[str]:
        """The regular expressions in a `match` that `validate` has accepted; the caller that compiles them
        checks them.
        """
        patterns = _parsed(cls.by_key, {key: text for key, text in texts.items() if key == "match"}, "").get("match")
        return [pattern.partition("=")[2].strip() for pattern in patterns] if isinstance(patterns, tuple) else []

    @classmethod
    def describe(cls, texts: Mapping[str, str], names: Iterable[str] | None = None) -> list[ConfigEntry]:
        """The entries that DescribeConfigs returns for a subscription that sets `texts`."""
        own = _readable(cls.by_key, texts)
        return [
            own_entry(option, own.get(option.key, option.default), own, ConfigSource.CLIENT_METRICS_CONFIG, ())
            for option in select(cls.by_key, names)
        ]


def _parsed(options: Mapping[str, Option], texts: Mapping[str, str], unknown: str) -> dict[str, object]:
    for key in texts:
        if key not in options:
            raise ConfigError(key, None, f"{unknown}: {key}")
    return {key: options[key].read(Given(text, _SET)) for key, text in texts.items()}


def _number(value: object) -> int:
    assert isinstance(value, int)  # the bounds of timeouts are integers, and have defaults
    return value


def _readable(options: Mapping[str, Option], texts: Mapping[str, str]) -> dict[str, object]:
    """The values that can be read; others are left out, since the metadata may come from another Kafka."""
    values: dict[str, object] = {}
    for key, text in texts.items():
        try:
            values |= _parsed(options, {key: text}, "")
        except ConfigError:
            continue
    return values
