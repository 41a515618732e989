"""What a commit of offsets in a transaction waits for, beside its own records: the transaction coordinator's.

A TxnOffsetCommit may add the group's partition to the transaction (version 5). The answer must not leave before that is
durable too, or a crash could leave offsets in a log of which the coordinator knows nothing, so that nobody ends them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.broker.runtime.pending import Pending
from ottla.protocol.errors import KafkaError

if TYPE_CHECKING:
    from ottla.broker.coordination.writes import Settled
    from ottla.protocol.api.txn_offset_commit import TxnOffsetCommitResponse


class Admission(Protocol):
    """The transaction coordinator's verdict about one request; `error` is None where it may go on."""

    @property
    def error(self) -> KafkaError | None:
        """Why nothing of it may be written."""

    def when_durable(self, settled: Settled) -> None:
        """Call `settled` when what was added to the transaction is durable, at once where nothing was."""


def answer_when_both(
    pending: Pending[TxnOffsetCommitResponse], committed: Pending[TxnOffsetCommitResponse], admission: Admission
) -> None:
    """Complete `pending` as `committed`, once the admission is durable too; an error of either fails it."""

    def settled(error: KafkaError | None) -> None:
        if error is not None:
            pending.fail(error)
            return
        committed.then(answer)

    def answer(done: Pending[TxnOffsetCommitResponse]) -> None:
        if done.error is not None:
            pending.fail(done.error)
        else:
            pending.complete(done.response)

    admission.when_durable(settled)
