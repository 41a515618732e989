"""docs/durability.md, its second table: whatever else is answered is there after the power was cut at any moment.

Each kind of request is tried with a power cut at every call that changes the disk, on a disk that is full, on one that
fails, and with a killed process. What was answered with success must be there after the next start.
"""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from kit.cleaning import records_of
from kit.clock import ManualClock
from kit.exchange import Exchange, batch, make_topic, produce_request
from kit.group_requests import (
    begin,
    commit,
    commit_request,
    committed,
    delete_groups_request,
    describe,
    group_ids,
    join,
    sync_request,
)
from kit.nodes import ask_for, pass_time, start_node
from kit.simulated_files import CrashPoint, SimulatedFiles

from ottla.broker.metadata.acls import Acl
from ottla.broker.node import Node
from ottla.broker.peer import Peer
from ottla.broker.principal import ANONYMOUS
from ottla.broker.runtime.pending import Pending
from ottla.broker.security.acls.standard_authorizer import StandardAuthorizer
from ottla.broker.share.stored_state import SharePartitionKey
from ottla.protocol.acls import AclOperation, PatternType, PermissionType, ResourceType
from ottla.protocol.api.alter_client_quotas import AlterClientQuotasRequest
from ottla.protocol.api.alter_configs import AlterConfigsRequest
from ottla.protocol.api.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from ottla.protocol.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.api.create_acls import CreateAclsRequest, CreateAclsResponse
from ottla.protocol.api.create_partitions import CreatePartitionsRequest
from ottla.protocol.api.create_topics import CreateTopicsRequest
from ottla.protocol.api.delete_acls import DeleteAclsRequest
from ottla.protocol.api.delete_records import DeleteRecordsRequest
from ottla.protocol.api.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from ottla.protocol.api.delete_topics import DeleteTopicsRequest
from ottla.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.api.offset_delete import OffsetDeleteRequest
from ottla.protocol.api.produce import ProduceResponse
from ottla.protocol.api.share_acknowledge import ShareAcknowledgeRequest
from ottla.protocol.api.share_fetch import ShareFetchRequest
from ottla.protocol.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from ottla.protocol.api.update_features import UpdateFeaturesRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Request, Struct
from ottla.storage.directories.directory_status import DirectoryState

SEEDS = (1, 2)
TOPIC_RESOURCE, BROKER_RESOURCE, CLIENT_METRICS, GROUP_RESOURCE = 2, 4, 16, 32


class Asked(NamedTuple):
    """A request, and whether a node shows what it wanted."""

    request: Request
    version: int
    is_there: Callable[[Node], bool]


@dataclass(frozen=True)
class Kind:
    """One kind of acknowledgement. `ask(node)` may prepare what the request needs."""

    name: str
    ask: Callable[[Node], Asked]
    waits_for_the_disk: bool = True
    """Whether the answer comes with a sync of a later turn; else everything was done when it was asked."""


def create_topic(_: Node) -> Asked:
    wanted = CreateTopicsRequest.CreatableTopic(
        name="new", num_partitions=2, replication_factor=1, assignments=[], configs=[]
    )
    return Asked(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 7, partitions_are("new", 2))


def create_by_itself(_: Node) -> Asked:
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)
    return Asked(request, 8, partitions_are("new", 1))


def delete_topic(_: Node) -> Asked:
    return Asked(DeleteTopicsRequest(topic_names=["t"], timeout_ms=30_000), 5, partitions_are("t", 0))


def create_partitions(_: Node) -> Asked:
    wanted = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=3, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=30_000, validate_only=False)
    return Asked(request, 3, partitions_are("t", 3))


def partitions_are(topic: str, count: int) -> Callable[[Node], bool]:
    def are(node: Node) -> bool:
        found = node.services.catalog.topics.get(topic)
        return (0 if found is None else sum(partition is not None for partition in found.partitions)) == count

    return are


def delete_records(_: Node) -> Asked:
    wanted = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=2)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[wanted])

    def is_there(node: Node) -> bool:
        partition = node.services.catalog.partition("t", 0)
        return partition is not None and partition.log_start_offset == 2

    return Asked(DeleteRecordsRequest(topics=[topic], timeout_ms=30_000), 2, is_there)


