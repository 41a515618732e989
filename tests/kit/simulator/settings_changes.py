"""Changes of the settings of topics that are written to: the promise, what is cleaned and what expires, when segments
are rolled, how large a batch may be, how it is compressed, and whose time it has.

What the model expects of a topic allows for all settings that it has had (`TopicModel`). Only the promise is exact
again once the broker has nothing under way, and all is synced: from `page-cache` to `sync` what was shown stays shown,
and a sync that nobody waits for makes it true.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kit.simulator.admin import send_change
from kit.simulator.model import Model

if TYPE_CHECKING:
    from kit.simulator.clients import Line

    from ottla.broker.node import Node

WORLDS: Final = 0.2
"""How many worlds have them."""
CHANGES: Final[Mapping[str, tuple[str | None, ...]]] = {
    "ottla.acks.all": ("sync", "page-cache", "page-cache", None),
    "flush.messages": ("1", "1", "4", None),
    "flush.ms": ("500", None),
    "cleanup.policy": ("delete", "compact", "compact,delete", None),
    "segment.bytes": ("600", "4000", None),
    "segment.ms": ("1000", None),
    "retention.ms": ("5000", "120000", None),
    "retention.bytes": ("1000", "5000", None),
    "max.message.bytes": ("200", "1000000"),
    "compression.type": ("gzip", "lz4", "uncompressed", "producer", None),
    "message.timestamp.type": ("LogAppendTime", "CreateTime", None),
    "index.interval.bytes": ("1", "4096", None),
    "min.compaction.lag.ms": ("3000", None),
    "delete.retention.ms": ("0", "5000", None),
    "file.delete.delay.ms": ("0", "3000", None),
}
"""The values that are set; None: the topic sets none."""
PROMISE: Final = 0.4
"""How many changes are of what is synced."""

Operation = tuple[float, Callable[[], None]]


class SettingsChanges:
    """See the module. `line`, `node` and `settle` are given anew for each life of the broker."""

    def __init__(self, seed: int, model: Model) -> None:
        self._chance = random.Random(f"the settings of {seed}")
        self._model = model
        self.line: Line
        self.node: Node
        self.settle: Callable[[], None]

    def operations(self) -> list[Operation]:
        """What may happen, and how often."""
        return [(8, self._change), (3, self._settle)]

    def _change(self) -> None:
        model, chance = self._model, self._chance
        names = [name for name in sorted(model.topics.keys() - model.deleting) if not model.topics[name].settings_asked]
        if not names:
            return
        topic = model.topics[chance.choice(names)]
        keys = list(CHANGES)[:2] if chance.random() < PROMISE else list(CHANGES)
        asked = dict(topic.settings)
        for key in chance.sample(keys, chance.choice((1, 1, 2))):
            value = chance.choice(CHANGES[key])
            asked.pop(key, None)
            if value is not None:
                asked[key] = value
        if asked != topic.settings:
            send_change(self.line, topic, asked)

    def _settle(self) -> None:
        """Let the broker finish what it has under way: what was answered without a sync is synced then, or is not."""
        self.settle()
        for name, topic in self._model.topics.items():
            served = self.node.services.catalog.topics.get(name)
            if served is None or topic.settings_asked or not topic.is_synced_by(topic.settings):
                continue
            logs = [None if partition is None else partition.log for partition in served.partitions]
            if all(log is not None and log.synced_offset == log.log_end_offset for log in logs):
                topic.is_unsettled = False
