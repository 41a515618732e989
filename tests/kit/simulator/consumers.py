"""Simulated members of a group of the consumer protocol (KIP-848): no partition has two owners, whatever crashes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING
from uuid import UUID

from kit.simulator.admin import NAMES
from kit.simulator.members import SESSION_TIMEOUT_MS
from kit.simulator.model import Violation

from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Response

if TYPE_CHECKING:
    from kit.simulator.clients import Line

HEARTBEAT_VERSION = 1
JOINS, LEAVES = 0, -1
LEAVING = 0.04
"""How often a heartbeat is a good-bye."""


class ConsumerMember:
    """A member that owns what it was last assigned, names that in each heartbeat, and leaves from time to time."""

    def __init__(self, group: str, others: list[ConsumerMember], chance: random.Random) -> None:
        self._group = group
        self._others = others
        self._chance = chance
        self._member_id = ""
        self._epoch = JOINS
        self._assigned: set[tuple[UUID, int]] = set()
        self._owned: set[tuple[UUID, int]] = set()
        """What it reads: also what was taken from it, until it says that it gave it up."""
        self._life = 0
        self._is_waiting = False
        self._has_lost_an_answer = False
        """The broker may be ahead of what this member knows, and may fence it for that."""
        self._is_fenced = False
        self._may_be_unknown = False
        """Whether a power cut may have taken from the group that it is a member."""
        others.append(self)

    def reconnect(self) -> None:
        """The broker has restarted: an answer of before will never come."""
        self._life += 1
        self._has_lost_an_answer |= self._is_waiting
        self._is_waiting = False

    def note_power_cut(self) -> None:
        """The group may be what it was before, where it does not sync: what this one owns is for others, too."""
        self._owned = set()
        self._has_lost_an_answer = self._may_be_unknown = True

    def act(self, line: Line, chance: random.Random) -> None:
        """Join, tell that it lives and what it owns, or leave; one at a time."""
        if self._is_waiting:
            return
        self._is_waiting = True
        self._owned &= self._assigned
        life, epoch = self._life, self._epoch
        if epoch == JOINS and not self._member_id:
            self._member_id = str(UUID(int=chance.getrandbits(128)))
        elif self._is_fenced or (epoch != JOINS and chance.random() < LEAVING):
            epoch = LEAVES
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group, member_id=self._member_id, member_epoch=epoch, topic_partitions=self._told()
        )
        if epoch == JOINS:
            request.rebalance_timeout_ms = SESSION_TIMEOUT_MS
            request.subscribed_topic_names = NAMES

        def answered(response: Response) -> None:
            assert isinstance(response, ConsumerGroupHeartbeatResponse)
            if life == self._life:
                self._is_waiting = False
                self._answered(response, epoch)

        line.send(request, HEARTBEAT_VERSION, answered)
        if epoch == LEAVES:  # whatever becomes of it: it owns nothing any more, and comes back as somebody else
            self._forget()
            self._member_id = ""

    def _told(self) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
        by_topic: dict[UUID, list[int]] = {}
        for topic, partition in sorted(self._owned):
            by_topic.setdefault(topic, []).append(partition)
        return [
            ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic, partitions=partitions)
            for topic, partitions in by_topic.items()
        ]

    def _answered(self, response: ConsumerGroupHeartbeatResponse, epoch: int) -> None:
        if epoch == LEAVES:
            return
        code = response.error_code
        if code == ErrorCode.NONE:
            self._has_lost_an_answer = self._may_be_unknown = False
            if response.member_epoch < epoch:
                raise Violation(f"group {self._group}: epoch {epoch} of a member went back to {response.member_epoch}")
            self._epoch = response.member_epoch
            if response.assignment is not None:
                self._take({(t.topic_id, p) for t in response.assignment.topic_partitions for p in t.partitions})
        elif code == ErrorCode.UNKNOWN_MEMBER_ID:
            if epoch != JOINS:
                if not self._may_be_unknown:
                    raise Violation(f"group {self._group} has forgotten a member that it had taken in, epoch {epoch}")
                self._forget()
        elif code == ErrorCode.FENCED_MEMBER_EPOCH:
            if not self._has_lost_an_answer:
                raise Violation(f"group {self._group} fences a member for epoch {epoch}, the last that it received")
            self._forget()
            self._is_fenced = True
        else:  # what it asked for may be done all the same
            self._has_lost_an_answer = True

    def _take(self, assigned: set[tuple[UUID, int]]) -> None:
        self._assigned = assigned
        for other in self._others:
            if other is not self and (both := assigned & other._owned):
                raise Violation(f"group {self._group}: {sorted(both)} was given to a second member")
        self._owned |= assigned

    def _forget(self) -> None:
        self._epoch, self._assigned, self._owned = JOINS, set(), set()
        self._has_lost_an_answer = self._is_fenced = self._may_be_unknown = False
