"""A node without a loop for streams groups: members heartbeat, and internal topics are created."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from kit.clock import ManualClock
from kit.nodes import ask_for, pass_time, start_node
from kit.simulated_files import SimulatedFiles
from kit.streams_topologies import internal_topic, request_topology, subtopology
from kit.topics import create

from ottla.broker.metadata.change_requests import NewTopic
from ottla.broker.peer import Peer
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from ottla.protocol.api.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupStatus,
)

CHANGELOG = "app-store-changelog"
STATEFUL = request_topology(
    subtopology("0", reads=["t"], changelog=[internal_topic(CHANGELOG, replicas=1, cleanup_policy="compact")])
)
"""One subtopology that reads `t` and has a store."""


class StreamsNode:
    """One broker on simulated files; `files` of an earlier one make it a restart. Topic `t` has two partitions."""

    def __init__(self, files: SimulatedFiles | None = None, clock: ManualClock | None = None, **keys: Any) -> None:
        self.keys: dict[str, Any] = {"ottla_acks_all": "sync", "group_streams_assignment_interval_ms": 0} | keys
        self.node, self.files, self.clock = start_node(files, clock, **self.keys)
        self.pass_ms(10)
        if "t" not in self.node.services.catalog.topics:
            create(self.node, NewTopic("t", partitions=2, replication_factor=1))

    def restarted(self) -> StreamsNode:
        """After a clean stop."""
        self.node.stop()
        return StreamsNode(self.files, self.clock, **self.keys)

    def crashed(self, seed: int = 1) -> StreamsNode:
        """After a power cut that kept some of what was not synced."""
        return StreamsNode(self.files.crash(random.Random(seed)), self.clock, **self.keys)

    def pass_ms(self, ms: int) -> None:
        """Let time pass in steps of a second, hours in a thousand steps, and everything that is due run."""
        pass_time(self.node, self.clock, ms, step_ms=min(ms, max(1_000, ms // 1_000)))

    def deny(self, *rights: tuple[AclOperation, ResourceType, str]) -> None:
        """Let clients have all rights but these; `""` is every name."""
        object.__setattr__(self.node.services, "authorizer", Denial(rights))  # frozen

    def ask(self, request: StreamsGroupHeartbeatRequest, version: int = 1) -> StreamsGroupHeartbeatResponse:
        """The answer to a heartbeat. Raises KafkaError."""
        return ask_for(StreamsGroupHeartbeatResponse, self.node, request, version)

    def join(
        self,
        member_id: str = "m",
        topology: StreamsGroupHeartbeatRequest.Topology = STATEFUL,
        group: str = "app",
        **fields: Any,
    ) -> StreamsGroupHeartbeatResponse:
        """The answer to a member that joins."""
        request = StreamsGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=0,
            endpoint_information_epoch=0,
            rebalance_timeout_ms=30_000,
            topology=topology,
            process_id=f"process-{member_id}",
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
        )
        return self.ask(request.replace(**fields))

    def heartbeat(
        self, epoch: int, member_id: str = "m", group: str = "app", **fields: Any
    ) -> StreamsGroupHeartbeatResponse:
        """The answer to a later heartbeat."""
        request = StreamsGroupHeartbeatRequest(
            group_id=group, member_id=member_id, member_epoch=epoch, endpoint_information_epoch=0
        )
        return self.ask(request.replace(**fields))

    def describe(self, *groups: str, authorized: bool = False) -> Sequence[StreamsGroupDescribeResponse.DescribedGroup]:
        """The descriptions of groups, in this order."""
        request = StreamsGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=authorized)
        response = ask_for(StreamsGroupDescribeResponse, self.node, request, 1)
        assert [one.group_id for one in response.groups] == list(groups)
        return response.groups


class Denial:
    """An authorizer that allows everything but some rights."""

    def __init__(self, rights: Sequence[tuple[AclOperation, ResourceType, str]]) -> None:
        self._rights = rights

    def is_allowed(self, peer: Peer, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        return all((operation, resource_type, one) not in self._rights for one in (name, ""))

    def is_allowed_somewhere(self, peer: Peer, operation: AclOperation, resource_type: ResourceType) -> bool:
        return True

    def allowed_operations(self, peer: Peer, operations: int, resource_type: ResourceType, name: str) -> int:
        """Those of the operations that are not denied."""
        denied = [operation for operation, kind, of in self._rights if kind is resource_type and of in (name, "")]
        return operations & ~sum(1 << operation for operation in denied)


def statuses(response: StreamsGroupHeartbeatResponse) -> dict[StreamsGroupStatus, str]:
    """The statuses of an answer with their details."""
    return {StreamsGroupStatus(one.status_code): one.status_detail for one in response.status or ()}
