"""Which rights the requests of simulated clients need, and where their answers say that one is lacking.

Written down for each API from Kafka's documentation, and not taken from the broker's own statements (`NEEDS`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID

from kit.simulator.model import Violation
from kit.simulator.rights import Answered, Need, Question

from ottla.protocol.acls import CLUSTER_NAME, AclOperation, ResourceType
from ottla.protocol.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.api.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.api.delete_groups import DeleteGroupsRequest
from ottla.protocol.api.end_txn import EndTxnRequest
from ottla.protocol.api.fetch import FetchRequest
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest
from ottla.protocol.api.heartbeat import HeartbeatRequest
from ottla.protocol.api.init_producer_id import InitProducerIdRequest
from ottla.protocol.api.join_group import JoinGroupRequest
from ottla.protocol.api.leave_group import LeaveGroupRequest
from ottla.protocol.api.offset_commit import OffsetCommitRequest
from ottla.protocol.api.offset_delete import OffsetDeleteRequest
from ottla.protocol.api.offset_fetch import OffsetFetchRequest
from ottla.protocol.api.produce import ProduceRequest
from ottla.protocol.api.sync_group import SyncGroupRequest
from ottla.protocol.api.txn_offset_commit import TxnOffsetCommitRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request

Judge = Callable[[Any, Any, Mapping[UUID, str]], Iterator[Answered]]
"""Gives the elements of an answer: of a request, its response, and the names of topics by their ids."""


def _need(code: ErrorCode, operation: AclOperation, resource_type: ResourceType, name: str) -> Need:
    return Need(int(code), (Question(operation, resource_type, name),))


def topic_need(operation: AclOperation, name: str) -> Need:
    """A right to a topic."""
    return _need(ErrorCode.TOPIC_AUTHORIZATION_FAILED, operation, ResourceType.TOPIC, name)


def _group_need(operation: AclOperation, name: str) -> Need:
    return _need(ErrorCode.GROUP_AUTHORIZATION_FAILED, operation, ResourceType.GROUP, name)


def _id_need(operation: AclOperation, name: str) -> Need:
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return _need(code, operation, ResourceType.TRANSACTIONAL_ID, name)


_READ, _WRITE, _DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
_IDEMPOTENT_WRITE = Need(
    int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    (
        Question(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME),
        Question(_WRITE, ResourceType.TOPIC, None),
    ),
)


def _complete(what: str, asked: Mapping[str, tuple[Need, ...]], codes: Mapping[str, int]) -> Iterator[Answered]:
    """Every element that was asked for is answered. Raises Violation for one that is not."""
    for element, needs in asked.items():
        if element not in codes:
            raise Violation(f"{what}: {element} is asked for and not answered")
        yield Answered(element, needs, codes[element])


def _produce(request: Any, response: Any, names: Mapping[UUID, str]) -> Iterator[Answered]:
    own = () if request.transactional_id is None else (_id_need(_WRITE, request.transactional_id),)
    asked = {
        f"{topic.name}-{one.index}": (*own, topic_need(_WRITE, topic.name))
        for topic in request.topic_data
        for one in topic.partition_data
    }
    codes = {
        f"{topic.name}-{one.index}": one.error_code for topic in response.responses for one in topic.partition_responses
    }
    return _complete("Produce", asked, codes)


def _fetch(request: Any, response: Any, names: Mapping[UUID, str]) -> Iterator[Answered]:
    """What is answered: a session leaves out what has not changed (`rights_clients` counts that). An id of no topic
    needs no right: it is that of one that was deleted while the request waited.
    """
    for topic in response.responses:
        name = topic.topic or names.get(topic.topic_id)
        if name is not None:
            for one in topic.partitions:
                if one.error_code != ErrorCode.UNKNOWN_TOPIC_ID:
                    yield Answered(f"{name}-{one.partition_index}", (topic_need(_READ, name),), one.error_code)


def _offset_commit(request: Any, response: Any, names: Mapping[UUID, str]) -> Iterator[Answered]:
    own: tuple[Need, ...] = (_group_need(_READ, request.group_id),)
    if isinstance(request, TxnOffsetCommitRequest):
        own = (_id_need(_WRITE, request.transactional_id), *own)
    asked = {
        f"{topic.name}-{one.partition_index}": (*own, topic_need(_READ, topic.name))
        for topic in request.topics
        for one in topic.partitions
    }
    codes = {
        f"{topic.name}-{one.partition_index}": one.error_code for topic in response.topics for one in topic.partitions
    }
    return _complete(type(request).__name__, asked, codes)


def _offset_fetch(request: Any, response: Any, names: Mapping[UUID, str]) -> Iterator[Answered]:
    yield Answered(request.group_id, (_group_need(_DESCRIBE, request.group_id),), response.error_code)
    if response.error_code:
        return
    asked = {
        f"{topic.name}-{index}": (topic_need(_DESCRIBE, topic.name),)
        for topic in request.topics
        for index in topic.partition_indexes
    }
    codes = {
        f"{topic.name}-{one.partition_index}": one.error_code for topic in response.topics for one in topic.partitions
    }
    yield from _complete("OffsetFetch", asked, codes)


def _offset_delete(request: Any, response: Any, names: Mapping[UUID, str]) -> Iterator[Answered]:
    group = request.group_id
    yield Answered(group, (_group_need(AclOperation.DELETE, group),), response.error_code)
    if response.error_code:
        return
    asked = {
        f"{topic.name}-{one.partition_index}": (topic_need(_READ, topic.name),)
        for topic in request.topics
        for one in topic.partitions
    }
    codes = {
        f"{topic.name}-{one.partition_index}": one.error_code for topic in response.topics for one in topic.partitions
    }
    yield from _complete("OffsetDelete", asked, codes)


def _delete_groups(request: Any, response: Any, names: Mapping[UUID, str]) -> Iterator[Answered]:
    asked = {name: (_group_need(AclOperation.DELETE, name),) for name in request.groups_names}
    return _complete("DeleteGroups", asked, {one.group_id: one.error_code for one in response.results})


def _member(request: Any, response: Any, names: Mapping[UUID, str]) -> Iterator[Answered]:
    yield Answered(request.group_id, (_group_need(_READ, request.group_id),), response.error_code)


def _consumer_member(request: Any, response: Any, names: Mapping[UUID, str]) -> Iterator[Answered]:
    topics = [topic_need(_DESCRIBE, name) for name in request.subscribed_topic_names or ()]
    yield Answered(request.group_id, (_group_need(_READ, request.group_id), *topics), response.error_code)


def _init_producer_id(request: Any, response: Any, names: Mapping[UUID, str]) -> Iterator[Answered]:
    own = request.transactional_id
    need = _IDEMPOTENT_WRITE if own is None else _id_need(_WRITE, own)
    yield Answered("the producer", (need,), response.error_code)


def _find_coordinator(request: Any, response: Any, names: Mapping[UUID, str]) -> Iterator[Answered]:
    need = _id_need if request.key_type else _group_need
    asked = {key: (need(_DESCRIBE, key),) for key in request.coordinator_keys}
    return _complete("FindCoordinator", asked, {one.key: one.error_code for one in response.coordinators})


def _add_partitions(request: Any, response: Any, names: Mapping[UUID, str]) -> Iterator[Answered]:
    """Of older clients. One that is refused keeps the others from being tried."""
    own = _id_need(_WRITE, request.v3_and_below_transactional_id)
    asked = {
        f"{topic.name}-{index}": (own, topic_need(_WRITE, topic.name))
        for topic in request.v3_and_below_topics
        for index in topic.partitions
    }
    codes = {
        f"{topic.name}-{one.partition_index}": one.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for one in topic.results_by_partition
    }
    return _complete("AddPartitionsToTxn", asked, codes)


def _add_offsets(request: Any, response: Any, names: Mapping[UUID, str]) -> Iterator[Answered]:
    needs = (_id_need(_WRITE, request.transactional_id), _group_need(_READ, request.group_id))
    yield Answered("the group", needs, response.error_code)


def _end(request: Any, response: Any, names: Mapping[UUID, str]) -> Iterator[Answered]:
    yield Answered("the transaction", (_id_need(_WRITE, request.transactional_id),), response.error_code)


JUDGES: Mapping[type[Request], Judge] = {
    ProduceRequest: _produce,
    FetchRequest: _fetch,
    OffsetCommitRequest: _offset_commit,
    TxnOffsetCommitRequest: _offset_commit,
    OffsetFetchRequest: _offset_fetch,
    OffsetDeleteRequest: _offset_delete,
    DeleteGroupsRequest: _delete_groups,
    JoinGroupRequest: _member,
    SyncGroupRequest: _member,
    HeartbeatRequest: _member,
    LeaveGroupRequest: _member,
    ConsumerGroupHeartbeatRequest: _consumer_member,
    InitProducerIdRequest: _init_producer_id,
    FindCoordinatorRequest: _find_coordinator,
    AddPartitionsToTxnRequest: _add_partitions,
    AddOffsetsToTxnRequest: _add_offsets,
    EndTxnRequest: _end,
}
