"""The time of a rebalance in a large group of the classic protocol: 500 members, 1,000 partitions.

The members are connections of one other process. In a round a member joins, and then leaves: seconds from the
JoinGroup (or LeaveGroup) that triggers the rebalance to the last SyncGroup answer. Every member sends heartbeats
without a pause until an answer says that it has to join again: real ones send one every three seconds,
which is not the broker's time. `OTTLA_TEST_BOOTSTRAP=host:port` measures that broker instead, as in
`scripts/interop/apache-kafka -- scripts/bench-groups`. `--protocol consumer` is in `consumer_groups.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import struct
import sys
import time
from statistics import median
from typing import Any
from uuid import uuid4

import uvloop
from servers import Ottla

from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest
from ottla.protocol.api.heartbeat import HeartbeatRequest
from ottla.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.api.leave_group import LeaveGroupRequest
from ottla.protocol.api.sync_group import SyncGroupRequest
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    encode_assignment,
    encode_subscription,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.headers import decode_response_header, encode_request_header
from ottla.protocol.message import Request, decode, encode

TOPIC = "orders"
PROMISE_S = 2.0
JOIN, SYNC, HEARTBEAT, LEAVE = 9, 5, 4, 5
SIZE = struct.Struct(">i")


class Member:
    """One connection, one member."""

    def __init__(self, group: str, partitions: int) -> None:
        self.group = group
        self.partitions = partitions
        self.member_id = ""
        self.generation = -1
        self.requests_sent = 0
        subscription = ConsumerProtocolSubscription(topics=[TOPIC], user_data=None)
        self._protocols = [
            JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=encode_subscription(subscription))
        ]

    async def connect(self, host: str, port: int) -> None:
        self._reader, self._writer = await asyncio.open_connection(host, port)

    async def call(self, request: Request, version: int) -> Any:
        self.requests_sent += 1
        key = type(request).message_key
        frame = encode_request_header(key, version, self.requests_sent, "bench") + encode(request, version)
        self._writer.write(SIZE.pack(len(frame)) + frame)
        (size,) = SIZE.unpack(await self._reader.readexactly(4))
        answer = await self._reader.readexactly(size)
        _, position = decode_response_header(key, version, answer)
        return decode(REGISTRY[ApiKey(key)].response, answer, version, position)

    async def find_coordinator(self) -> None:
        """Return once the broker coordinates the group."""
        while True:
            found = await self.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group]), 4)
            probe = HeartbeatRequest(group_id=self.group, generation_id=1, member_id="probe")
            if found.coordinators[0].error_code == ErrorCode.NONE:
                code = (await self.call(probe, HEARTBEAT)).error_code
                if code == ErrorCode.UNKNOWN_MEMBER_ID:
                    return
            await asyncio.sleep(0.1)

    async def get_id(self) -> None:
        """The first of the two steps of a new dynamic member."""
        answer = await self._send_join()
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.of(answer.error_code)
        self.member_id = answer.member_id

    async def join_and_sync(self) -> bool:
        """Whether it has its assignment; False if another rebalance came in between."""
        answer = await self._send_join()
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        assert answer.error_code == ErrorCode.NONE, ErrorCode.of(answer.error_code)
        self.generation = answer.generation_id
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=self._assign(answer) if answer.leader == self.member_id else [],
        )
        code = ErrorCode.of((await self.call(request, SYNC)).error_code)
        assert code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS), code
        return code is ErrorCode.NONE

    async def follow(self) -> None:
        """Send heartbeats until the group requires a new join, and join until the member has its assignment."""
        while await self.heartbeat() is ErrorCode.NONE:
            pass
        while not await self.join_and_sync():
            pass

    async def heartbeat(self) -> ErrorCode:
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
        code = ErrorCode.of((await self.call(request, HEARTBEAT)).error_code)
        assert code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS), code
        return code

    async def leave(self) -> None:
        identity = LeaveGroupRequest.MemberIdentity(member_id=self.member_id)
        await self.call(LeaveGroupRequest(group_id=self.group, members=[identity]), LEAVE)
        self.member_id = ""

    async def _send_join(self) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=300_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=self._protocols,
        )
        answer = await self.call(request, JOIN)
        assert isinstance(answer, JoinGroupResponse)
        return answer

    def _assign(self, answer: JoinGroupResponse) -> list[SyncGroupRequest.SyncGroupRequestAssignment]:
        """Range: the first members get one partition more."""
        members = sorted(member.member_id for member in answer.members)
        each, more = divmod(self.partitions, len(members))
        assignments = []
        for index, member_id in enumerate(members):
            first = index * each + min(index, more)
            own = ConsumerProtocolAssignment.TopicPartition(
                topic=TOPIC, partitions=list(range(first, first + each + (index < more)))
            )
            blob = encode_assignment(ConsumerProtocolAssignment(assigned_partitions=[own], user_data=None))
            assignments.append(SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=blob))
        return assignments


async def gather_group(members: list[Member]) -> float:
    """Bring all members into one stable generation; seconds."""
    await asyncio.gather(*(member.get_id() for member in members))
    begun_at = time.perf_counter()

    async def come_in(member: Member) -> None:
        while not await member.join_and_sync():
            pass
        while len({each.generation for each in members}) > 1:  # one joined before the others had: ask again
            if await member.heartbeat() is not ErrorCode.NONE:
                while not await member.join_and_sync():
                    pass
            await asyncio.sleep(0.01)

    await asyncio.gather(*(come_in(member) for member in members))
    return time.perf_counter() - begun_at


async def one_round(members: list[Member], one_more: Member) -> tuple[float, float]:
    """Seconds of the rebalance that a new member triggers, and of the one when it leaves."""
    await one_more.get_id()
    begun_at = time.perf_counter()
    await asyncio.gather(one_more.join_and_sync(), *(member.follow() for member in members))
    joined_s = time.perf_counter() - begun_at
    assert len({member.generation for member in (*members, one_more)}) == 1
    begun_at = time.perf_counter()
    await one_more.leave()
    await asyncio.gather(*(member.follow() for member in members))
    return joined_s, time.perf_counter() - begun_at


async def measure(host: str, port: int, options: argparse.Namespace) -> tuple[float, list[tuple[float, float]]]:
    """Seconds until the group is stable, and the rounds."""
    group = f"bench-{uuid4().hex}"
    members = [Member(group, options.partitions) for _ in range(options.members + 1)]
    for member in members:
        await member.connect(host, port)
    await members[0].find_coordinator()
    first_s = await gather_group(members[:-1])
    return first_s, [await one_round(members[:-1], members[-1]) for _ in range(options.rounds)]


def report(name: str, first_s: float, rounds: list[tuple[float, float]], options: argparse.Namespace) -> float:
    """Print the figures, and return the longest rebalance."""
    joins, leaves = [join for join, _ in rounds], [leave for _, leave in rounds]
    print(f"{name}: {options.members} members, {options.partitions} partitions, {options.rounds} rounds")
    print(f"  all come at once, until the group is stable   {first_s:6.2f} s")
    print(f"  one more joins    median {median(joins):6.3f} s   longest {max(joins):6.3f} s")
    print(f"  one leaves        median {median(leaves):6.3f} s   longest {max(leaves):6.3f} s")
    print("  each round " + "  ".join(f"{join:.3f}/{leave:.3f}" for join, leave in rounds) + "  (joins/leaves)")
    return max(*joins, *leaves)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=500)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true", help=f"fail when a rebalance takes {PROMISE_S} s or longer")
    parser.add_argument("--protocol", choices=["classic", "consumer"], default="classic")
    options = parser.parse_args()
    measure_protocol = measure
    if options.protocol == "consumer":
        from consumer_groups import measure as measure_protocol
    peer = os.environ.get("OTTLA_TEST_BOOTSTRAP")
    if peer:
        host, _, port = peer.partition(",")[0].rpartition(":")
        longest_s = report(peer, *uvloop.run(measure_protocol(host, int(port), options)), options)
    else:
        with Ottla("sync") as server:
            longest_s = report(server.name, *uvloop.run(measure_protocol(server.host, server.port, options)), options)
    if options.check and longest_s >= PROMISE_S:
        print(f"a rebalance took {longest_s:.2f} s; {PROMISE_S} s are promised", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
