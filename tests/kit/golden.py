"""Messages as Apache Kafka's own classes write them, kept as files in `tests/protocol/golden`: `kafka-4.1.0.jsonl`, and
`kafka-4.4.0.jsonl` for those of share groups and streams groups, and for versions that Kafka 4.1 does not have.

Each line has a message, a version, its fields in Kafka's JSON, and the bytes in hex. scripts/interop/wire-golden makes
the file from the jars of a Kafka distribution, so that tests need neither Java nor Kafka.
"""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from kit.kafka_json import from_kafka_json, to_kafka_json

from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.api.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.protocol.api.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.api.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.api.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.protocol.message import Message
from ottla.protocol.stored.control import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from ottla.protocol.stored.group import GROUP_RECORDS, GroupKey, GroupValue
from ottla.protocol.stored.metadata import (
    METADATA_RECORDS,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    UnregisterControllerRecord,
)
from ottla.protocol.stored.share_state import SHARE_STATE_RECORDS, ShareStateKey, ShareStateValue
from ottla.protocol.stored.transaction import TransactionLogKey, TransactionLogValue

GOLDEN_DIRECTORY = Path(__file__).parent.parent / "protocol" / "golden"
RELEASES = ("4.1.0", "4.4.0")
"""The releases of Kafka whose classes were asked: the second about messages of share and streams groups, and about
versions that the first does not have.
"""
NEWER_VERSIONS = {
    ApiKey.LIST_OFFSETS: 11,
    ApiKey.OFFSET_COMMIT: 10,
    ApiKey.OFFSET_FETCH: 10,
    ApiKey.API_VERSIONS: 5,
    ApiKey.TXN_OFFSET_COMMIT: 0,  # 4.2 has renamed a field
    ApiKey.WRITE_TXN_MARKERS: 2,
    ApiKey.DESCRIBE_LOG_DIRS: 5,
    ApiKey.DELETE_GROUPS: 3,
    ApiKey.UNREGISTER_BROKER: 0,
}
"""The first version that Kafka 4.1 does not have, of APIs that it has and whose other versions it was asked about."""
NEWER_RECORDS: dict[type[Message], int] = {
    RegisterBrokerRecord: 4,
    BrokerRegistrationChangeRecord: 3,
    UnregisterControllerRecord: 0,
}
"""The same for records of the metadata log."""
SHARE_APIS = (
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_DESCRIBE,
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
)
STREAMS_APIS = (
    ApiKey.STREAMS_GROUP_HEARTBEAT,
    ApiKey.STREAMS_GROUP_DESCRIBE,
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
)

REQUESTS_AND_RESPONSES: list[type[Message]] = [
    message for api in REGISTRY.values() for message in (api.request, api.response)
]
CONTROL_RECORDS: list[type[Message]] = [
    LeaderChangeMessage,
    SnapshotHeaderRecord,
    SnapshotFooterRecord,
    KRaftVersionRecord,
    VotersRecord,
]
ACL_APIS = (ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS)
DROPPED_BY_KAFKA: list[tuple[type[Message], int]] = [
    *((cls, version) for cls in (ProduceRequest, ProduceResponse) for version in range(3)),
    *((cls, version) for cls in (FetchRequest, FetchResponse) for version in range(4)),
    (ListOffsetsRequest, 0),
    (ListOffsetsResponse, 0),
    *((cls, version) for cls in (OffsetCommitRequest, OffsetCommitResponse) for version in range(2)),
    (OffsetFetchRequest, 0),
    (OffsetFetchResponse, 0),
    *((cls, version) for cls in (CreateTopicsRequest, CreateTopicsResponse) for version in range(2)),
    (DeleteTopicsRequest, 0),
    (DeleteTopicsResponse, 0),
    (DescribeConfigsRequest, 0),
    (DescribeConfigsResponse, 0),
    (DescribeLogDirsRequest, 0),
    (DescribeLogDirsResponse, 0),
    *((message, 0) for key in ACL_APIS for message in (REGISTRY[key].request, REGISTRY[key].response)),
]
"""Versions that Ottla serves and Kafka 4 no longer has; its classes cannot be asked about them."""
SAME_AS_THE_NEXT: list[tuple[type[Message], int]] = [(DescribeLogDirsRequest, 0)]
"""Of those, the ones whose schema says that the next version looks alike, and for which nobody else vouches:
kafka-python stated the partitions of a DescribeLogDirs 0 as one number instead of an array."""
GROUP_KEYS_AND_VALUES: list[type[Message]] = [cls for classes in GROUP_RECORDS.values() for cls in classes]
TRANSACTION_KEYS_AND_VALUES: list[type[Message]] = [TransactionLogKey, TransactionLogValue]
SHARE_KEYS_AND_VALUES: list[type[Message]] = [cls for classes in SHARE_STATE_RECORDS.values() for cls in classes]
CONSUMER_PROTOCOL: list[type[Message]] = [ConsumerProtocolSubscription, ConsumerProtocolAssignment]
ALL_MESSAGES: list[type[Message]] = [
    *REQUESTS_AND_RESPONSES,
    *CONTROL_RECORDS,
    *METADATA_RECORDS.values(),
    *GROUP_KEYS_AND_VALUES,
    *TRANSACTION_KEYS_AND_VALUES,
    *SHARE_KEYS_AND_VALUES,
    *CONSUMER_PROTOCOL,
]


