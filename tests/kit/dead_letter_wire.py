"""Dead letters of share groups (KIP-1191) by raw frames: their feature, topics and settings, and what is in them."""

from __future__ import annotations

import time
from typing import Any, Final, NamedTuple

from kit.wire import PATIENCE_S, Wire

from ottla.protocol.api.api_versions import ApiVersionsRequest
from ottla.protocol.api.create_topics import CreateTopicsRequest
from ottla.protocol.api.fetch import FetchRequest
from ottla.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.api.produce import ProduceRequest
from ottla.protocol.api.update_features import UpdateFeaturesRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import decode_batch, iter_batches
from ottla.protocol.records.builder import BatchBuilder
from ottla.protocol.records.compression import Compression

TOPIC_NAME: Final = "errors.deadletterqueue.topic.name"
COPY: Final = "errors.deadletterqueue.copy.record.enable"
IS_DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.group.enable"
AUTO_CREATE: Final = "errors.deadletterqueue.auto.create.topics.enable"
PREFIX: Final = "errors.deadletterqueue.topic.name.prefix"
TOPIC, BROKER, GROUP = 2, 4, 32
HEADER: Final = "__dlq.errors."
SHARE_VERSION: Final = "share.version"


class DeadLetter(NamedTuple):
    """A record of such a topic; `headers` without `__dlq.errors.`."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, str]

    @property
    def offset(self) -> int:
        """The offset of the record that it is about."""
        return int(self.headers["offset"])


def serve_dead_letters(wire: Wire) -> None:
    """Raise share.version to 2, where it is lower."""
    features = wire.call(ApiVersionsRequest(client_software_name="wire", client_software_version="1"), 4)
    if any(one.name == SHARE_VERSION and one.max_version_level >= 2 for one in features.finalized_features):
        return
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature=SHARE_VERSION, max_version_level=2)
    answer = wire.call(UpdateFeaturesRequest(feature_updates=[update]), 1)
    assert answer.error_code == ErrorCode.NONE, answer


def alter_keys(wire: Wire, kind: int, name: str, changes: dict[str, str | None]) -> tuple[ErrorCode, str | None]:
    """Set keys of a resource; None deletes one. What is wrong with it."""
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(
            name=key, config_operation=0 if value is not None else 1, value=value
        )
        for key, value in changes.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=configs
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (altered,) = wire.call(request, 1).responses
    return ErrorCode.of(altered.error_code), altered.error_message


def create_dead_letter_topic(wire: Wire, name: str, partitions: int = 1, **settings: str) -> None:
    """A topic of dead letters; `settings` as in `max_message_bytes="1000"`."""
    configs = {IS_DEAD_LETTER_TOPIC: "true"} | {key.replace("_", "."): value for key, value in settings.items()}
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
            for key, value in configs.items()
            if value != "unset"
        ],
    )
    (made,) = wire.call(CreateTopicsRequest(topics=[topic]), 7).topics
    assert made.error_code == ErrorCode.NONE, made
    partition_count(wire, name, partitions)


def partition_count(wire: Wire, name: str, wanted: int = 0) -> int:
    """How many partitions with a leader a topic has, once it has so many; 0 without the topic."""
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    give_up = time.monotonic() + PATIENCE_S
    while True:
        (topic,) = wire.call(asked, 9).topics
        count: int = sum(one.leader_id >= 0 for one in topic.partitions)
        if count >= wanted:
            return count
        assert time.monotonic() < give_up, topic
        time.sleep(0.05)


def produce(
    wire: Wire,
    topic: str,
    *records: tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]],
    partition: int = 0,
    compression: Compression = Compression.NONE,
) -> None:
    """Write one batch of (key, value, headers)."""
    builder = BatchBuilder()
    for key, value, headers in records:
        builder.append(1_700_000_000_000, key, value, headers)
    data = ProduceRequest.PartitionProduceData(index=partition, records=bytes(builder.seal(compression=compression)))
    request = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    )
    give_up = time.monotonic() + PATIENCE_S
    while (answer := wire.call(request, 9).responses[0].partition_responses[0]).error_code:
        assert time.monotonic() < give_up, answer
        time.sleep(0.05)


def dead_letters(wire: Wire, topic: str, count: int, partitions: int = 1) -> list[DeadLetter]:
    """What is in a topic of dead letters, once it has so many."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        found = [letter for index in range(partitions) for letter in _read(wire, topic, index)]
        if len(found) >= count:
            return found
        assert time.monotonic() < give_up, found
        time.sleep(0.05)


def _read(wire: Wire, topic: str, index: int) -> list[DeadLetter]:
    found: list[DeadLetter] = []
    offset = 0
    while True:
        data = _fetch(wire, topic, index, offset)
        if data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not data.records:
            return found
        records = bytes(data.records)
        for position, header in iter_batches(records, allow_partial_tail=True):
            offset = header.next_offset
            for record in decode_batch(memoryview(records)[position:]):
                names = [name for name, _ in record.headers]
                assert all(name.startswith(HEADER) for name in names), "only what is said about the record"
                headers = {name.removeprefix(HEADER): (value or b"").decode() for name, value in record.headers}
                assert len(headers) == len(names)
                found.append(DeadLetter(index, record.key, record.value, headers))


def _fetch(wire: Wire, topic: str, index: int, offset: int) -> Any:
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 24,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[
            FetchRequest.FetchTopic(
                topic=topic,
                partitions=[
                    FetchRequest.FetchPartition(
                        partition=index, fetch_offset=offset, partition_max_bytes=1 << 24, log_start_offset=-1
                    )
                ],
            )
        ],
        forgotten_topics_data=[],
    )
    return wire.call(request, 11).responses[0].partitions[0]
