"""Requests about groups and committed offsets, given to a whole node without sockets (`kit.nodes`)."""

from __future__ import annotations

from typing import TypeVar

from kit.exchange import make_topic
from kit.nodes import MOST_STEPS, ask

from ottla.broker.api import HANDLERS
from ottla.broker.context import Context
from ottla.broker.node import Node
from ottla.broker.peer import Peer
from ottla.broker.runtime.pending import Pending
from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.api.heartbeat import HeartbeatRequest
from ottla.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.api.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.api.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.api.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.message import Request, decode, encode

__all__ = [
    "begin",
    "code_of",
    "commit",
    "commit_request",
    "committed",
    "delete_group",
    "delete_groups_request",
    "delete_offsets",
    "describe",
    "fetch_request",
    "group_ids",
    "heartbeat",
    "join",
    "join_request",
    "make_topic",
    "settled",
    "sync",
]

R = TypeVar("R")

TOPIC = "t"
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, COMMIT_VERSION, FETCH_VERSION = 5, 3, 4, 9, 9


def begin(node: Node, request: Request, version: int, peer: Peer | None = None) -> Pending[object]:
    """Start a request and do not wait: nothing was flushed or synced yet."""
    api = REGISTRY[request.message_key]
    arrived = decode(type(request), encode(request, version), version)
    context = Context(node.services, api.key, version, client_id="test", connection=peer or Peer())
    try:
        answer = HANDLERS[ApiKey(api.key)]().handle(arrived, context)
    except Exception as error:
        answer = Pending()
        answer.fail(error)
    if isinstance(answer, Pending):
        return answer
    pending: Pending[object] = Pending()
    pending.complete(answer)
    return pending


def settled(node: Node, pending: Pending[object], kind: type[R]) -> R:
    """The answer, once everything that was begun is on disk; raises what it failed with."""
    node.settle()
    for _ in range(MOST_STEPS):
        if pending.done:
            break
        node.run_due()  # a large group is answered in steps
        node.settle()
    assert pending.done, "the answer is still pending after every sync has run"
    if pending.error is not None:
        raise pending.error
    assert isinstance(pending.response, kind)
    return pending.response


def commit_request(
    group: str,
    offsets: dict[int, int],
    *,
    topic: str = TOPIC,
    metadata: str = "",
    member_id: str = "",
    generation: int = -1,
    retention_ms: int = -1,
) -> OffsetCommitRequest:
    """A commit of some partitions' offsets."""
    partitions = [
        OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=metadata
        )
        for index, offset in offsets.items()
    ]
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        retention_time_ms=retention_ms,
        topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=partitions)],
    )


def commit(node: Node, group: str, offsets: dict[int, int], *, version: int = COMMIT_VERSION, **more: object) -> int:
    """Commit and wait; the first partition's code."""
    request = commit_request(group, offsets, **more)  # type: ignore[arg-type]  # keywords of commit_request
    response = settled(node, begin(node, request, version), OffsetCommitResponse)
    return response.topics[0].partitions[0].error_code


def fetch_request(group: str, partitions: list[int] | None, *, topic: str = TOPIC) -> OffsetFetchRequest:
    """Some partitions' offsets, or all of the group's."""
    topics = OffsetFetchRequest.OffsetFetchRequestTopics
    asked = None if partitions is None else [topics(name=topic, partition_indexes=partitions)]
    return OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=asked)])


def committed(node: Node, group: str, partition: int = 0, *, topic: str = TOPIC) -> int:
    """A partition's committed offset, -1 without one."""
    response = settled(
        node, begin(node, fetch_request(group, [partition], topic=topic), FETCH_VERSION), OffsetFetchResponse
    )
    (group_answer,) = response.groups
    assert group_answer.error_code == 0
    return group_answer.topics[0].partitions[0].committed_offset


def delete_offsets(node: Node, group: str, partitions: list[int], *, topic: str = TOPIC) -> OffsetDeleteResponse:
    """Delete some partitions' offsets."""
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequest.OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=i) for i in partitions],
            )
        ],
    )
    answer = ask(node, request, 0)
    assert isinstance(answer, OffsetDeleteResponse)
    return answer


def group_ids(node: Node, **filters: list[str]) -> set[str]:
    """The groups that ListGroups shows."""
    answer = ask(node, ListGroupsRequest(**filters), 5)
    assert isinstance(answer, ListGroupsResponse)
    return {group.group_id for group in answer.groups}


def describe(node: Node, group: str, version: int = 5) -> DescribeGroupsResponse.DescribedGroup:
    """One group as DescribeGroups shows it."""
    answer = ask(node, DescribeGroupsRequest(groups=[group]), version)
    assert isinstance(answer, DescribeGroupsResponse)
    return answer.groups[0]


def delete_groups_request(group: str) -> DeleteGroupsRequest:
    """Delete one group."""
    return DeleteGroupsRequest(groups_names=[group])


def delete_group(node: Node, group: str) -> int:
    """Delete a group; its code."""
    answer = ask(node, delete_groups_request(group), 2)
    assert isinstance(answer, DeleteGroupsResponse)
    return answer.results[0].error_code


def code_of(pending: Pending[object]) -> object:
    """The code that a request was refused with as a whole."""
    assert pending.done
    return getattr(pending.error, "code", None)


def join_request(group: str, member_id: str = "", *, instance_id: str | None = None) -> JoinGroupRequest:
    """A consumer joins with one protocol."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\x01\0\x01t\0\0\0\0")
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[protocol],
    )


def join(node: Node, group: str, *, peer: Peer | None = None) -> JoinGroupResponse:
    """Join alone, as a client does: first for a member id, then with it."""
    first = settled(node, begin(node, join_request(group), JOIN_VERSION, peer), JoinGroupResponse)
    pending = begin(node, join_request(group, first.member_id), JOIN_VERSION, peer)
    return settled(node, pending, JoinGroupResponse)


def sync_request(group: str, joined: JoinGroupResponse) -> SyncGroupRequest:
    """The assignment of a leader that is alone."""
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")
    return SyncGroupRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assignment]
    )


def sync(node: Node, group: str, joined: JoinGroupResponse, *, peer: Peer | None = None) -> SyncGroupResponse:
    """Sync alone."""
    return settled(node, begin(node, sync_request(group, joined), SYNC_VERSION, peer), SyncGroupResponse)


def heartbeat(group: str, joined: JoinGroupResponse) -> HeartbeatRequest:
    """A sign of life."""
    return HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
