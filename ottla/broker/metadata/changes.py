"""The queue of metadata changes: one after the other.

A change is planned on the image when its turn comes (not when it was requested), written as one batch, synced,
replayed, and only then answered. While one waits for the disk the others wait in memory. A change that plans no records
(a refusal, a look-up) is answered without the disk.

If the disk is full, this change is refused and the queue continues. After a failed sync, this change and every later
one are refused: the log accepts nothing more, and changes without records are no longer certain either. The change
whose sync failed may be on the disk, where the next start finds it. Example: an ACL whose removal failed is still in
the image; the answer "it exists already" would be an acknowledgement that the next start breaks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.metadata.image import MetadataImage
    from ottla.broker.metadata.journal import Journal
    from ottla.broker.runtime.disk import GroupSyncer
    from ottla.protocol.stored.metadata import MetadataRecord

MAX_WAITING_CHANGES = 10_000
"""Changes that may wait for the disk; one more is refused with a retriable error."""

Plan = Callable[["MetadataImage"], "Sequence[MetadataRecord]"]
Done = Callable[[KafkaError | None], None]


class _Change(NamedTuple):
    plan: Plan
    done: Done


class ChangeQueue:
    """See the module's text. All calls, and all callbacks, on the broker's thread."""

    def __init__(self, journal: Journal, syncer: GroupSyncer) -> None:
        self._journal = journal
        self._syncer = syncer
        self._waiting: deque[_Change] = deque()
        self._syncing: _Change | None = None
        self._failure: str | None = None
        """Why the sync of a change has failed; the change may be on the disk nevertheless."""
        self._is_running = False

    def __len__(self) -> int:
        return len(self._waiting) + (self._syncing is not None)

    def submit(self, plan: Plan, done: Done) -> None:
        """Run `plan(image)` in its turn; call `done(None)` once its records are synced and replayed.

        If that fails, `done(error)` is called, and the image is unchanged. A KafkaError that `plan` raises is passed to
        `done`.
        """
        if len(self._waiting) >= MAX_WAITING_CHANGES:
            done(KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many metadata changes wait for the disk"))
            return
        self._waiting.append(_Change(plan, done))
        self._run()

    def _run(self) -> None:
        """Start the changes that can start. Not re-entrant: the loop that calls a callback also starts the changes that
        the callback submits.
        """
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._waiting and self._syncing is None:
                self._start(self._waiting.popleft())
        finally:
            self._is_running = False

    def _start(self, change: _Change) -> None:
        try:
            records = change.plan(self._journal.image)
            if records:
                self._journal.append(records)
        except KafkaError as error:
            change.done(error)
            return
        if not records:
            change.done(None if self._failure is None else self._refusal(self._failure))
            return
        self._syncing = change
        self._syncer.request(self._journal.log, self._synced)

    def _synced(self, error: BaseException | None) -> None:
        change, self._syncing = self._syncing, None
        if change is None:  # pragma: no cover - a syncer that answers twice is a bug worth a traceback
            raise RuntimeError("a sync was answered for which no change waits")
        # The next change is planned after this one has ended: `done` may submit another.
        was_running, self._is_running = self._is_running, True
        try:
            if error is None:
                self._journal.commit()
                change.done(None)
            else:
                self._journal.discard()
                self._failure = f"the metadata log cannot be synced: {error}"
                change.done(self._refusal(self._failure))
        finally:
            self._is_running = was_running
        self._run()

    @staticmethod
    def _refusal(why: str) -> KafkaError:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why)
