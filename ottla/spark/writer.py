"""The sinks as Spark calls them: tasks write their rows, and the driver hears how that ended.

A task encodes and sends rows as they arrive, and ends when every record is acknowledged. When it fails, Spark runs it
again, and a failed micro-batch as a whole, and all records are written again: at least once. `commit` and `abort` have
nothing to do then. With `exactlyOnceName` a task writes in a transaction, once (ottla.spark.exactly_once).
"""

from __future__ import annotations

import uuid
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ottla.spark.errors import reported_in_one_line
from ottla.spark.option_names import warn_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from ottla.spark.write_options import WriteOptions


@dataclass
class Written(WriterCommitMessage):
    """A task's report to the driver."""

    records: int
    """How many records the task wrote, or an earlier attempt of it has committed."""
    highest_task: int = -1
    """The highest number of a task that had committed rows of this batch before, with `exactlyOnceName`; -1: none."""


class _Writer:
    """What both sinks do. The driver makes one for each write or micro-batch, which is pickled to the tasks."""

    _options: WriteOptions
    _is_stream: bool

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._id = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task."""
        if self._options.once is None:
            return write_rows(iterator, self._options)
        from ottla.spark.exactly_once import write_once
        from ottla.spark.task_identity import attempt_of_task

        with reported_in_one_line():
            attempt = attempt_of_task(self._options.once.name, self._id, is_stream=self._is_stream)
            return Written(*write_once(iterator, self._options, attempt))

    def _committed(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Check the tasks' reports: the rows may have been divided among fewer tasks than before."""
        if self._options.once is not None:
            from ottla.spark.exactly_once import check_tasks

            with reported_in_one_line():
                highest = max((one.highest_task for one in messages if isinstance(one, Written)), default=-1)
                check_tasks(self._options.once.name, len(messages), highest)

    def _aborted(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """End the transactions that the tasks may have left open, so that nobody waits for their time-out."""
        if self._options.once is not None:
            from ottla.spark.exactly_once import end_left_open

            end_left_open(self._options, [task for task, message in enumerate(messages) if message is None])


class BatchWriter(_Writer, DataSourceArrowWriter):
    """`df.write.format("ottla")`."""

    _is_stream = False

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing is left to do: the tasks' records are in the log."""
        self._committed(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Without transactions nothing can be taken back."""
        self._aborted(messages)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream.format("ottla")`."""

    _is_stream = True

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Warn about options without effect; the tasks' records are in the log.

        Spark calls `streamWriter` in two processes, and this in one of them.
        """
        warn_once(self._options.warning)
        self._committed(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Warn as `commit` does; the tasks' records stay in the log, and are written again with the batch."""
        warn_once(self._options.warning)
        self._aborted(messages)


def write_rows(batches: Iterator[pa.RecordBatch], options: WriteOptions) -> Written:
    """Write all rows and wait until they are acknowledged.

    Raises WriteFailed, BrokerUnavailable or ProtocolFailure.
    """
    from ottla.spark.rows import TaskRows, chunks
    from ottla.spark.sender import Sender

    with reported_in_one_line(), closing(Sender(options.client, options.producer)) as sender:
        task = TaskRows(options, sender)
        for table in chunks(batches):
            task.write(table)
        sender.flush()
        return Written(sender.acknowledged)
