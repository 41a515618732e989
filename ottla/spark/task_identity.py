"""The write that a task belongs to, by what Spark passes to it: the query, its batch and run, the task's number.

Spark's micro-batches set local properties on the thread that runs a batch, and their tasks get them, also those of a
write in a function of `foreachBatch`. They are not documented (`tests/spark/test_exactly_once.py` guards them). A batch
query has none: each call of `save()` is a write of its own.
"""

from __future__ import annotations

from pyspark import TaskContext

from ottla.spark.errors import WriteFailed
from ottla.spark.progress import Attempt

_QUERY, _BATCH, _RUN = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"


def attempt_of_task(name: str, write: str, *, is_stream: bool) -> Attempt:
    """Return the attempt that this task is, for the sink of this name. `write` is the id of the call."""
    context = TaskContext.get()
    if context is None:
        raise WriteFailed("exactlyOnceName needs a task of Spark to know which rows these are")
    task = context.partitionId()
    query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    if query is not None and batch is not None:
        run = context.getLocalProperty(_RUN) or ""
        return Attempt(name, query, int(batch), task, run, write, is_alone=is_stream)
    if is_stream:
        raise WriteFailed("exactlyOnceName: this version of Spark does not pass the id of the batch to its tasks")
    return Attempt(name, write, 0, task, "", write, is_alone=True)