def configured(resource_type: int, name: str, key: str, value: str) -> Callable[[Node], Asked]:
    def make(_: Node) -> Asked:
        config = IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=0, value=value)
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=resource_type, resource_name=name, configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        return Asked(request, 1, config_is(resource_type, name, key, value))

    return make


def config_is(resource_type: int, name: str, key: str, value: str) -> Callable[[Node], bool]:
    return lambda node: node.services.catalog.image.configs.get((resource_type, name), {}).get(key) == value


def replace_configs(_: Node) -> Asked:
    config = AlterConfigsRequest.AlterableConfig(name="retention.ms", value="7")
    resource = AlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name="t", configs=[config]
    )
    request = AlterConfigsRequest(resources=[resource], validate_only=False)
    return Asked(request, 1, config_is(TOPIC_RESOURCE, "t", "retention.ms", "7"))


def set_quota(_: Node) -> Asked:
    entry = AlterClientQuotasRequest.EntryData(
        entity=[AlterClientQuotasRequest.EntityData(entity_type="user", entity_name="a")],
        ops=[AlterClientQuotasRequest.OpData(key="producer_byte_rate", value=9.0, remove=False)],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
    return Asked(request, 1, lambda node: {"producer_byte_rate": 9.0} in node.services.catalog.image.quotas.values())


ACL = Acl(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:a", "*", AclOperation.READ, PermissionType.ALLOW)


def create_acl(node: Node) -> Asked:
    authorizer = StandardAuthorizer(super_users=[str(ANONYMOUS)], allow_without_acls=False)
    object.__setattr__(node.services, "authorizer", authorizer)  # frozen
    creation = CreateAclsRequest.AclCreation(
        resource_type=ACL.resource_type,
        resource_name=ACL.resource_name,
        principal=ACL.principal,
        host=ACL.host,
        operation=ACL.operation,
        permission_type=ACL.permission_type,
    )
    return Asked(CreateAclsRequest(creations=[creation]), 3, lambda node: ACL in node.services.catalog.image.acl_ids)


def delete_acl(node: Node) -> Asked:
    creation = create_acl(node)
    ask_for(CreateAclsResponse, node, creation.request, creation.version)
    everything = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=PermissionType.ANY,
    )
    return Asked(DeleteAclsRequest(filters=[everything]), 3, lambda node: not node.services.catalog.image.acls)


SALTED = b"salted password of 32 bytes, so."


def set_user(_: Node) -> Asked:
    wanted = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name="alice", mechanism=1, iterations=4096, salt=b"twelve bytes", salted_password=SALTED
    )
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[wanted])
    return Asked(request, 0, lambda node: (1, "alice") in node.services.catalog.image.scram_credentials)


def remove_user(node: Node) -> Asked:
    creation = set_user(node)
    ask_for(AlterUserScramCredentialsResponse, node, creation.request, creation.version)
    unwanted = AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="alice", mechanism=1)
    request = AlterUserScramCredentialsRequest(deletions=[unwanted], upsertions=[])
    return Asked(request, 0, lambda node: (1, "alice") not in node.services.catalog.image.scram_credentials)


def update_feature(_: Node) -> Asked:
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2)
    request = UpdateFeaturesRequest(feature_updates=[update])
    return Asked(request, 1, lambda node: node.services.catalog.image.features.get("group.version", 0) == 0)


def commit_offset(_: Node) -> Asked:
    return Asked(commit_request("g", {0: 9}), 9, lambda node: committed(node, "g") == 9)


def delete_offset(_: Node) -> Asked:
    partition = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(name="t", partitions=[partition])
    return Asked(OffsetDeleteRequest(group_id="g", topics=[topic]), 0, lambda node: committed(node, "g") == -1)


def delete_group(_: Node) -> Asked:
    return Asked(delete_groups_request("g"), 2, lambda node: "g" not in group_ids(node))


def sync_group(node: Node) -> Asked:
    joined = join(node, "classic")
    request = sync_request("classic", joined)

    def is_there(node: Node) -> bool:
        group = describe(node, "classic")
        return [member.member_id for member in group.members] == [joined.member_id] and group.group_state == "Stable"

    return Asked(request, 3, is_there)


