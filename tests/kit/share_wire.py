"""Members of share groups as raw frames: any request, nothing papered over; topics and groups for them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from kit.wire import PATIENCE_S, Wire
from kit.wire_groups import COMING_UP

from ottla.protocol.api.create_topics import CreateTopicsRequest
from ottla.protocol.api.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest
from ottla.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.api.produce import ProduceRequest
from ottla.protocol.api.share_acknowledge import ShareAcknowledgeRequest
from ottla.protocol.api.share_fetch import ShareFetchRequest
from ottla.protocol.api.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.builder import BatchBuilder

Place = tuple[UUID, int]
Said = tuple[int, int, list[int]]
"""An acknowledgement: the first and the last offset, and the types."""
GROUP_RESOURCE = 32


def create_topic(wire: Wire, partitions: int = 1) -> tuple[str, UUID]:
    """A new topic: its name and id."""
    name = f"t-{uuid.uuid4().hex}"
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    (made,) = wire.call(CreateTopicsRequest(topics=[topic]), 7).topics
    assert made.error_code == ErrorCode.NONE, made
    return name, made.topic_id


def produce_batches(wire: Wire, topic: str, *sizes: int, partition: int = 0) -> None:
    """Write record batches of so many records each."""
    for size in sizes:
        builder = BatchBuilder()
        for number in range(size):
            builder.append(1_700_000_000_000, None, b"v%d" % number)
        data = ProduceRequest.PartitionProduceData(index=partition, records=bytes(builder.seal()))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=10_000,
            topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
        )
        give_up = time.monotonic() + PATIENCE_S
        while (answer := wire.call(request, 9).responses[0].partition_responses[0]).error_code:
            assert time.monotonic() < give_up, answer
            time.sleep(0.05)  # Kafka creates topics after it has said so


def new_group(wire: Wire, **settings: str) -> str:
    """A share group that begins with the first record; `settings` as in `delivery_count_limit="2"`."""
    group_id = f"g-{uuid.uuid4().hex}"
    changes = {"auto_offset_reset": "earliest"} | settings
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=GROUP_RESOURCE,
                resource_name=group_id,
                configs=[
                    IncrementalAlterConfigsRequest.AlterableConfig(
                        name=f"share.{key.replace('_', '.')}", config_operation=0, value=value
                    )
                    for key, value in changes.items()
                ],
            )
        ],
        validate_only=False,
    )
    (altered,) = wire.call(request, 1).responses
    assert altered.error_code == ErrorCode.NONE, altered
    await_coordinator(wire, group_id)
    return group_id


def await_coordinator(wire: Wire, group_id: str) -> None:
    """Ask until the group's coordinator answers."""
    give_up = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up:
        (found,) = wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id]), 4).coordinators
        if found.error_code == ErrorCode.NONE and described(wire, group_id).error_code not in COMING_UP:
            return
        time.sleep(0.05)
    raise AssertionError(f"no coordinator of {group_id} within {PATIENCE_S} s")


def described(wire: Wire, group_id: str) -> Any:
    """The group as ShareGroupDescribe has it."""
    request = ShareGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    return wire.call(request, 1).groups[0]


def offsets(wire: Wire, group_id: str, topics: Mapping[str, list[int]] | None = None) -> Any:
    """The group as DescribeShareGroupOffsets has it."""
    kind = DescribeShareGroupOffsetsRequest
    wanted = None
    if topics is not None:
        wanted = [
            kind.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=partitions)
            for name, partitions in topics.items()
        ]
    group = kind.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=wanted)
    return wire.call(kind(groups=[group]), 1).groups[0]


