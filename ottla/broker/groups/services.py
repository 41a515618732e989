"""What all shards of a node share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.groups.settings import GroupSettings
    from ottla.broker.groups.topics import TopicView
    from ottla.broker.runtime.metrics import GroupCounters
    from ottla.broker.runtime.timers import Timers
    from ottla.protocol.records.compression import Compression
    from ottla.storage.files.clock import Clock
    from ottla.storage.files.clock_trust import ClockTrust


@dataclass(slots=True)
class GroupServices:
    """`new_id` makes the random part of a member's id; a simulation passes one that repeats itself."""

    settings: GroupSettings
    topics: TopicView
    clock: Clock
    clock_trust: ClockTrust
    timers: Timers
    counters: GroupCounters
    new_id: Callable[[], str]
    compression: Compression
    commit_timeout_ms: int
