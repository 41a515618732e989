"""Long answers: made and encoded in steps, between which others are served, and the same as those made in one."""

from __future__ import annotations

import gc
import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from kit.exchange import Exchange, make_topic
from kit.handlers import dispatcher_with
from kit.nodes import ask, start_node

from ottla.broker.api.list_offsets import SEARCH_WEIGHT
from ottla.broker.context import Context
from ottla.broker.node import Node
from ottla.broker.requests.long_answers import ENCODED_PER_FREED
from ottla.broker.runtime.steps import Pace
from ottla.protocol.api import ApiKey
from ottla.protocol.api.alter_client_quotas import AlterClientQuotasRequest
from ottla.protocol.api.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ottla.protocol.api.api_versions import ApiVersionsRequest
from ottla.protocol.api.create_acls import CreateAclsRequest
from ottla.protocol.api.describe_acls import DescribeAclsRequest
from ottla.protocol.api.describe_client_quotas import DescribeClientQuotasRequest
from ottla.protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.protocol.api.describe_groups import DescribeGroupsRequest
from ottla.protocol.api.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.api.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.api.init_producer_id import InitProducerIdRequest
from ottla.protocol.api.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.api.list_offsets import ListOffsetsRequest
from ottla.protocol.api.list_transactions import ListTransactionsRequest
from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.api.offset_commit import OffsetCommitRequest
from ottla.protocol.api.offset_fetch import OffsetFetchRequest
from ottla.protocol.compiler import ELEMENTS_PER_STEP
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, encode

LONG = 3 * ELEMENTS_PER_STEP
ASKED = (ListGroupsRequest(), 4)
VERSIONS = (ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)


def listed(*names: object) -> ListGroupsResponse:
    groups = [ListGroupsResponse.ListedGroup(group_id=name, protocol_type="") for name in names]  # type: ignore[arg-type]
    return ListGroupsResponse(groups=groups)


def node_that_answers(response: ListGroupsResponse) -> Node:
    node, _, _ = start_node()
    node.dispatcher = dispatcher_with(node, ApiKey.LIST_GROUPS, lambda request, context: response)
    return node


def turns_until_answered(node: Node, client: Exchange) -> int:
    turns = 0
    while not client.transport.written and turns < 100:
        node.run_due()
        turns += 1
    return turns


def test_a_long_answer_is_encoded_in_steps_as_in_one() -> None:
    response = listed(*(f"group-{number}" for number in range(LONG)))
    node = node_that_answers(response)
    client = Exchange(node)
    client.send(*ASKED)
    client.end_turn()
    assert turns_until_answered(node, client) == 3
    written = bytes(client.transport.written)
    assert written == struct.pack(">iib", len(written) - 4, 1, 0) + encode(response, 4)


def test_a_short_answer_is_there_at_once() -> None:
    client = Exchange(node_that_answers(listed(*map(str, range(ELEMENTS_PER_STEP - 1)))))
    assert len(client.ask(*ASKED).groups) == ELEMENTS_PER_STEP - 1  # type: ignore[attr-defined]


def test_others_are_answered_while_a_long_answer_is_encoded() -> None:
    node = node_that_answers(listed(*map(str, range(LONG))))
    client = Exchange(node)
    other = Exchange(node, client)
    client.send(*ASKED)
    client.end_turn()
    assert other.ask(*VERSIONS)
    assert not client.transport.written


def test_what_follows_a_long_answer_comes_after_it() -> None:
    node = node_that_answers(listed(*map(str, range(LONG))))
    client = Exchange(node)
    first, second = client.send(*ASKED), client.send(*VERSIONS)
    client.end_turn()
    turns_until_answered(node, client)
    node.run_due()
    assert [correlation_id for correlation_id, _ in client.replies()] == [first, second]


def test_an_answer_whose_end_cannot_be_encoded_is_a_refusal(caplog: pytest.LogCaptureFixture) -> None:
    node = node_that_answers(listed(*map(str, range(LONG)), 7))
    client = Exchange(node)
    client.send(*ASKED)
    client.end_turn()
    turns_until_answered(node, client)
    answer: Any = client.reply()
    assert (answer.error_code, answer.groups) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])
    assert "bug: ListGroups v4" in caplog.text