class Golden(NamedTuple):
    """One message that Kafka wrote. Metadata records with their frame, those of other topics without their prefix."""

    cls: type[Message]
    version: int
    fields: dict[str, Any]
    data: bytes


def versions_of_kafka(cls: type[Message]) -> list[int]:
    """The versions of a message that Kafka 4.1 or 4.4 has too."""
    return [version for version in cls.message_versions.versions() if (cls, version) not in DROPPED_BY_KAFKA]


def golden_file(release: str) -> Path:
    """The messages that the classes of a release wrote."""
    return GOLDEN_DIRECTORY / f"kafka-{release}.jsonl"


def release_of(cls: type[Message], version: int) -> str:
    """The release whose class was asked about a version of a message."""
    if cls in REQUESTS_AND_RESPONSES and version >= NEWER_VERSIONS.get(ApiKey(cls.message_key), version + 1):
        return RELEASES[1]
    if version >= NEWER_RECORDS.get(cls, version + 1):
        return RELEASES[1]
    apis = (REGISTRY[key] for key in (*SHARE_APIS, *STREAMS_APIS))
    is_of_newer_groups = (
        cls in SHARE_KEYS_AND_VALUES
        or cls in [message for api in apis for message in (api.request, api.response)]
        or (issubclass(cls, GroupKey | GroupValue) and cls.__name__.startswith(("ShareGroup", "StreamsGroup")))
    )
    return RELEASES[is_of_newer_groups]


def java_class(cls: type[Message]) -> str:
    """The name of Kafka's class."""
    if issubclass(cls, MetadataRecord):
        return f"org.apache.kafka.common.metadata.{cls.__name__}"
    if issubclass(cls, GroupKey | GroupValue):
        return f"org.apache.kafka.coordinator.group.generated.{cls.__name__}"
    if cls in TRANSACTION_KEYS_AND_VALUES:
        return f"org.apache.kafka.coordinator.transaction.generated.{cls.__name__}"
    if issubclass(cls, ShareStateKey | ShareStateValue):
        return f"org.apache.kafka.coordinator.share.generated.{cls.__name__}"
    suffix = "Data" if cls in REQUESTS_AND_RESPONSES else ""
    return f"org.apache.kafka.common.message.{cls.__name__}{suffix}"


@cache
def golden_messages() -> list[Golden]:
    """All that the files hold."""
    return [one for release in RELEASES for one in read_golden(golden_file(release))]


def read_golden(file: Path) -> list[Golden]:
    """The messages of a file; those of classes that are gone are left out."""
    by_name = {cls.__name__: cls for cls in ALL_MESSAGES}
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").rstrip("\n").split("\n")]
    return [
        Golden(by_name[line["message"]], line["version"], line["fields"], bytes.fromhex(line["hex"]))
        for line in lines
        if line["message"] in by_name
    ]


def kept_fields(file: Path) -> dict[tuple[type[Message], int], list[dict[str, Any]]]:
    """The fields of the messages in a file, by class and version, without versions whose declaration has changed: they
    have to be drawn again.
    """
    kept: dict[tuple[type[Message], int], list[dict[str, Any]]] = defaultdict(list)
    changed: set[tuple[type[Message], int]] = set()
    for one in read_golden(file) if file.exists() else ():
        key = one.cls, one.version
        if one.version in versions_of_kafka(one.cls) and _fits(one):
            kept[key].append(one.fields)
        else:
            changed.add(key)
    return {key: fields for key, fields in kept.items() if key not in changed}


def _fits(one: Golden) -> bool:
    """Whether the declaration has these fields, and no others."""
    try:
        return to_kafka_json(from_kafka_json(one.cls, one.version, one.fields), one.version) == one.fields
    except (AttributeError, KeyError, TypeError, ValueError):
        return False
