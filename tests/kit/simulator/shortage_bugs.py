"""Planted bugs that show where the process lacks descriptors for a while (`shortages.py`)."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any
from unittest import mock

from kit.simulator import planting
from kit.simulator.planting import before, no

from ottla.storage.directories import directory_status
from ottla.storage.files.files import NotOpened
from ottla.storage.log import log_state
from ottla.storage.log.sync import SyncTicket

bug = partial(planting.bug, descriptors=True)


@bug("a want of descriptors fails a log", "an append that could not open its file counts as a fault of the disk")
def _fails_a_log() -> Any:
    return mock.patch.object(log_state, "is_passing", no)


@bug("a want of descriptors takes a directory offline", "what could not be opened counts as a fault of the disk")
def _takes_offline() -> Any:
    return mock.patch.object(directory_status, "is_passing", no)


@bug(
    "a directory that could not be opened counts as synced", "the name of a new segment is not on disk with its records"
)
def _counts_as_synced() -> Any:
    def replace(finish: Any) -> Any:
        def patched(self: SyncTicket, *given: Any, **more: Any) -> None:
            with suppress(NotOpened):
                finish(self, *given, **more)

        return patched

    return before(SyncTicket, "finish", replace)
