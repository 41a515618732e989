"""A topic's configuration: the keys that the topic sets override the broker's (`segment.bytes` overrides
`log.segment.bytes`).

    config = TopicConfig.resolve({"segment.bytes": "1048576"}, broker_config)
    config.segment_bytes, config.retention_ms, config.ottla_acks_all

Every key is a plain attribute (see `options.py`), read on the hot path. A config never changes: new overrides make a
new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.config.accepted import ACCEPTED_TOPIC_KEYS, REMOVED_KEYS
from ottla.config.broker import BrokerConfig
from ottla.config.declare import boolean, inherited
from ottla.config.describe import inherited_synonyms, merged, own_entry, select
from ottla.config.errors import ConfigError
from ottla.config.options import ConfigEntry, ConfigSource, Given, Option, Options, Origin, OriginKind

_TOPIC = Origin(OriginKind.TOPIC, "")


class TopicConfig(Options):
    """Topic keys."""

    cleanup_policy = inherited(BrokerConfig.log_cleanup_policy)
    retention_ms = inherited(BrokerConfig.log_retention_ms)
    retention_bytes = inherited(BrokerConfig.log_retention_bytes)
    segment_bytes = inherited(BrokerConfig.log_segment_bytes)
    segment_ms = inherited(BrokerConfig.log_roll_ms)
    segment_jitter_ms = inherited(BrokerConfig.log_roll_jitter_ms)
    segment_index_bytes = inherited(BrokerConfig.log_index_size_max_bytes)
    index_interval_bytes = inherited(BrokerConfig.log_index_interval_bytes)
    file_delete_delay_ms = inherited(BrokerConfig.log_segment_delete_delay_ms)
    preallocate = inherited(BrokerConfig.log_preallocate)
    max_message_bytes = inherited(BrokerConfig.message_max_bytes)
    compression_type = inherited(BrokerConfig.compression_type)
    compression_gzip_level = inherited(BrokerConfig.compression_gzip_level)
    compression_lz4_level = inherited(BrokerConfig.compression_lz4_level)
    compression_zstd_level = inherited(BrokerConfig.compression_zstd_level)
    message_timestamp_type = inherited(BrokerConfig.log_message_timestamp_type)
    message_timestamp_before_max_ms = inherited(BrokerConfig.log_message_timestamp_before_max_ms)
    message_timestamp_after_max_ms = inherited(BrokerConfig.log_message_timestamp_after_max_ms)
    flush_messages = inherited(BrokerConfig.log_flush_interval_messages)
    flush_ms = inherited(BrokerConfig.log_flush_interval_ms)
    min_insync_replicas = inherited(BrokerConfig.min_insync_replicas)
    unclean_leader_election_enable = inherited(BrokerConfig.unclean_leader_election_enable)
    min_cleanable_dirty_ratio = inherited(BrokerConfig.log_cleaner_min_cleanable_ratio)
    min_compaction_lag_ms = inherited(BrokerConfig.log_cleaner_min_compaction_lag_ms)
    max_compaction_lag_ms = inherited(BrokerConfig.log_cleaner_max_compaction_lag_ms)
    delete_retention_ms = inherited(BrokerConfig.log_cleaner_delete_retention_ms)
    errors_deadletterqueue_group_enable = boolean(
        False, doc="Whether share groups may write their dead letters to this topic (KIP-1191)."
    )
    ottla_acks_all = inherited(BrokerConfig.ottla_acks_all)
    ottla_validate_records = inherited(BrokerConfig.ottla_validate_records)
    ottla_batch_max_decompressed_bytes = inherited(BrokerConfig.ottla_batch_max_decompressed_bytes)

    def __init__(self, overrides: Mapping[str, str], broker: BrokerConfig) -> None:
        """Use `resolve`."""
        self.overrides = dict(overrides)
        self.broker = broker
        self._own = _parse(overrides)
        for option in self.by_key.values():
            if option.key in self._own:
                value = self._own[option.key]
            elif option.inherits is not None:
                value = getattr(broker, option.inherits.attribute)
            else:
                value = option.default
            setattr(self, option.attribute, value)

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
        """The configuration of a topic with these overrides. Unknown keys have no effect (a directory may come from
        another Kafka); a value that cannot be used raises ConfigError, because a guess could delete data.
        """
        return cls(overrides, broker)

    @classmethod
    def validate(cls, overrides: Mapping[str, str | None]) -> list[str]:
        """Check what a client wants to set. Raises ConfigError, in one line, for an unknown key, a missing or a wrong
        value. Returns warnings: keys without effect, odd values.
        """
        warnings = []
        for key, text in overrides.items():
            if key not in ALL_TOPIC_KEYS:
                raise ConfigError(key, None, "is not a key of a topic")
            if text is None:
                raise ConfigError(key, None, "must have a value")
            if key == "remote.storage.enable" and text.strip().lower() == "true":
                raise ConfigError(key, text, "must be false: there is no remote storage")
        values = _parse({key: text for key, text in overrides.items() if text is not None})
        lowest, highest = values.get("min.compaction.lag.ms"), values.get("max.compaction.lag.ms")
        if isinstance(lowest, int) and isinstance(highest, int) and lowest > highest:
            raise ConfigError(
                "min.compaction.lag.ms", str(lowest), f"must not be above max.compaction.lag.ms, which is {highest}"
            )
        for key, value in values.items():
            option = ALL_TOPIC_KEYS[key]
            if option.inert:
                warnings.append(f"{key}={option.show(value)}: no effect: {option.inert}")
            if option.unusual and (remark := option.unusual(value)):
                warnings.append(f"{key}={option.show(value)}: {remark}")
        return warnings

    def describe(self, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        """The entries that DescribeConfigs returns for the topic: keys with these names, or all, sorted by name.

        Keys that Kafka 4 has removed are returned only if the topic sets them.
        """
        entries = []
        for option in select(ALL_TOPIC_KEYS, names):
            if option.attribute:
                value = getattr(self, option.attribute)
            elif option.key in self._own:
                value = self._own[option.key]
            elif option.inherits is not None:
                value = option.inherits.effective(merged(self.broker.layers))
            elif option.key in REMOVED_KEYS:
                continue
            else:
                value = option.default
            synonyms = inherited_synonyms(option, self.broker.layers)
            entries.append(own_entry(option, value, self._own, ConfigSource.TOPIC_CONFIG, synonyms))
        return entries


ALL_TOPIC_KEYS: dict[str, Option] = TopicConfig.by_key | ACCEPTED_TOPIC_KEYS
"""Every key that a topic accepts, including those without effect."""


def _parse(overrides: Mapping[str, str]) -> dict[str, object]:
    return {
        key: ALL_TOPIC_KEYS[key].read(Given(text, _TOPIC)) for key, text in overrides.items() if key in ALL_TOPIC_KEYS
    }
