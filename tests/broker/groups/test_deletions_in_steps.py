"""The offsets of deleted topics are forgotten some groups at a time, and no new topic gets into the middle of it."""

from __future__ import annotations

import errno

import pytest
from kit.group_requests import COMMIT_VERSION, begin, code_of, commit, commit_request, committed, make_topic
from kit.nodes import pass_time, start_node_with
from kit.workers import HeldSteps

from ottla.broker.catalog.catalog import NewTopic, TopicResult
from ottla.broker.coordination.shard_map import RELOAD_INTERVAL_MS
from ottla.broker.groups import offset_shard
from ottla.broker.groups.offset_shard import FORGOTTEN_PER_STEP, KEYS_PER_GROUP
from ottla.protocol.api.delete_topics import DeleteTopicsRequest
from ottla.protocol.errors import ErrorCode
from ottla.storage.formats.layout import OFFSETS_TOPIC

MANY = 2 * FORGOTTEN_PER_STEP + 10
DELETION = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000)


class Life:
    """A broker whose groups have offsets of topic `t`; what is done in steps is the test's to run."""

    def __init__(self, groups: int = MANY, partitions: int = 1, **keys: object) -> None:
        self.steps = HeldSteps(holds=False)
        self.node, self.files, self.clock = start_node_with(None, self.steps, ottla_acks_all="page-cache", **keys)
        make_topic(self.node, "t", partitions)
        self.groups = [f"g{number}" for number in range(groups)]
        offsets = dict.fromkeys(range(partitions), 77)
        assert commit(self.node, "g0", offsets) == ErrorCode.NONE
        for group in self.groups:
            begin(self.node, commit_request(group, offsets), COMMIT_VERSION)
        self.node.settle()
        assert self.count == groups * partitions
        self.steps.holds = True

    @property
    def count(self) -> int:
        """How many offsets are committed."""
        return self.node.services.groups.get().offset_count

    def step(self) -> None:
        self.steps.popleft()()
        self.node.settle()

    def finish(self) -> None:
        while self.steps:
            self.step()

    def make_again(self) -> list[TopicResult]:
        """Ask for a topic of the same name; the results, once there are any."""
        results: list[TopicResult] = []
        self.node.services.catalog.create_topics([NewTopic("t", 1)], results.extend)
        self.node.settle()
        return results


@pytest.fixture
def life() -> Life:
    return Life()


def test_some_groups_forget_in_each_step_and_the_deletion_is_answered_when_all_have(life: Life) -> None:
    deletion = begin(life.node, DELETION, 5)
    life.node.settle()
    counts = [life.count]
    while not deletion.done:
        life.step()
        counts.append(life.count)
    assert counts[-1] == 0
    forgotten = [before - after for before, after in zip([MANY, *counts], counts, strict=False)]
    assert max(forgotten) <= FORGOTTEN_PER_STEP + 1
    assert sum(map(bool, forgotten)) == 3


def test_a_group_with_many_partitions_counts_for_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_shard, "FORGOTTEN_PER_STEP", 4)
    partitions = 2 * KEYS_PER_GROUP
    life = Life(groups=4, partitions=partitions)
    begin(life.node, DELETION, 5)
    life.node.settle()
    assert life.count == partitions, "three groups count for nine"
    life.finish()
    assert life.count == 0


def test_no_topic_of_the_name_is_served_before_all_have_forgotten(life: Life) -> None:
    begin(life.node, DELETION, 5)
    life.node.settle()
    results = life.make_again()
    while life.count:
        assert not results
        assert commit(life.node, "g1", {0: 5}) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        life.step()
    life.finish()
    life.node.settle()
    assert [result.error_code for result in results] == [ErrorCode.NONE]
    assert committed(life.node, "g1") == -1
    assert commit(life.node, "g1", {0: 5}) == ErrorCode.NONE
    life.finish()
    assert committed(life.node, "g1") == 5


def test_groups_that_are_unloaded_in_the_middle_have_forgotten_when_they_are_loaded_again() -> None:
    life = Life(log_dirs="/data,/other")
    deletion = begin(life.node, DELETION, 5)
    life.node.settle()
    assert 0 < life.count < MANY
    directory = life.node.services.log_manager.directory_of(OFFSETS_TOPIC, 0)
    assert directory is not None
    full = life.files.fail("pwritev", f"{directory.path}/{OFFSETS_TOPIC}*", error=errno.ENOSPC, times=None)
    refused = begin(life.node, commit_request("other", {0: 5}, topic="u"), COMMIT_VERSION)
    while not deletion.done:
        life.step()
    assert not life.node.services.groups.get().shards.active(), code_of(refused)
    life.steps.holds = False
    results = life.make_again()
    assert [result.error_code for result in results] == [ErrorCode.NONE]
    life.files.heal(full)
    pass_time(life.node, life.clock, 30 * RELOAD_INTERVAL_MS)
    assert life.node.services.groups.get().shards.active()
    assert life.count == 0
    assert commit(life.node, "g1", {0: 5}) == ErrorCode.NONE
