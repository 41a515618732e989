"""What is known of the offsets that a group has committed of one partition."""

from __future__ import annotations

from dataclasses import dataclass

Place = tuple[str, str, int]
"""(group, topic, partition)"""


@dataclass
class CommitModel:
    """Committed offsets of one (group, topic, partition); every commit is larger than the one before."""

    promised: int = -1
    """Acknowledged, or shown by a fetch."""
    sent: int = -1
    delete_asked: int = -1
    """Offsets up to it may be deleted: somebody has asked for it."""
    deleted: int = -1
    """Offsets up to it were deleted, and never come back."""
    durable: tuple[int, int] = (-1, -1)
    """What the last restart has found of `promised` and `deleted`: a power cut takes that from no log."""

    def note_committed(self, offset: int) -> None:
        """`offset` was acknowledged or shown; it counts unless somebody has asked for its deletion since."""
        if offset > self.delete_asked:
            self.promised = max(self.promised, offset)

    def ask_to_delete(self) -> int:
        """A deletion is asked for; up to which offset it may reach. Until it is answered nothing is promised."""
        self.delete_asked, self.promised = self.sent, -1
        return self.sent

    def note_deleted(self, offset: int) -> None:
        """What was committed up to `offset` is deleted."""
        self.deleted = max(self.deleted, offset)

    def note_power_cut(self) -> None:
        """What was committed and deleted since the last start was not synced, and may be gone: also a commit alone that
        came after the deletion of what the start has found.
        """
        found, self.deleted = self.durable
        self.promised = min(self.promised, found) if found > self.delete_asked else -1

    def note_found(self) -> None:
        """A restart has found what there is."""
        self.durable = self.promised, self.deleted
