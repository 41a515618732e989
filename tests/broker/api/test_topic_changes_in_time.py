"""A topic of so many partitions that its client would give up: the answer comes at half of its `timeout_ms`."""

from __future__ import annotations

import pytest
from kit.clock import ManualClock
from kit.group_requests import begin
from kit.nodes import ask_for, start_node_with
from kit.topics import codes, create
from kit.workers import HeldSteps

from ottla.broker.catalog.answer_in_time import AnswerInTime
from ottla.broker.catalog.catalog import NewTopic, TopicResult
from ottla.broker.node import Node
from ottla.broker.runtime.pending import Pending
from ottla.broker.runtime.timers import Timers
from ottla.protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from ottla.protocol.api.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.api.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.errors import ErrorCode

TIMEOUT_MS = 30_000


class _Slow:
    """A node in which each partition takes a second."""

    def __init__(self) -> None:
        self.steps = HeldSteps()
        self.node: Node
        self.clock: ManualClock
        self.node, _, self.clock = start_node_with(None, self.steps)

    def pass_seconds(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance(1_000)
            self.node.run_due()
            if self.steps:
                self.steps.popleft()()
            self.node.settle()

    def begin_creation(self, partitions: int, *, timeout_ms: int = TIMEOUT_MS) -> Pending[object]:
        topic = CreateTopicsRequest.CreatableTopic(
            name="large", num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
        )
        pending = begin(self.node, CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms), 7)
        self.node.settle()
        return pending

    def leaders(self) -> list[int]:
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="large")])
        (topic,) = ask_for(MetadataResponse, self.node, request, 12).topics
        return [partition.leader_id for partition in topic.partitions]


def created(pending: Pending[object]) -> CreateTopicsResponse.CreatableTopicResult:
    assert isinstance(pending.response, CreateTopicsResponse)
    (result,) = pending.response.topics
    return result


def test_a_creation_that_takes_long_is_answered_at_half_of_its_timeout_and_continues() -> None:
    slow = _Slow()
    pending = slow.begin_creation(40)
    slow.pass_seconds(14)
    assert not pending.done
    slow.pass_seconds(1)
    assert pending.done, "15 of 30 seconds"
    result = created(pending)
    assert (result.error_code, result.num_partitions, result.topic_id != 0) == (ErrorCode.NONE, 40, True)
    assert -1 in slow.leaders(), "the others have no leader yet, so clients wait for one"
    slow.pass_seconds(40)
    assert slow.leaders() == [slow.node.services.catalog.node_id] * 40


def test_a_creation_that_is_ready_before_is_answered_when_it_is_ready_and_once() -> None:
    slow = _Slow()
    pending = slow.begin_creation(5)
    slow.pass_seconds(6)
    assert pending.done
    assert -1 not in slow.leaders()
    slow.pass_seconds(60)


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_without_a_timeout_a_creation_is_answered_when_it_is_ready(timeout_ms: int) -> None:
    slow = _Slow()
    pending = slow.begin_creation(40, timeout_ms=timeout_ms)
    slow.pass_seconds(39)
    assert not pending.done
    slow.pass_seconds(2)
    assert pending.done


def test_a_creation_that_waits_for_the_name_is_not_answered_before_it_is_on_disk() -> None:
    """It waits for the former topic of its name. Until its records are synced nothing can be said of it."""
    slow = _Slow()
    slow.steps.holds = False
    create(slow.node, NewTopic("large", partitions=20))
    slow.steps.holds = True
    deletion = begin(slow.node, DeleteTopicsRequest(topic_names=["large"], timeout_ms=TIMEOUT_MS), 5)
    slow.node.settle()
    pending = slow.begin_creation(40)
    slow.pass_seconds(16)
    assert deletion.done
    assert not pending.done
    slow.pass_seconds(10)
    assert pending.done
    assert len(slow.leaders()) == 40
    assert -1 in slow.leaders()


def test_a_request_whose_client_has_gone_keeps_no_timer() -> None:
    slow = _Slow()
    timers = len(slow.node.services.timers)
    slow.begin_creation(40).cancel()
    assert len(slow.node.services.timers) == timers


@pytest.mark.parametrize(("gone_ms", "waited_ms"), [(10_000, 5_000), (20_000, 0), (-1_000, 15_000)])
def test_the_chunks_of_a_request_share_its_time(gone_ms: int, waited_ms: int) -> None:
    timers, clock = Timers(), ManualClock()
    answers: list[list[TopicResult]] = []
    began_ms = clock.wall_ms() - gone_ms
    timed = AnswerInTime(timers, clock, began_ms=began_ms, timeout_ms=TIMEOUT_MS, answer=answers.append)
    assert timers.next_deadline_ms() == clock.monotonic_ms() + waited_ms
    clock.advance(waited_ms)
    timers.run_due(clock.monotonic_ms())
    assert not answers, "its records may not be on disk"
    timed.recorded([TopicResult("large")])
    timed.finished([TopicResult("large").as_unusable()])
    assert answers == [[TopicResult("large")]]


def test_growth_and_deletion_that_take_long_are_answered_at_half_of_their_timeout() -> None:
    slow = _Slow()
    slow.steps.holds = False
    create(slow.node, NewTopic("large", partitions=1))
    slow.steps.holds = True
    wanted = CreatePartitionsRequest.CreatePartitionsTopic(name="large", count=41, assignments=None)
    growth = begin(slow.node, CreatePartitionsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS, validate_only=False), 3)
    slow.node.settle()
    slow.pass_seconds(15)
    assert isinstance(growth.response, CreatePartitionsResponse)
    assert growth.response.results[0].error_code == ErrorCode.NONE
    assert -1 in slow.leaders()
    slow.pass_seconds(40)
    assert -1 not in slow.leaders()

    deletion = begin(slow.node, DeleteTopicsRequest(topic_names=["large"], timeout_ms=TIMEOUT_MS), 5)
    slow.node.settle()
    slow.pass_seconds(15)
    assert isinstance(deletion.response, DeleteTopicsResponse)
    assert deletion.response.responses[0].error_code == ErrorCode.NONE
    assert not slow.node.services.catalog.topics
    slow.steps.holds = False
    slow.pass_seconds(1)
    assert codes(create(slow.node, NewTopic("large"))) == [ErrorCode.NONE]