def test_a_long_answer_to_a_fetch_is_made_and_encoded_in_steps_as_in_one() -> None:
    partitions = [
        FetchResponse.PartitionData(
            partition_index=index, high_watermark=9, aborted_transactions=None, records=b"records of %d" % index
        )
        for index in range(LONG)
    ]
    response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="orders", partitions=partitions)])
    node, _, _ = start_node()
    node.dispatcher = dispatcher_with(node, ApiKey.FETCH, lambda request, context: response)
    client = Exchange(node)
    client.send(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), 12)
    client.end_turn()
    assert turns_until_answered(node, client) == 4
    written = bytes(client.transport.written)
    assert written == struct.pack(">iib", len(written) - 4, 1, 0) + encode(response, 12)


class Counted(str):
    """A name that is counted while it is in memory."""

    alive = 0

    def __init__(self, _: object) -> None:
        Counted.alive += 1

    def __del__(self) -> None:
        Counted.alive -= 1


def flat(names: list[Counted]) -> tuple[Response, Request, int]:
    return listed(*names), *ASKED


def nested(names: list[Counted]) -> tuple[Response, Request, int]:
    configs = [
        DescribeConfigsResponse.DescribeConfigsResourceResult(
            name=name, value=None, read_only=False, is_sensitive=False
        )
        for name in names
    ]
    result = DescribeConfigsResponse.DescribeConfigsResult(
        error_message=None, resource_type=2, resource_name="t", configs=configs
    )
    return DescribeConfigsResponse(results=[result]), DescribeConfigsRequest(resources=[]), 4


@pytest.mark.parametrize("make", [flat, nested])
def test_a_very_long_answer_is_freed_in_steps_before_it_is_sent(
    make: Callable[[list[Counted]], tuple[Response, Request, int]],
) -> None:
    pieces = 3
    count = pieces * ENCODED_PER_FREED * ELEMENTS_PER_STEP + 1
    response, request, version = make([Counted(number) for number in range(count)])
    expected = encode(response, version)
    node, _, _ = start_node()
    node.dispatcher = dispatcher_with(node, ApiKey(request.message_key), lambda request, context: response)
    client = Exchange(node)
    client.send(request, version)
    client.end_turn()
    alive = [Counted.alive]
    while not client.transport.written:
        node.run_due()
        alive.append(Counted.alive)
    assert alive[0] == count
    assert alive[-1] == 0
    assert max(before - after for before, after in pairwise(alive)) <= count // pieces + 1
    assert bytes(client.transport.written).endswith(expected)


def test_the_list_that_an_answer_was_made_of_keeps_its_elements() -> None:
    response = listed(*map(str, range(2 * ENCODED_PER_FREED * ELEMENTS_PER_STEP + 1)))
    groups = response.groups
    expected = encode(response, 4)
    client = Exchange(node_that_answers(response))
    client.send(*ASKED)
    client.end_turn()
    while not client.transport.written:
        client.node.run_due()
    assert encode(ListGroupsResponse(groups=groups), 4) == expected


def test_a_client_that_leaves_meanwhile_leaves_nothing() -> None:
    node = node_that_answers(listed(*map(str, range(LONG))))
    client = Exchange(node)
    before = len(node.services.timers)
    client.send(*ASKED)
    client.end_turn()
    client.connection.connection_lost(None)
    node.run_due()
    assert len(node.services.timers) == before
    assert not client.transport.written


def test_a_handler_that_makes_its_answer_in_steps_is_timed_in_each() -> None:
    node, _, _ = start_node()

    def handle(request: Request, context: Context) -> Any:
        def steps() -> Any:
            yield
            yield
            return listed("a")

        return context.in_steps(steps())

    node.dispatcher = dispatcher_with(node, ApiKey.LIST_GROUPS, handle)
    client = Exchange(node)
    client.send(*ASKED)
    client.end_turn()
    assert turns_until_answered(node, client) == 2
    # The start, two more steps, and the encoding.
    assert node.services.metrics.held["ListGroups"].count == 4


# -- the same answers, however short the steps ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def full() -> Node:
    """A node with some of everything."""
    node, _, _ = start_node(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer", super_users="User:ANONYMOUS"
    )
    for name in ("a", "b", "c"):
        make_topic(node, name, 3)
        upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name=name, mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
        )
        ask(node, AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]), 0)
        entity = [AlterClientQuotasRequest.EntityData(entity_type="user", entity_name=name)]
        ops = [AlterClientQuotasRequest.OpData(key="producer_byte_rate", value=1e9, remove=False)]
        entry = AlterClientQuotasRequest.EntryData(entity=entity, ops=ops)
        ask(node, AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
        creations = [
            CreateAclsRequest.AclCreation(
                resource_type=2, resource_name=name, resource_pattern_type=3, principal=f"User:{user}", host="*",
                operation=3, permission_type=3,
            )
            for user in ("x", "y")
        ]  # fmt: skip
        ask(node, CreateAclsRequest(creations=creations), 3)
        partitions = [
            OffsetCommitRequest.OffsetCommitRequestPartition(
                partition_index=index, committed_offset=index, committed_metadata=None
            )
            for index in range(3)
        ]
        topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=partitions) for topic in ("a",)]
        ask(node, OffsetCommitRequest(group_id=f"group-{name}", member_id="", topics=topics), 8)
        ask(node, InitProducerIdRequest(transactional_id=f"id-{name}", transaction_timeout_ms=1_000), 4)
    return node


