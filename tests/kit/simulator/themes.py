"""Themes: what a world does more often than others, so that what is rare in general is common in some.

A theme changes keys of the broker, the kinds of topics, how often clients do what, and where the machine is wanted to
stop. Everything else of a world is the same, whatever its theme.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kit.nodes import DATA
from kit.simulated_files import SimulatedFiles
from kit.simulator.admin import COMPACTED, KINDS, RETAINED
from kit.simulator.members import SESSION_TIMEOUT_MS
from kit.simulator.share_limits import KEYS as SHARE_KEYS
from kit.simulator.sites import SITES
from kit.simulator.streams_requests import KEYS as STREAMS_KEYS
from kit.simulator.transactional_clients import ABORT_INTERVAL_MS
from kit.simulator.users import SUPER_USER

from ottla.config.broker import BrokerConfig

_SETTINGS: dict[str, object] = {
    **SHARE_KEYS,
    **STREAMS_KEYS,
    "log.dirs": str(DATA),
    "num.recovery.threads.per.data.dir": 1,
    "log.segment.bytes": 2048,
    "log.index.interval.bytes": 512,
    "connections.max.idle.ms": 1_000_000_000_000,
    "auto.create.topics.enable": False,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.cleaner.backoff.ms": 1000,
    "offsets.topic.segment.bytes": 1024,
    "group.max.session.timeout.ms": SESSION_TIMEOUT_MS,
    "group.consumer.session.timeout.ms": SESSION_TIMEOUT_MS,
    "group.consumer.max.session.timeout.ms": SESSION_TIMEOUT_MS,
    "metadata.log.max.record.bytes.between.snapshots": 2000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": ABORT_INTERVAL_MS,
    "transaction.state.log.segment.bytes": 1024,
    # A batch that is sent again has the stamp of a clock that may have been ahead then.
    "log.message.timestamp.after.max.ms": (1 << 63) - 1,
}

START_SITES = [
    "directory: identity",
    "log: damage kept aside",
    "log: cut",
    "log: cut",
    "log: roll",
    "log: sync",
    "index",
    "producer snapshot",
    "leader epochs",
    "topic: make directory",
    "topic: partition.metadata",
    "metadata: snapshot write",
    "metadata: quorum-state",
    "directory: clean marker",
    "redo: replay",
    "redo: void",
]
_LEFT_BEHIND = {
    ".swap": ["cleaner: swap finished by a start", "cleaner: swapped into place"],
    ".cleaned": ["cleaner: given up"],
    "-delete": ["topic: remove"],
    ".deleted": ["segment: unlink"],
}
"""What names tell of where a start will come to."""


@dataclass(frozen=True)
class Theme:
    """See the module."""

    name: str
    keys: Mapping[str, object] = field(default_factory=dict)
    kinds: Sequence[Mapping[str, str]] = tuple(KINDS)
    more: Mapping[str, float] = field(default_factory=dict)
    """Operations by name, and how many times as often as usual they are done."""
    sites: Sequence[str] = tuple(SITES)
    """Where the machine may be wanted to stop."""
    start_sites: Sequence[str] = tuple(START_SITES)
    """Where a machine that starts may be wanted to stop."""
    bad_disk: float = 0.15
    """How many of these worlds have a disk that is full at times, or fails a sync."""
    lost_pages: float = 0.15
    """How often such a disk loses pages when it does harm."""
    stops_in_starts: float = 0.25
    """How often a machine that starts stops again before it is done."""
    flips: float = 0.1
    """How often a bit of a checkpoint flips between two lives, if the first has not ended with the power."""
    has_transactions: bool = False
    """Whether all of these worlds have transactional clients, as far as anybody wants some."""

    def config(
        self,
        *,
        acks_all: str = "sync",
        has_redo_log: bool = True,
        open_without: bool | None = None,
        directories: Sequence[Path] = (DATA,),
    ) -> BrokerConfig:
        """The broker's configuration; read once, because no client changes it and reading it takes long.

        `open_without`: with an authorizer, and says whether everybody may use what no ACL is about; None without one.
        """
        name = self.name, acks_all, has_redo_log, open_without, len(directories)
        if name not in _configs:
            keys = _SETTINGS | dict(self.keys) | {"ottla.acks.all": acks_all, "ottla.redo.log.enable": has_redo_log}
            keys["log.dirs"] = ",".join(map(str, directories))
            if open_without is not None:
                keys |= _SECURED | {"allow.everyone.if.no.acl.found": open_without}
            _configs[name] = BrokerConfig.of(keys)
        return _configs[name]


_configs: dict[tuple[object, ...], BrokerConfig] = {}
_SECURED: dict[str, object] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": SUPER_USER.principal,
}

THEMES: list[tuple[float, Theme]] = [
    (50, Theme("anything")),
    (
        12,
        Theme(
            "compaction",
            keys={"log.cleaner.backoff.ms": 10},
            kinds=COMPACTED,
            more={"pass time": 2, "background": 4, "commit": 2},
            sites=[site for site in SITES if site.startswith(("cleaner", "checkpoint: cleaner", "directory: sync"))],
        ),
    ),
    (
        10,
        Theme(
            "retention",
            keys={"log.retention.check.interval.ms": 1000, "log.segment.delete.delay.ms": 1000},
            kinds=RETAINED,
            more={"pass time": 2, "background": 3, "delete records": 3, "jump clock": 4},
            sites=[
                "segment: delete",
                "segment: unlink",
                "producer snapshot",
                "checkpoint: log start",
                "leader epochs",
                "directory: sync",
                "log: roll",
            ],
            flips=0.4,
        ),
    ),
    (
        10,
        Theme(
            "topics",
            keys={
                "log.segment.delete.delay.ms": 1000,
                "metadata.log.max.record.bytes.between.snapshots": 500,
            },
            more={"create topic": 6, "delete topic": 8, "grow topic": 4, "alter topic": 3, "pass time": 2},
            sites=[site for site in SITES if site.startswith(("topic", "metadata", "directory"))],
        ),
    ),
    (
        10,
        Theme(
            "long segments",
            keys={"log.segment.bytes": 40_000},
            more={"produce": 3, "sync": 0.2, "pass time": 0.5},
            sites=["log: append", "log: sync", "index", "checkpoint: recovery point", "checkpoint: high watermark"],
            start_sites=["log: damage kept aside"],
            stops_in_starts=0.7,
        ),
    ),
    (
        4,
        Theme(
            "compacted ends",
            kinds=COMPACTED[:2],
            more={"produce": 3, "sync": 0.2, "pass time": 0.3, "background": 0.3},
            sites=["log: roll", "log: append", "index", "producer snapshot"],
        ),
    ),
    (
        6,
        Theme(
            "compacted transactions",
            keys={"log.cleaner.backoff.ms": 10},
            kinds=[{"cleanup.policy": "compact", "delete.retention.ms": "1000", "segment.bytes": "1024"}],
            more={"produce": 0.5, "produce once": 0.3, "pass time": 2, "background": 4, "transactions": 2},
            sites=[site for site in SITES if site.startswith(("cleaner", "checkpoint: cleaner", "transactions"))],
            has_transactions=True,
        ),
    ),
    (6, Theme("full disk", more={"disk trouble": 8, "produce": 1.5}, bad_disk=1)),
    (
        6,
        Theme(
            "failing disk",
            more={"disk trouble": 6, "produce": 1.5, "sync": 0.5, "create topic": 3},
            bad_disk=1,
            lost_pages=0.9,
        ),
    ),
    (
        16,
        Theme(
            "redo log",
            keys={"log.segment.bytes": 12_000},
            kinds=[*KINDS, {}, {}, {}],
            more={
                "produce": 0.5,
                "produce to many": 12,
                "sync": 1.5,
                "member": 0.3,
                "commit": 0.7,
                "alter topic": 0.3,
                "create topic": 2,
                "delete topic": 5,
                "disk trouble": 3,
            },
            sites=[*[site for site in SITES if site.startswith("redo")] * 3, "log: sync", "log: append", "log: roll"],
            start_sites=["redo: replay", "redo: replay", "redo: void", "log: sync", "log: cut", "redo: removed"],
            stops_in_starts=0.4,
            bad_disk=0.4,
            lost_pages=0.3,
        ),
    ),
    (
        8,
        Theme(
            "groups",
            keys={"offsets.retention.check.interval.ms": 1000},
            more={"commit": 3, "fetch offset": 3, "member": 5, "delete offset": 4, "background": 2, "jump clock": 2},
            sites=["groups: append", "groups: sync", "log: roll", "producer snapshot", "cleaner: swap"],
        ),
    ),
]


def draw_theme(chance: random.Random) -> Theme:
    """The theme of a world."""
    return chance.choices([theme for _, theme in THEMES], [weight for weight, _ in THEMES])[0]


def theme_named(name: str) -> Theme:
    """The theme of this name."""
    return next(theme for _, theme in THEMES if theme.name == name)


def sites_ahead(files: SimulatedFiles, theme: Theme) -> Sequence[str]:
    """Where a start on this disk may be wanted to stop: where something was left half done, if anything was."""
    if not files.is_directory(DATA):
        return theme.start_sites
    names = [name for place in files.list_directory(DATA) for name in (place, *_names_in(files, DATA / place))]
    found = [site for end, sites in _LEFT_BEHIND.items() if any(name.endswith(end) for name in names) for site in sites]
    return found or theme.start_sites


def _names_in(files: SimulatedFiles, place: Path) -> list[str]:
    return files.list_directory(place) if files.is_directory(place) else []
