"""The time of a rebalance in a large group of the consumer protocol (KIP-848): 500 members, 1,000 partitions.

The members are connections of one other process. In a round a member joins, and then leaves: seconds from its
heartbeat until every partition has its owner again and all members are at the new epoch. Members heartbeat one after
the other without a pause, and immediately give up and take over partitions: real ones wait for their interval, which
is not the broker's time. `OTTLA_TEST_BOOTSTRAP=host:port` measures that broker instead, as in
`scripts/interop/apache-kafka -- scripts/bench-groups --protocol consumer`.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any
from uuid import UUID, uuid4

from groups import Member

from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.api.create_topics import CreateTopicsRequest
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest
from ottla.protocol.errors import ErrorCode

HEARTBEAT, CREATE_TOPICS, FIND_COORDINATOR = 1, 7, 4
JOINS, LEAVES = 0, -1
NOT_READY = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class ConsumerMember(Member):
    """One connection, one member."""

    epoch = JOINS

    async def join(self, topic: str) -> None:
        self.member_id = uuid4().hex
        self.owned: dict[UUID, list[int]] = {}
        await self._beat(JOINS, rebalance_timeout_ms=300_000, subscribed_topic_names=[topic], topic_partitions=[])

    async def keep_up(self) -> None:
        """Send one heartbeat; the assignment of the one before is owned by now."""
        listed = [
            ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in self.owned.items()
        ]
        await self._beat(self.epoch, topic_partitions=listed)

    async def leave(self) -> None:
        await self._beat(LEAVES)
        self.owned = {}

    @property
    def owned_count(self) -> int:
        return sum(map(len, self.owned.values()))

    async def _beat(self, epoch: int, **fields: Any) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=epoch, **fields
        )
        answer = await self.call(request, HEARTBEAT)
        assert answer.error_code == ErrorCode.NONE, ErrorCode.of(answer.error_code)
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = {entry.topic_id: entry.partitions for entry in answer.assignment.topic_partitions}


async def settle(members: list[ConsumerMember], partitions: int) -> int:
    """Let all members heartbeat until all partitions are owned at one epoch; the number of heartbeats of each."""
    beats = 0
    while len({member.epoch for member in members}) > 1 or sum(each.owned_count for each in members) < partitions:
        await asyncio.gather(*(member.keep_up() for member in members))
        beats += 1
    return beats


async def prepare(member: ConsumerMember, topic: str, partitions: int) -> None:
    """Create the topic, and return once the broker coordinates the group."""
    wanted = CreateTopicsRequest.CreatableTopic(
        name=topic, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    await member.call(CreateTopicsRequest(topics=[wanted], timeout_ms=60_000), CREATE_TOPICS)
    probe = ConsumerGroupHeartbeatRequest(group_id=member.group, member_id="probe", member_epoch=LEAVES)
    while True:
        await member.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[member.group]), FIND_COORDINATOR)
        if (await member.call(probe, HEARTBEAT)).error_code not in NOT_READY:
            return
        await asyncio.sleep(0.1)


async def one_round(members: list[ConsumerMember], one_more: ConsumerMember, topic: str) -> tuple[float, float]:
    """Seconds of the rebalance that a new member triggers, and of the one when it leaves."""
    partitions = one_more.partitions
    begun_at = time.perf_counter()
    await one_more.join(topic)
    await settle([*members, one_more], partitions)
    joined_s = time.perf_counter() - begun_at
    begun_at = time.perf_counter()
    await one_more.leave()
    await asyncio.gather(*(member.keep_up() for member in members))
    await settle(members, partitions)
    return joined_s, time.perf_counter() - begun_at


async def measure(host: str, port: int, options: argparse.Namespace) -> tuple[float, list[tuple[float, float]]]:
    """Seconds until the group is stable, and the rounds."""
    group = f"bench-{uuid4().hex}"
    members = [ConsumerMember(group, options.partitions) for _ in range(options.members + 1)]
    for member in members:
        await member.connect(host, port)
    await prepare(members[0], group, options.partitions)
    begun_at = time.perf_counter()
    await asyncio.gather(*(member.join(group) for member in members[:-1]))
    await settle(members[:-1], options.partitions)
    first_s = time.perf_counter() - begun_at
    return first_s, [await one_round(members[:-1], members[-1], group) for _ in range(options.rounds)]
