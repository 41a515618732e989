"""A simulated client that knows the leader epochs of its partitions, as those of the Java client do (KIP-320): it asks
where an epoch ended, and says in its requests which epoch it takes for that of the leader.

An epoch that is older than the broker's is fenced, one that is newer is unknown, on the way of the first request and on
that of the templates which the same request is answered from when it comes again. What the end of an epoch may be is
in `epoch_ends.py`. Within a life of the broker a partition has one leader epoch, of which each answer speaks.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kit.simulator.epoch_audit import EPOCH_VERSION, epoch_request
from kit.simulator.epoch_ends import NO_EPOCH, require_code, require_end
from kit.simulator.look_up_audit import LATEST, LOOK_UP_VERSION, look_up_request
from kit.simulator.model import Model, Violation
from kit.simulator.readers import FETCH_VERSION, answer_of, fetch_request

from ottla.protocol.api.list_offsets import ListOffsetsResponse
from ottla.protocol.api.offset_for_leader_epoch import OffsetForLeaderEpochResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Response

if TYPE_CHECKING:
    from kit.simulator.clients import Line
    from kit.simulator.topic_model import TopicModel

WORLDS: Final = 0.2
"""How many worlds have one."""
MOST_FETCHES: Final = 6
"""Of the same kind, one after the other."""
OTHER_EPOCH: Final = 0.3
"""How many requests name another epoch than the leader's."""

Where = tuple["TopicModel", int]


class EpochClient:
    """See the module. `line`, `settle` and `end_turn` are given anew for each life of the broker."""

    def __init__(self, seed: int, model: Model) -> None:
        self._chance = random.Random(f"the leader epochs of {seed}")
        self._model = model
        self._epochs: dict[tuple[UUID, int], int] = {}
        """The leader epochs of this life, as far as they are known."""
        self.line: Line
        self.settle: Callable[[], None]
        self.end_turn: Callable[[], None]

    def operations(self) -> list[tuple[float, Callable[[], None]]]:
        """What may happen, and how often."""
        return [(6, self._ask_for_end), (4, self._look_up), (4, self._fetch)]

    def reconnect(self) -> None:
        """The broker has restarted."""
        self._epochs.clear()

    def _place(self) -> Where | None:
        names = sorted(self._model.topics.keys() - self._model.deleting)
        if not names:
            return None
        topic = self._model.topics[self._chance.choice(names)]
        index = self._chance.randrange(len(topic.partitions))
        known = topic.partitions[index]
        if known.was_audited:
            self._epochs.setdefault((topic.id, index), known.leader_epoch)
        return topic, index

    def _is_there(self, topic: TopicModel) -> bool:
        """Whether an answer is of this topic, and not of another of its name."""
        return self._model.topics.get(topic.name) is topic and topic.name not in self._model.deleting

    def _claim(self, where: Where) -> int:
        """The epoch that a request names as that of the leader."""
        leader_epoch = self._epochs.get((where[0].id, where[1]))
        if leader_epoch is None:
            return NO_EPOCH
        if self._chance.random() < OTHER_EPOCH:
            return max(NO_EPOCH, leader_epoch + self._chance.choice((-1, -1, 1, 2)))
        return self._chance.choice((NO_EPOCH, leader_epoch, leader_epoch))

    def _require_code(self, where: Where, claimed: int, code: int) -> bool:
        """Whether the answer to a request is one: see `require_code`."""
        topic, index = where
        leader_epoch = self._epochs.get((topic.id, index))
        if leader_epoch is None:
            return code == ErrorCode.NONE
        if code not in (ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH):
            return False  # it is being deleted, its disk has failed, or the offset is deleted
        return require_code(f"{topic.name}-{index}", claimed, leader_epoch, code)

    def _ask_for_end(self) -> None:
        where = self._place()
        if where is None:
            return
        topic, index = where
        claimed, newest = self._claim(where), self._epochs.get((topic.id, index), 0)
        epoch = self._chance.choice((NO_EPOCH, newest, newest, newest + 1, *range(newest)))
        known = topic.partitions[index]
        least_end = max(known.promised_end, known.shown_end)

        def answered(response: Response) -> None:
            assert isinstance(response, OffsetForLeaderEpochResponse)
            answer = response.topics[0].partitions[0]
            leader_epoch = self._epochs.get((topic.id, index))
            if not self._is_there(topic) or leader_epoch is None:
                return
            if not self._require_code(where, claimed, answer.error_code):
                return
            found = answer.leader_epoch, answer.end_offset
            require_end(
                f"{topic.name}-{index}",
                known,
                epoch,
                leader_epoch,
                found,
                least_end=least_end,
                may_move=lambda _, last: topic.expires or topic.is_compacted or last <= known.latest_start,
            )
            if epoch == leader_epoch:
                self._note_end(where, answer.end_offset)

        self.line.send(
            epoch_request({(topic.name, index): epoch}, {(topic.name, index): claimed}), EPOCH_VERSION, answered
        )

    @staticmethod
    def _note_end(where: Where, end: int) -> None:
        """The high watermark was not before `end`."""
        topic, index = where
        known = topic.partitions[index]
        if topic.syncs:
            known.promised_end = max(known.promised_end, end)
        known.shown_end = max(known.shown_end, end)

    def _look_up(self) -> None:
        """Ask for the latest offset, whose answer names the leader epoch."""
        where = self._place()
        if where is None:
            return
        topic, index = where
        claimed = self._claim(where)

        def answered(response: Response) -> None:
            assert isinstance(response, ListOffsetsResponse)
            answer = response.topics[0].partitions[0]
            if not self._is_there(topic) or not self._require_code(where, claimed, answer.error_code):
                return
            leader_epoch = self._epochs.setdefault((topic.id, index), answer.leader_epoch)
            if answer.leader_epoch != leader_epoch:
                raise Violation(
                    f"{topic.name}-{index}: the leader epoch is {answer.leader_epoch}, and was {leader_epoch} before"
                )

        request = look_up_request({(topic.name, index): LATEST}, leader_epochs={(topic.name, index): claimed})
        self.line.send(request, LOOK_UP_VERSION, answered)

    def _fetch(self) -> None:
        """Fetch several times, mostly by one epoch: from the second or third time on a template answers."""
        where = self._place()
        if where is None:
            return
        claimed = self._claim(where)
        for number in range(self._chance.randint(1, MOST_FETCHES)):
            if self.line.waiting or self.line.is_held or not self._is_there(where[0]):
                return
            self._fetch_once(where, self._claim(where) if number and self._chance.random() < OTHER_EPOCH else claimed)
            self._await()

    def _await(self) -> None:
        """Until it is answered."""
        self.line.take()
        if self.line.waiting:
            self.end_turn()
            self.line.take()
        if self.line.waiting:
            self.settle()

    def _fetch_once(self, where: Where, claimed: int) -> None:
        topic, index = where

        def answered(response: Response) -> None:
            answer = answer_of(response)
            if answer is not None and self._is_there(topic):
                self._require_code(where, claimed, answer.error_code)

        request = fetch_request({(topic.name, index): topic.partitions[index].start})
        request.topics[0].partitions[0].current_leader_epoch = claimed
        self.line.send(request, FETCH_VERSION, answered)
