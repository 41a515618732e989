"""A reading task: fetch an offset range and decode it, batch by batch, into Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.arrow.decoder import RecordDecoder
from ottla.protocol.records.errors import CorruptBatch
from ottla.spark.errors import reported_in_one_line
from ottla.spark.fetcher import RangeFetcher

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from ottla.spark.options import ReadOptions
    from ottla.spark.planner import OffsetRange


def read_range(wanted: OffsetRange, options: ReadOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the records of `wanted` in offset order, the columns of `schema`.

    Raises CorruptBatch, DataLoss, BrokerUnavailable or ProtocolFailure, each naming the topic-partition.
    """
    fetcher = RangeFetcher(wanted, options.client, fail_on_data_loss=options.fail_on_data_loss)
    decoder = RecordDecoder(schema, wanted.topic, wanted.partition, check_crcs=options.client.check_crcs)
    position = wanted.start
    try:
        with reported_in_one_line():
            for fetched in fetcher.fetch():
                position = fetched.first_offset
                yield from decoder.decode(fetched.found, fetched.first_offset, wanted.end, fetched.aborted)
                position = fetched.found.next_offset
    except CorruptBatch as broken:
        raise CorruptBatch(f"{wanted.topic}-{wanted.partition}, at offset {position} or after: {broken}") from None
