"""Members of streams groups that know how to behave, mostly: their heartbeats get far into the coordinator.

Their topologies read topics that exist, and need internal topics; now and then a topic is absent, or the numbers of
partitions do not fit together. A member reports the tasks that it was sent, or others.
"""

from __future__ import annotations

import random

from kit.fuzz.vocabulary import TOPICS
from kit.streams_topologies import internal_topic, request_topology, subtopology

from ottla.protocol.api import ApiKey
from ottla.protocol.api.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from ottla.protocol.message import Request, Response

GROUPS = ("streams", "g")
NAMES = ("s1", "s2", "s3", "s4")
Tasks = list[StreamsGroupHeartbeatRequest.TaskIds]


class StreamsMembers:
    """What the members know."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._epochs: dict[str, int] = {}
        self._owned: dict[str, list[Tasks]] = {}
        self._topologies = [self._topology(epoch) for epoch in (0, 0, 1)]

    def request(self, version_of: dict[ApiKey, tuple[int, int]]) -> tuple[ApiKey, int, Request]:
        """The next request of one of them, at one of its versions."""
        chance = self._chance
        if chance.random() < 0.1:
            key = ApiKey.STREAMS_GROUP_DESCRIBE
            described = StreamsGroupDescribeRequest(group_ids=list(GROUPS), include_authorized_operations=True)
            return key, chance.randint(*version_of[key]), described
        key = ApiKey.STREAMS_GROUP_HEARTBEAT
        return key, chance.randint(*version_of[key]), self._heartbeat()

    def learn(self, answer: Response) -> None:
        """Remember what an answer says to a member."""
        if not isinstance(answer, StreamsGroupHeartbeatResponse) or not answer.member_id:
            return
        if answer.error_code or answer.member_epoch < 0:
            self._epochs.pop(answer.member_id, None)
            return
        self._epochs[answer.member_id] = answer.member_epoch
        if answer.active_tasks is not None:
            lists = (answer.active_tasks, answer.standby_tasks or [], answer.warmup_tasks or [])
            self._owned[answer.member_id] = [
                [
                    StreamsGroupHeartbeatRequest.TaskIds(subtopology_id=one.subtopology_id, partitions=one.partitions)
                    for one in listed
                ]
                for listed in lists
            ]

    def _heartbeat(self) -> StreamsGroupHeartbeatRequest:
        chance = self._chance
        member = chance.choice(NAMES)
        epoch = self._epochs.get(member, 0)
        if chance.random() < 0.15:
            epoch = chance.choice((0, -1, -2, epoch + 1, epoch - 1, 99))
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUPS[0] if chance.random() < 0.9 else GROUPS[1],
            member_id=member,
            member_epoch=epoch,
            endpoint_information_epoch=chance.choice((0, 1, 5)),
            shutdown_application=chance.random() < 0.03,
        )
        if epoch == -2 or chance.random() < 0.1:
            request.instance_id = chance.choice(("static-1", "static-2"))
        if epoch == 0 or chance.random() < 0.1:
            request.rebalance_timeout_ms = chance.choice((1_000, 30_000))
            request.process_id = chance.choice("pqr")
            request.user_endpoint = chance.choice((None, StreamsGroupHeartbeatRequest.Endpoint(host="h", port=80)))
            request.client_tags = [StreamsGroupHeartbeatRequest.KeyValue(key="zone", value=chance.choice("ab"))]
        if epoch == 0:
            request.topology = self._topologies[0] if chance.random() < 0.8 else chance.choice(self._topologies)
            request.active_tasks = request.standby_tasks = request.warmup_tasks = []
        elif chance.random() < 0.8:
            owned = self._owned.get(member, [[], [], []])
            request.active_tasks, request.standby_tasks, request.warmup_tasks = (
                listed[: chance.randint(0, len(listed))] if chance.random() < 0.3 else listed for listed in owned
            )
        if chance.random() < 0.2:
            offset = StreamsGroupHeartbeatRequest.TaskOffset(
                subtopology_id="0", partition=0, offset=chance.randint(-1, 9)
            )
            request.task_offsets = [offset] * chance.choice((1, 1, 1, 2))
        return request

    def _topology(self, epoch: int) -> StreamsGroupHeartbeatRequest.Topology:
        chance = self._chance
        reads = chance.sample(TOPICS, chance.randint(1, 2)) + (["absent"] if chance.random() < 0.1 else [])
        joined: list[tuple[list[int], list[int]]] = [([0, len(reads) - 1], [])] if chance.random() < 0.4 else []
        stores = [internal_topic("app-store-changelog", cleanup_policy="compact")]
        parts = internal_topic("app-part-repartition", chance.choice((0, 0, 3)), chance.choice((0, 1, 3)))
        return request_topology(
            subtopology("0", reads=reads, writes=["app-part-repartition"], joins=joined),
            subtopology("1", repartition=[parts], changelog=stores if chance.random() < 0.7 else []),
            epoch=epoch,
        )
