"""What is known of the leader epochs of a partition, and what OffsetForLeaderEpoch and Fetch may therefore answer
(KIP-320, KIP-595).

An epoch ends where the next one begins, and the broker's own at the high watermark. No record is written any more in an
epoch that has ended, so its end stays what it was. Only what has no records may move it: the start of the log, and the
gap that a start leaves where a power cut has taken records, which belongs to the newest epoch that is left.
An epoch of which nothing is left is answered by the one before it, with the same end; one after the broker's own, and
-1, by nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kit.simulator.model import Violation

from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kit.simulator.model import PartitionModel

NO_EPOCH: Final = -1
NOTHING: Final = (-1, -1)
"""(epoch, end offset) where an epoch is not known."""
OF_EPOCHS: Final = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH)


def require_code(where: str, claimed_epoch: int, leader_epoch: int, code: int) -> bool:
    """Whether a request that was sent by a client who took `claimed_epoch` for the leader's is answered at all.

    Raises Violation where it is fenced and need not be, or is not and has to be.
    """
    expected = ErrorCode.NONE
    if claimed_epoch not in (NO_EPOCH, leader_epoch):
        is_old = claimed_epoch < leader_epoch
        expected = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
    if code in OF_EPOCHS or expected != ErrorCode.NONE:
        if code != expected:
            raise Violation(
                f"{where}: epoch {claimed_epoch} is answered {ErrorCode.of(code).name}, {leader_epoch} is the leader's"
            )
        return False
    return code == ErrorCode.NONE


def require_end(
    where: str,
    known: PartitionModel,
    epoch: int,
    leader_epoch: int,
    answer: tuple[int, int],
    *,
    least_end: int,
    may_move: Callable[[int, int], bool],
) -> None:
    """Hold the end of an epoch against what is known, and remember it.

    `answer`: the epoch and the offset. `least_end`: the high watermark is not before it. `may_move(first, last)` says
    whether the end of an epoch that was over may have moved between these offsets. Raises Violation.
    """
    found, end = answer
    if epoch == NO_EPOCH or epoch > leader_epoch:
        if answer != NOTHING:
            raise Violation(f"{where}: epoch {epoch} is answered {answer}, though {leader_epoch} is the leader's")
        return
    if not 0 <= found <= epoch or end < 0:
        raise Violation(f"{where}: epoch {epoch} is answered {answer}, the leader's is {leader_epoch}")
    if epoch == leader_epoch:
        if found != epoch or end < least_end:
            raise Violation(f"{where}: epoch {epoch} is the leader's and ends at {answer}, not {least_end} or later")
        return
    before = known.epoch_ends.get(epoch, end)
    if end != before and not may_move(min(before, end), max(before, end)):
        raise Violation(f"{where}: epoch {epoch} ends at {end}, it had ended at {before}")
    known.epoch_ends[epoch] = end
