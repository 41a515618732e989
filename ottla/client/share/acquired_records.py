"""Acquired records of one partition: those that the program has not taken yet, and those that it has to acknowledge.

They came in one answer, and their lock ends at one time. As in `decoded_records.py` they are plain tuples until the
program takes them, and `records` is an iterator in C: readers in several threads get each record once. Nothing is
counted for each record in implicit mode: the taken ones are accepted as ranges of offsets.

`acknowledge` may be called in any thread; everything else in the loop's. Kafka's class is `ShareInFlightBatch`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice, repeat
from operator import itemgetter, length_hint
from typing import TYPE_CHECKING, Any

from ottla.client.decoded_records import OFFSET, Row
from ottla.client.share.acknowledgements import Run, runs_of
from ottla.client.structs import ShareRecord, TopicPartition
from ottla.protocol.api.share_fetch import AcknowledgeType

if TYPE_CHECKING:
    from ottla.client.share.session import Place, ShareSession

_offset_of = itemgetter(OFFSET)


class AcquiredRecords:
    """See the module. `rows` have the fields of ShareRecord, in the order of their offsets."""

    __slots__ = (
        "_accepted",
        "_left",
        "_renewed",
        "_rows",
        "_said",
        "_unacknowledged",
        "lock_until",
        "partition",
        "place",
        "records",
        "session",
    )

    def __init__(
        self,
        partition: TopicPartition,
        place: Place,
        session: ShareSession,
        rows: list[Row],
        lock_until: float,
        *,
        is_explicit: bool,
    ) -> None:
        self.partition = partition
        self.place = place
        self.session = session
        """The share session that has acquired them; its loss is theirs."""
        self.lock_until = lock_until
        """When their lock ends, by the loop's clock; after that they may belong to another member."""
        self._unacknowledged: set[int] | None = set(map(_offset_of, rows)) if is_explicit else None
        self._renewed: set[int] = set()
        self._said: deque[tuple[int, AcknowledgeType]] = deque()
        """The program's acknowledgements that are not in a request yet."""
        self._accepted = 0
        """The number of records, from the first one, that were accepted by implicit acknowledgements."""
        self._begin(rows)

    def _begin(self, rows: list[Row]) -> None:
        self._rows = rows
        self._left = iter(rows)
        self.records: Iterator[ShareRecord[Any, Any]] = map(tuple.__new__, repeat(ShareRecord), self._left)
        """The iterator that takes the next record."""

    @property
    def taken_count(self) -> int:
        """The number of records that the program has taken."""
        return len(self._rows) - length_hint(self._left)

    @property
    def left_count(self) -> int:
        """The number of records that it has not taken."""
        return length_hint(self._left)

    def take(self, limit: int) -> list[ShareRecord[Any, Any]]:
        """Take up to `limit` records."""
        return list(islice(self.records, limit))

    def put_back(self, count: int) -> AcquiredRecords:
        """Return the last `count` taken records and those that are left, as an object of their own."""
        first = self.taken_count - count
        is_explicit = self._unacknowledged is not None
        rest = AcquiredRecords(
            self.partition, self.place, self.session, self._rows[first:], self.lock_until, is_explicit=is_explicit
        )
        self._drop_from(first)
        return rest

    def release_left(self) -> list[Run]:
        """Return the release of the records that were not taken, and drop them."""
        first = self.taken_count
        offsets = [_offset_of(row) for row in self._rows[first:]]
        self._drop_from(first)
        return runs_of(offsets, AcknowledgeType.RELEASE, self.lock_until)

    def _drop_from(self, first: int) -> None:
        for _ in self._left:  # a reader may hold `records`, which ends now
            pass
        if self._unacknowledged is not None:
            self._unacknowledged.difference_update(map(_offset_of, self._rows[first:]))
        del self._rows[first:]

    # Acknowledgements -------------------------------------------------------------------------------------------

    @property
    def is_done(self) -> bool:
        """Whether all records are acknowledged."""
        if self._unacknowledged is None:
            return self._accepted == len(self._rows)
        return not self._unacknowledged and not self._said

    @property
    def unanswered_count(self) -> int:
        """Explicit mode: the number of taken records that the program has neither acknowledged nor renewed."""
        if self._unacknowledged is None:
            return 0
        return len(self._unacknowledged - self._renewed) - length_hint(self._left)

    def acknowledge(self, offset: int, kind: AcknowledgeType) -> bool:
        """Note the program's acknowledgement of a record; return False if that is not to be acknowledged (any more)."""
        assert self._unacknowledged is not None
        if offset not in self._unacknowledged:
            return False
        self._said.append(
            (offset, kind)
        )  # first of all: in the loop's thread `is_done` may be checked between two steps
        if kind is AcknowledgeType.RENEW:
            self._renewed.add(offset)
        else:
            self._unacknowledged.discard(offset)
            if self._renewed:
                self._renewed.discard(offset)
        return True

    def on_renewed(self, lock_until: float) -> None:
        """Note that the broker has renewed the locks of the records that the program wanted to have for longer."""
        if self._renewed:
            self.lock_until = lock_until

    def accept_taken(self) -> list[Run]:
        """Implicit mode: return the acceptance of the records that were taken since the last call."""
        first, self._accepted = self._accepted, self.taken_count
        offsets = [_offset_of(row) for row in self._rows[first : self._accepted]]
        return runs_of(offsets, AcknowledgeType.ACCEPT, self.lock_until)

    def said(self) -> tuple[list[Run], set[int]]:
        """Explicit mode: return what the program has said since the last call, and the offsets to be renewed."""
        said = self._said
        kinds = dict([said.popleft() for _ in range(len(said))])  # what a thread adds meanwhile is for the next call
        by_kind: dict[AcknowledgeType, list[int]] = {}
        if len(set(kinds.values())) == 1:  # the usual case
            by_kind[next(iter(kinds.values()))] = sorted(kinds)
        else:
            for offset in sorted(kinds):
                by_kind.setdefault(kinds[offset], []).append(offset)
        renewals = set(by_kind.pop(AcknowledgeType.RENEW, ()))
        return [run for kind, some in by_kind.items() for run in runs_of(some, kind, self.lock_until)], renewals
