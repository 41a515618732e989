"""The metadata image: the state that the records of `__cluster_metadata-0` describe.

Pure: no files, no clock, no loop. `replay(record)` is the only way to change the image, so a running broker and a
restarted one use the same code. The inverse is `image_records.py`, which depends on the parts that a replay replaces
and those that it changes in place.

Invariants: a topic's name and id refer to the same `TopicState`; a partition belongs to an existing topic; a
configuration that was set to null is absent. A record that violates them raises MetadataError: the log is damaged.

Records of Kafka that this broker does not interpret are kept in their order, so that a snapshot loses nothing. Records
inside a metadata transaction (KIP-868; Kafka's controller bootstraps with one) take effect at its end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from ottla.broker.metadata.acls import Acl, acl_of
from ottla.broker.metadata.metadata_version import (
    METADATA_VERSION_FEATURE,
    METADATA_VERSION_MAX,
    METADATA_VERSION_MIN,
)
from ottla.broker.metadata.partition_state import PartitionState, changed_state, partition_state
from ottla.plain import Plain, field
from ottla.protocol.stored.metadata import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
)
from ottla.storage.formats.layout import topic_name_problem

if TYPE_CHECKING:
    from ottla.broker.metadata.tokens import DelegationToken

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32
"""Resource types of ConfigRecord (Kafka's ConfigResource.Type)."""

QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""The entity of a quota: (type, name) pairs, sorted by type; a name of None is the default of that type."""


class MetadataError(Exception):
    """The metadata cannot be read or is inconsistent; the text is one line for the user."""


class TopicState(Plain):
    """A topic and its partitions by index."""

    name: str
    id: UUID
    partitions: dict[int, PartitionState] = field(factory=dict)


class MetadataImage(Plain):
    """See the module's text. `end_offset` is the offset after the last replayed record, `epoch` its raft epoch."""

    end_offset: int = 0
    epoch: int = 0
    features: dict[str, int] = field(factory=dict)
    brokers: dict[int, RegisterBrokerRecord] = field(factory=dict)
    topics: dict[str, TopicState] = field(factory=dict)
    topics_by_id: dict[UUID, TopicState] = field(factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(factory=dict)
    quotas: dict[QuotaEntity, dict[str, float]] = field(factory=dict)
    producer_ids: ProducerIdsRecord | None = None
    acls: dict[UUID, Acl] = field(factory=dict)
    acl_ids: dict[Acl, UUID] = field(factory=dict)
    """The newest id of each ACL."""
    scram_credentials: dict[tuple[int, str], UserScramCredentialRecord] = field(factory=dict)
    """SCRAM credentials by mechanism and user."""
    tokens: dict[str, DelegationToken] = field(factory=dict)
    """Delegation tokens by their ids."""
    controllers: dict[int, RegisterControllerRecord] = field(factory=dict)
    carried: list[MetadataRecord] = field(factory=list)
    partition_count: int = 0
    transaction: list[MetadataRecord] | None = None
    """Records of a transaction that has begun and not ended; no snapshot is taken while there is one."""
    removed_topics: dict[UUID, str] = field(factory=dict)
    """Names of topics that were removed after the snapshot, by id: a crash may have left their directories. The catalog
    drops a name when the directories are deleted. Not part of a snapshot.
    """

    def __eq__(self, other: object) -> bool:
        """Whether snapshots of both would have the same contents."""
        if not isinstance(other, MetadataImage):
            return NotImplemented
        not_compared: dict[str, object] = {"removed_topics": None}
        return self.field_values() | not_compared == other.field_values() | not_compared

    __hash__ = None  # mutable

    @property
    def next_producer_id(self) -> int:
        """The first producer id of the next block."""
        return 0 if self.producer_ids is None else self.producer_ids.next_producer_id

    def topic_configs(self, name: str) -> dict[str, str]:
        """The configuration overrides of a topic; empty if there are none."""
        return self.configs.get((TOPIC_RESOURCE, name), {})

    def group_configs(self, group_id: str) -> dict[str, str]:
        """The configuration of a consumer group; empty if there is none."""
        return self.configs.get((GROUP_RESOURCE, group_id), {})

    def replay(self, record: MetadataRecord) -> None:
        """Apply one record. Raises MetadataError if it refers to something missing, or creates it a second time."""
        if self.transaction is not None and not isinstance(record, EndTransactionRecord | AbortTransactionRecord):
            self.transaction.append(record)
            return
        handler = _REPLAY.get(type(record))
        if handler is None:
            self.carried.append(record)
        else:
            handler(self, record)

    def find_topic(self, key: str | UUID) -> TopicState | None:
        """The topic of that name or id; None if there is none."""
        return self.topics.get(key) if isinstance(key, str) else self.topics_by_id.get(key)

    def topic_of(self, topic_id: UUID, record: MetadataRecord) -> TopicState:
        """The topic of this id. Raises MetadataError with the type of the record."""
        topic = self.topics_by_id.get(topic_id)
        if topic is None:
            raise MetadataError(f"{type(record).__name__} names topic id {topic_id}, which does not exist")
        return topic


def _feature_level(image: MetadataImage, record: FeatureLevelRecord) -> None:
    is_known = METADATA_VERSION_MIN <= record.feature_level <= METADATA_VERSION_MAX
    if record.name == METADATA_VERSION_FEATURE and not is_known:
        raise MetadataError(
            f"metadata.version {record.feature_level} is outside of what this version reads"
            f" ({METADATA_VERSION_MIN} to {METADATA_VERSION_MAX})"
        )
    # Level 0 is kept, unlike in Kafka: at the next start a removed feature must not look like a new one.
    image.features[record.name] = record.feature_level


def _register_broker(image: MetadataImage, record: RegisterBrokerRecord) -> None:
    if record.cordoned_log_dirs is None:
        image.brokers[record.broker_id] = record
    else:  # not kept: snapshots are written in a version without them
        _amend_broker(
            image,
            record,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=list(record.log_dirs),
        )


def _unregister_broker(image: MetadataImage, record: UnregisterBrokerRecord) -> None:
    image.brokers.pop(record.broker_id, None)


def _registered(image: MetadataImage, broker_id: int, record: MetadataRecord) -> RegisterBrokerRecord:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise MetadataError(f"{type(record).__name__} names broker {broker_id}, which is not registered")
    return broker


def _registration_change(image: MetadataImage, record: BrokerRegistrationChangeRecord) -> None:
    broker = _registered(image, record.broker_id, record)
    _amend_broker(
        image,
        broker,
        fenced=broker.fenced if record.fenced == 0 else record.fenced > 0,
        in_controlled_shutdown=broker.in_controlled_shutdown or record.in_controlled_shutdown > 0,
        log_dirs=list(record.log_dirs) or list(broker.log_dirs),
    )


def _fence_broker(image: MetadataImage, record: FenceBrokerRecord) -> None:
    _fence(image, record, record.id, fenced=True)


def _unfence_broker(image: MetadataImage, record: UnfenceBrokerRecord) -> None:
    _fence(image, record, record.id, fenced=False)


def _fence(image: MetadataImage, record: MetadataRecord, broker_id: int, *, fenced: bool) -> None:
    broker = _registered(image, broker_id, record)
    _amend_broker(
        image,
        broker,
        fenced=fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
    )


def _amend_broker(
    image: MetadataImage, old: RegisterBrokerRecord, *, fenced: bool, in_controlled_shutdown: bool, log_dirs: list[UUID]
) -> None:
    """Replace the record, never change it in place: a batch that was replayed may still refer to it."""
    image.brokers[old.broker_id] = RegisterBrokerRecord(
        broker_id=old.broker_id,
        is_migrating_zk_broker=old.is_migrating_zk_broker,
        incarnation_id=old.incarnation_id,
        broker_epoch=old.broker_epoch,
        end_points=old.end_points,
        features=old.features,
        rack=old.rack,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        log_dirs=log_dirs,
    )


def _topic(image: MetadataImage, record: TopicRecord) -> None:
    problem = topic_name_problem(record.name)
    if problem is not None:  # names are also directory names
        raise MetadataError(f"TopicRecord {record.topic_id}: {problem}")
    if record.name in image.topics or record.topic_id in image.topics_by_id:
        raise MetadataError(f"TopicRecord creates {record.name} ({record.topic_id}), which exists already")
    topic = TopicState(record.name, record.topic_id)
    image.topics[record.name] = image.topics_by_id[record.topic_id] = topic


def _remove_topic(image: MetadataImage, record: RemoveTopicRecord) -> None:
    topic = image.topic_of(record.topic_id, record)
    del image.topics[topic.name]
    del image.topics_by_id[topic.id]
    image.configs.pop((TOPIC_RESOURCE, topic.name), None)
    image.partition_count -= len(topic.partitions)
    image.removed_topics[topic.id] = topic.name


def _partition(image: MetadataImage, record: PartitionRecord) -> None:
    topic = image.topic_of(record.topic_id, record)
    if record.partition_id not in topic.partitions:
        image.partition_count += 1
    topic.partitions[record.partition_id] = partition_state(record)


def _partition_change(image: MetadataImage, record: PartitionChangeRecord) -> None:
    topic = image.topic_of(record.topic_id, record)
    old = topic.partitions.get(record.partition_id)
    if old is None:
        raise MetadataError(
            f"PartitionChangeRecord names partition {record.partition_id} of {topic.name}, which does not exist"
        )
    topic.partitions[record.partition_id] = changed_state(old, record)


def _config(image: MetadataImage, record: ConfigRecord) -> None:
    key = (record.resource_type, record.resource_name)
    if record.value is not None:
        image.configs.setdefault(key, {})[record.name] = record.value
        return
    values = image.configs.get(key)
    if values is not None:
        values.pop(record.name, None)
        if not values:
            del image.configs[key]


def _client_quota(image: MetadataImage, record: ClientQuotaRecord) -> None:
    entity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
    if not record.remove:
        image.quotas.setdefault(entity, {})[record.key] = record.value
        return
    quotas = image.quotas.get(entity)
    if quotas is not None:
        quotas.pop(record.key, None)
        if not quotas:
            del image.quotas[entity]


def _producer_ids(image: MetadataImage, record: ProducerIdsRecord) -> None:
    if record.next_producer_id < image.next_producer_id:
        raise MetadataError(f"ProducerIdsRecord goes back from {image.next_producer_id} to {record.next_producer_id}")
    image.producer_ids = record


def _acl(image: MetadataImage, record: AccessControlEntryRecord) -> None:
    """Add an ACL; it replaces one with the same id."""
    if record.id in image.acls:
        _forget_acl(image, record.id)
    acl = image.acls[record.id] = acl_of(record)
    image.acl_ids[acl] = record.id


def _remove_acl(image: MetadataImage, record: RemoveAccessControlEntryRecord) -> None:
    if record.id not in image.acls:
        raise MetadataError(f"RemoveAccessControlEntryRecord names ACL {record.id}, which does not exist")
    _forget_acl(image, record.id)


def _forget_acl(image: MetadataImage, acl_id: UUID) -> None:
    acl = image.acls.pop(acl_id)
    if image.acl_ids.get(acl) == acl_id:  # another Kafka may have written one ACL twice
        del image.acl_ids[acl]


def _scram_credential(image: MetadataImage, record: UserScramCredentialRecord) -> None:
    image.scram_credentials[(record.mechanism, record.name)] = record


def _token(image: MetadataImage, record: DelegationTokenRecord) -> None:
    from ottla.broker.metadata.tokens import token_of  # most brokers have none

    try:
        image.tokens[record.token_id] = token_of(record)
    except ValueError as error:
        raise MetadataError(f"DelegationTokenRecord {record.token_id}: {error}") from error


def _remove_token(image: MetadataImage, record: RemoveDelegationTokenRecord) -> None:
    image.tokens.pop(record.token_id, None)


def _remove_scram_credential(image: MetadataImage, record: RemoveUserScramCredentialRecord) -> None:
    image.scram_credentials.pop((record.mechanism, record.name), None)


def _register_controller(image: MetadataImage, record: RegisterControllerRecord) -> None:
    image.controllers[record.controller_id] = record


def _unregister_controller(image: MetadataImage, record: UnregisterControllerRecord) -> None:
    image.controllers.pop(record.controller_id, None)


def _begin_transaction(image: MetadataImage, record: BeginTransactionRecord) -> None:
    image.transaction = []


def _end_transaction(image: MetadataImage, record: EndTransactionRecord) -> None:
    if image.transaction is None:
        raise MetadataError("a metadata transaction ends that has not begun")
    records, image.transaction = image.transaction, None
    for each in records:
        image.replay(each)


def _abort_transaction(image: MetadataImage, record: AbortTransactionRecord) -> None:
    image.transaction = None


def _nothing(image: MetadataImage, record: MetadataRecord) -> None:
    """Do nothing: NoOpRecord only moves the offset, and ClearElrRecord concerns replicas, which one node lacks."""


_REPLAY: dict[type[MetadataRecord], Callable[[MetadataImage, Any], None]] = {
    FeatureLevelRecord: _feature_level,
    RegisterBrokerRecord: _register_broker,
    UnregisterBrokerRecord: _unregister_broker,
    BrokerRegistrationChangeRecord: _registration_change,
    FenceBrokerRecord: _fence_broker,
    UnfenceBrokerRecord: _unfence_broker,
    TopicRecord: _topic,
    RemoveTopicRecord: _remove_topic,
    PartitionRecord: _partition,
    PartitionChangeRecord: _partition_change,
    ConfigRecord: _config,
    ClientQuotaRecord: _client_quota,
    ProducerIdsRecord: _producer_ids,
    AccessControlEntryRecord: _acl,
    RemoveAccessControlEntryRecord: _remove_acl,
    UserScramCredentialRecord: _scram_credential,
    RemoveUserScramCredentialRecord: _remove_scram_credential,
    DelegationTokenRecord: _token,
    RemoveDelegationTokenRecord: _remove_token,
    NoOpRecord: _nothing,
    ClearElrRecord: _nothing,
    RegisterControllerRecord: _register_controller,
    UnregisterControllerRecord: _unregister_controller,
    BeginTransactionRecord: _begin_transaction,
    EndTransactionRecord: _end_transaction,
    AbortTransactionRecord: _abort_transaction,
}
