"""`ottla consume --group` commits what it has written, and nothing that it has not."""

from __future__ import annotations

import pytest
from kit.fake_broker import FakeCluster
from kit.fake_group import FakeGroup

from ottla.cli.consume_reading import Reading, Start
from ottla.cli.progress import Progress
from ottla.cli.record_lines import json_line
from ottla.cli.waiting import Waiting
from ottla.client import ConsumerRecord
from ottla.protocol.records.batch import Record, encode_batch

IN_GROUP = {"group_id": "g", "auto_offset_reset": "earliest"}


class Pipe(Reading):
    """One run of the command, whose reader goes away before the second write."""

    def __init__(self) -> None:
        progress = Progress("received", is_shown=False)
        start = Start(from_beginning=True, offset=None, timestamp=None)
        super().__init__("t", (), start, IN_GROUP, None, False, json_line, progress, Waiting("t"))
        self.written: list[tuple[int, int]] = []

    def _write(self, records: list[ConsumerRecord]) -> None:
        if self.written:
            raise BrokenPipeError
        self.written += [(one.partition, one.offset) for one in records]


async def test_what_could_not_be_written_is_not_committed() -> None:
    async with FakeCluster() as cluster:
        group = FakeGroup(cluster)
        for partition in cluster.add_topic("t", 0, 0):
            partition.batches.append(bytes(encode_batch([Record(n, n, None, b"%d" % n) for n in range(10)])))
            partition.end = 10
        run = Pipe()
        with pytest.raises(BrokenPipeError):
            await run.run_in_group(cluster.bootstrap)
    written = {partition for partition, _ in run.written}
    assert len(run.written) == 10
    assert {partition: offset for (_, partition), (offset, _, _) in group.committed.items()} == {
        partition: 10 if partition in written else 0 for partition in (0, 1)
    }