class ShareWireMember:
    """One member of one share group; `session_epoch` is that of its next ShareFetch or ShareAcknowledge."""

    def __init__(self, port: int, group_id: str, places: Sequence[Place] = ()) -> None:
        """`places`: those that its first ShareFetch names."""
        self.wire = Wire(port)
        self.group_id = group_id
        self.member_id = str(uuid.uuid4())
        self.member_epoch = 0
        self.session_epoch = 0
        self._places = list(places)

    def heartbeat(self, epoch: int | None = None, topics: list[str] | None = None, rack: str | None = None) -> Any:
        """Send a ShareGroupHeartbeat; a good answer's epoch is that of the next one."""
        request = ShareGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.member_epoch if epoch is None else epoch,
            rack_id=rack,
            subscribed_topic_names=topics,
        )
        answer = self.wire.call(request, 1)
        if answer.error_code == ErrorCode.NONE:
            self.member_epoch = answer.member_epoch
        return answer

    def join(self, *topics: str) -> Any:
        """Join, and wait for partitions: Kafka assigns them when their states are made."""
        answer = self.heartbeat(0, list(topics))
        give_up = time.monotonic() + PATIENCE_S
        while answer.error_code == ErrorCode.NONE and (
            answer.assignment is None or not answer.assignment.topic_partitions
        ):
            assert time.monotonic() < give_up, "no partitions came"
            time.sleep(0.1)
            answer = self.heartbeat()
        assert answer.error_code == ErrorCode.NONE, answer
        return answer

    def fetch(
        self,
        places: Iterable[Place] = (),
        *,
        epoch: int | None = None,
        acknowledged: Mapping[Place, Sequence[Said]] | None = None,
        forgotten: Iterable[Place] = (),
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        max_records: int = 500,
        batch_size: int = 500,
        mode: int = 0,
        is_renewal: bool = False,
    ) -> Any:
        """Send a ShareFetch. One without an error moves the session on."""
        self.send_fetch(
            places,
            epoch=epoch,
            acknowledged=acknowledged,
            forgotten=forgotten,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            max_records=max_records,
            batch_size=batch_size,
            mode=mode,
            is_renewal=is_renewal,
        )
        return self.read_fetch()

    def send_fetch(
        self,
        places: Iterable[Place] = (),
        *,
        epoch: int | None = None,
        acknowledged: Mapping[Place, Sequence[Said]] | None = None,
        forgotten: Iterable[Place] = (),
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        max_records: int = 500,
        batch_size: int = 500,
        mode: int = 0,
        is_renewal: bool = False,
    ) -> None:
        """As `fetch`, without waiting for the answer."""
        kind = ShareFetchRequest
        said = acknowledged or {}
        self._sent_epoch = self.session_epoch if epoch is None else epoch
        if self._sent_epoch == 0:
            places = [*self._places, *places]
        topics: dict[UUID, list[ShareFetchRequest.FetchPartition]] = {}
        for topic_id, index in dict.fromkeys([*places, *said]):
            batches = [
                kind.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                for first, last, types in said.get((topic_id, index), ())
            ]
            one = kind.FetchPartition(partition_index=index, acknowledgement_batches=batches)
            topics.setdefault(topic_id, []).append(one)
        request = kind(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=self._sent_epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            max_records=max_records,
            batch_size=batch_size,
            share_acquire_mode=mode,
            is_renew_ack=is_renewal,
            topics=[kind.FetchTopic(topic_id=topic_id, partitions=some) for topic_id, some in topics.items()],
            forgotten_topics_data=[
                kind.ForgottenTopic(topic_id=topic_id, partitions=[index]) for topic_id, index in forgotten
            ],
        )
        self.wire.send_request(request, 2)

    def read_fetch(self) -> Any:
        """The answer to `send_fetch`."""
        answer = self.wire.read_answer(ShareFetchRequest, 2)
        if answer.error_code == ErrorCode.NONE:
            self.session_epoch = self._sent_epoch + 1
        return answer

    def first_records(self, **options: Any) -> list[tuple[int, int, int]]:
        """Fetch until records come, and say which: (first offset, last offset, delivery count) of one partition."""
        give_up = time.monotonic() + PATIENCE_S
        while not (found := acquired(self.fetch(**options))):
            assert time.monotonic() < give_up, "no records came"
        return found

    def records(self, **options: Any) -> list[tuple[int, int, int]]:
        """Fetch once: (first offset, last offset, delivery count) of the records that were acquired."""
        return acquired(self.fetch(**options))

    def acknowledge(
        self,
        said: Mapping[Place, Sequence[Said]] | Sequence[tuple[Place, Sequence[Said]]],
        *,
        epoch: int | None = None,
        is_renewal: bool = False,
    ) -> Any:
        """Send a ShareAcknowledge. One without an error moves the session on."""
        kind = ShareAcknowledgeRequest
        sent_epoch = self.session_epoch if epoch is None else epoch
        topics: dict[UUID, list[ShareAcknowledgeRequest.AcknowledgePartition]] = {}
        for (topic_id, index), some in said.items() if isinstance(said, Mapping) else said:
            batches = [
                kind.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                for first, last, types in some
            ]
            one = kind.AcknowledgePartition(partition_index=index, acknowledgement_batches=batches)
            topics.setdefault(topic_id, []).append(one)
        request = kind(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=sent_epoch,
            is_renew_ack=is_renewal,
            topics=[kind.AcknowledgeTopic(topic_id=topic_id, partitions=some) for topic_id, some in topics.items()],
        )
        answer = self.wire.call(request, 2)
        if answer.error_code == ErrorCode.NONE:
            self.session_epoch = sent_epoch + 1
        return answer

    def result(self, place: Place, *said: Said, is_renewal: bool = False) -> ErrorCode:
        """What comes of acknowledgements of one partition."""
        answer = self.acknowledge({place: said}, is_renewal=is_renewal)
        assert answer.error_code == ErrorCode.NONE, answer
        ((one,),) = [topic.partitions for topic in answer.responses]
        return ErrorCode.of(one.error_code)

    def close(self) -> None:
        """End the connection."""
        self.wire.socket.close()


def acquired(answer: Any) -> list[tuple[int, int, int]]:
    """(first offset, last offset, delivery count) of a ShareFetch's answer, neighbours joined: brokers divide them in
    different ways.
    """
    assert answer.error_code == ErrorCode.NONE, answer
    found: list[tuple[int, int, int]] = []
    for topic in answer.responses:
        for partition in topic.partitions:
            for one in partition.acquired_records:
                new = one.first_offset, one.last_offset, one.delivery_count
                if found and found[-1][1] + 1 == new[0] and found[-1][2] == new[2]:
                    new = found.pop()[0], new[1], new[2]
                found.append(new)
    return found


def refusals(answer: Any) -> dict[Place, ErrorCode]:
    """The errors of partitions in an answer to ShareFetch or ShareAcknowledge."""
    return {
        (topic.topic_id, one.partition_index): ErrorCode.of(one.error_code)
        for topic in answer.responses
        for one in topic.partitions
        if one.error_code
    }
