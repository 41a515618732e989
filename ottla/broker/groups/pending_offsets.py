"""Offsets that open transactions have committed, which are not valid yet: by group, and by their producer.

They become valid, or are dropped, when the producer's transaction ends. The order in the log decides which of two
offsets of a partition is valid (`coordination/pending_values.py`). Until then a reader that asks for stable offsets is
refused (UNSTABLE_OFFSET_COMMIT, KIP-447), and neither the offset that is committed already nor the group expires.

Pure. Only `offsets.py` calls it, which replays every record. Source: Kafka's `OffsetMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias, TypeVar

from ottla.broker.coordination.pending_values import PendingValues

V = TypeVar("V")

OffsetId: TypeAlias = tuple[str, str, int]
"""Group, topic and partition."""


class PendingOffsets(PendingValues[OffsetId, V]):
    """The open transactions of one shard that have committed offsets."""

    __slots__ = ("_by_group",)

    def __init__(self) -> None:
        super().__init__()
        self._by_group: dict[str, dict[OffsetId, None]] = {}

    @property
    def groups(self) -> Collection[str]:
        """The groups that have pending offsets."""
        return self._by_group.keys()

    def of_group(self, group_id: str) -> Collection[OffsetId]:
        """The pending offsets of a group, each once, however many transactions have written it."""
        return self._by_group.get(group_id, {}).keys()

    def groups_of(self, producer_id: int) -> list[str]:
        """The groups whose offsets the producer's transaction has committed."""
        return list(dict.fromkeys(group_id for group_id, _, _ in self.keys_of(producer_id)))

    def write(self, producer_id: int, key: OffsetId, value: V) -> None:
        """Add an offset that the producer's transaction has committed."""
        super().write(producer_id, key, value)
        self._by_group.setdefault(key[0], {})[key] = None

    def forget(self, key: OffsetId) -> None:
        """Forget an offset, after a tombstone."""
        super().forget(key)
        self._settle(key)

    def end(self, producer_id: int, *, is_commit: bool) -> list[tuple[OffsetId, V]]:
        """End the producer's transaction. Return the offsets that are valid from now on."""
        keys = list(self.keys_of(producer_id))
        count_now = super().end(producer_id, is_commit=is_commit)
        for key in keys:
            self._settle(key)
        return count_now

    def _settle(self, key: OffsetId) -> None:
        """Remove the key from its group, unless another transaction has written it too."""
        of_group = self._by_group.get(key[0])
        if of_group is None or self.is_open(key):
            return
        of_group.pop(key, None)
        if not of_group:
            del self._by_group[key[0]]