def join_consumer_group(_: Node) -> Asked:
    request = ConsumerGroupHeartbeatRequest(
        group_id="modern",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )

    def is_there(node: Node) -> bool:
        """The member is known in the epoch that it received."""
        alive = ConsumerGroupHeartbeatRequest(group_id="modern", member_id="m", member_epoch=1)
        pending = begin(node, alive, 1)
        node.settle()
        return was_answered(pending)

    return Asked(request, 1, is_there)


def topic_id(node: Node) -> UUID:
    return node.services.catalog.topics["t"].id


def join_share_group(_: Node) -> Asked:
    request = ShareGroupHeartbeatRequest(group_id="q", member_id="m", member_epoch=0, subscribed_topic_names=["t"])

    def is_there(node: Node) -> bool:
        """The member is known in the epoch that it received."""
        pending = begin(node, ShareGroupHeartbeatRequest(group_id="q", member_id="m", member_epoch=1), 1)
        node.settle()
        return was_answered(pending)

    return Asked(request, 1, is_there)


def answer_to(node: Node, request: Request, version: int) -> Any:
    pending = begin(node, request, version)
    node.settle()
    assert was_answered(pending), pending.error or pending.response
    return pending.response


def has_all_records(node: Node) -> None:
    """Member `m` of the share group `q` acquires the three records of the topic."""
    answer_to(node, configured(GROUP_RESOURCE, "q", "share.auto.offset.reset", "earliest")(node).request, 1)
    answer_to(node, join_share_group(node).request, 1)
    partition = ShareFetchRequest.FetchPartition(partition_index=0, acknowledgement_batches=[])
    topic = ShareFetchRequest.FetchTopic(topic_id=topic_id(node), partitions=[partition])
    fetch = ShareFetchRequest(
        group_id="q",
        member_id="m",
        share_session_epoch=0,
        max_wait_ms=0,
        min_bytes=1,
        max_records=10,
        batch_size=10,
        topics=[topic],
        forgotten_topics_data=[],
    )
    answer = answer_to(node, fetch, 2)
    acquired = answer.responses[0].partitions[0].acquired_records
    assert (acquired[0].first_offset, acquired[-1].last_offset) == (0, 2)


def begins_at(offset: int) -> Callable[[Node], bool]:
    """Whether the share group `q` is at an offset."""

    def begins(node: Node) -> bool:
        return node.services.share_groups.get().offsets_of(SharePartitionKey("q", topic_id(node), 0))[0] == offset

    return begins


def acknowledge_records(node: Node) -> Asked:
    has_all_records(node)
    given = ShareAcknowledgeRequest.AcknowledgementBatch(first_offset=0, last_offset=2, acknowledge_types=[1, 3, 2])
    partition = ShareAcknowledgeRequest.AcknowledgePartition(partition_index=0, acknowledgement_batches=[given])
    topic = ShareAcknowledgeRequest.AcknowledgeTopic(topic_id=topic_id(node), partitions=[partition])
    request = ShareAcknowledgeRequest(group_id="q", member_id="m", share_session_epoch=1, topics=[topic])
    return Asked(request, 2, begins_at(2))


def alter_share_offsets(node: Node) -> Asked:
    has_all_records(node)
    answer_to(node, ShareGroupHeartbeatRequest(group_id="q", member_id="m", member_epoch=-1), 1)
    partition = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=1)
    topic = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[partition])
    return Asked(AlterShareGroupOffsetsRequest(group_id="q", topics=[topic]), 0, begins_at(1))


def delete_share_offsets(node: Node) -> Asked:
    has_all_records(node)
    answer_to(node, ShareGroupHeartbeatRequest(group_id="q", member_id="m", member_epoch=-1), 1)
    topic = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic(topic_name="t")
    return Asked(DeleteShareGroupOffsetsRequest(group_id="q", topics=[topic]), 0, begins_at(-1))


def delete_share_group(node: Node) -> Asked:
    has_all_records(node)
    answer_to(node, ShareGroupHeartbeatRequest(group_id="q", member_id="m", member_epoch=-1), 1)
    has_no_offsets = begins_at(-1)
    return Asked(delete_groups_request("q"), 2, lambda node: "q" not in group_ids(node) and has_no_offsets(node))


