"""The bundled asyncio client: Producer, Consumer, ShareConsumer, Admin. It works with Ottla and with Apache Kafka.

    async with Producer("localhost:9092") as producer:
        await producer.send("greetings", b"hello", key=b"world")

    async with Consumer("localhost:9092", auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("greetings", 0)])
        async for record in consumer:
            print(record.offset, record.value)

Options have Kafka's names with underscores for dots. docs/client-options.md lists them all.
"""

from __future__ import annotations

from ottla.client.accumulator import Delivery
from ottla.client.admin import Admin
from ottla.client.admin_acl_results import Acl, AclFilter
from ottla.client.admin_group_results import GroupDescription, GroupListing, MemberDescription, ShareGroupOffset
from ottla.client.admin_results import (
    AdminError,
    ApiVersionRange,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigSynonym,
    FeatureLevels,
    NewTopic,
    PartitionDescription,
    ProducerState,
    TopicDescription,
)
from ottla.client.admin_settings_results import (
    ConfigChange,
    ConfigOperation,
    LogDirDescription,
    PartitionReassignment,
    ReplicaDescription,
)
from ottla.client.admin_streams_results import (
    StreamsInternalTopic,
    StreamsMember,
    StreamsSubtopology,
    StreamsTask,
    StreamsTasks,
    StreamsTopology,
)
from ottla.client.admin_token_results import DelegationToken
from ottla.client.admin_transaction_results import HangingTransaction, TransactionDescription, TransactionListing
from ottla.client.admin_users_results import (
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from ottla.client.consumer import Consumer
from ottla.client.errors import (
    AbortableTransactionError,
    AuthenticationFailed,
    BufferExhausted,
    ClientClosed,
    ClientFailed,
    ClientTimeout,
    CommitFailed,
    ConnectionLost,
    CorruptRecords,
    FatalTransactionError,
    KafkaError,
    LogTruncated,
    NoBrokersAvailable,
    OffsetOutOfRange,
    RebalanceListenerFailed,
    RecordTooLarge,
    UndecodableRecord,
    UnsupportedByBroker,
)
from ottla.client.groups.assignors import Assignor, GroupMember
from ottla.client.groups.listeners import RebalanceListener
from ottla.client.interceptors import ConsumerInterceptor, ProducerInterceptor
from ottla.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetAndTimestamp
from ottla.client.producer import Producer
from ottla.client.sent_records import Deliveries, RecordsNotSent, SentRecords
from ottla.client.share_consumer import ShareConsumer
from ottla.client.structs import (
    BrokerAddress,
    ConsumerRecord,
    GroupMetadata,
    OffsetAndMetadata,
    ProducerRecord,
    RecordMetadata,
    ShareRecord,
    TopicPartition,
)
from ottla.client.transactional import Transaction
from ottla.protocol.acls import AclOperation, PatternType, PermissionType, ResourceType
from ottla.protocol.api.share_fetch import AcknowledgeType
from ottla.protocol.errors import ErrorCode

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "AbortableTransactionError",
    "AcknowledgeType",
    "Acl",
    "AclFilter",
    "AclOperation",
    "Admin",
    "AdminError",
    "ApiVersionRange",
    "Assignor",
    "AuthenticationFailed",
    "BrokerAddress",
    "BufferExhausted",
    "ClientClosed",
    "ClientFailed",
    "ClientTimeout",
    "ClusterDescription",
    "CommitFailed",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "ConnectionLost",
    "Consumer",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "CorruptRecords",
    "DelegationToken",
    "Deliveries",
    "Delivery",
    "ErrorCode",
    "FatalTransactionError",
    "FeatureLevels",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupMetadata",
    "HangingTransaction",
    "KafkaError",
    "LogDirDescription",
    "LogTruncated",
    "MemberDescription",
    "NewTopic",
    "NoBrokersAvailable",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRange",
    "PartitionDescription",
    "PartitionReassignment",
    "PatternType",
    "PermissionType",
    "Producer",
    "ProducerInterceptor",
    "ProducerRecord",
    "ProducerState",
    "RebalanceListener",
    "RebalanceListenerFailed",
    "RecordMetadata",
    "RecordTooLarge",
    "RecordsNotSent",
    "ReplicaDescription",
    "ResourceType",
    "ScramCredentialInfo",
    "SentRecords",
    "ShareConsumer",
    "ShareGroupOffset",
    "ShareRecord",
    "StreamsInternalTopic",
    "StreamsMember",
    "StreamsSubtopology",
    "StreamsTask",
    "StreamsTasks",
    "StreamsTopology",
    "TopicDescription",
    "TopicPartition",
    "Transaction",
    "TransactionDescription",
    "TransactionListing",
    "UndecodableRecord",
    "UnsupportedByBroker",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
]
