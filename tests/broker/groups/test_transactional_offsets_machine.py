"""Committed offsets of one group under several producers, plain commits, deletions, compaction and restarts.

The model is what Kafka's coordinator keeps: each record's place in the log, and of two offsets of a partition the one
whose record is newer. After each step every partition is read, as it counts and as stable.
"""

from __future__ import annotations

from functools import partial
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from kit.cleaning import clean
from kit.examples import examples
from kit.group_requests import (
    FETCH_VERSION,
    begin,
    commit,
    delete_group,
    delete_offsets,
    fetch_request,
    make_topic,
    settled,
)
from kit.nodes import ask, partition_of, start_node
from kit.transactional_offsets import UNSTABLE, begin_in_transaction, commit_in_transaction, end
from kit.transactional_offsets import transactional_request as request_of

from ottla.protocol.api.delete_topics import DeleteTopicsRequest
from ottla.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.protocol.errors import ErrorCode
from ottla.storage.formats.layout import OFFSETS_TOPIC

PARTITIONS = 1
TOPICS = ("t", "u")
PLACES = [(topic, index) for topic in TOPICS for index in range(PARTITIONS)]
PRODUCERS = (1, 2)
producers = st.sampled_from(PRODUCERS)
places = st.sampled_from(PLACES)

Place = tuple[str, int]
Offset = tuple[int, int]
"""An offset, and the place of its record in the log."""


class OffsetsLife(RuleBasedStateMachine):
    """One node, restarted at will."""

    def __init__(self) -> None:
        super().__init__()
        self.node, self.files, self.clock = start_node(ottla_acks_all="sync")
        for topic in TOPICS:
            make_topic(self.node, topic, PARTITIONS)
        commit(self.node, "other", {0: 1})
        self.next_record = 0
        self.counting: dict[Place, Offset] = {}
        self.pending: dict[int, dict[Place, Offset]] = {}
        self.epochs = dict.fromkeys(PRODUCERS, 0)

    def record(self, offset: int) -> Offset:
        self.next_record += 1
        return offset, self.next_record

    def forget(self, place: Place) -> None:
        self.counting.pop(place, None)
        for written in self.pending.values():
            written.pop(place, None)

    @rule(place=places, offset=st.integers(0, 9))
    def plain(self, place: Place, offset: int) -> None:
        topic, index = place
        assert commit(self.node, "g", {index: offset}, topic=topic) == ErrorCode.NONE
        self.counting[place] = self.record(offset)

    @rule(producer=producers, place=places, offset=st.integers(10, 19))
    def in_transaction(self, producer: int, place: Place, offset: int) -> None:
        (topic, index), epoch = place, self.epochs[producer]
        code = commit_in_transaction(self.node, "g", {index: offset}, producer=producer, epoch=epoch, topic=topic)
        assert code == ErrorCode.NONE
        self.pending.setdefault(producer, {})[place] = self.record(offset)

    @rule(producer=producers)
    def of_a_fenced_producer(self, producer: int) -> None:
        request = request_of("g", {0: 99}, producer=producer, epoch=self.epochs[producer] - 1)
        pending = begin_in_transaction(self.node, request)
        self.node.settle()
        if self.epochs[producer]:
            assert getattr(pending.error, "code", None) is ErrorCode.INVALID_PRODUCER_EPOCH

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), commits=st.sampled_from([True, True, False]), bumps=st.booleans())
    def ends(self, data: st.DataObject, commits: bool, bumps: bool) -> None:
        producer = data.draw(st.sampled_from(sorted(self.pending)))
        self.epochs[producer] += bumps
        assert end(self.node, producer, commits=commits, epoch=self.epochs[producer]) is None
        for place, offset in self.pending.pop(producer, {}).items():
            if commits and offset[1] > self.counting.get(place, (0, 0))[1]:
                self.counting[place] = offset

    @precondition(lambda self: self.counting or any(self.pending.values()))
    @rule(place=places, what=st.sampled_from(["offset", "group", "topic"]))
    def deletes(self, place: Place, what: str) -> None:
        topic, index = place
        if what == "topic":
            ask(self.node, DeleteTopicsRequest(topic_names=[topic], timeout_ms=1_000), 5)
            self.node.settle()
            make_topic(self.node, topic, PARTITIONS)
        elif what == "offset":
            delete_offsets(self.node, "g", [index], topic=topic)
        else:
            assert delete_group(self.node, "g") == ErrorCode.NONE
        for gone in PLACES:
            if what == "group" or gone == place:
                self.forget(gone)

    @rule()
    def compacts(self) -> None:
        log = partition_of(self.node, OFFSETS_TOPIC).log
        log.roll(self.clock.wall_ms())
        self.node.settle()
        checkpoints = self.node.services.log_manager.checkpoints
        # As the broker's cleaner does: what the redo log holds of a log counts from its recovery point on disk on.
        cover = partial(checkpoints.cover, log.topic, log.partition)
        clean(log, now_ms=self.clock.wall_ms(), cover=cover)

    @rule(is_cut=st.booleans(), seed=st.integers(0, 99))
    def restarts(self, is_cut: bool, seed: int) -> None:
        if is_cut:
            self.files = self.files.crash(Random(seed))
        else:
            self.node.stop()
        self.node, _, _ = start_node(self.files, self.clock, ottla_acks_all="sync")
        self.node.settle()

    @invariant()
    def every_partition_is_as_in_the_model(self) -> None:
        counting = {place: self.counting.get(place, (-1, 0))[0] for place in PLACES}
        is_open = {place: any(place in written for written in self.pending.values()) for place in PLACES}
        assert self.read(must_be_stable=False) == counting
        assert self.read(must_be_stable=True) == {
            place: UNSTABLE if is_open[place] else counting[place] for place in PLACES
        }

    def read(self, *, must_be_stable: bool) -> dict[Place, int | str]:
        request = fetch_request("g", [])
        topics = OffsetFetchRequest.OffsetFetchRequestTopics
        request.groups[0].topics = [topics(name=name, partition_indexes=list(range(PARTITIONS))) for name in TOPICS]
        request.require_stable = must_be_stable
        (group,) = settled(self.node, begin(self.node, request, FETCH_VERSION), OffsetFetchResponse).groups
        assert group.error_code == ErrorCode.NONE
        return {
            (topic.name, each.partition_index): UNSTABLE if each.error_code else each.committed_offset
            for topic in group.topics
            for each in topic.partitions
        }


TestOffsetsLife = OffsetsLife.TestCase
TestOffsetsLife.settings = settings(max_examples=examples(120), stateful_step_count=30)
