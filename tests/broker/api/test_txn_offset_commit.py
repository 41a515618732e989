"""TxnOffsetCommit with the real transaction coordinator: what each version needs, its codes, and what a start finds."""

from __future__ import annotations

from random import Random

import pytest
from kit.clock import ManualClock
from kit.group_requests import begin, code_of, commit, committed, make_topic, settled
from kit.nodes import ask, ask_for, pass_time, start_node
from kit.simulated_files import SimulatedFiles
from kit.transactional_offsets import UNSTABLE, stable_offset, transactional_request

from ottla.broker.coordination.runtime import LOAD_AT_START_BYTES
from ottla.broker.node import Node
from ottla.protocol.api.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.protocol.api.delete_topics import DeleteTopicsRequest
from ottla.protocol.api.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.api.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from ottla.protocol.errors import ErrorCode, KafkaError

LAST_VERSION = 5
TIMEOUT_MS = 60_000
Life = tuple[Node, SimulatedFiles, ManualClock]


@pytest.fixture
def life() -> Life:
    node, files, clock = start_node(ottla_acks_all="sync")
    make_topic(node, "t", 4)
    return node, files, clock


@pytest.fixture
def node(life: Life) -> Node:
    return life[0]


def producer(node: Node, transactional_id: str = "tx") -> InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS)
    response = ask_for(InitProducerIdResponse, node, request, 5)
    assert response.error_code == ErrorCode.NONE
    return response


def request_of(
    who: InitProducerIdResponse, offsets: dict[int, int], *, group: str = "g", topic: str = "t"
) -> TxnOffsetCommitRequest:
    request = transactional_request(group, offsets, producer=who.producer_id, epoch=who.producer_epoch, topic=topic)
    return request.replace(transactional_id="tx")


def send(node: Node, request: TxnOffsetCommitRequest, version: int = LAST_VERSION) -> int:
    """The code of the first partition, or of the whole request."""
    try:
        response = settled(node, begin(node, request, version), TxnOffsetCommitResponse)
    except KafkaError as refusal:
        return refusal.code
    return response.topics[0].partitions[0].error_code


def add_offsets(node: Node, who: InitProducerIdResponse, group: str = "g") -> None:
    request = AddOffsetsToTxnRequest(
        transactional_id="tx", producer_id=who.producer_id, producer_epoch=who.producer_epoch, group_id=group
    )
    assert ask_for(AddOffsetsToTxnResponse, node, request, 3).error_code == ErrorCode.NONE


def end(node: Node, who: InitProducerIdResponse, *, commits: bool, version: int = 5) -> None:
    request = EndTxnRequest(
        transactional_id="tx", producer_id=who.producer_id, producer_epoch=who.producer_epoch, committed=commits
    )
    response = ask_for(EndTxnResponse, node, request, version)
    assert response.error_code == ErrorCode.NONE
    if version >= 5:
        who.producer_id, who.producer_epoch = response.producer_id, response.producer_epoch


@pytest.mark.parametrize("version", range(LAST_VERSION))
def test_up_to_version_4_the_groups_offsets_have_to_be_added_before(node: Node, version: int) -> None:
    who = producer(node)
    refusal = ErrorCode.TRANSACTION_ABORTABLE if version == 4 else ErrorCode.INVALID_TXN_STATE
    assert send(node, request_of(who, {0: 5}), version) == refusal
    assert stable_offset(node, "g") == -1
    add_offsets(node, who)
    assert send(node, request_of(who, {0: 5}), version) == ErrorCode.NONE
    assert stable_offset(node, "g") == UNSTABLE
    end(node, who, commits=True, version=4)
    assert stable_offset(node, "g") == 5


def test_version_5_adds_the_groups_offsets_and_survives_the_new_epoch_of_each_end(node: Node) -> None:
    who = producer(node)
    for offset, commits, expected in ((5, True, 5), (6, False, 5), (7, True, 7)):
        assert send(node, request_of(who, {0: offset})) == ErrorCode.NONE
        end(node, who, commits=commits)
        assert stable_offset(node, "g") == expected


def test_partitions_that_do_not_exist_are_refused_and_the_others_kept(node: Node) -> None:
    who = producer(node)
    request = request_of(who, {0: 5, 4: 6, -1: 7})
    request.topics.append(request_of(who, {0: 1}, topic="nowhere").topics[0])
    response = settled(node, begin(node, request, LAST_VERSION), TxnOffsetCommitResponse)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = [[each.error_code for each in topic.partitions] for topic in response.topics]
    assert codes == [[ErrorCode.NONE, unknown, unknown], [unknown]]
    end(node, who, commits=True)
    assert committed(node, "g") == 5


