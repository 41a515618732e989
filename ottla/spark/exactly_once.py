"""The rows of a task once, whatever happens to the task, its worker, the driver and the brokers.

A task writes its rows, and a mark for itself in the progress topic, in one transaction. The transactional id is the
sink's name and the task's number. An attempt begins by fencing the earlier ones of its id: what they have left open is
aborted. Then it looks for its mark: if it is there, an earlier attempt has committed, and nothing is written.

This promises each row once if Spark computes a task's rows again as they were. If the number of rows differs, or rows
of tasks are committed that the batch does not have any more, the batch fails. A task without rows needs no transaction.
docs/decisions/a-mark-in-each-transaction.md has the reasons, and what a crash at each step leaves behind.
"""

from __future__ import annotations

import logging
import time
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from ottla.arrow.encoder import Body
from ottla.protocol.records.record import encode_record
from ottla.spark.cluster import Cluster
from ottla.spark.errors import BrokerUnavailable, ProtocolFailure, WriteFailed
from ottla.spark.patience import Patience
from ottla.spark.progress import encode_mark
from ottla.spark.progress_topic import PARTITION, ProgressTopic
from ottla.spark.rows import TaskRows, chunks
from ottla.spark.sender import Batch, Sender
from ottla.spark.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from ottla.spark.progress import Attempt
    from ottla.spark.write_options import WriteOptions

logger = logging.getLogger(__name__)

_OTHERWISE = "; another exactlyOnceName would write the batch again, and what is committed would be there twice"


class Outcome(NamedTuple):
    """What is committed now."""

    records: int
    highest_task: int
    """The highest number of a task that had committed rows of this batch before; -1 for none."""


def write_once(batches: Iterator[pa.RecordBatch], options: WriteOptions, attempt: Attempt) -> Outcome:
    """Write the rows of a task in a transaction, unless an earlier attempt has committed them.

    Raises WriteFailed, BrokerUnavailable or ProtocolFailure.
    """
    once = options.once
    assert once is not None
    tables = chunks(batches)
    first = next(tables, None)
    if first is None:
        return Outcome(0, -1)
    patience = Patience(options.producer.delivery_timeout_ms, options.client.retry_backoff_ms)
    with closing(Cluster(options.client, persistent=False)) as cluster:
        transaction = Transaction(cluster, attempt.transactional_id, once.timeout_ms, patience)
        transaction.begin()
        found = ProgressTopic(once.topic, cluster, options.client, patience).marks(attempt)
        committed = attempt.verdict(found)
        highest_task = attempt.highest_task(found)
        if committed is None:
            return Outcome(_write(first, tables, options, attempt, transaction), highest_task)
        # All rows are taken from Spark: operators before the sink may keep state only then.
        rows = len(first) + sum(len(table) for table in tables)
        if rows != committed.rows:
            raise WriteFailed(
                f"{attempt.transactional_id}: batch {attempt.batch} is committed with {committed.rows} rows of this"
                f" task, and now there are {rows}: the query divides its rows in another way, or is not"
                f" deterministic{_OTHERWISE}"
            )
        logger.info("%s: batch %d is committed already", attempt.transactional_id, attempt.batch)
        return Outcome(committed.rows, highest_task)


def _write(
    first: pa.Table, rest: Iterator[pa.Table], options: WriteOptions, attempt: Attempt, transaction: Transaction
) -> int:
    assert options.once is not None
    with closing(Sender(options.client, options.producer, transaction)) as sender:
        try:
            sender.find([options.once.topic])
            task = TaskRows(options, sender)
            task.write(first)
            rows = len(first)
            for table in rest:
                task.write(table)
                rows += len(table)
            key, value = attempt.transactional_id.encode(), encode_mark(attempt.mark(rows))
            record = memoryview(encode_record(0, 0, key, value, ()))
            sender.send([Batch(options.once.topic, Body(PARTITION, record, 1), time.time_ns() // 1_000_000)])
            sender.commit()
        except BaseException:
            if not (transaction.is_old and sender.has_requests_in_flight):
                transaction.abort()
            raise
        return rows


# The driver -------------------------------------------------------------------------------------------------------


def check_tasks(name: str, task_count: int, highest_task: int) -> None:
    """Raise WriteFailed if tasks have committed rows of the batch that it does not have any more."""
    if highest_task >= task_count:
        raise WriteFailed(
            f"exactlyOnceName {name}: an earlier attempt of the batch has committed rows of task {highest_task}, and"
            f" now it has tasks 0 to {task_count - 1}: the query divides its rows in another way{_OTHERWISE}"
        )


def end_left_open(options: WriteOptions, tasks: Sequence[int]) -> None:
    """Abort the transactions that these tasks may have left open. The first broker that does not answer ends it."""
    once = options.once
    if once is None or not tasks:
        return
    patience = Patience(options.client.request_timeout_ms, options.client.retry_backoff_ms)
    with closing(Cluster(options.client, persistent=False)) as cluster:
        for task in tasks:
            try:
                Transaction(cluster, f"{once.name}-{task}", once.timeout_ms, patience).begin()
            except (BrokerUnavailable, ProtocolFailure, WriteFailed, OSError) as problem:
                logger.warning("open transactions of %s are left to their time-out: %s", once.name, problem)
                return
