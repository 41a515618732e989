"""The machine loses its power in the middle of commits: what was acknowledged, and what was answered, never goes back.

The whole broker core on a simulated disk. Each seed is another life with three power cuts; requests, turns and syncs
are mixed at random, so that answers come before and after each other's syncs.
"""

from __future__ import annotations

import random

import pytest
from kit.clock import ManualClock
from kit.group_requests import (
    COMMIT_VERSION,
    FETCH_VERSION,
    begin,
    commit_request,
    committed,
    fetch_request,
    make_topic,
)
from kit.nodes import start_node
from kit.simulated_files import SimulatedFiles

from ottla.broker.runtime.pending import Pending
from ottla.broker.runtime.queued_syncer import QueuedSyncer
from ottla.protocol.api.offset_commit import OffsetCommitResponse
from ottla.protocol.api.offset_fetch import OffsetFetchResponse
from ottla.protocol.errors import ErrorCode

SEEDS = range(25)
CRASHES = 3
OPERATIONS = 60
GROUPS = ("a", "b", "c")
SETTINGS = {"offsets_topic_num_partitions": 2, "offsets_topic_segment_bytes": 2048, "ottla_acks_all": "sync"}


class Life:
    """Groups that commit growing offsets, and what their clients know."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.node, self.files, _ = start_node(SimulatedFiles(), self.clock, **SETTINGS)
        make_topic(self.node, "t", 2)
        self.node.services.groups.get().prepare("a", lambda error: None)
        self.node.settle()
        self.asked = dict.fromkeys(GROUPS, 0)
        self.known = dict.fromkeys(GROUPS, -1)
        """The largest offset that a client was answered is kept, by an answer to a commit or to a fetch."""
        self._commits: list[tuple[Pending[object], str, int]] = []
        self._fetches: list[tuple[Pending[object], str]] = []

    def step(self) -> None:
        kind = self.chance.choice(["commit", "commit", "fetch", "turn", "sync"])
        group = self.chance.choice(GROUPS)
        if kind == "commit":
            self.asked[group] += 1
            request = commit_request(group, {0: self.asked[group], 1: self.asked[group]})
            self._commits.append((begin(self.node, request, COMMIT_VERSION), group, self.asked[group]))
        elif kind == "fetch":
            self._fetches.append((begin(self.node, fetch_request(group, [0]), FETCH_VERSION), group))
        elif kind == "turn":
            self.node.services.turn.end()
        else:
            syncer = self.node.services.syncer
            assert isinstance(syncer, QueuedSyncer)
            syncer.run_one()
        self.note_answers()

    def note_answers(self) -> None:
        for pending, group, offset in self._commits:
            if pending.done:
                assert isinstance(pending.response, OffsetCommitResponse)
                assert pending.response.topics[0].partitions[0].error_code == ErrorCode.NONE
                self.known[group] = max(self.known[group], offset)
        for pending, group in self._fetches:
            if pending.done:
                assert isinstance(pending.response, OffsetFetchResponse)
                reported = pending.response.groups[0].topics[0].partitions[0].committed_offset
                self.known[group] = max(self.known[group], reported)
        self._commits = [each for each in self._commits if not each[0].done]
        self._fetches = [each for each in self._fetches if not each[0].done]

    def crash(self) -> None:
        self.node, self.files, _ = start_node(self.files.crash(self.chance), self.clock, **SETTINGS)
        self._commits, self._fetches = [], []


@pytest.mark.parametrize("seed", SEEDS)
def test_no_offset_that_a_client_knows_goes_back(seed: int) -> None:
    life = Life(seed)
    for _ in range(CRASHES):
        for _ in range(OPERATIONS):
            life.step()
        life.crash()
        for group in GROUPS:
            kept = [committed(life.node, group, index) for index in (0, 1)]
            assert kept[0] == kept[1], "a commit is kept whole or not at all"
            assert life.known[group] <= kept[0] <= life.asked[group]
            life.known[group] = kept[0]