RESOURCES = [
    DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None)
    for name in ("a", "b", "nowhere")
]
ALL_ACLS = DescribeAclsRequest(
    resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=None, host_filter=None,
    operation=1, permission_type=1,
)  # fmt: skip
GROUP = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="group-a", topics=None)
EARLIEST, BY_TIME = (
    ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                    for index in range(3)
                ],
            )
            for name in ("a", "b")
        ],
    )
    for timestamp in (-2, 1)
)
REQUESTS: list[tuple[Request, int, Callable[[Any], int], int]] = [
    (MetadataRequest(topics=None), 12, lambda answer: len(answer.topics), 3),
    (DescribeLogDirsRequest(topics=None), 4, lambda answer: len(answer.results[0].topics), 3),
    (DescribeConfigsRequest(resources=RESOURCES), 4, lambda answer: len(answer.results), 3),
    (ALL_ACLS, 3, lambda answer: sum(len(each.acls) for each in answer.resources), 6),
    (DescribeUserScramCredentialsRequest(users=None), 0, lambda answer: len(answer.results), 3),
    (DescribeClientQuotasRequest(components=[], strict=False), 1, lambda answer: len(answer.entries), 3),
    (ListGroupsRequest(), 4, lambda answer: len(answer.groups), 3),
    (ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 1, lambda one: len(one.transaction_states), 3),
    (DescribeGroupsRequest(groups=["group-a", "group-b", "x"]), 5, lambda answer: len(answer.groups), 3),
    (OffsetFetchRequest(group_id="group-a", topics=None), 7, lambda answer: len(answer.topics[0].partitions), 3),
    (EARLIEST, 7, lambda answer: sum(len(topic.partitions) for topic in answer.topics), 6),
    (BY_TIME, 7, lambda answer: sum(len(topic.partitions) for topic in answer.topics), 6),
    (OffsetFetchRequest(groups=[GROUP]), 8, lambda answer: len(answer.groups[0].topics[0].partitions), 3),
]


@pytest.mark.parametrize(("request_", "version", "count", "expected"), REQUESTS, ids=lambda one: type(one).__name__)
def test_an_answer_made_one_element_at_a_time_is_that_made_in_one_step(
    full: Node,
    monkeypatch: pytest.MonkeyPatch,
    request_: Request,
    version: int,
    count: Callable[[Any], int],
    expected: int,
) -> None:
    in_one = ask(full, request_, version)
    made = Pace.__init__

    def shortest(self: Pace, count: int = 1) -> None:
        made(self, 1)

    monkeypatch.setattr(Pace, "__init__", shortest)
    assert ask(full, request_, version) == in_one
    # Internal topics of the coordinators come as they like.
    assert count(in_one) >= expected


@pytest.mark.parametrize(("request_", "version"), [one[:2] for one in REQUESTS], ids=lambda one: type(one).__name__)
def test_a_long_answer_leaves_nothing_to_the_garbage_collector(
    full: Node, monkeypatch: pytest.MonkeyPatch, request_: Request, version: int
) -> None:
    """Which would have to go through each of its objects, and all that were made meanwhile."""
    made = Pace.__init__
    monkeypatch.setattr(Pace, "__init__", lambda self, count=1: made(self, 1))
    client = Exchange(full)
    client.ask(request_, version)
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        client.ask(request_, version)
        gc.collect()
        left = [type(one).__name__ for one in gc.garbage if type(one).__module__.startswith("ottla.")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        if was_enabled:
            gc.enable()
    assert left == []


def test_a_step_searches_the_files_of_fewer_partitions_than_it_answers_from_memory(
    full: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Pace.__init__
    monkeypatch.setattr(Pace, "__init__", lambda self, count=1: made(self, SEARCH_WEIGHT))

    def turns(request: Request) -> int:
        client = Exchange(full)
        client.send(request, 7)
        client.end_turn()
        return turns_until_answered(full, client)

    assert (turns(EARLIEST), turns(BY_TIME)) == (1, 5)
