"""Offsets committed in transactions, given to a node's group coordinator as the transaction coordinator would."""

from __future__ import annotations

from kit.group_requests import FETCH_VERSION, TOPIC, begin, fetch_request, settled

from ottla.broker.context import Context
from ottla.broker.coordination.writes import Settled
from ottla.broker.node import Node
from ottla.broker.runtime.pending import Pending
from ottla.protocol.api import ApiKey
from ottla.protocol.api.offset_fetch import OffsetFetchResponse
from ottla.protocol.api.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from ottla.protocol.errors import ErrorCode, KafkaError

COORDINATOR_EPOCH = 3
UNSTABLE = "unstable"


class Admitted:
    """A verdict of the transaction coordinator, which the test makes durable."""

    def __init__(self, error: KafkaError | None = None, *, is_durable: bool = True) -> None:
        self.error = error
        self._is_durable = is_durable
        self._waiting: list[Settled] = []

    def when_durable(self, settled: Settled) -> None:
        if self._is_durable:
            settled(None)
        else:
            self._waiting.append(settled)

    def settle(self, error: KafkaError | None = None) -> None:
        self._is_durable = True
        for waiting in self._waiting:
            waiting(error)


def transactional_request(
    group: str,
    offsets: dict[int, int],
    *,
    producer: int = 7,
    epoch: int = 0,
    topic: str = TOPIC,
    metadata: str | None = "",
    member_id: str = "",
    generation: int = -1,
    instance_id: str | None = None,
) -> TxnOffsetCommitRequest:
    """A commit of some partitions' offsets in the transaction of a producer."""
    partitions = [
        TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=metadata
        )
        for index, offset in offsets.items()
    ]
    return TxnOffsetCommitRequest(
        transactional_id=f"tx-{producer}",
        group_id=group,
        producer_id=producer,
        producer_epoch=epoch,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)],
    )


def begin_in_transaction(
    node: Node, request: TxnOffsetCommitRequest, admitted: Admitted | None = None
) -> Pending[TxnOffsetCommitResponse]:
    """Commit and do not wait."""
    context = Context(node.services, ApiKey.TXN_OFFSET_COMMIT, 3)
    verdict = Admitted() if admitted is None else admitted
    return node.services.groups.get().commit_transactional_offsets(request, context, lambda: verdict)


def commit_in_transaction(node: Node, group: str, offsets: dict[int, int], **more: object) -> int:
    """Commit and wait; the first partition's code, or that of the whole request."""
    pending = begin_in_transaction(node, transactional_request(group, offsets, **more))  # type: ignore[arg-type]
    node.settle()
    if isinstance(pending.error, KafkaError):
        return pending.error.code
    assert pending.response is not None, pending.error
    return pending.response.topics[0].partitions[0].error_code


def begin_end(
    node: Node, producer: int = 7, *, commits: bool = True, epoch: int = 0, partition: int = 0
) -> list[object]:
    """End the transaction of a producer and do not wait: what `done` was called with."""
    results: list[object] = []
    groups = node.services.groups.get()
    groups.end_transaction(
        partition, producer, epoch, is_commit=commits, coordinator_epoch=COORDINATOR_EPOCH, done=results.append
    )
    return results


def end(node: Node, producer: int = 7, *, commits: bool = True, epoch: int = 0) -> object:
    """End the transaction of a producer and wait: None, or the code of the refusal."""
    results = begin_end(node, producer, commits=commits, epoch=epoch)
    node.settle()
    (result,) = results
    return getattr(result, "code", result)


def stable_offset(node: Node, group: str, partition: int = 0, *, topic: str = TOPIC) -> int | str:
    """A partition's committed offset as a reader of stable ones gets it: -1 without one, or `UNSTABLE`."""
    request = fetch_request(group, [partition], topic=topic)
    request.require_stable = True
    response = settled(node, begin(node, request, FETCH_VERSION), OffsetFetchResponse)
    found = response.groups[0].topics[0].partitions[0]
    if found.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
        assert (found.committed_offset, found.committed_leader_epoch, found.metadata) == (-1, -1, "")
        return UNSTABLE
    assert found.error_code == ErrorCode.NONE
    return found.committed_offset
