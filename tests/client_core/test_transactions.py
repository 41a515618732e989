"""A transactional producer's state against a model of its coordinator: whatever is lost, refused or repeated, a
transaction that committed is there whole and once, and of one that did not there is nothing.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples
from kit.transactional_producer import PLACES, started

from ottla.client_core.transaction_questions import Offsets
from ottla.client_core.transactions import Phase
from ottla.protocol.errors import ErrorCode

PASSING = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
REFUSED = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.MESSAGE_TOO_LARGE]
FAULTS = st.sampled_from(["", "", "", "unseen", "unanswered"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(PLACES), st.integers(1, 3)),
        st.tuples(st.just("offsets")),
        st.tuples(st.just("commit")),
        st.tuples(st.just("abort")),
        st.tuples(st.just("send")),
        st.tuples(st.just("deliver"), FAULTS),
        st.tuples(st.just("refuse batch"), st.sampled_from(REFUSED)),
        st.tuples(st.just("ask"), FAULTS),
        st.tuples(st.just("refuse"), st.sampled_from(PASSING)),
        st.tuples(st.just("time out")),
        st.tuples(st.just("change protocol")),
        st.tuples(st.just("pass"), st.floats(0.01, 2.0)),
    ),
    max_size=60,
)


class World:
    """A program, its producer and the model, with what is to be visible by what its calls returned."""

    def __init__(self, version, last_epoch):
        self.producer = started(version, last_epoch=last_epoch)
        self.model = self.producer.model
        self.expected = {place: [] for place in PLACES}
        self.offset = 0
        self.mine = {place: [] for place in PLACES}
        self.my_offset = None
        self.number = 0
        self.may_fail = self.may_end = False
        """A record of this transaction was refused for good; the coordinator has fenced the producer."""

    def take(self, step):
        producer, state = self.producer, self.producer.state
        match step:
            case ("put", place, count) if self.is_open():
                values = [b"%d" % (self.number + index) for index in range(count)]
                self.number += count
                self.mine[place] += values
                producer.put(place, values)
            case ("offsets",) if self.is_open():
                self.my_offset = self.number + 1
                state.send_offsets(Offsets("g", {("in", 0): (self.my_offset, "", -1)}))
            case ("commit",) if state.phase is Phase.OPEN:
                state.commit()
                self.settle(producer.finish)
            case ("abort",) if state.phase in (Phase.OPEN, Phase.FAILED):
                producer.abort()
                self.settle(producer.finish)
            case ("send",):
                producer.send()
            case ("deliver", fault):
                producer.deliver(is_seen=fault != "unseen", is_answered=fault != "unanswered")
            case ("refuse batch", code):
                self.may_fail |= code is ErrorCode.MESSAGE_TOO_LARGE
                producer.deliver(code)
            case ("ask", fault):
                producer.ask(is_seen=fault != "unseen", is_answered=fault != "unanswered")
            case ("refuse", code):
                producer.ask(code)
            case ("time out",):
                self.may_end |= self.model.state == "Ongoing"
                self.model.time_out()
            case ("change protocol",) if self.model.state != "Ongoing":
                self.model.version = 3 - self.model.version if state.phase is Phase.READY else self.model.version
            case ("pass", seconds):
                producer.now += seconds

    def is_open(self):
        if self.producer.state.phase is Phase.READY:
            self.mine = {place: [] for place in PLACES}
            self.my_offset = None
            self.may_fail = False
            self.producer.begin()
        return self.producer.state.phase is Phase.OPEN

    def settle(self, finish):
        """Let a transaction end, and expect what its call returned."""
        is_commit = self.producer.state.phase is Phase.COMMITTING
        finish()
        if is_commit and self.producer.state.phase is Phase.READY:
            for place in PLACES:
                self.expected[place] += self.mine[place]
            self.offset = self.my_offset or self.offset

    def check(self):
        phase = self.producer.state.phase
        assert phase is not Phase.ENDED or self.may_end
        assert phase is not Phase.FAILED or self.may_fail or self.may_end
        visible = {place: partition.visible for place, partition in self.model.partitions.items()}
        assert visible == self.expected
        assert self.model.committed.get(("in", 0), 0) == self.offset


@settings(max_examples=examples(400), deadline=None)
@given(st.sampled_from([1, 2]), st.sampled_from([3, 2**15 - 2]), STEPS)
def test_what_the_calls_returned_is_what_readers_see(version, last_epoch, steps):
    world = World(version, last_epoch)
    for step in steps:
        world.take(step)
        world.check()
    if world.producer.state.phase is Phase.OPEN:
        world.take(("commit",))
    elif world.producer.state.phase is Phase.FAILED:
        world.take(("abort",))
        assert world.producer.state.phase in (Phase.READY, Phase.ENDED)
    world.check()
