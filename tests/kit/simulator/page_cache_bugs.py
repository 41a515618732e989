"""Planted bugs that show where the broker promises `page-cache` (`page_cache_worlds.py`, `bugs.py`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, Final
from unittest import mock

from kit.simulated_files import CrashPoint, SimulatedFile
from kit.simulator import planting
from kit.simulator.planting import before, nothing

from ottla.broker.chores.synced_decisions import SyncedDecisions
from ottla.broker.transactions.shard import TransactionShard
from ottla.storage.producers.transaction_index import IndexSync

bug = partial(planting.bug, page_cache=True)

_LOG: Final = re.compile(r"/[^_/][^/]*-\d+/\d{20}\.log$")
"""Of a topic that clients write to."""
_CALLS: Final = ("pread", "pread_nowait", "map", "resident_view", "size", "truncate", "fdatasync", "pwritev")


@bug("an append is kept in the process", "the newest one is written when anything else is done with a file")
@contextmanager
def _kept_in_the_process() -> Iterator[None]:
    """A power cut takes no more than it may; a kill takes what was answered."""
    kept: list[tuple[SimulatedFile, bytes, int]] = []
    write = SimulatedFile.pwritev

    def written(call: Any) -> Any:
        def patched(self: SimulatedFile, *given: Any) -> Any:
            while kept:
                file, data, position = kept.pop()
                with suppress(CrashPoint, OSError):  # of a process that is dead, or a disk that is full
                    write(file, [data], position)
            return call(self, *given)

        return patched

    def keep(self: SimulatedFile, buffers: Sequence[bytes], position: int) -> int:
        if not _LOG.search(str(self.path)):
            return write(self, buffers, position)
        data = b"".join(buffers)
        kept.append((self, data, position))
        return len(data)

    with ExitStack() as patches:
        for name in _CALLS:
            call = keep if name == "pwritev" else getattr(SimulatedFile, name)
            patches.enter_context(mock.patch.object(SimulatedFile, name, written(call)))
        yield


@bug(
    "the cleaner believes markers that are not synced",
    "it removes a record for one whose commit a power cut takes",
    transactions=True,
    theme="compacted transactions",
)
def _unsynced_markers_believed() -> Any:
    def replace(_: Any) -> Any:
        def patched(self: SyncedDecisions, log: Any, stable_offset: int, **__: bool) -> int:
            return stable_offset

        return patched

    return before(SyncedDecisions, "stable_offset", replace)


@bug(
    "epochs are given out again",
    "a load does not ask partitions for epochs that its own log has lost",
    transactions=True,
    theme="compacted transactions",
)
def _epochs_given_out_again() -> Any:
    return mock.patch.object(TransactionShard, "_raise_epochs", nothing)


@bug(
    "a missing .txnindex counts as a failed sync",
    "retention takes a segment away that is being synced, and the directory goes offline",
    transactions=True,
    theme="retention",
)
def _missing_index_fails() -> Any:
    def run(self: IndexSync) -> None:
        for path in self.paths:
            self.files.open(path, writable=True).fdatasync()

    return mock.patch.object(IndexSync, "run", run)
