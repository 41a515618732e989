"""The group coordinator of this broker: what API handlers call, and what the node tells it.

    handler -> coordinator -> shard -> machine -> effects -> append -> reply

`__consumer_offsets` is made on first need; each of its partitions is a shard (`shard.py`), which holds the groups whose
id hashes to it. A request waits for nothing but the topic's creation here: a shard that is loading or cannot be used
refuses at once, with Kafka's code. Every method that takes a request returns a `Pending`; a refusal of the whole
request is a failed one, which the dispatcher turns into the API's own error response.

All calls on the broker's one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.pending import Pending

if TYPE_CHECKING:
    from ottla.broker.context import Context, Peer
    from ottla.broker.node import Node
    from ottla.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
    from ottla.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse
    from ottla.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
    from ottla.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse


class GroupCoordinator:
    """All groups of one node (`node.groups`)."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def join(self, request: JoinGroupRequest, context: Context) -> Pending[JoinGroupResponse]:
        """A member of the classic protocol joins; the answer parks until the group has joined."""
        raise NotImplementedError

    def sync(self, request: SyncGroupRequest, context: Context) -> Pending[SyncGroupResponse]:
        """A member asks for its assignment; the answer parks until the leader has given it."""
        raise NotImplementedError

    def heartbeat(self, request: HeartbeatRequest, context: Context) -> Pending[HeartbeatResponse]:
        """A member of the classic protocol is alive."""
        raise NotImplementedError

    def leave(self, request: LeaveGroupRequest, context: Context) -> Pending[LeaveGroupResponse]:
        """Members leave."""
        raise NotImplementedError

    def on_disconnect(self, peer: Peer) -> None:
        """A connection by which members came has ended."""
        raise NotImplementedError
