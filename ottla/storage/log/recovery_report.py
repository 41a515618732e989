"""The findings of opening a log: for the start-up summary, the metrics, and one log line for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.plain import Plain, field

if TYPE_CHECKING:
    from ottla.storage.producers.transaction_index import AbortedTransaction


class RecoveryReport(Plain):
    """One log's opening.

    Attributes:
        was_clean: the clean-shutdown marker was there, so nothing was scanned.
        was_on_disk: the files are as the clean stop left them, so everything is on disk.
        scanned_bytes, scanned_segments: the amount that was checked after an unclean stop.
        rebuilt_indexes: segments whose indexes were missing or damaged and were rebuilt.
        truncated_bytes: the bytes of torn tails.
        quarantined: names of `.corrupt-<ms>` files.
        has_unsynced_names: names of files may not be durable yet; the log's first sync covers them.
        lost_below_high_watermark: acknowledged records are lost.
        unwritten_indexes: entries of `.txnindex` files that did not fit on the disk, by base offset.
        gap: the offset where the log ended early, and the one where it continues, in a new leader epoch.
    """

    was_clean: bool = True
    was_on_disk: bool = False
    scanned_bytes: int = 0
    scanned_segments: int = 0
    rebuilt_indexes: int = 0
    truncated_bytes: int = 0
    quarantined: list[str] = field(factory=list)
    has_unsynced_names: bool = False
    lost_below_high_watermark: bool = False
    unwritten_indexes: dict[int, Sequence[AbortedTransaction]] = field(factory=dict)
    gap: tuple[int, int] | None = None
