"""The charges for the time of an append that requests of several clients share (one append per turn).

The cost of an append depends on its batches and their bytes: each batch counts as `BATCH_BYTES` more than it has, since
a batch of a few bytes takes as long as the copy and the check of so many. A client without a time quota is charged
nothing, and no other client is charged its share.
"""

from __future__ import annotations

from typing import Protocol

BATCH_BYTES = 4_096


class AppendPayer(Protocol):
    """The quota to which the time of a request is charged (`security/quotas`)."""

    def now_ns(self) -> int:
        """The clock for the measurement."""

    def pay(self, held_ns: int) -> None:
        """Charge its share."""


class AppendShares:
    """The shares in the next append of one partition."""

    __slots__ = ("_began_ns", "_payers")

    def __init__(self) -> None:
        self._payers: list[tuple[AppendPayer, int]] = []
        self._began_ns = 0

    def add(self, payer: AppendPayer, batches: int, size_bytes: int) -> None:
        """Add the share of a payer."""
        self._payers.append((payer, _weight(batches, size_bytes)))

    def begin(self) -> None:
        """Start the measurement: the append begins."""
        self._began_ns = self._payers[0][0].now_ns()

    def end(self, batches: int, size_bytes: int) -> None:
        """Charge the shares: the append of so many batches and bytes in all has ended."""
        held_ns = self._payers[0][0].now_ns() - self._began_ns
        whole = _weight(batches, size_bytes)
        for payer, weight in self._payers:
            payer.pay(held_ns * weight // whole)


def _weight(batches: int, size_bytes: int) -> int:
    return batches * BATCH_BYTES + size_bytes
