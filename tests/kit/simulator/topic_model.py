"""What is known of a topic: its partitions, its settings, and those that it may have had."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

if TYPE_CHECKING:
    from kit.simulator.model import PartitionModel

TIMESTAMP_TYPE: Final = "message.timestamp.type"
CREATE_TIME: Final = "CreateTime"


@dataclass
class TopicModel:
    """A topic whose creation was acknowledged."""

    name: str
    id: UUID
    settings: dict[str, str]
    partitions: list[PartitionModel]
    counts_asked: int = 0
    """The largest number of partitions that was asked for."""
    settings_asked: list[dict[str, str]] = field(default_factory=list)
    """Settings of changes that are not answered yet: a crash leaves one of them, or the last acknowledged."""
    acks_all: str = "sync"
    """The broker's `ottla.acks.all`, for a topic that does not set it."""

    former: list[dict[str, str]] = field(default_factory=list)
    """Settings that it had, or that were asked for, before those of now."""
    is_unsettled: bool = False
    """Whether something may have been answered without a sync that was not synced since."""

    @property
    def is_compacted(self) -> bool:
        """Whether it is, or may have been."""
        return any("compact" in one.get("cleanup.policy", "delete") for one in self._ever())

    @property
    def syncs(self) -> bool:
        """Whether what is answered now was synced."""
        return not self.is_unsettled and all(map(self.is_synced_by, (self.settings, *self.settings_asked)))

    @property
    def always_syncs(self) -> bool:
        """Whether all was that was ever answered."""
        return all(map(self.is_synced_by, self._ever()))

    @property
    def may_skip_offsets(self) -> bool:
        """Whether a high watermark may ever have been written down beyond what was synced."""
        return any(one.get("ottla.acks.all", self.acks_all) != "sync" for one in self._ever())

    @property
    def expires(self) -> bool:
        """Whether retention may take records away, or might have."""
        return any("retention.bytes" in one or "retention.ms" in one for one in self._ever())

    def stored_timestamp(self, timestamp_ms: int, log_append_time_ms: int) -> int | None:
        """The timestamp of a record: its producer gave it the first, and the answer to its batch has the second.
        None where it is not known, because the topic has changed whose time records have.
        """
        types = {one.get(TIMESTAMP_TYPE, CREATE_TIME) for one in self._ever()}
        if len(types) > 1:
            return None
        return timestamp_ms if types == {CREATE_TIME} else log_append_time_ms

    def is_synced_by(self, settings: Mapping[str, str]) -> bool:
        """Whether nothing is answered before it is synced; with `flush.messages=1` also in `page-cache`."""
        return settings.get("ottla.acks.all", self.acks_all) == "sync" or settings.get("flush.messages") == "1"

    def ask_for(self, settings: dict[str, str]) -> None:
        """A change to these was sent."""
        self.settings_asked.append(settings)
        if settings not in self.former:
            self.former.append(settings)
        self.is_unsettled |= not all(map(self.is_synced_by, (self.settings, settings)))

    def note_settings(self, settings: dict[str, str]) -> None:
        """They are in effect."""
        if self.settings not in self.former:
            self.former.append(self.settings)
        self.settings = settings
        self.settings_asked.clear()

    def _ever(self) -> Iterator[dict[str, str]]:
        yield self.settings
        yield from self.former
