"""`kill -9` of the real process in the middle of commits: what was acknowledged is there, and no offset goes back.

Several clients commit growing offsets one after another; the last one that was acknowledged to each must be there after
the restart, or the one that was under way when the broker died. Raw frames: a client library would wait and retry.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

from kit.broker import BrokerProcess
from kit.wire import Wire

from ottla.protocol.api.create_topics import CreateTopicsRequest
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest
from ottla.protocol.api.offset_commit import OffsetCommitRequest
from ottla.protocol.api.offset_fetch import OffsetFetchRequest
from ottla.protocol.errors import ErrorCode

WAIT_S = 60.0
PARTITIONS = 4
CLIENTS = 3
ROUNDS = 5


class Committer:
    """A client that commits 1, 2, 3, ... for all partitions of its group until the broker is gone."""

    def __init__(self, broker: BrokerProcess, group: str, first: int, *, enough: int) -> None:
        self.group = group
        self.asked = self.acknowledged = first
        self.enough = threading.Event()
        self._wanted = first + enough
        self._wire = Wire(broker.port)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while True:
                self.asked += 1
                answer = self._wire.call(commit_of(self.group, self.asked), 9)
                codes = {each.error_code for each in answer.topics[0].partitions}
                if codes == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}:
                    continue
                assert codes == {ErrorCode.NONE}
                self.acknowledged = self.asked
                if self.acknowledged >= self._wanted:
                    self.enough.set()
        except OSError:
            return  # the broker was killed

    def join(self) -> None:
        """Once the broker is gone."""
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


def commit_of(group: str, offset: int) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=""
        )
        for index in range(PARTITIONS)
    ]
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=partitions)
    return OffsetCommitRequest(group_id=group, member_id="", topics=[topic])


def prepare(broker: BrokerProcess) -> None:
    wanted = CreateTopicsRequest.CreatableTopic(
        name="t", num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[]
    )
    with Wire(broker.port) as wire:
        assert wire.call(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 7).topics[0].error_code == 0
        assert wire.call(FindCoordinatorRequest(key="g", key_type=0), 2).error_code == 0


def committed(broker: BrokerProcess, group: str) -> set[int]:
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
    with Wire(broker.port) as wire:
        answer = wire.call(OffsetFetchRequest(groups=[asked]), 9).groups[0]
        while answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:  # a broker that loads forever: the timeout
            answer = wire.call(OffsetFetchRequest(groups=[asked]), 9).groups[0]
    assert answer.error_code == ErrorCode.NONE
    return {each.committed_offset for topic in answer.topics for each in topic.partitions}


def test_no_acknowledged_commit_is_lost_or_goes_back_by_kill_minus_nine(tmp_path: Path) -> None:
    chance = random.Random(4)
    settings = {"offsets.topic.num.partitions": "2", "offsets.topic.segment.bytes": "20000"}  # kills fall beside rolls
    broker = BrokerProcess(tmp_path / "data", settings)
    newest = {f"group-{number}": 0 for number in range(CLIENTS)}
    for number in range(ROUNDS):
        broker.start()
        if number == 0:
            prepare(broker)
        wanted = chance.randrange(30, 200)
        committers = [Committer(broker, group, first, enough=wanted) for group, first in newest.items()]
        assert all(each.enough.wait(WAIT_S) for each in committers), "the broker acknowledged too little"
        broker.kill()
        for each in committers:
            each.join()
        with broker:
            for each in committers:
                (kept,) = committed(broker, each.group)  # one batch: all partitions or none
                assert each.acknowledged <= kept <= each.asked
                newest[each.group] = each.asked
