"""What a broker does in one step: limits that are reached with the few topics, partitions and groups of a world.

A request of two partitions is then appended in two turns, retention looks at a log twice, groups forget a topic one
after the other, a coordinator is loaded in steps. Everything else has its turn in between.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final
from unittest import mock

from ottla.broker.api import produce
from ottla.broker.chores import chores, sweep
from ottla.broker.coordination import loader, replay, runtime, writes
from ottla.broker.fast import several_template
from ottla.broker.fetch import delayed_fetch
from ottla.broker.groups import offset_shard
from ottla.broker.groups import shard as group_shard
from ottla.broker.metadata import journal
from ottla.broker.partitions import first_appends
from ottla.broker.requests import chunks
from ottla.broker.runtime import turn
from ottla.broker.transactions import marking, open_transactions, shard_load, shard_state
from ottla.storage.log import log, log_retention

_OWNERS: Final = {
    "FIRST_APPENDS_PER_TURN": (first_appends,),
    "SEGMENTS_PER_LOOK": (log_retention,),
    "FORGOTTEN_PER_STEP": (offset_shard,),
    "KEYS_PER_GROUP": (offset_shard,),
    "LOGS_PER_STEP": (sweep,),
    "FILES_PER_STEP": (chores,),
    "INDEXES_PER_STEP": (chores,),
    "LOAD_AT_START_BYTES": (runtime,),
    "STEP_BYTES": (loader,),
    "RECORDS_PER_STEP": (replay,),
    "REPLIES_PER_STEP": (writes,),
    "GROUPS_PER_STEP": (group_shard,),
    "IDS_PER_STEP": (shard_state, shard_load),
    "PARTITIONS_PER_STEP": (delayed_fetch,),
    "MOST_GATHERING": (turn,),
    "ELEMENTS_PER_CHUNK": (chunks,),
    "LONG_LOG_SNAPSHOTS": (journal,),
    "FEW_PARTITIONS": (first_appends, produce, several_template),
    "MARKERS_PER_TURN": (marking,),
    "PRODUCERS_PER_STEP": (open_transactions, shard_load),
    "SEGMENTS_PER_STEP": (log,),
}
"""Limits by name, and the modules that have them."""
_DRAWN: Final = tuple(name for name in _OWNERS if name != "LONG_LOG_SNAPSHOTS")
_OWN: Final = {name: getattr(owners[0], name) for name, owners in _OWNERS.items()}
_SMALL: Final = {"LOAD_AT_START_BYTES": (0,), "STEP_BYTES": (200, 1000), "FILES_PER_STEP": (3, 5)}
"""What is drawn, where it is not 1 or 2."""
_ALWAYS: Final = {"LONG_LOG_SNAPSHOTS": 1000}
"""With the few bytes between a world's snapshots a metadata log would be long while a deletion takes its steps, and
forget it (docs/durability.md, "Interrupted deletions").
"""
AS_IS: Final = 0.3
"""How many limits are what they are elsewhere."""


class StepLimits:
    """Those of one world."""

    def __init__(self, chance: random.Random) -> None:
        self._limits = {
            name: chance.choice(_SMALL.get(name, (1, 1, 2))) for name in _DRAWN if chance.random() >= AS_IS
        } | _ALWAYS

    @contextmanager
    def kept(self) -> Iterator[None]:
        """The broker has these."""
        with _set(self._limits):
            yield

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """It has its own again: what an audit asks is answered at once, and nothing changes meanwhile."""
        with _set(_OWN):
            yield


@contextmanager
def _set(limits: Mapping[str, int]) -> Iterator[None]:
    with ExitStack() as patches:
        for name, limit in limits.items():
            for owner in _OWNERS[name]:
                patches.enter_context(mock.patch.object(owner, name, limit))
        yield