def streams_heartbeat(member_epoch: int, **fields: Any) -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(
        group_id="app", member_id="m", member_epoch=member_epoch, endpoint_information_epoch=0, **fields
    )


def join_streams_group(_: Node) -> Asked:
    """The first member brings the topology; `t` has one partition, so there is one task."""
    subtopology = StreamsGroupHeartbeatRequest.Subtopology(
        subtopology_id="0",
        source_topics=["t"],
        source_topic_regex=[],
        state_changelog_topics=[],
        repartition_sink_topics=[],
        repartition_source_topics=[],
        copartition_groups=[],
    )
    request = streams_heartbeat(
        0,
        rebalance_timeout_ms=60_000,
        topology=StreamsGroupHeartbeatRequest.Topology(epoch=0, subtopologies=[subtopology]),
        process_id="p",
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )

    def is_there(node: Node) -> bool:
        """The member is known in the epoch that it received, with its task."""
        task = StreamsGroupHeartbeatRequest.TaskIds(subtopology_id="0", partitions=[0])
        alive = streams_heartbeat(2, active_tasks=[task], standby_tasks=[], warmup_tasks=[])
        pending = begin(node, alive, 1)
        node.settle()
        return was_answered(pending) and getattr(pending.response, "active_tasks", ()) is None

    return Asked(request, 1, is_there)


def leave_streams_group(node: Node) -> Asked:
    answer_to(node, join_streams_group(node).request, 1)

    def is_there(node: Node) -> bool:
        pending = begin(node, streams_heartbeat(2), 1)
        node.settle()
        return isinstance(pending.error, KafkaError) and pending.error.code is ErrorCode.UNKNOWN_MEMBER_ID

    return Asked(streams_heartbeat(-1), 1, is_there)


def delete_streams_group(node: Node) -> Asked:
    answer_to(node, join_streams_group(node).request, 1)
    answer_to(node, streams_heartbeat(-1), 1)
    return Asked(delete_groups_request("app"), 2, lambda node: "app" not in group_ids(node))


KINDS = [
    Kind("CreateTopics", create_topic),
    Kind("automatic creation", create_by_itself, waits_for_the_disk=False),
    Kind("DeleteTopics", delete_topic),
    Kind("CreatePartitions", create_partitions),
    Kind("DeleteRecords", delete_records, waits_for_the_disk=False),
    Kind("IncrementalAlterConfigs of a topic", configured(TOPIC_RESOURCE, "t", "retention.ms", "7")),
    Kind("IncrementalAlterConfigs of the broker", configured(BROKER_RESOURCE, "1", "log.retention.ms", "8")),
    Kind("IncrementalAlterConfigs of all brokers", configured(BROKER_RESOURCE, "", "log.retention.ms", "8")),
    Kind("IncrementalAlterConfigs of a group", configured(GROUP_RESOURCE, "g", "consumer.session.timeout.ms", "50000")),
    Kind("IncrementalAlterConfigs of client metrics", configured(CLIENT_METRICS, "m", "interval.ms", "1000")),
    Kind("AlterConfigs", replace_configs),
    Kind("AlterClientQuotas", set_quota),
    Kind("CreateAcls", create_acl),
    Kind("DeleteAcls", delete_acl),
    Kind("AlterUserScramCredentials of a user", set_user),
    Kind("AlterUserScramCredentials of a user that goes", remove_user),
    Kind("UpdateFeatures", update_feature),
    Kind("OffsetCommit", commit_offset),
    Kind("OffsetDelete", delete_offset),
    Kind("DeleteGroups", delete_group),
    Kind("SyncGroup", sync_group),
    Kind("ConsumerGroupHeartbeat", join_consumer_group),
    Kind("ShareGroupHeartbeat", join_share_group),
    Kind("ShareAcknowledge", acknowledge_records),
    Kind("AlterShareGroupOffsets", alter_share_offsets),
    Kind("DeleteShareGroupOffsets", delete_share_offsets),
    Kind("DeleteGroups of a share group", delete_share_group),
    Kind("StreamsGroupHeartbeat", join_streams_group),
    Kind("StreamsGroupHeartbeat of a member that leaves", leave_streams_group),
    Kind("DeleteGroups of a streams group", delete_streams_group),
]
of_each_kind = pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])


