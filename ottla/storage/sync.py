"""One group sync of one log: what it covers, and running it in a thread.

`Log.begin_sync` takes a ticket on the owner's thread, `SyncTicket.run` blocks in any thread while appends go on,
`Log.end_sync` publishes on the owner's thread. A ticket covers every byte below its `end_offset`: the `.log` files with
unsynced bytes (several after a roll) and the directory if names were added. Index files are not covered: they can be rebuilt.
A failed sync is never tried again: the kernel may have marked the lost pages clean (decisions.md 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.storage.files import File, Files


class SyncTicket:
    """A sync to be run once.

    Attributes:
        end_offset: after `Log.end_sync` everything below it is on disk.
    """

    __slots__ = ("_directory", "_files", "_system", "end_offset", "end_position", "end_segment")

    def __init__(
        self,
        end_offset: int,
        files: Sequence[File],
        *,
        system: Files,
        directory: str | None,
        end_segment: int,
        end_position: int,
    ) -> None:
        self.end_offset = end_offset
        self.end_segment = end_segment
        self.end_position = end_position
        self._files = tuple(files)
        self._system = system
        self._directory = directory

    def run(self) -> None:
        """Block until everything that the ticket covers is on disk. May run in any thread, beside appends.

        Raises:
            OSError: the sync failed; the caller hands it to `Log.fail`.
        """
        for file in self._files:
            file.fdatasync()
        if self._directory is not None:
            self._system.sync_directory(self._directory)
