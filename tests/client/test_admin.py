"""An admin finds the controller, asks again where that helps, and names every refusal."""

from __future__ import annotations

import pytest
from kit.fake_broker import HANG_UP, FakeCluster

from ottla.client import (
    LATEST,
    Admin,
    AdminError,
    ApiVersionRange,
    ClientClosed,
    ConfigChange,
    ConfigResource,
    ErrorCode,
    KafkaError,
    NewTopic,
    OffsetAndTimestamp,
    TopicPartition,
)
from ottla.client.errors import UnsupportedByBroker
from ottla.protocol.api.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from ottla.protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from ottla.protocol.api.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.api.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from ottla.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.protocol.api.metadata import MetadataRequest

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 2}


@pytest.fixture
async def cluster():
    async with FakeCluster(brokers=2) as running:
        yield running


def created(request, *codes):
    return CreateTopicsResponse(
        topics=[
            CreateTopicsResponse.CreatableTopicResult(name=topic.name, error_code=code, error_message=f"says {code:d}")
            for topic, code in zip(request.topics, codes, strict=True)
        ]
    )


async def test_a_new_controller_is_asked_after_the_old_one_refused(cluster):
    controllers = iter([0, 1, 1, 1])
    described = cluster.metadata

    def metadata(request, version):
        answer = described(request)
        answer.controller_id = next(controllers)
        return answer

    def create(request, version):
        node = cluster.requests[-1][0]
        return created(request, ErrorCode.NONE if node == 1 else ErrorCode.NOT_CONTROLLER)

    cluster.handlers |= {MetadataRequest: metadata, CreateTopicsRequest: create}
    async with Admin(cluster.bootstrap, **QUICK) as admin:
        await admin.create_topic("t", partitions=1, replication_factor=1)
    asked = [node for node, request, _ in cluster.requests if isinstance(request, CreateTopicsRequest)]
    assert asked == [0, 1]


@pytest.mark.parametrize("is_lost", [True, False])
async def test_a_topic_that_exists_after_a_lost_answer_may_be_the_own_one_and_the_error_says_so(cluster, is_lost):
    attempts = []

    def create(request, version):
        attempts.append(request)
        return HANG_UP if is_lost and len(attempts) == 1 else created(request, ErrorCode.TOPIC_ALREADY_EXISTS)

    cluster.handlers[CreateTopicsRequest] = create
    async with Admin(cluster.bootstrap, **QUICK) as admin:
        with pytest.raises(KafkaError) as refused:
            await admin.create_topic("t", partitions=1, replication_factor=1)
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert ("perhaps it created the topic" in str(refused.value)) is is_lost


async def test_a_deletion_and_a_growth_that_are_done_after_a_lost_answer_say_so(cluster):
    answers = iter(
        [
            HANG_UP,
            DeleteTopicsResponse(
                responses=[
                    DeleteTopicsResponse.DeletableTopicResult(
                        name="t", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message=None
                    )
                ]
            ),
            HANG_UP,
            CreatePartitionsResponse(
                results=[
                    CreatePartitionsResponse.CreatePartitionsTopicResult(
                        name="t", error_code=ErrorCode.INVALID_PARTITIONS, error_message="It has 3 partitions."
                    )
                ]
            ),
        ]
    )
    cluster.handlers |= dict.fromkeys((DeleteTopicsRequest, CreatePartitionsRequest), lambda *_: next(answers))
    async with Admin(cluster.bootstrap, **QUICK) as admin:
        with pytest.raises(AdminError, match="perhaps it deleted the topic"):
            await admin.delete_topics(["t"])
        with pytest.raises(AdminError, match=r"has 3 partitions\. An earlier attempt got no answer; perhaps it added"):
            await admin.create_partitions({"t": 3})


async def test_every_refusal_is_named_and_the_rest_is_done(cluster):
    codes = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_PARTITIONS)
    cluster.handlers[CreateTopicsRequest] = lambda request, version: created(request, *codes)
    async with Admin(cluster.bootstrap, **QUICK) as admin:
        with pytest.raises(AdminError) as refused:
            await admin.create_topics([NewTopic("a", 1, 1), NewTopic("b", 1, 1), NewTopic("c", 0, 1)])
    assert {name: error.code for name, error in refused.value.errors.items()} == {"b": codes[1], "c": codes[2]}
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert "says 36" in str(refused.value)


async def test_an_old_broker_is_not_asked_to_choose_numbers(cluster):
    cluster.versions[19] = (0, 3)
    cluster.handlers[CreateTopicsRequest] = lambda request, version: created(request, ErrorCode.NONE)
    async with Admin(cluster.bootstrap, **QUICK) as admin:
        with pytest.raises(UnsupportedByBroker):
            await admin.create_topic("t")
        await admin.create_topic("t", partitions=1, replication_factor=1)