def prepared(**keys: object) -> tuple[Node, SimulatedFiles, ManualClock]:
    """A broker with a topic of three records, and a committed offset."""
    node, files, clock = start_node(**keys)
    make_topic(node, "t")
    for _ in range(3):
        Exchange(node).ask(produce_request("t", batch(1)), 9)
    commit(node, "g", {0: 5})
    return node, files, clock


def refusals_in(part: object) -> Iterator[ErrorCode]:
    """Every error code, at any depth of a response."""
    if isinstance(part, list):
        for one in part:
            yield from refusals_in(one)
    elif isinstance(part, Struct):
        for name in part.__slots__:
            value = getattr(part, name)
            if name == "error_code":
                yield from [ErrorCode(value)] if value else []
            else:
                yield from refusals_in(value)


def was_answered(pending: Pending[object]) -> bool:
    """Whether a success was reported."""
    return pending.done and pending.error is None and not list(refusals_in(pending.response))


def stopped_at(files: SimulatedFiles, changes: int) -> Callable[[str, Path], bool]:
    """For `crash_when`: once the disk has been asked for so many changes."""
    return lambda call, path: files.changes >= changes


@of_each_kind
def test_what_was_answered_is_there_after_a_power_cut_at_any_moment(kind: Kind) -> None:
    outcomes: set[tuple[bool, bool]] = set()
    for seed in SEEDS:
        for number in range(1, 1000):
            node, files, clock = prepared()
            asked = kind.ask(node)
            assert not asked.is_there(node)
            files.crash_when = stopped_at(files, files.changes + number)
            pending: Pending[object] = Pending()
            with contextlib.suppress(CrashPoint):
                pending = begin(node, asked.request, asked.version)
                node.settle()
            reached = files.has_crashed
            answered = was_answered(pending)
            again, _, _ = start_node(files.crash(random.Random(seed * 1000 + number)), clock)
            is_there = asked.is_there(again)
            assert is_there or not answered, f"call {number}, seed {seed}: it was answered, and is not there"
            outcomes.add((answered, is_there))
            if not reached:
                break
    assert (True, True) in outcomes


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.waits_for_the_disk], ids=lambda kind: kind.name)
def test_nothing_is_answered_before_its_sync(kind: Kind) -> None:
    node, _, _ = prepared()
    asked = kind.ask(node)
    pending = begin(node, asked.request, asked.version)
    node.services.turn.end()
    assert not pending.done
    node.settle()
    assert was_answered(pending)
    assert asked.is_there(node)


@of_each_kind
def test_what_was_answered_is_there_when_the_process_was_killed(kind: Kind) -> None:
    node, files, clock = prepared(ottla_acks_all="page-cache")
    asked = kind.ask(node)
    pending = begin(node, asked.request, asked.version)
    node.settle()
    assert was_answered(pending)
    again, _, _ = start_node(files.kill(), clock, ottla_acks_all="page-cache")
    assert asked.is_there(again)


@of_each_kind
def test_a_full_disk_refuses_it_and_takes_it_when_there_is_room(kind: Kind) -> None:
    node, files, clock = prepared()
    asked = kind.ask(node)
    full = files.fail("pwritev", error=errno.ENOSPC, times=None)
    pending = begin(node, asked.request, asked.version)
    node.settle()
    assert not was_answered(pending)
    files.heal(full)
    assert node.services.log_manager.directories[0].state is not DirectoryState.OFFLINE
    for _ in range(20):
        clock.advance(1_000)
        node.run_due()
        node.settle()
    asked = kind.ask(node)
    if not asked.is_there(node):  # a change that waits for room may have found it
        pending = begin(node, asked.request, asked.version, Peer())
        node.settle()
        assert was_answered(pending), (pending.error, pending.response)
    assert asked.is_there(node)


@of_each_kind
def test_a_disk_that_fails_refuses_it(kind: Kind) -> None:
    node, files, _ = prepared()
    asked = kind.ask(node)
    for call in ("fdatasync", "sync_directory", "rename"):
        files.fail(call, error=errno.EIO, times=None)
    pending = begin(node, asked.request, asked.version)
    node.settle()
    assert pending.done
    assert not was_answered(pending)


