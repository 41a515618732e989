"""Planted bugs that show where things take turns: workers are slow, and work is done in steps (`turn_worlds.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

from kit.simulator import planting
from kit.simulator.planting import before, no, nothing

from ottla.broker.api import delete_records
from ottla.broker.catalog.partition_removal import PartitionRemoval
from ottla.broker.fast.several_request import SeveralRequest
from ottla.broker.partitions import first_appends

bug = partial(planting.bug, turns=True)


@bug("first appends are not copied", "what a later turn appends is read from a buffer that others have by then")
def _not_copied() -> Any:
    return mock.patch.object(first_appends, "bytearray", lambda view: view, create=True)


@bug("a name is free before its topic is gone", "a topic is created again while directories of the former are left")
def _free_too_early() -> Any:
    return mock.patch.object(PartitionRemoval, "is_under_way", no)


@bug("several: only the last promise counts", "a Produce of several partitions is answered once one of them is synced")
def _only_the_last() -> Any:
    def last_visible(self: SeveralRequest, partition: Any, deadline_ms: float, error: BaseException | None) -> None:
        self._missing = 1
        self.visible(partition, error)

    return mock.patch.object(SeveralRequest, "last_visible", last_visible)


@bug("a deletion does not wait for its checkpoint", "DeleteRecords is answered while a worker writes the log starts")
@contextmanager
def _unwritten_starts() -> Iterator[None]:
    def replace(one_done: Any) -> Any:
        def patched(self: Any) -> None:
            one_done(self)
            if not self._waiting and not self.pending.done:
                self.pending.complete(self.response)

        return patched

    owner = delete_records._Deletion
    with before(owner, "_one_done", replace), mock.patch.object(owner, "_written", nothing):
        yield
