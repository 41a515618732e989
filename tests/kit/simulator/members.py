"""Simulated users of groups: programs that commit offsets without a member, and members of classic groups."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from kit.simulator.commits import CommitModel, Place
from kit.simulator.model import Model, Violation

from ottla.protocol.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.api.leave_group import LeaveGroupRequest
from ottla.protocol.api.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.api.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Response

if TYPE_CHECKING:
    from kit.simulator.clients import Line

OnStable = Callable[[Place, int], None]
"""What is done with the stable offset of a place."""

COMMIT_VERSION = 8
FETCH_VERSION = 7
JOIN_VERSIONS = (3, 3, 5)
"""Up to 3 a new member is taken in at once; later ones send it back to come again with an id."""
SYNC_VERSION = 3
HEARTBEAT_VERSION = 3
LEAVE_VERSION = 5
OFFSET_DELETE_VERSION = 0
DELETE_GROUPS_VERSION = 2
SESSION_TIMEOUT_MS = 2_000_000_000
"""So long that time passing in a simulation ends no session and no rebalance."""


class Committer:
    """Commits growing offsets for one group, and asks what is committed."""

    def __init__(self, model: Model, group: str, chance: random.Random) -> None:
        self._model = model
        self._group = group
        self._chance = chance

    def commit(self, line: Line) -> None:
        """Commit an offset above all earlier ones."""
        place = self._place()
        if place is None:
            return
        _, topic, index = place
        known = self._model.commits.setdefault(place, CommitModel())
        known.sent = offset = known.sent + self._chance.randint(1, 9)
        of_partition = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=f"at {offset}"
        )
        of_topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[of_partition])

        def answered(response: Response) -> None:
            assert isinstance(response, OffsetCommitResponse)
            if response.topics[0].partitions[0].error_code == ErrorCode.NONE:
                known.note_committed(offset)

        request = OffsetCommitRequest(group_id=self._group, member_id="", topics=[of_topic])
        line.send(request, COMMIT_VERSION, answered)

    def fetch(self, line: Line) -> None:
        """Ask for a committed offset."""
        place = self._place()
        if place is not None:
            ask_for_offsets(line, self._model, self._group, [place])

    def delete(self, line: Line) -> None:
        """Forget a committed offset, or the group with all of them."""
        if self._chance.random() < 0.3:
            self._delete_group(line)
            return
        places = [
            place for place in sorted(self._model.commits) if place[0] == self._group and place[1] in self._model.topics
        ]
        if not places:
            return
        _, topic, index = place = self._chance.choice(places)
        known = self._model.commits[place]
        asked = known.ask_to_delete()

        def answered(response: Response) -> None:
            assert isinstance(response, OffsetDeleteResponse)
            if response.error_code == ErrorCode.NONE and response.topics[0].partitions[0].error_code == ErrorCode.NONE:
                known.note_deleted(asked)

        partition = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=index)
        of_topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic, partitions=[partition])
        line.send(OffsetDeleteRequest(group_id=self._group, topics=[of_topic]), OFFSET_DELETE_VERSION, answered)

    def _delete_group(self, line: Line) -> None:
        asked = [
            (known, known.ask_to_delete())
            for (group, _, _), known in self._model.commits.items()
            if group == self._group
        ]

        def answered(response: Response) -> None:
            assert isinstance(response, DeleteGroupsResponse)
            if response.results[0].error_code == ErrorCode.NONE:
                for known, offset in asked:
                    known.note_deleted(offset)

        line.send(DeleteGroupsRequest(groups_names=[self._group]), DELETE_GROUPS_VERSION, answered)

    def _place(self) -> tuple[str, str, int] | None:
        names = sorted(self._model.topics.keys() - self._model.deleting)
        if not names:
            return None
        topic = self._model.topics[self._chance.choice(names)]
        return self._group, topic.name, self._chance.randrange(len(topic.partitions))


def ask_for_offsets(
    line: Line, model: Model, group: str, places: list[Place], *, on_stable: OnStable | None = None
) -> None:
    """OffsetFetch of places of one group; each answer is held against what was promised when it was asked.

    `on_stable`: asks for stable offsets, and is called with each place and its offset.
    """
    asked = {
        place[1:]: (place, known := model.commits.get(place), known.promised if known else None) for place in places
    }

    def answered(response: Response) -> None:
        assert isinstance(response, OffsetFetchResponse)
        if response.error_code != ErrorCode.NONE:
            return
        for topic in response.topics:
            for answer in topic.partitions:
                place, known, promised = asked[topic.name, answer.partition_index]
                if answer.error_code != ErrorCode.NONE or model.commits.get(place) is not known:
                    continue
                if answer.committed_offset >= 0 and answer.metadata != f"at {answer.committed_offset}":
                    raise Violation(f"{place}: offset {answer.committed_offset} with the metadata {answer.metadata!r}")
                if topic.name not in model.deleting:
                    model.note_fetched_offset(place, answer.committed_offset, promised)
                    if on_stable is not None:
                        on_stable(place, answer.committed_offset)

    topics = [
        OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=[index for _, _, index in of_topic])
        for name, of_topic in groupby(places, itemgetter(1))
    ]
    request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=on_stable is not None)
    line.send(request, FETCH_VERSION, answered)


def _assignment(generation: int, member_id: str) -> bytes:
    """What a leader gives a member: tells whose it is."""
    return f"{generation} {member_id}".encode()


class Member:
    """A member of a classic group: joins, takes its assignment, and is known again after a restart; may leave.

    Who leads tells everybody in the assignment whose it is, and for which generation.
    """

    def __init__(self, model: Model, group: str) -> None:
        self._model = model
        self._group = group
        self._member_id = ""
        self._generation = -1
        self._is_assigned = False
        self._is_waiting = False
        self._life = 0
        self._led: list[str] = []
        """Members of the generation that this one leads."""

    def reconnect(self) -> None:
        """The broker has restarted: answers of before will never come."""
        self._life += 1
        self._is_waiting = False

    def act(self, line: Line, chance: random.Random) -> None:
        """Join, take the assignment, or tell that it lives; one at a time."""
        if self._is_waiting:
            return
        self._is_waiting = True
        if not self._is_assigned:
            if self._generation < 0:
                self._join(line, chance.choice(JOIN_VERSIONS))
            else:
                self._sync(line)
        elif (what := chance.random()) < 0.15:
            self._join(line, chance.choice(JOIN_VERSIONS))
        elif what < 0.2:
            self._leave(line)
        else:
            self._heartbeat(line)

    def _done(self, life: int) -> bool:
        if life != self._life:
            return False
        self._is_waiting = False
        return True

    def _join(self, line: Line, version: int) -> None:
        life = self._life
        self._is_assigned = False

        def answered(response: Response) -> None:
            assert isinstance(response, JoinGroupResponse)
            if not self._done(life):
                return
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = response.member_id
            elif response.error_code == ErrorCode.NONE:
                promised = max(
                    (at for (group, _), at in self._model.generations.items() if group == self._group), default=-1
                )
                if response.generation_id < promised:
                    raise Violation(f"group {self._group} went back from {promised} to {response.generation_id}")
                self._member_id, self._generation = response.member_id, response.generation_id
                self._model.note_generation(self._group, response.generation_id)
                self._led = [member.member_id for member in response.members]
            elif response.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._forget("JoinGroup")
            else:
                self._generation = -1

        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\0\xff\xff\xff\xff")
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        line.send(request, version, answered)

    def _sync(self, line: Line) -> None:
        life, generation = self._life, self._generation

        def answered(response: Response) -> None:
            assert isinstance(response, SyncGroupResponse)
            if not self._done(life):
                return
            if response.error_code == ErrorCode.NONE:
                self._is_assigned = True
                if response.assignment != _assignment(generation, self._member_id):
                    raise Violation(f"group {self._group} hands out {response.assignment!r} in {generation}")
                self._model.generations[(self._group, self._member_id)] = generation
            elif response.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._forget("SyncGroup")
            else:
                self._generation = -1

        assignments = [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=one, assignment=_assignment(generation, one))
            for one in self._led
        ]
        request = SyncGroupRequest(
            group_id=self._group, generation_id=generation, member_id=self._member_id, assignments=assignments
        )
        line.send(request, SYNC_VERSION, answered)

    def _heartbeat(self, line: Line) -> None:
        life = self._life

        def answered(response: Response) -> None:
            assert isinstance(response, HeartbeatResponse)
            if not self._done(life):
                return
            if response.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._forget("Heartbeat")
            elif response.error_code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
                is_newest = self._generation == self._model.newest_generation.get(self._group)
                if response.error_code == ErrorCode.ILLEGAL_GENERATION and is_newest:
                    raise Violation(f"group {self._group} does not know generation {self._generation}, its last")
                self._is_assigned, self._generation = False, -1

        request = HeartbeatRequest(group_id=self._group, generation_id=self._generation, member_id=self._member_id)
        line.send(request, HEARTBEAT_VERSION, answered)

    def _leave(self, line: Line) -> None:
        """Go, and come back as somebody else; whether the good-bye arrives does not matter."""
        leaver = LeaveGroupRequest.MemberIdentity(member_id=self._member_id, reason="simulated")
        self._model.generations.pop((self._group, self._member_id), None)
        self._member_id, self._generation, self._is_assigned = "", -1, False
        life = self._life

        def answered(response: Response) -> None:
            self._done(life)

        line.send(LeaveGroupRequest(group_id=self._group, members=[leaver]), LEAVE_VERSION, answered)

    def _forget(self, api: str) -> None:
        """The broker does not know the member: a broken promise once an assignment of this member was acknowledged."""
        if (self._group, self._member_id) in self._model.generations:
            raise Violation(f"{api}: group {self._group} has forgotten its member {self._member_id}")
        self._member_id, self._generation, self._is_assigned = "", -1, False
