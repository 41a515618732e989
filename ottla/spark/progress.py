"""What an exactly-once sink has committed: a mark in its progress topic for each task, from the task's own transaction.

A mark is a record of partition 0. Its key is the transactional id, so compaction keeps the newest of each task:

    key    orders-by-day-3
    value  {"version": 1, "query": "1f38...", "batch": 17, "task": 3, "rows": 120, "run": "f03b...", "write": "9a0c..."}

Marks are read from the end of the log towards its start. Nobody has to wait for the open transactions of other tasks,
which hold the last stable offset back: here everything up to the high watermark is read, and the COMMIT or ABORT marker
behind a record decides. Those of the reader's own transactional id are all decided, since it fenced the earlier
attempts first. Reading ends at a mark of the task for this batch, or at one of the query for an earlier batch, since no
task begins a batch before all have committed the one before it. So it is the newest few records, as a rule.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple

from ottla.protocol.records.batch import decode_batch, iter_batches
from ottla.protocol.records.control import decode_transaction_end
from ottla.spark.errors import WriteFailed

if TYPE_CHECKING:
    from ottla.protocol.types import Buffer

VERSION = 1
_NEWEST = -1


@dataclass(frozen=True)
class Mark:
    """A task of a batch is committed."""

    query: str
    """The id of the streaming query, which its checkpoint keeps; for a batch query the id of the write."""
    batch: int
    task: int
    """The number of the task: its partition of the rows."""
    rows: int
    run: str
    """The id of the query's run: another one after each start."""
    write: str
    """The id of the call that wrote."""


def encode_mark(mark: Mark) -> bytes:
    """Return the record's value."""
    return json.dumps({"version": VERSION, **asdict(mark)}).encode()


def decode_mark(value: bytes | None) -> Mark:
    """Return the mark in a record's value. Raises WriteFailed for one that this version cannot read."""
    try:
        fields = json.loads(value or b"")
        version = fields.pop("version")
        if version == VERSION:
            return Mark(**fields)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise WriteFailed(f"the progress topic holds {(value or b'')[:80]!r}, which no sink has written") from None
    raise WriteFailed(f"the progress topic has a mark of version {version}, of a newer Ottla")


class Committed(NamedTuple):
    """A mark and the offset of its record."""

    offset: int
    mark: Mark


class Marks:
    """The marks of a sink in a part of the log that ends at the high watermark; `add` extends it to the front."""

    def __init__(self, name: str) -> None:
        self._prefix = f"{name}-"
        self._written: dict[int, tuple[int, Mark]] = {}
        """The producer id and the mark, by offset."""
        self._ends: dict[int, tuple[int, bool]] = {}
        """The producer id and whether it is a COMMIT, by offset."""

    def add(self, records: Buffer) -> int:
        """Read the whole batches of a Fetch; return the offset after the last one, -1 if there is none.

        Raises CorruptBatch or WriteFailed.
        """
        view = memoryview(records)
        after = _NEWEST
        for position, header in iter_batches(view, allow_partial_tail=True):
            after = header.next_offset
            batch = view[position : position + header.size_bytes]
            if header.is_control:
                end = decode_transaction_end(batch)
                if end is not None:
                    self._ends[header.base_offset] = (header.producer_id, end.is_commit)
            elif header.is_transactional:
                for record in decode_batch(batch):
                    if self._is_of_this_sink(record.key):
                        self._written[record.offset] = (header.producer_id, decode_mark(record.value))
        return after

    def _is_of_this_sink(self, key: bytes | None) -> bool:
        """Whether a key is the sink's name and a number: names may have dashes and numbers, too."""
        text = (key or b"").decode(errors="replace")
        return text.startswith(self._prefix) and text[len(self._prefix) :].isdecimal()

    def committed(self, task: int) -> list[Committed] | None:
        """Return the committed marks by offset; None if a mark of this task has no COMMIT or ABORT behind it yet."""
        found = []
        ends: dict[int, bool] = {}
        for offset in sorted({*self._written, *self._ends}, reverse=True):
            if offset in self._ends:
                producer_id, is_commit = self._ends[offset]
                ends[producer_id] = is_commit
                continue
            producer_id, mark = self._written[offset]
            if producer_id not in ends and mark.task == task:
                return None
            if ends.get(producer_id, False):
                found.append(Committed(offset, mark))
        return found[::-1]


@dataclass(frozen=True)
class Attempt:
    """An attempt to write the rows of one task."""

    name: str
    """The sink's, of the user."""
    query: str
    batch: int
    task: int
    run: str
    write: str
    is_alone: bool
    """Whether the batch has one write only; a function of `foreachBatch` may have several."""

    @property
    def transactional_id(self) -> str:
        """The id of the task's transactions: the sink's name and the task's number."""
        return f"{self.name}-{self.task}"

    def mark(self, rows: int) -> Mark:
        """Return the mark for this many rows."""
        return Mark(self.query, self.batch, self.task, rows, self.run, self.write)

    def needs_earlier(self, found: list[Committed]) -> bool:
        """Whether marks before these may be about this batch."""
        return not any(
            mark.query == self.query and (mark.batch < self.batch or (mark.batch, mark.task) == (self.batch, self.task))
            for _, mark in found
        )

    def verdict(self, found: list[Committed]) -> Mark | None:
        """Return the mark of an earlier attempt that has committed; None if the rows are to be written.

        Raises WriteFailed if neither would be right.
        """
        own = [mark for _, mark in found if mark.query == self.query]
        if own and found[-1].mark.query != self.query:
            other = found[-1].mark.query
            raise WriteFailed(
                f"exactlyOnceName {self.name} was used by query {other} after this query {self.query}; each query that"
                " runs at the same time needs its own"
            )
        newest = max((mark.batch for mark in own), default=_NEWEST)
        if newest > self.batch:
            raise WriteFailed(
                f"exactlyOnceName {self.name}: this is batch {self.batch}, and batch {newest} of the query is committed"
                " already. The checkpoint is older than the topic, or an earlier run still writes; another"
                " exactlyOnceName would write the batches again"
            )
        mine = [mark for mark in own if (mark.batch, mark.task) == (self.batch, self.task)]
        if mine and not self.is_alone and mine[-1].run == self.run and mine[-1].write != self.write:
            raise WriteFailed(
                f"exactlyOnceName {self.name}: batch {self.batch} was written by another save() of the same function;"
                " give each its own exactlyOnceName"
            )
        return mine[-1] if mine else None

    def highest_task(self, found: list[Committed]) -> int:
        """Return the highest number of a task that has committed rows of this batch, -1 for none."""
        mine = (mark.task for _, mark in found if (mark.query, mark.batch) == (self.query, self.batch))
        return max(mine, default=_NEWEST)
