"""What share groups may know of their broker's and their own configuration: plain numbers, read when they are needed.

A group's own keys (`share.record.lock.duration.ms` of a GROUP resource) count within the broker's bounds
(`group.share.min.record.lock.duration.ms`), as Kafka's `GroupConfigManager` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.broker.metadata.features import DEAD_LETTER_LEVEL, SHARE_GROUP_LEVEL, SHARE_VERSION_FEATURE
from ottla.config.resources import GroupConfig
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.catalog.catalog import Catalog
    from ottla.config.broker import BrokerConfig


_NOT_SERVED = (
    "this broker does not serve share groups: share.version is 0 "
    "(`ottla features upgrade share.version 1` turns them on)"
)


def check_share_groups(catalog: Catalog) -> None:
    """Raise UNSUPPORTED_VERSION unless share groups are finalized as a feature."""
    _, levels = catalog.finalized_features()
    if levels.get(SHARE_VERSION_FEATURE, 0) < SHARE_GROUP_LEVEL:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, _NOT_SERVED)


def serves_dead_letters(catalog: Catalog) -> bool:
    """Whether the feature of dead letters is finalized."""
    return catalog.image.features.get(SHARE_VERSION_FEATURE, 0) >= DEAD_LETTER_LEVEL


class ShareSettings:
    """The settings of one group's share partitions. Times in milliseconds. `texts` gives what the group sets itself,
    `serves_dead_letters` whether the cluster has dead letters.
    """

    def __init__(
        self, config: BrokerConfig, texts: Callable[[], Mapping[str, str]], serves_dead_letters: Callable[[], bool]
    ) -> None:
        self._config = config
        self._texts = texts
        self._serves_dead_letters = serves_dead_letters
        self._read_texts: dict[str, str] = {}
        self._values: dict[str, object] = {}

    @property
    def _own(self) -> Mapping[str, object]:
        texts = self._texts()
        if texts != self._read_texts:
            self._read_texts, self._values = dict(texts), GroupConfig.readable(texts)
        return self._values

    @property
    def lock_duration_ms(self) -> int:
        """How long a member may have a record."""
        config = self._config
        return self._within(
            "share.record.lock.duration.ms",
            config.group_share_record_lock_duration_ms,
            config.group_share_min_record_lock_duration_ms,
            config.group_share_max_record_lock_duration_ms,
        )

    @property
    def most_deliveries(self) -> int:
        """How often a record is delivered before it is archived."""
        config = self._config
        return self._within(
            "share.delivery.count.limit",
            config.group_share_delivery_count_limit,
            config.group_share_min_delivery_count_limit,
            config.group_share_max_delivery_count_limit,
        )

    @property
    def most_in_flight(self) -> int:
        """So many records of a partition may be between its start and its end offset."""
        config = self._config
        return self._within(
            "share.partition.max.record.locks",
            config.group_share_partition_max_record_locks,
            config.group_share_min_partition_max_record_locks,
            config.group_share_max_partition_max_record_locks,
        )

    @property
    def committed_only(self) -> bool:
        """Whether records of open and aborted transactions are not delivered."""
        return self._own.get("share.isolation.level") == "read_committed"

    @property
    def offset_reset(self) -> str:
        """Where a new share partition begins: `latest`, `earliest` or `by_duration:PT1H`."""
        return str(self._own.get("share.auto.offset.reset", "latest"))

    @property
    def may_renew(self) -> bool:
        """Whether members may ask for more time with a record (KIP-1222)."""
        return self._own.get("share.renew.acknowledge.enable", True) is not False

    @property
    def dead_letter_topic(self) -> str:
        """The topic to which dead letters are written; empty: the group has none."""
        return str(self._own.get("errors.deadletterqueue.topic.name", ""))

    @property
    def has_dead_letters(self) -> bool:
        """Whether records that are archived have a dead letter (KIP-1191)."""
        return bool(self.dead_letter_topic) and self._serves_dead_letters()

    @property
    def copies_dead_letters(self) -> bool:
        """Whether a dead letter has the record's key and value."""
        return self._own.get("errors.deadletterqueue.copy.record.enable", False) is True

    def _within(self, key: str, of_broker: int, least: int, most: int) -> int:
        own = self._own.get(key)
        return min(max(own, least), most) if isinstance(own, int) else of_broker