@pytest.mark.parametrize("newest", [5, 6])
async def test_topics_are_deleted_by_the_field_of_the_version(cluster, newest):
    cluster.versions[20] = (1, newest)

    def delete(request, version):
        names = [state.name for state in request.topics] if version > 5 else request.topic_names
        return DeleteTopicsResponse(responses=[DeleteTopicsResponse.DeletableTopicResult(name=name) for name in names])

    cluster.handlers[DeleteTopicsRequest] = delete
    async with Admin(cluster.bootstrap, **QUICK) as admin:
        await admin.delete_topics(["a", "b"])


@pytest.mark.parametrize("newest", [5, 6])
async def test_a_text_is_one_name_and_not_a_list_of_letters(cluster, newest):
    cluster.versions[20] = (1, newest)
    deleted = []

    def delete(request, version):
        names = [state.name for state in request.topics] if version > 5 else request.topic_names
        deleted.extend(names)
        return DeleteTopicsResponse(responses=[DeleteTopicsResponse.DeletableTopicResult(name=name) for name in names])

    cluster.handlers |= {DeleteTopicsRequest: delete}
    for name in ("a", "b", "ab"):
        cluster.add_topic(name)
    async with Admin(cluster.bootstrap, **QUICK) as admin:
        assert list(await admin.describe_topics("ab")) == ["ab"]
        await admin.delete_topics("ab")
    assert deleted == ["ab"]


async def test_records_are_deleted_at_each_leader_and_again_where_it_moved(cluster):
    first, _ = cluster.add_topic("t", 0, 1)
    first.leader, first.epoch = 1, 2
    answers = []

    def delete(request, version):
        node = cluster.requests[-1][0]
        answers.append(node)
        results = []
        for asked in request.topics[0].partitions:
            is_moved = len(answers) == 1
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_moved else ErrorCode.NONE
            results.append(
                DeleteRecordsResponse.DeleteRecordsPartitionResult(
                    partition_index=asked.partition_index, low_watermark=-1 if code else asked.offset, error_code=code
                )
            )
        return DeleteRecordsResponse(
            topics=[DeleteRecordsResponse.DeleteRecordsTopicResult(name="t", partitions=results)]
        )

    cluster.handlers[DeleteRecordsRequest] = delete
    wanted = {TopicPartition("t", 0): 5, TopicPartition("t", 1): 7}
    async with Admin(cluster.bootstrap, **QUICK) as admin:
        assert await admin.delete_records(wanted) == wanted
    assert len(answers) == 2


FOR_EVER = {**QUICK, "default_api_timeout_ms": 2**31 - 1}
"""No test could wait for this timeout."""


async def test_records_of_an_unknown_topic_are_refused_soon_and_not_after_the_timeout(cluster):
    async with Admin(cluster.bootstrap, **FOR_EVER) as admin:
        with pytest.raises(AdminError) as refused:
            await admin.delete_records({TopicPartition("nowhere", 0): 1})
    assert refused.value.errors["nowhere-0"].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(cluster.seen(MetadataRequest)) > 2  # a new topic may be on its way


async def test_offsets_of_an_unknown_topic_are_refused_at_once(cluster):
    cluster.add_topic("t", 0)
    async with Admin(cluster.bootstrap, **FOR_EVER) as admin:
        before = len(cluster.seen(MetadataRequest))
        with pytest.raises(KafkaError, match="nowhere: there is no such topic") as refused:
            await admin.list_offsets({TopicPartition("nowhere", 0): LATEST, TopicPartition("t", 0): LATEST})
        assert len(cluster.seen(MetadataRequest)) == before + 1
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_offsets_of_an_unknown_partition_are_refused_soon(cluster):
    cluster.add_topic("t", 0)
    async with Admin(cluster.bootstrap, **FOR_EVER) as admin:
        with pytest.raises(KafkaError, match="t-7") as refused:
            await admin.list_offsets({TopicPartition("t", 7): LATEST})
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_offsets_of_a_partition_that_is_not_known_yet_are_asked_for_again(cluster):
    cluster.add_topic("t", 0)
    described = cluster.metadata

    def metadata(request, version):
        if len(cluster.seen(MetadataRequest)) == 3:
            cluster.add_topic("t", 0, 0)
        return described(request)

    cluster.handlers[MetadataRequest] = metadata
    async with Admin(cluster.bootstrap, **FOR_EVER) as admin:
        assert await admin.list_offsets({TopicPartition("t", 1): LATEST}) == {
            TopicPartition("t", 1): OffsetAndTimestamp(0, -1, -1)
        }
    assert len(cluster.seen(MetadataRequest)) >= 3