def test_where_nothing_exists_no_transaction_begins(node: Node) -> None:
    who = producer(node)
    assert send(node, request_of(who, {0: 5}, topic="nowhere")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert send(node, request_of(who, {9: 5})) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_refusal_of_all_is_given_to_what_exists(node: Node) -> None:
    who = producer(node)
    request = request_of(who, {0: 5, 9: 6})
    request.generation_id_or_member_epoch, request.member_id = 3, "m"
    response = settled(node, begin(node, request, LAST_VERSION), TxnOffsetCommitResponse)
    codes = [each.error_code for each in response.topics[0].partitions]
    assert codes == [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("version", range(LAST_VERSION + 1))
def test_a_fenced_producer_gets_a_code_that_every_version_knows(node: Node, version: int) -> None:
    old = producer(node)
    producer(node)
    assert send(node, request_of(old, {0: 5}), version) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert stable_offset(node, "g") == -1


@pytest.mark.parametrize("transactional_id", ["", "another", "x" * 32_000])
def test_a_transactional_id_that_is_not_known_is_refused(node: Node, transactional_id: str) -> None:
    request = request_of(producer(node), {0: 5}).replace(transactional_id=transactional_id)
    assert send(node, request) in (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_REQUEST)
    assert stable_offset(node, "g") == -1


def test_an_empty_group_is_refused(node: Node) -> None:
    assert send(node, request_of(producer(node), {0: 5}, group="")) == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_transaction_that_a_start_finds_open_is_aborted_when_its_time_is_over(life: Life, is_cut: bool) -> None:
    node, files, clock = life
    commit(node, "g", {0: 1})
    assert send(node, request_of(producer(node), {0: 5})) == ErrorCode.NONE
    if is_cut:
        files = files.crash(Random(1))
    else:
        node.stop()
    node, _, _ = start_node(files, clock, ottla_acks_all="sync")
    assert (committed(node, "g"), stable_offset(node, "g")) == (1, UNSTABLE)
    pass_time(node, clock, TIMEOUT_MS + 20_000)
    assert stable_offset(node, "g") == 1


def test_an_end_that_was_answered_survives_a_power_cut_with_its_offsets(life: Life) -> None:
    node, files, clock = life
    who = producer(node)
    assert send(node, request_of(who, {0: 5})) == ErrorCode.NONE
    end(node, who, commits=True)
    node, _, _ = start_node(files.crash(Random(1)), clock, ottla_acks_all="sync")
    assert stable_offset(node, "g") == 5


def test_an_end_without_the_offsets_topic_is_an_end(life: Life) -> None:
    node, _, _ = life
    who = producer(node)
    assert send(node, request_of(who, {0: 5})) == ErrorCode.NONE
    ask(node, DeleteTopicsRequest(topic_names=["__consumer_offsets"], timeout_ms=1_000), 5)
    end(node, who, commits=True)
    assert send(node, request_of(who, {0: 6})) == ErrorCode.NONE
    end(node, who, commits=True)
    assert stable_offset(node, "g") == 6


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (4, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (5, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
def test_while_an_end_is_written_clients_get_a_code_that_they_send_again_for(
    node: Node, version: int, code: ErrorCode
) -> None:
    who = producer(node)
    assert send(node, request_of(who, {0: 5})) == ErrorCode.NONE
    ending = EndTxnRequest(
        transactional_id="tx", producer_id=who.producer_id, producer_epoch=who.producer_epoch, committed=True
    )
    ended = begin(node, ending, 4)
    refused = begin(node, request_of(who, {0: 6}), version)
    assert code_of(refused) is code
    assert settled(node, ended, EndTxnResponse).error_code == ErrorCode.NONE
    assert stable_offset(node, "g") == 5


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.COORDINATOR_NOT_AVAILABLE), (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)],
)
def test_while_the_groups_load_old_clients_get_a_code_that_they_survive(
    life: Life, version: int, code: ErrorCode
) -> None:
    node, files, clock = life
    for number in range(LOAD_AT_START_BYTES // 4_000 + 10):
        assert commit(node, "g", {0: number}, metadata="x" * 4_000) == ErrorCode.NONE
    who = producer(node)
    node.stop()
    node, _, _ = start_node(files, clock, ottla_acks_all="sync")
    assert code_of(begin(node, request_of(who, {0: 5}), version)) is code
