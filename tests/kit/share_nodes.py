"""Members of share groups on a node without a loop: they fetch and acknowledge in sessions, and may wait."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar
from uuid import UUID

from kit.clock import ManualClock
from kit.exchange import batch
from kit.nodes import MOST_STEPS, ask, partition_of, pass_time, start_node, start_node_with
from kit.settings import GROUP, SET, alter
from kit.simulated_files import SimulatedFiles
from kit.topics import create
from kit.transactional import PRODUCE_VERSION, Results

from ottla.broker.api import HANDLERS
from ottla.broker.context import Context
from ottla.broker.metadata.change_requests import NewTopic
from ottla.broker.partitions.partition import Partition
from ottla.broker.peer import Peer
from ottla.broker.runtime.pending import Pending
from ottla.broker.runtime.workers import Workers
from ottla.broker.security.quotas.request_quota import RequestQuota
from ottla.broker.share.coordinator import ShareCoordinator
from ottla.broker.share.stored_state import SharePartitionKey, StoredState
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.api.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from ottla.protocol.api.share_fetch import ShareFetchRequest, ShareFetchResponse
from ottla.protocol.api.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Request, Response, decode, encode
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record
from ottla.storage.log.append import AppendEntry

R = TypeVar("R", bound=Response)
LOCK_MS, WAIT_MS = 30_000, 500
Said = tuple[int, int, Sequence[int]]
"""The first and the last offset, and types of acknowledgement."""


class ShareNode:
    """One broker on simulated files; `files` of an earlier one make it a restart. Topic `t` has two partitions.

    Group `g` begins with the first record, unless `reset` says otherwise.
    """

    def __init__(
        self,
        files: SimulatedFiles | None = None,
        clock: ManualClock | None = None,
        *,
        workers: Workers | None = None,
        reset: str = "earliest",
        **keys: Any,
    ) -> None:
        self.keys: dict[str, Any] = {"ottla_acks_all": "sync"} | keys
        if workers is None:
            self.node, self.files, self.clock = start_node(files, clock, **self.keys)
        else:
            self.node, self.files, self.clock = start_node_with(workers, **self.keys)
        self.pass_ms(10)
        if "t" not in self.node.services.catalog.topics:
            create(self.node, NewTopic("t", partitions=2, replication_factor=1))
            self.set("share.auto.offset.reset", reset)

    def restarted(self) -> ShareNode:
        """After a clean stop."""
        self.node.stop()
        return ShareNode(self.files, self.clock, **self.keys)

    def crashed(self, seed: int = 1) -> ShareNode:
        """After a power cut that kept some of what was not synced."""
        return ShareNode(self.files.crash(random.Random(seed)), self.clock, **self.keys)

    def set(self, key: str, value: str, group: str = "g") -> None:
        """Set a key of a group."""
        assert alter(self.node, GROUP, group, (key, SET, value))[0] is ErrorCode.NONE

    def pass_ms(self, ms: int) -> None:
        """Let time pass in steps of a second, hours in a thousand steps, and everything that is due run."""
        pass_time(self.node, self.clock, ms, step_ms=min(ms, max(1_000, ms // 1_000)))

    def turn(self) -> None:
        """End a turn of the loop; nothing is synced."""
        self.node.services.turn.end()

    @property
    def coordinator(self) -> ShareCoordinator:
        return self.node.services.share_groups.get()

    def topic_id(self, topic: str = "t") -> UUID:
        """The id of a topic that is there."""
        return self.node.services.catalog.topics[topic].id

    def produce(self, *counts: int, partition: int = 0, topic: str = "t", **options: Any) -> None:
        """Batches of so many records."""
        found = partition_of(self.node, topic, partition)
        for count in counts:
            self._append(found, batch(count, **options))

    def produce_at(self, timestamp_ms: int, count: int = 1) -> None:
        """A batch of so many records that have this time."""
        records = [Record(index, timestamp_ms, b"k", b"v", ()) for index in range(count)]
        self._append(partition_of(self.node, "t"), bytes(encode_batch(records)))

    def _append(self, partition: Partition, data: bytes) -> None:
        results = Results()
        partition.gather(AppendEntry(memoryview(bytearray(data)), PRODUCE_VERSION), results, 0)
        partition.settle()
        assert [one.error_code for one in results.stored] == [ErrorCode.NONE]
        self.node.settle()

    def state(self, partition: int = 0, group: str = "g") -> StoredState | None:
        """What is stored of a share partition."""
        key = SharePartitionKey(group, self.topic_id(), partition)
        return self.coordinator.shards.ready(key.text).states.get(key)

    def counts(self) -> tuple[int, int, int]:
        """Sessions, share partitions in use, and states."""
        coordinator = self.coordinator
        return coordinator.session_count, len(list(coordinator.used)), coordinator.state_count

    def deny(self, *names: str) -> None:
        """Let clients have no right to these names; without any, every right."""
        object.__setattr__(self.node.services, "authorizer", Denial(frozenset(names)))  # frozen

    # --- requests ----------------------------------------------------------------------------------------------------

    def begin(
        self, request: Request, version: int, peer: Peer | None = None, quota: RequestQuota | None = None
    ) -> Pending[Response]:
        """Hand a request to its handler as it comes over the wire; nothing is flushed or synced yet."""
        api = REGISTRY[request.message_key]
        context = Context(self.node.services, api.key, version, connection=peer or Peer())
        context.quota = quota
        pending: Pending[Response] = Pending()
        try:
            answer = HANDLERS[ApiKey(api.key)]().handle(
                decode(type(request), encode(request, version), version), context
            )
        except KafkaError as refusal:
            pending.fail(refusal)
            return pending
        if isinstance(answer, Pending):
            return answer
        pending.complete(answer)
        return pending

    def answer(self, pending: Pending[Response], kind: type[R], version: int) -> R:
        """The answer, once everything is on the disk. Raises KafkaError."""
        for _ in range(MOST_STEPS):
            self.node.settle()
            if pending.done:
                break
            self.node.run_due()
        assert pending.done, "the answer is still pending after every sync has run"
        if pending.error is not None:
            raise pending.error
        assert isinstance(pending.response, kind)
        return decode(kind, encode(pending.response, version), version)

    def heartbeat(self, member_id: str, epoch: int = 0, group: str = "g", topics: Sequence[str] | None = ("t",)) -> Any:
        """A member of the group itself, which fetching needs not."""
        names = None if topics is None else list(topics)
        answer = ask(
            self.node,
            ShareGroupHeartbeatRequest(
                group_id=group, member_id=member_id, member_epoch=epoch, subscribed_topic_names=names
            ),
            1,
        )
        assert isinstance(answer, ShareGroupHeartbeatResponse)
        return answer


class Denial:
    """An authorizer that allows everything but some names."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def is_allowed(self, peer: Peer, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        return name not in self._names