async def test_the_apis_of_a_broker_have_names_and_versions(cluster):
    cluster.versions = {18: (0, 5), 1: (4, 17), 9999: (0, 2), 3: (0, 13)}
    async with Admin(cluster.bootstrap, **FOR_EVER) as admin:
        expected = [
            ApiVersionRange(1, "Fetch", 4, 17),
            ApiVersionRange(3, "Metadata", 0, 13),
            ApiVersionRange(18, "ApiVersions", 0, 5),
            ApiVersionRange(9999, None, 0, 2),
        ]
        assert await admin.describe_api_versions() == await admin.describe_api_versions(1) == expected
        with pytest.raises(KafkaError, match="the cluster has no broker 7 at the moment") as refused:
            await admin.describe_api_versions(7)
    assert refused.value.code is ErrorCode.BROKER_NOT_AVAILABLE


async def test_a_topic_that_does_not_exist_has_no_description_and_no_configuration(cluster):
    refusal = DescribeConfigsResponse.DescribeConfigsResult(
        resource_type=2, resource_name="nowhere", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, configs=[]
    )
    cluster.handlers[DescribeConfigsRequest] = lambda request, version: DescribeConfigsResponse(results=[refusal])
    async with Admin(cluster.bootstrap, **FOR_EVER) as admin:
        for look_up in (admin.describe_topics(["nowhere"]), admin.describe_configs([ConfigResource.topic("nowhere")])):
            with pytest.raises(AdminError) as refused:
                await look_up
            assert refused.value.errors["nowhere"].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(cluster.seen(DescribeConfigsRequest)) == 1


async def test_documentation_is_asked_only_of_brokers_that_have_it(cluster):
    cluster.versions[32] = (1, 2)
    answer = DescribeConfigsResponse(
        results=[DescribeConfigsResponse.DescribeConfigsResult(resource_type=2, resource_name="t", configs=[])]
    )
    cluster.handlers[DescribeConfigsRequest] = lambda request, version: answer
    async with Admin(cluster.bootstrap, **QUICK) as admin:
        resource = ConfigResource.topic("t")
        assert await admin.describe_configs([resource], include_documentation=True) == {resource: {}}


async def test_a_broker_that_the_cluster_does_not_have_is_refused_at_once(cluster):
    async with Admin(cluster.bootstrap, retry_backoff_ms=600_000, retry_backoff_max_ms=600_000) as admin:
        broker = ConfigResource.broker(77)
        for work in (admin.describe_configs([broker]), admin.alter_configs({broker: [ConfigChange.set("a", "1")]})):
            with pytest.raises(KafkaError, match="the cluster has no broker 77 at the moment; it has") as refused:
                await work
            assert refused.value.code is ErrorCode.BROKER_NOT_AVAILABLE


async def test_an_admin_that_is_not_open_says_so(cluster):
    admin = Admin(cluster.bootstrap)
    with pytest.raises(ClientClosed, match="not started"):
        await admin.list_topics()
    await admin.start()
    await admin.close()
    with pytest.raises(ClientClosed, match="closed"):
        await admin.describe_cluster()


async def test_a_refusal_of_one_topic_is_its_own_error(cluster):
    cluster.handlers[CreateTopicsRequest] = lambda request, version: created(request, ErrorCode.INVALID_CONFIG)
    async with Admin(cluster.bootstrap, **QUICK) as admin:
        with pytest.raises(KafkaError, match="says 40") as refused:
            await admin.create_topic("t", partitions=1)
        assert not isinstance(refused.value, AdminError)


@pytest.mark.parametrize("is_reversed", [False, True])
async def test_a_refused_quota_is_named_as_the_program_named_its_entity(cluster, is_reversed):
    """Brokers need not keep the order of an entity's parts."""

    def refuse(request, version):
        entries = [
            AlterClientQuotasResponse.EntryData(
                error_code=ErrorCode.INVALID_REQUEST,
                error_message="no",
                entity=[
                    AlterClientQuotasResponse.EntityData(entity_type=one.entity_type, entity_name=one.entity_name)
                    for one in (reversed(entry.entity) if is_reversed else entry.entity)
                ],
            )
            for entry in request.entries
        ]
        return AlterClientQuotasResponse(entries=entries)

    cluster.handlers[AlterClientQuotasRequest] = refuse
    entities = [(("user", "alice"), ("client-id", None)), (("client-id", "c"), ("user", "bob")), (("user", ""),)]
    async with Admin(cluster.bootstrap, **QUICK) as admin:
        with pytest.raises(AdminError) as refused:
            await admin.alter_quotas({one: {"producer_byte_rate": 1.0} for one in entities})
    assert list(refused.value.errors) == ["user=alice,client-id=*", "client-id=c,user=bob", "user="]
