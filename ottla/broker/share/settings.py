"""What share groups may know of their broker's and their own configuration: plain values.

A group's own keys (`share.record.lock.duration.ms` of a GROUP resource) count within the broker's bounds
(`group.share.min.record.lock.duration.ms`), as Kafka's `GroupConfigManager` has it. They are resolved once, and again
after a configuration has changed: a delivery looks at them sixteen times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

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
    if catalog.image.features.get(SHARE_VERSION_FEATURE, 0) < SHARE_GROUP_LEVEL:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, _NOT_SERVED)


def serves_dead_letters(catalog: Catalog) -> bool:
    """Whether the feature of dead letters is finalized."""
    return catalog.image.features.get(SHARE_VERSION_FEATURE, 0) >= DEAD_LETTER_LEVEL


class ShareSettings:
    """The settings of one group's share partitions, as they are at one time. Times in milliseconds.

    `own` is what the group sets itself, as far as it can be read.
    """

    __slots__ = (
        "_serves_dead_letters",
        "committed_only",
        "copies_dead_letters",
        "dead_letter_topic",
        "lock_duration_ms",
        "may_renew",
        "most_deliveries",
        "most_in_flight",
        "offset_reset",
    )

    def __init__(
        self, config: BrokerConfig, own: Mapping[str, object], serves_dead_letters: Callable[[], bool]
    ) -> None:
        self._serves_dead_letters = serves_dead_letters
        self.lock_duration_ms = _within(
            own.get("share.record.lock.duration.ms"),
            config.group_share_record_lock_duration_ms,
            config.group_share_min_record_lock_duration_ms,
            config.group_share_max_record_lock_duration_ms,
        )
        """How long a member may have a record."""
        self.most_deliveries = _within(
            own.get("share.delivery.count.limit"),
            config.group_share_delivery_count_limit,
            config.group_share_min_delivery_count_limit,
            config.group_share_max_delivery_count_limit,
        )
        """How often a record is delivered before it is archived."""
        self.most_in_flight = _within(
            own.get("share.partition.max.record.locks"),
            config.group_share_partition_max_record_locks,
            config.group_share_min_partition_max_record_locks,
            config.group_share_max_partition_max_record_locks,
        )
        """So many records of a partition may be between its start and its end offset."""
        self.committed_only = own.get("share.isolation.level") == "read_committed"
        """Whether records of open and aborted transactions are not delivered."""
        self.offset_reset = str(own.get("share.auto.offset.reset", "latest"))
        """Where a new share partition begins: `latest`, `earliest` or `by_duration:PT1H`."""
        self.may_renew = own.get("share.renew.acknowledge.enable", True) is not False
        """Whether members may ask for more time with a record (KIP-1222)."""
        self.dead_letter_topic = str(own.get("errors.deadletterqueue.topic.name", ""))
        """The topic to which dead letters are written; empty: the group has none."""
        self.copies_dead_letters = own.get("errors.deadletterqueue.copy.record.enable", False) is True
        """Whether a dead letter has the record's key and value."""

    @property
    def has_dead_letters(self) -> bool:
        """Whether records that are archived have a dead letter (KIP-1191)."""
        return bool(self.dead_letter_topic) and self._serves_dead_letters()


class Configurations(Protocol):
    """The configurations of this broker: `changes` increases when one has changed."""

    changes: int

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        """What a group sets itself, by key."""


class GroupSettings:
    """The settings of one group: `now` are those that count at the moment.

    `serves_dead_letters` says whether the cluster has dead letters.
    """

    __slots__ = ("_config", "_configurations", "_group_id", "_now", "_resolved_at", "_serves_dead_letters")

    def __init__(
        self,
        config: BrokerConfig,
        configurations: Configurations,
        group_id: str,
        serves_dead_letters: Callable[[], bool],
    ) -> None:
        self._config = config
        self._configurations = configurations
        self._group_id = group_id
        self._serves_dead_letters = serves_dead_letters
        self._resolve()

    @property
    def now(self) -> ShareSettings:
        """Resolved anew after a change of any configuration."""
        if self._resolved_at != self._configurations.changes:
            self._resolve()
        return self._now

    def _resolve(self) -> None:
        self._resolved_at = self._configurations.changes
        own = GroupConfig.readable(self._configurations.group_configs(self._group_id))
        self._now = ShareSettings(self._config, own, self._serves_dead_letters)


def _within(own: object, of_broker: int, least: int, most: int) -> int:
    return min(max(own, least), most) if isinstance(own, int) else of_broker