class Reader:
    """A member's share session; its epochs go up by themselves."""

    def __init__(
        self, broker: ShareNode, member_id: str = "a", *, group: str = "g", partitions: Sequence[int] = (0,)
    ) -> None:
        self.broker = broker
        self.group, self.member_id = group, member_id
        self.peer = Peer()
        self.epoch = 0
        self.partitions = partitions
        self.topic_id = broker.topic_id()
        self.quota: RequestQuota | None = None

    def fetch_request(self, *said: Said, partition: int = 0, **fields: Any) -> ShareFetchRequest:
        """A request of the session's next epoch; the first one names the partitions."""
        named: dict[int, list[ShareFetchRequest.AcknowledgementBatch]] = {}
        if self.epoch == 0:
            named = {index: [] for index in self.partitions}
        if said:
            named[partition] = [_batch(ShareFetchRequest.AcknowledgementBatch, one) for one in said]
        partitions = [
            ShareFetchRequest.FetchPartition(partition_index=index, acknowledgement_batches=batches)
            for index, batches in named.items()
        ]
        topics = [ShareFetchRequest.FetchTopic(topic_id=self.topic_id, partitions=partitions)] if partitions else []
        usual = {
            "share_session_epoch": self.epoch,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_records": 1_000,
            "batch_size": 1,
            "topics": topics,
            "forgotten_topics_data": [],
        }
        if fields.get("is_renew_ack"):
            usual |= {"min_bytes": 0, "max_records": 0, "max_bytes": 0}
        return ShareFetchRequest(group_id=self.group, member_id=self.member_id, **{**usual, **fields})

    def begin_fetch(self, *said: Said, partition: int = 0, **fields: Any) -> Pending[Response]:
        """Send a ShareFetch, which may wait."""
        pending = self.broker.begin(self.fetch_request(*said, partition=partition, **fields), 2, self.peer, self.quota)
        if pending.error is None:
            self.epoch += 1
        return pending

    def begin_wait(self, wait_ms: int = WAIT_MS, **fields: Any) -> Pending[Response]:
        """Send a ShareFetch that has to wait."""
        pending = self.begin_fetch(max_wait_ms=wait_ms, **fields)
        self.broker.node.settle()
        assert not pending.done, pending.error or pending.response
        return pending

    def answer(self, pending: Pending[Response]) -> ShareFetchResponse:
        """The answer to a ShareFetch. Raises KafkaError."""
        return self.broker.answer(pending, ShareFetchResponse, 2)

    def fetch(self, *said: Said, partition: int = 0, **fields: Any) -> ShareFetchResponse:
        """A ShareFetch and its answer. Raises KafkaError."""
        return self.answer(self.begin_fetch(*said, partition=partition, **fields))

    def take(self, *said: Said, **fields: Any) -> list[tuple[int, int, int]]:
        """(first offset, last offset, deliveries) of what a ShareFetch brings of the first partition."""
        return acquired(self.fetch(*said, **fields))

    def close(self) -> None:
        """End the session."""
        self.epoch = -1
        self.fetch()

    def acknowledge_request(self, *said: Said, partition: int = 0, **fields: Any) -> ShareAcknowledgeRequest:
        """A ShareAcknowledge of the session's next epoch."""
        partitions = [
            ShareAcknowledgeRequest.AcknowledgePartition(
                partition_index=partition,
                acknowledgement_batches=[_batch(ShareAcknowledgeRequest.AcknowledgementBatch, one) for one in said],
            )
        ]
        topics = [ShareAcknowledgeRequest.AcknowledgeTopic(topic_id=self.topic_id, partitions=partitions)]
        usual = {"share_session_epoch": self.epoch, "topics": topics}
        return ShareAcknowledgeRequest(group_id=self.group, member_id=self.member_id, **{**usual, **fields})

    def begin_acknowledge(self, *said: Said, partition: int = 0, **fields: Any) -> Pending[Response]:
        """Send a ShareAcknowledge."""
        pending = self.broker.begin(self.acknowledge_request(*said, partition=partition, **fields), 2, self.peer)
        if pending.error is None:
            self.epoch += 1
        return pending

    def acknowledge(self, *said: Said, partition: int = 0, **fields: Any) -> ErrorCode:
        """The code for the partition. Raises KafkaError."""
        pending = self.begin_acknowledge(*said, partition=partition, **fields)
        response = self.broker.answer(pending, ShareAcknowledgeResponse, 2)
        ((topic_id, (data,)),) = [(topic.topic_id, topic.partitions) for topic in response.responses]
        assert (topic_id, data.partition_index) == (self.topic_id, partition)
        return ErrorCode.of(data.error_code)


def data_of(response: ShareFetchResponse, partition: int = 0) -> ShareFetchResponse.PartitionData | None:
    """A partition's part of an answer, if it has one."""
    found = [one for topic in response.responses for one in topic.partitions if one.partition_index == partition]
    assert len(found) <= 1
    return found[0] if found else None


def acquired(response: ShareFetchResponse, partition: int = 0) -> list[tuple[int, int, int]]:
    """(first offset, last offset, deliveries) of what a member got."""
    data = data_of(response, partition)
    if data is None:
        return []
    assert data.error_code == ErrorCode.NONE, data
    return [(one.first_offset, one.last_offset, one.delivery_count) for one in data.acquired_records]


def _batch(kind: type[Any], said: Said) -> Any:
    first_offset, last_offset, types = said
    return kind(first_offset=first_offset, last_offset=last_offset, acknowledge_types=list(types))
