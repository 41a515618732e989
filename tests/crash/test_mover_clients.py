"""What a mover of the audit takes after a rebalance begins at the committed offset, whatever its client library does.

kafka-python 3.0.12 alone would begin elsewhere in both cases (`kit/audit/mover_clients.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from kit.audit.mover_clients import KafkaPythonMover, Taken
from kit.audit.moving import INPUT
from kit.fake_broker import FakeCluster
from kit.fake_group import FakeGroup
from kit.threaded_cluster import threaded

from ottla.protocol.api.heartbeat import HeartbeatRequest
from ottla.protocol.api.offset_fetch import OffsetFetchRequest
from ottla.protocol.api.sync_group import SyncGroupRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record

RECORDS = 50_000
"""More than are taken, one by one, until the next heartbeat."""
OF_ANOTHER_MEMBER = 40_000
LIMIT_S = 60


@pytest.fixture
def group() -> Iterator[FakeGroup]:
    """A coordinator, and a partition with many records."""
    cluster = FakeCluster()
    (partition,) = cluster.add_topic(INPUT)
    partition.append(memoryview(encode_batch([Record(offset, 0, None, b"1") for offset in range(RECORDS)])))
    group = FakeGroup(cluster)
    # Whatever it computes: kafka-python may lead its group before it knows the topic, and assigns nothing then.
    group.overrides = {f"member-{number}": [(INPUT, 0)] for number in range(1, 10)}
    with threaded(cluster):
        yield group


def first_of_a_later_generation(mover: KafkaPythonMover, generation: int) -> Taken:
    """What is taken first once the group is beyond a generation."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        records = mover.take(1)
        if records and mover.metadata.generation_id > generation:
            return records[0]
    raise AssertionError("nothing was taken in a later generation")


def taken(mover: KafkaPythonMover) -> Taken:
    """The next record."""
    return first_of_a_later_generation(mover, 0)


def test_one_that_was_removed_while_it_joined_begins_at_the_committed_offset(group: FakeGroup) -> None:
    with closing(KafkaPythonMover(group.cluster.bootstrap, "mover-0")) as mover:
        assert taken(mover).offset == 0
        generation = mover.metadata.generation_id
        group.committed[INPUT, 0] = OF_ANOTHER_MEMBER, "", -1
        group.refuse(SyncGroupRequest, ErrorCode.UNKNOWN_MEMBER_ID)
        group.refuse(HeartbeatRequest, ErrorCode.REBALANCE_IN_PROGRESS)
        assert first_of_a_later_generation(mover, generation).offset == OF_ANOTHER_MEMBER


def test_an_answer_to_a_question_of_before_is_not_where_it_begins(
    group: FakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer comes when the `poll` that has asked is over, and another member has committed since."""
    answer = group.cluster.handlers[OffsetFetchRequest]
    may_answer = threading.Event()
    group.committed[INPUT, 0] = 7, "", -1

    def late(request: Request, version: int) -> object:
        old = answer(request, version)
        assert may_answer.wait(LIMIT_S)
        return old

    with closing(KafkaPythonMover(group.cluster.bootstrap, "mover-0")) as mover:
        rewind = mover.rewind

        def rewind_when_another_has_committed() -> None:
            group.committed[INPUT, 0] = OF_ANOTHER_MEMBER, "", -1
            group.cluster.handlers[OffsetFetchRequest] = answer
            may_answer.set()
            rewind()

        group.cluster.handlers[OffsetFetchRequest] = late
        monkeypatch.setattr(mover, "rewind", rewind_when_another_has_committed)
        assert taken(mover).offset == OF_ANOTHER_MEMBER
