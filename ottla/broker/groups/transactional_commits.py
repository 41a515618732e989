"""A commit of offsets in a transaction: its answer also waits for the transaction coordinator's records.

A TxnOffsetCommit may add the group's partition to the transaction (version 5). The answer must not be sent before that
is durable too. Otherwise a crash could leave offsets in a log of which the coordinator does not know, and which it
never ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.broker.runtime.pending import Pending
from ottla.protocol.errors import KafkaError

if TYPE_CHECKING:
    from ottla.broker.coordination.writes import Settled
    from ottla.protocol.api.txn_offset_commit import TxnOffsetCommitResponse


class Admission(Protocol):
    """The transaction coordinator's decision about one request; `error` is None where it may continue."""

    @property
    def error(self) -> KafkaError | None:
        """The reason why nothing of it may be written."""

    def when_durable(self, settled: Settled) -> None:
        """Call `settled` when what was added to the transaction is durable: immediately, where nothing was added."""


def answer_when_both(
    pending: Pending[TxnOffsetCommitResponse], committed: Pending[TxnOffsetCommitResponse], admission: Admission
) -> None:
    """Complete `pending` like `committed`, once the admission is durable too; an error of either fails it."""

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