@pytest.mark.parametrize("seed", SEEDS)
def test_in_page_cache_a_commit_waits_for_its_sync_where_the_flush_keys_ask_for_one(seed: int) -> None:
    keys: dict[str, object] = {"ottla_acks_all": "page-cache", "log_flush_interval_messages": 1}
    node, files, clock = prepared(**keys)
    pending = begin(node, commit_request("g", {0: 9}), 9)
    node.services.turn.end()
    assert not pending.done
    node.settle()
    assert was_answered(pending)
    again, _, _ = start_node(files.crash(random.Random(seed)), clock, **keys)
    assert committed(again, "g") == 9


# -- producers


def producer_id_of(node: Node) -> int:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    answer = ask_for(InitProducerIdResponse, node, request, 4)
    assert answer.error_code == ErrorCode.NONE
    return answer.producer_id


@pytest.mark.parametrize("seed", range(5))
def test_no_producer_id_is_given_out_twice_however_often_the_power_is_cut(seed: int) -> None:
    chance = random.Random(seed)
    node, files, clock = start_node()
    given: list[int] = []
    for _ in range(5):
        given += [producer_id_of(node) for _ in range(chance.choice((1, 3, 1_500)))]
        begin(node, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4)
        node, files, clock = start_node(files.crash(chance), clock)
    assert len(set(given)) == len(given)


@pytest.mark.parametrize("seed", range(5))
def test_a_batch_that_is_sent_again_after_a_power_cut_is_there_once(seed: int) -> None:
    """Whether the answer was heard or not: the producer's sequence is as durable as its records."""
    node, files, clock = start_node()
    make_topic(node, "t")
    batches = [batch(1, producer_id=7, producer_epoch=0, base_sequence=number) for number in range(3)]
    for records in batches[:2]:
        Exchange(node).ask(produce_request("t", records), 9)
    client = Exchange(node)
    client.send(produce_request("t", batches[2]), 9)
    client.end_turn()  # written, not synced, not answered
    assert not client.replies()
    again, _, _ = start_node(files.crash(random.Random(seed)), clock)
    for number in (1, 2):
        answer = Exchange(again).ask(produce_request("t", batches[number]), 9)
        assert isinstance(answer, ProduceResponse)
        reported = answer.responses[0].partition_responses[0]
        assert (reported.error_code, reported.base_offset) == (ErrorCode.NONE, number)
    partition = again.services.catalog.partition("t", 0)
    assert partition is not None
    assert partition.log.log_end_offset == 3


def test_a_batch_of_a_compacted_topic_that_a_power_cut_took_is_stored_when_it_is_sent_again() -> None:
    """Its segment was rolled and not synced: what is missing at its end is not what the cleaner has taken, and the
    snapshot of producers at the next one must not answer for it."""
    taken = 0
    for seed in range(30):
        node, files, clock = start_node()
        make_topic(node, "t", cleanup_policy="compact", segment_bytes="1024")
        Exchange(node).ask(produce_request("t", batch(value=b"v" * 300)), 9)
        pass_time(node, clock, 61_000)  # the recovery point is written
        client = Exchange(node)
        batches = [
            batch(value=b"%d" % number * 300, producer_id=7, producer_epoch=0, base_sequence=number)
            for number in range(3)
        ]
        for records in batches:
            client.send(produce_request("t", records), 9)
        client.end_turn()  # written, not synced, not answered
        again, _, _ = start_node(files.crash(random.Random(seed)), clock)
        partition = again.services.catalog.partition("t", 0)
        assert partition is not None
        taken += partition.log.log_end_offset < 4
        for number in range(3):
            answer = Exchange(again).ask(produce_request("t", batches[number]), 9)
            assert isinstance(answer, ProduceResponse)
            reported = answer.responses[0].partition_responses[0]
            assert (reported.error_code, reported.base_offset) == (ErrorCode.NONE, 1 + number)
        assert [record.value for record in records_of(partition.log)][1:] == [b"%d" % n * 300 for n in range(3)]
    assert taken > 5
