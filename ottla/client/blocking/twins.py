"""The blocking clients' methods, generated from the asyncio ones by scripts/generate-blocking; do not edit.

It is an ordinary file so that editors show signatures and docstrings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, Unpack

from ottla.client.admin import Admin as AsyncAdmin
from ottla.client.admin_acl_results import Acl, AclFilter
from ottla.client.admin_group_results import GroupDescription, GroupListing, ShareGroupOffset
from ottla.client.admin_results import (
    ApiVersionRange,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    FeatureLevels,
    NewTopic,
    ProducerState,
    TopicDescription,
)
from ottla.client.admin_settings_results import (
    ConfigChange,
    LogDirDescription,
    PartitionReassignment,
    QuotaEntity,
)
from ottla.client.admin_token_results import DelegationToken
from ottla.client.admin_transaction_results import HangingTransaction, TransactionDescription, TransactionListing
from ottla.client.admin_users_results import (
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from ottla.client.blocking.loop_thread import Twin
from ottla.client.consumer import Consumer as AsyncConsumer
from ottla.client.consumer_options import ConsumerKeywords
from ottla.client.errors import (
    KafkaError,
)
from ottla.client.offsets import OffsetAndTimestamp
from ottla.client.options import AdminKeywords, Servers
from ottla.client.producer import Producer as AsyncProducer
from ottla.client.producer_options import ProducerKeywords
from ottla.client.share_consumer import ShareConsumer as AsyncShareConsumer
from ottla.client.share_consumer_options import ShareConsumerKeywords
from ottla.client.structs import (
    GroupMetadata,
    K,
    OffsetAndMetadata,
    TopicPartition,
    V,
)
from ottla.protocol.errors import ErrorCode


class ProducerMethods(Twin[AsyncProducer]):
    """The blocking twin of `ottla.client.Producer`, started by its first use. A context manager; else `close` it.

    `bootstrap_servers` is `host:port`, with commas or as a list; or a mapping of options under Kafka's dotted names,
    including `bootstrap.servers`. Options as keywords have underscores: `ProducerOptions` and `ClientOptions` describe
    them. Raises ValueError for an option that does not exist or is invalid.
    """

    def __init__(
        self, bootstrap_servers: Servers | Mapping[str, object] | None = None, **options: Unpack[ProducerKeywords]
    ) -> None:
        super().__init__(AsyncProducer(bootstrap_servers, **options))

    def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of a topic, which the broker may create; raises as `send`."""
        return self._await(self._inner.partitions_for(topic))

    def metrics(self) -> dict[str, float]:
        """Return the producer's metrics, by Kafka's metric names; NaN for those without any value yet.

        Times are in ms, sizes in bytes; rates, averages and maxima cover the last half to whole minute.
        """
        return self._call(self._inner.metrics)

    def begin_transaction(self) -> None:
        """Begin a transaction; records that are sent from now on belong to it.

        Raises RuntimeError while another one is open, FatalTransactionError when the producer cannot continue.
        """
        return self._await(self._inner.begin_transaction())

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Commit offsets of a group with the transaction, each that of the next record to read.

        `group` is `consumer.group_metadata()` of the consumer that has read: if the group has assigned its partitions
        to other members meanwhile, this raises AbortableTransactionError. Waits until the group's coordinator has
        accepted the offsets.
        """
        return self._await(self._inner.send_offsets_to_transaction(offsets, group))


class ConsumerMethods(Twin[AsyncConsumer[K, V]], Generic[K, V]):
    """The blocking twin of `ottla.client.Consumer`, started by its first use. A context manager; else `close` it.

    `bootstrap_servers` is `host:port`, with commas or as a list; or a mapping of options under Kafka's dotted names,
    including `bootstrap.servers`. Options as keywords have underscores: `ConsumerOptions` and `ClientOptions` describe
    them. The deserializers convert bytes to keys and values, and determine the type of the records. Raises ValueError
    for an option that does not exist or is invalid.
    """

    def __init__(
        self,
        bootstrap_servers: Servers | Mapping[str, object] | None = None,
        *,
        key_deserializer: Callable[[bytes], K] | None = None,
        value_deserializer: Callable[[bytes], V] | None = None,
        **options: Unpack[ConsumerKeywords],
    ) -> None:
        super().__init__(
            AsyncConsumer(
                bootstrap_servers, key_deserializer=key_deserializer, value_deserializer=value_deserializer, **options
            )
        )

    def subscription(self) -> list[str]:
        """Return the subscribed topics, sorted; for a pattern, those matching topics that are known."""
        return self._call(self._inner.subscription)

    def group_metadata(self) -> GroupMetadata:
        """Return this consumer's identity in its group; raises KafkaError INVALID_GROUP_ID without a `group_id`."""
        return self._call(self._inner.group_metadata)

    def consumed_for_transaction(self) -> tuple[GroupMetadata, dict[TopicPartition, OffsetAndMetadata]]:
        """Return this consumer's identity in its group and its offsets, which `Transaction.send_offsets` commits.

        Raises ValueError with `enable_auto_commit`, which would commit outside of the transaction, CommitFailed while a
        subscribed consumer is not a member of its group, KafkaError INVALID_GROUP_ID without a `group_id`.
        """
        return self._call(self._inner.consumed_for_transaction)

    def hear_refused_transaction(self, group: GroupMetadata, code: ErrorCode) -> None:
        """Note that offsets in a transaction for `group` were refused; `Transaction` calls this.

        A member that its group does not know any more joins again with the next poll.
        """
        return self._call(self._inner.hear_refused_transaction, group, code)

    def commit(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None, *, timeout_ms: int | None = None
    ) -> None:
        """Commit offsets, each that of the next record to read; None: the positions of all assigned partitions.

        Waits for the broker's answer, at most `timeout_ms` (None: `default_api_timeout_ms`). Raises CommitFailed when
        the group has assigned the partitions to other members, KafkaError for other refusals.
        """
        return self._await(self._inner.commit(offsets, timeout_ms=timeout_ms))

    def committed(
        self, *partitions: tuple[str, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets of partitions (without arguments: the assigned ones), None for none."""
        return self._await(self._inner.committed(*partitions, timeout_ms=timeout_ms))

    def seek_to_committed(self, *partitions: tuple[str, int]) -> None:
        """Continue these partitions, or all, at the group's committed offsets, like a consumer that starts.

        After an aborted transaction its input is read again from there. Raises KafkaError INVALID_GROUP_ID without a
        `group_id`.
        """
        return self._call(self._inner.seek_to_committed, *partitions)

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read these partitions from now on and no others. Those that were assigned before keep their position.

        With a `group_id` new ones begin at the group's committed offset. Raises RuntimeError during a subscription.
        """
        return self._call(self._inner.assign, partitions)

    def assign_topics(self, *topics: str) -> list[TopicPartition]:
        """Assign every partition of the topics, and return them; raises as `partitions_for`."""
        return self._await(self._inner.assign_topics(*topics))

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return self._call(self._inner.assignment)

    def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of a topic; raises KafkaError if it is not found within `default_api_timeout_ms`."""
        return self._await(self._inner.partitions_for(topic))

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Continue reading at `offset`. Records that were fetched already are dropped.

        Raises ValueError for an offset below 0 or above 2^63-1, TypeError for one that is no integer.
        """
        return self._call(self._inner.seek, partition, offset)

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Continue at the first offset of these partitions, or of all."""
        return self._call(self._inner.seek_to_beginning, *partitions)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Continue at the end of these partitions, or of all: the end when the broker is asked (see `position`)."""
        return self._call(self._inner.seek_to_end, *partitions)

    def seek_to_times(self, timestamps: Mapping[TopicPartition, int]) -> None:
        """Continue at the first record with that timestamp (ms) or later, at the end if there is none."""
        return self._await(self._inner.seek_to_times(timestamps))

    def position(self, partition: tuple[str, int]) -> int:
        """Return the offset of the next record of a partition; waits while it is being looked up.

        Raises the KafkaError of a failed look-up, ClientTimeout after `default_api_timeout_ms`, ValueError for a
        partition that is not, or no longer, assigned.
        """
        return self._await(self._inner.position(partition))

    def has_reached(self, partition: tuple[str, int], offset: int) -> bool:
        """Return whether every record of a partition below `offset` was read; waits while the position is looked up.

        Use this for results of `end_offsets`. If the last records of a log were removed by compaction, the position
        never reaches its end; then an answer of the leader shows that no more records come. Raises as `position`.
        """
        return self._await(self._inner.has_reached(partition, offset))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return, per partition, its first record with that timestamp (ms) or later; None if there is none."""
        return self._await(self._inner.offsets_for_times(timestamps))

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return self._await(self._inner.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition (for read_committed: the last stable one)."""
        return self._await(self._inner.end_offsets(partitions))

    def high_watermark(self, partition: tuple[str, int]) -> int:
        """Return the high watermark in the last answer, -1 before the first."""
        return self._call(self._inner.high_watermark, partition)

    def lag(self, partition: tuple[str, int]) -> int:
        """Return the number of offsets between the position and the end of the log; -1 before that is known."""
        return self._call(self._inner.lag, partition)

    def metrics(self) -> dict[str, float]:
        """Return the consumer's metrics, by Kafka's metric names; NaN for those without any value yet.

        Times are in ms, sizes in bytes; rates, averages and maxima cover the last half to whole minute.
        """
        return self._call(self._inner.metrics)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Return no records of these partitions until `resume`; fetched records are kept."""
        return self._call(self._inner.pause, *partitions)

    def resume(self, *partitions: tuple[str, int]) -> None:
        """End a `pause`."""
        return self._call(self._inner.resume, *partitions)

    def paused(self) -> list[TopicPartition]:
        """Return the paused partitions."""
        return self._call(self._inner.paused)


class ShareConsumerMethods(Twin[AsyncShareConsumer[K, V]], Generic[K, V]):
    """The blocking twin of `ottla.client.ShareConsumer`, started by its first use. A context manager; else `close` it.

    `bootstrap_servers` is `host:port`, with commas or as a list; or a mapping of options under Kafka's dotted names,
    including `bootstrap.servers`. Options as keywords have underscores: `ShareConsumerOptions` and `ClientOptions`
    describe them. The deserializers convert bytes to keys and values, and determine the type of the records. Raises
    ValueError for an option that does not exist or is invalid, and without a `group_id`.
    """

    def __init__(
        self,
        bootstrap_servers: Servers | Mapping[str, object] | None = None,
        *,
        key_deserializer: Callable[[bytes], K] | None = None,
        value_deserializer: Callable[[bytes], V] | None = None,
        **options: Unpack[ShareConsumerKeywords],
    ) -> None:
        super().__init__(
            AsyncShareConsumer(
                bootstrap_servers, key_deserializer=key_deserializer, value_deserializer=value_deserializer, **options
            )
        )

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read these topics, and no others. The following polls (`getone`, `getmany`, iteration) join the group.

        A topic that does not exist is read as soon as it does. Raises ValueError for an invalid name, and without one.
        """
        return self._call(self._inner.subscribe, topics)

    def unsubscribe(self) -> None:
        """End the subscription as `close` does, and leave the group; the consumer can subscribe again."""
        return self._await(self._inner.unsubscribe())

    def subscription(self) -> list[str]:
        """Return the subscribed topics, sorted."""
        return self._call(self._inner.subscription)

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that the group has assigned, sorted. Other members may have the same ones."""
        return self._call(self._inner.assignment)

    def commit(self, *, timeout_ms: int | None = None) -> dict[TopicPartition, KafkaError | None]:
        """Send all acknowledgements, and return the results by partition since the last `commit`: an error, or None.

        In implicit mode this accepts all records that the program has taken. Waits for the brokers' answers, at most
        `timeout_ms` (None: `default_api_timeout_ms`), and raises ClientTimeout after that. Acknowledgements that
        traveled with fetches are part of the results, too; each error is also logged. The usual errors:
        INVALID_RECORD_STATE if the lock of a record has ended, after which other members get it;
        SHARE_SESSION_NOT_FOUND, NETWORK_EXCEPTION and NOT_LEADER_OR_FOLLOWER if the broker has failed meanwhile.
        Records that were not acknowledged are delivered again.
        """
        return self._await(self._inner.commit(timeout_ms=timeout_ms))

    def metrics(self) -> dict[str, float]:
        """Return the consumer's metrics, by Kafka's metric names; NaN for those without any value yet.

        Times are in ms, sizes in bytes; rates, averages and maxima cover the last half to whole minute.
        """
        return self._call(self._inner.metrics)


class AdminMethods(Twin[AsyncAdmin]):
    """The blocking twin of `ottla.client.Admin`, started by its first use. A context manager; else `close` it.

    `bootstrap_servers` is `host:port`, with commas or as a list; or a mapping of options under Kafka's dotted names,
    including `bootstrap.servers`. Options as keywords have underscores: `AdminOptions` and `ClientOptions` describe
    them. Raises ValueError for an option that does not exist or is invalid.
    """

    def __init__(
        self, bootstrap_servers: Servers | Mapping[str, object] | None = None, **options: Unpack[AdminKeywords]
    ) -> None:
        super().__init__(AsyncAdmin(bootstrap_servers, **options))

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str | None] | None = None,
    ) -> None:
        """Create one topic; -1 means the broker's default. Raises KafkaError, such as TOPIC_ALREADY_EXISTS."""
        return self._await(
            self._inner.create_topic(
                name, partitions=partitions, replication_factor=replication_factor, configs=configs
            )
        )

    def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> None:
        """Create topics, or only check whether that is possible (`validate_only`); raises AdminError by topic."""
        return self._await(self._inner.create_topics(topics, validate_only=validate_only))

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics with all their records; raises AdminError by topic."""
        return self._await(self._inner.delete_topics(names))

    def create_partitions(self, totals: Mapping[str, int], *, validate_only: bool = False) -> None:
        """Grow topics to these numbers of partitions; raises AdminError by topic."""
        return self._await(self._inner.create_partitions(totals, validate_only=validate_only))

    def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """Return the names of all topics, sorted."""
        return self._await(self._inner.list_topics(include_internal=include_internal))

    def describe_topics(self, names: Sequence[str] | None = None) -> dict[str, TopicDescription]:
        """Return topics by name, all of them for None; raises AdminError by topic for those that do not exist."""
        return self._await(self._inner.describe_topics(names))

    def describe_cluster(self) -> ClusterDescription:
        """Return the brokers, the controller and the cluster's id."""
        return self._await(self._inner.describe_cluster())

    def describe_configs(
        self,
        resources: Sequence[ConfigResource],
        *,
        keys: Sequence[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Return configurations by name, all or those in `keys`; raises AdminError by resource name.

        The configuration of a broker is requested from that broker, others from any. For a broker that is not in the
        cluster, BROKER_NOT_AVAILABLE is raised immediately.
        """
        return self._await(
            self._inner.describe_configs(
                resources, keys=keys, include_synonyms=include_synonyms, include_documentation=include_documentation
            )
        )

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return, per partition, the first record with that timestamp (ms) or later, None where there is none.

        `EARLIEST`, `LATEST` and `MAX_TIMESTAMP` may be given as a timestamp. Raises KafkaError,
        UNKNOWN_TOPIC_OR_PARTITION at once for a topic that does not exist, and soon for a partition.
        """
        return self._await(self._inner.list_offsets(timestamps, read_committed=read_committed))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records before these offsets (-1: all records) and return the new start offset of each partition.

        Raises AdminError by `topic-partition`; a topic that does not exist is asked for again for half a second.
        """
        return self._await(self._inner.delete_records(before))

    def describe_features(self) -> dict[str, FeatureLevels]:
        """Return the features of the cluster by name: their current levels, and those that it supports."""
        return self._await(self._inner.describe_features())

    def describe_api_versions(self, node_id: int | None = None) -> list[ApiVersionRange]:
        """Return the APIs of a broker, of any by default, with the versions that it accepts; sorted by key.

        For a broker that is not in the cluster, BROKER_NOT_AVAILABLE is raised immediately.
        """
        return self._await(self._inner.describe_api_versions(node_id))

    def upgrade_features(self, levels: Mapping[str, int], *, validate_only: bool = False) -> None:
        """Raise the levels of features, all of them or none; `validate_only` only checks whether that is possible.

        Raises KafkaError INVALID_UPDATE_VERSION with the broker's reason.
        """
        return self._await(self._inner.upgrade_features(levels, validate_only=validate_only))

    def downgrade_features(
        self, levels: Mapping[str, int], *, unsafe: bool = False, validate_only: bool = False
    ) -> None:
        """As `upgrade_features`, to lower levels. `unsafe`: even if data that only the higher level has is lost."""
        return self._await(self._inner.downgrade_features(levels, unsafe=unsafe, validate_only=validate_only))

    def describe_acls(self, wanted: AclFilter | None = None) -> list[Acl]:
        """Return all ACLs, or those that a filter matches.

        Raises KafkaError SECURITY_DISABLED if the broker has no authorizer.
        """
        return self._await(self._inner.describe_acls(wanted))

    def create_acls(self, acls: Sequence[Acl]) -> None:
        """Create ACLs, independently of each other; one that exists is no error. Raises AdminError by ACL, as text."""
        return self._await(self._inner.create_acls(acls))

    def delete_acls(self, filters: Sequence[AclFilter]) -> list[Acl]:
        """Delete the ACLs that the filters match, and return them. Raises AdminError by filter ("filter 0" is the
        first) after the other filters were applied.
        """
        return self._await(self._inner.delete_acls(filters))

    def alter_configs(
        self, changes: Mapping[ConfigResource, Sequence[ConfigChange]], *, validate_only: bool = False
    ) -> None:
        """Change single keys, or only check the changes (`validate_only`); raises AdminError by resource name.

        All changes of a resource are made, or none. For a broker that is not in the cluster, BROKER_NOT_AVAILABLE is
        raised immediately.
        """
        return self._await(self._inner.alter_configs(changes, validate_only=validate_only))

    def describe_log_dirs(
        self, partitions: Sequence[TopicPartition] | None = None
    ) -> dict[int, list[LogDirDescription]]:
        """Return each broker's log directories by node id, with all of their partitions or only those given."""
        return self._await(self._inner.describe_log_dirs(partitions))

    def describe_quotas(self, entity: Mapping[str, str | None] | None = None) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas of all entities, or of those with the parts of `entity`, such as {"user": "alice"}.

        A name of None is the default of its type.
        """
        return self._await(self._inner.describe_quotas(entity))

    def alter_quotas(
        self, changes: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
    ) -> None:
        """Set quotas of entities, None to remove one; raises AdminError by entity, such as "user=alice,client-id=*"."""
        return self._await(self._inner.alter_quotas(changes, validate_only=validate_only))

    def alter_partition_reassignments(self, replicas: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        """Move partitions to these brokers, None to cancel a move; raises AdminError by `topic-partition`."""
        return self._await(self._inner.alter_partition_reassignments(replicas))

    def list_partition_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        """Return the partitions that are moving between brokers."""
        return self._await(self._inner.list_partition_reassignments())

    def create_delegation_token(
        self, *, owner: str | None = None, renewers: Iterable[str] = (), max_lifetime_ms: int = -1
    ) -> DelegationToken:
        """Create a token for this client's user, or for `owner` (`User:alice`); -1: the broker's longest lifetime.

        Raises KafkaError DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (for clients without
        authentication, or with a token), DELEGATION_TOKEN_AUTHORIZATION_FAILED; ValueError for text that is no
        principal.
        """
        return self._await(
            self._inner.create_delegation_token(owner=owner, renewers=renewers, max_lifetime_ms=max_lifetime_ms)
        )

    def describe_delegation_tokens(self, owners: Iterable[str] | None = None) -> list[DelegationToken]:
        """Return the tokens that this client may see, with their secrets; or those that `owners` own or may renew."""
        return self._await(self._inner.describe_delegation_tokens(owners))

    def renew_delegation_token(self, hmac: bytes, period_ms: int = -1) -> int:
        """Let a token expire in `period_ms` (-1: the broker's default); return its expiry in ms since 1970.

        Raises KafkaError DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_EXPIRED, DELEGATION_TOKEN_OWNER_MISMATCH.
        """
        return self._await(self._inner.renew_delegation_token(hmac, period_ms))

    def expire_delegation_token(self, hmac: bytes, period_ms: int = -1) -> int:
        """Let a token expire in `period_ms`, or immediately (-1); return its expiry in ms since 1970.

        Raises as `renew_delegation_token`.
        """
        return self._await(self._inner.expire_delegation_token(hmac, period_ms))

    def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> dict[str, list[ScramCredentialInfo]]:
        """Return the SCRAM credentials of all users, or of these; raises AdminError by user, for one without any."""
        return self._await(self._inner.describe_user_scram_credentials(users))

    def alter_user_scram_credentials(
        self, alterations: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion]
    ) -> None:
        """Set and remove SCRAM credentials; raises AdminError by user, ValueError for an unknown mechanism.

        Name each user only once.
        """
        return self._await(self._inner.alter_user_scram_credentials(alterations))

    def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        open_for_ms: int | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Return the transactional ids of all brokers, sorted by name; only those that match every given filter.

        `states` have Kafka's names ("Ongoing"), `open_for_ms` chooses transactions that are open for at least this
        time, `pattern` is a regular expression (RE2) for the whole id. Raises UnsupportedByBroker when the broker is
        too old for a filter, ValueError for a state that it does not know.
        """
        return self._await(
            self._inner.list_transactions(
                states=states, producer_ids=producer_ids, open_for_ms=open_for_ms, pattern=pattern
            )
        )

    def describe_transactions(self, transactional_ids: Sequence[str]) -> dict[str, TransactionDescription]:
        """Return transactional ids in full; raises AdminError by id, TRANSACTIONAL_ID_NOT_FOUND for an unknown one."""
        return self._await(self._inner.describe_transactions(transactional_ids))

    def fence_producers(self, transactional_ids: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Abort the open transactions of transactional ids and end their producers (KIP-588).

        Returns the new producer id and epoch of each. A producer that still runs gets FatalTransactionError; a new one
        with the transactional id may begin. An id that was never used is created. Raises AdminError by id.
        """
        return self._await(self._inner.fence_producers(transactional_ids))

    def find_hanging_transactions(
        self, partitions: Iterable[TopicPartition] | None = None, *, older_than_ms: int = 900000
    ) -> list[HangingTransaction]:
        """Return the transactions of partitions (None: of all partitions) that no coordinator will end.

        They are open in the partition, their producer has written nothing for `older_than_ms`, and no coordinator still
        has to write a marker for them into the partition. The default is that of `transaction.max.timeout.ms`, after
        which a coordinator ends the transactions that it knows of.
        """
        return self._await(self._inner.find_hanging_transactions(partitions, older_than_ms=older_than_ms))

    def abort_hanging_transaction(self, hanging: HangingTransaction) -> None:
        """Write the ABORT marker of a transaction into its partition: its records are never read with `read_committed`.

        Use it only for results of `find_hanging_transactions`: a marker that is not from the coordinator breaks a
        transaction that is still in progress. Raises KafkaError.
        """
        return self._await(self._inner.abort_hanging_transaction(hanging))

    def describe_producers(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, list[ProducerState]]:
        """Return each partition's state of its producers, including open transactions (KIP-664).

        Raises AdminError by `topic-partition`, UnsupportedByBroker when the broker is too old (before Kafka 2.8).
        """
        return self._await(self._inner.describe_producers(partitions))

    def describe_streams_groups(self, group_ids: Sequence[str]) -> dict[str, GroupDescription]:
        """Return streams groups with their topology, and their members with the tasks that they run.

        Raises AdminError by group, GROUP_ID_NOT_FOUND for a group that does not exist or is not a streams group.
        """
        return self._await(self._inner.describe_streams_groups(group_ids))

    def describe_share_groups(self, group_ids: Sequence[str]) -> dict[str, GroupDescription]:
        """Return share groups with their members; several members may have the same partition.

        Raises AdminError by group, GROUP_ID_NOT_FOUND for a group that does not exist or is not a share group.
        """
        return self._await(self._inner.describe_share_groups(group_ids))

    def share_group_offsets(
        self, wanted: Mapping[str, Iterable[TopicPartition] | None]
    ) -> dict[str, dict[TopicPartition, ShareGroupOffset | None]]:
        """Return where share groups are, in some partitions of each or (None) in all that they have.

        A partition without a start offset is None: no member has read it yet, nothing of it is acknowledged yet (with
        Kafka), or it does not exist. A group that does not exist has none: no broker, also none of Kafka, reports that
        as an error here; `describe_share_groups` raises GROUP_ID_NOT_FOUND. Raises AdminError by group, and by
        `topic-partition` for partitions that cannot be described.
        """
        return self._await(self._inner.share_group_offsets(wanted))

    def alter_share_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the start offsets of a share group without members, or of a new one: it delivers all records after them.

        Brokers, also Kafka's, accept an offset past the end of the log: what is written before it is never delivered.
        `list_offsets` has the ends (`ottla groups reset` goes no further). Kafka takes a negative offset for none, and
        Ottla refuses it with INVALID_REQUEST.

        Raises AdminError by `topic-partition`; a refusal of the whole group is a KafkaError: NON_EMPTY_GROUP for one
        with members, GROUP_ID_NOT_FOUND for one that is no share group.
        """
        return self._await(self._inner.alter_share_group_offsets(group_id, offsets))

    def delete_share_group_offsets(self, group_id: str, topics: Iterable[str]) -> None:
        """Let a share group without members forget where it is in topics.

        Raises AdminError by topic; a refusal of the whole group is a KafkaError: GROUP_ID_NOT_FOUND, or NON_EMPTY_GROUP
        for a group with members.
        """
        return self._await(self._inner.delete_share_group_offsets(group_id, topics))

    def list_groups(self, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
        """Return the groups of all brokers, sorted by name; only those in one of `states` and `types`, if given.

        States and types have Kafka's names ("Stable", "Empty", "classic", "consumer"); case does not matter. Raises
        UnsupportedByBroker when the broker is too old for such a filter.
        """
        return self._await(self._inner.list_groups(states=states, types=types))

    def describe_groups(self, group_ids: Sequence[str]) -> dict[str, GroupDescription]:
        """Return groups with their members; raises AdminError by group, GROUP_ID_NOT_FOUND for an unknown one."""
        return self._await(self._inner.describe_groups(group_ids))

    def delete_groups(self, group_ids: Sequence[str]) -> None:
        """Delete groups with their committed offsets; raises AdminError by group, NON_EMPTY_GROUP for one in use."""
        return self._await(self._inner.delete_groups(group_ids))

    def remove_members(
        self, group_id: str, members: Iterable[str] | None = None, *, reason: str = "removed by an administrator"
    ) -> list[str]:
        """Remove members from a group, by member id or instance id; None: all. Returns the ids of those removed.

        Their partitions are assigned to other members immediately. A consumer that still runs joins again by itself.
        Raises AdminError by member, UNKNOWN_MEMBER_ID for one that is not in the group.
        """
        return self._await(self._inner.remove_members(group_id, members, reason=reason))

    def list_group_offsets(
        self, wanted: Mapping[str, Iterable[TopicPartition] | None], *, require_stable: bool = False
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Return the committed offsets of groups, for some partitions of each or (None) for all.

        A partition without a committed offset is left out; a group that does not exist has none. With `require_stable`
        this waits while an open transaction may commit other offsets. Raises AdminError by group.
        """
        return self._await(self._inner.list_group_offsets(wanted, require_stable=require_stable))

    def find_unstable_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return, sorted, those partitions whose committed offset an open transaction may change.

        A consumer that begins there waits for the end of the transaction (KIP-447); this method does not wait. Raises
        AdminError by group.
        """
        return self._await(self._inner.find_unstable_group_offsets(group_id, partitions))

    def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]) -> None:
        """Set where a group continues to read, replacing its committed offsets. The group must have no members.

        Raises AdminError by `topic-partition`; UNKNOWN_MEMBER_ID means that the group has members.
        """
        return self._await(self._inner.alter_group_offsets(group_id, offsets))

    def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete a group's committed offsets of partitions; raises AdminError by `topic-partition`.

        GROUP_SUBSCRIBED_TO_TOPIC means that a member reads the topic. A refusal of the whole group is a KafkaError.
        """
        return self._await(self._inner.delete_group_offsets(group_id, partitions))

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the admin's connections, by Kafka's metric names; NaN for those without any event."""
        return self._call(self._inner.metrics)
