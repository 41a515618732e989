"""Chunked requests: what is asked of the handlers, in how many turns, and that the answer is the same."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from kit.exchange import batch, produce_request
from kit.fuzz.life import Life
from kit.fuzz.requests import SERVED
from kit.fuzz.wide import all_lists, frame_of

from ottla.broker.api import HANDLERS
from ottla.broker.requests import chunks
from ottla.broker.requests.chunks import ELEMENTS_PER_CHUNK, split_of
from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.api.create_topics import CreateTopicsRequest
from ottla.protocol.api.list_offsets import ListOffsetsRequest
from ottla.protocol.api.offset_fetch import OffsetFetchRequest
from ottla.protocol.api.write_txn_markers import WriteTxnMarkersRequest
from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.headers import decode_request_header, encode_request_header
from ottla.protocol.message import Request, decode, encode
from ottla.protocol.plan import plan_message

PROPERTIES = {
    "CREATE_TOPICS v7 topics.assignments",
    "CREATE_TOPICS v7 topics.assignments.broker_ids",
    "CREATE_TOPICS v7 topics.configs",
    "DESCRIBE_CONFIGS v4 resources.configuration_keys",
    "ALTER_CONFIGS v2 resources.configs",
    "CREATE_PARTITIONS v3 topics.assignments",
    "CREATE_PARTITIONS v3 topics.assignments.broker_ids",
    "INCREMENTAL_ALTER_CONFIGS v1 resources.configs",
    "ALTER_PARTITION_REASSIGNMENTS v1 topics.partitions.replicas",
    "ALTER_CLIENT_QUOTAS v1 entries.entity",
    "ALTER_CLIENT_QUOTAS v1 entries.ops",
}
"""Lists of one thing's properties: they mean something together only, and cost little each."""
Topic, Partition = ListOffsetsRequest.ListOffsetsTopic, ListOffsetsRequest.ListOffsetsPartition


@pytest.fixture
def life() -> Iterator[Life]:
    with Life(with_kio=False) as one:
        yield one


def ask(life: Life, request: Request, version: int) -> Any:
    body = encode_request_header(request.message_key, version, 7, "wide") + encode(request, version)
    reported = life.step({"line": 0, "send": struct.pack(">i", len(body)) + body})
    for _ in range(200):
        if reported:
            return reported[0]
        reported = life.step({"wait_ms": 1})
    raise AssertionError("no answer")


def offsets_of(*topics: tuple[str, int]) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            Topic(name=name, partitions=[Partition(partition_index=index, timestamp=-1) for index in range(count)])
            for name, count in topics
        ],
    )


def asked_of(monkeypatch: pytest.MonkeyPatch, key: ApiKey) -> list[Any]:
    """The requests that the handler is given from now on."""
    seen: list[Any] = []
    handler = HANDLERS[key]()

    def noting(request: Any, context: Any) -> Any:
        seen.append(request)
        return handler.handle(request, context)

    monkeypatch.setitem(HANDLERS, key, lambda: handler._replace(handle=noting))
    return seen


@pytest.mark.parametrize("shape", [(("plain", 2),), (("plain", 7), ("old", 3), ("none", 11), ("compacted", 1))])
@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_the_joined_answer_is_the_answer(
    shape: tuple[tuple[str, int], ...], most: int, monkeypatch: pytest.MonkeyPatch, life: Life
) -> None:
    life.ask(produce_request("plain", batch(3)), 8)
    whole = ask(life, offsets_of(*shape), 7)
    monkeypatch.setattr(chunks, "ELEMENTS_PER_CHUNK", most)
    assert ask(life, offsets_of(*shape), 7) == whole


def test_a_list_inside_of_a_list_inside_of_a_list_is_joined_again(monkeypatch: pytest.MonkeyPatch, life: Life) -> None:
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    topics = OffsetFetchRequest.OffsetFetchRequestTopics
    request = OffsetFetchRequest(
        groups=[
            group(
                group_id=name,
                topics=[
                    topics(name="plain", partition_indexes=list(range(9))),
                    topics(name="a", partition_indexes=[1]),
                ],
            )
            for name in ("witness", "g")
        ]
    )
    whole = ask(life, request, 8)
    assert len(whole.groups[0].topics[0].partitions) == 9
    for most in (1, 2, 4):
        monkeypatch.setattr(chunks, "ELEMENTS_PER_CHUNK", most)
        assert ask(life, request, 8) == whole


def partitions_of(requests: list[Any]) -> int:
    return sum(len(topic.partitions) for request in requests for topic in request.topics)


def test_each_chunk_is_bounded_and_others_are_served_between_two(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = asked_of(monkeypatch, ApiKey.LIST_OFFSETS)
    with Life(with_kio=False) as life:
        body = encode_request_header(2, 7, 1, "wide") + encode(offsets_of(("plain", 2600), ("old", 1)), 7)
        assert life.step({"line": 0, "send": struct.pack(">i", len(body)) + body}) == []
        rounds = 0
        while partitions_of(seen) < 2601 and rounds < 100:
            before = len(seen)
            life.node.run_due()
            rounds += 1
            assert len(seen) <= before + 1
            life.check_witness()
        assert rounds >= 2601 // ELEMENTS_PER_CHUNK
        weights = [sum(1 + len(topic.partitions) for topic in request.topics) for request in seen]
        assert max(weights) <= ELEMENTS_PER_CHUNK + 1
        assert partitions_of(seen) == 2601


def test_a_connection_that_ends_ends_its_chunked_request(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = asked_of(monkeypatch, ApiKey.LIST_OFFSETS)
    with Life(with_kio=False) as life:
        body = encode_request_header(2, 7, 1, "wide") + encode(offsets_of(("plain", 5000)), 7)
        life.step({"line": 0, "send": struct.pack(">i", len(body)) + body})
        life.node.run_due()
        life.step({"line": 0, "drop": True})
        before = len(seen)
        for _ in range(20):
            life.step({"wait_ms": 1})
        assert len(seen) == before


def test_what_is_changed_in_chunks_is_changed(monkeypatch: pytest.MonkeyPatch, life: Life) -> None:
    monkeypatch.setattr(chunks, "ELEMENTS_PER_CHUNK", 3)
    topics = [
        CreateTopicsRequest.CreatableTopic(
            name=f"t{number}", num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        for number in range(10)
    ]
    answer = ask(life, CreateTopicsRequest(topics=topics, timeout_ms=1000), 7)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [(f"t{number}", 0) for number in range(10)]
    assert all(f"t{number}" in life.node.services.catalog.topics for number in range(10))


def test_markers_of_many_partitions_are_written_in_chunks(monkeypatch: pytest.MonkeyPatch, life: Life) -> None:
    topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic
    markers = [
        WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=0,
            transaction_result=False,
            coordinator_epoch=0,
            topics=[topic(name="plain", partition_indexes=list(range(9))), topic(name="none", partition_indexes=[0])],
        )
        for producer_id in (77, 78)
    ]
    request = WriteTxnMarkersRequest(markers=markers)
    whole = ask(life, request, 1)
    codes = [[one.error_code for one in topic.partitions] for topic in whole.markers[1].topics]
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [[ErrorCode.NONE] * 2 + [missing] * 7, [missing]]
    for most in (1, 4, 12):
        monkeypatch.setattr(chunks, "ELEMENTS_PER_CHUNK", most)
        assert ask(life, request, 1) == whole


def test_the_lists_that_are_split_are_there_and_so_are_those_of_the_answers() -> None:
    for key, load in HANDLERS.items():
        api = REGISTRY[key]
        for one in load().chunks:
            for message, path in ((api.request, one.requested), (api.response, one.answered)):
                found = False
                for version in range(api.min_version, api.max_version + 1):
                    plan = plan_message(message, version)
                    for name in path:
                        field = next((each for each in (*plan.fields, *plan.tagged) if each.name == name), None)
                        if field is None or not field.is_array:
                            break
                        if field.struct is not None:
                            plan = field.struct
                    else:
                        found = True
                assert found, f"{api.name}: {path}"


@pytest.mark.parametrize("key", SERVED, ids=lambda key: key.name)
def test_a_list_that_is_not_split_may_have_fewer_elements(key: ApiKey) -> None:
    whole = {
        str(wide).rpartition(",")[0]
        for wide in all_lists((key,))
        if not wide.is_distinct and not _is_split(wide.key, wide)
    }
    assert not whole or REGISTRY[key].request.max_elements == MAX_ELEMENTS_IN_ONE_PIECE or whole <= PROPERTIES, whole


def _is_split(key: ApiKey, wide: Any) -> bool:
    if not HANDLERS[key]().chunks:
        return False
    frame = frame_of(wide, random.Random(1), 2_000)
    assert frame is not None
    api = REGISTRY[key]
    _, position = decode_request_header(memoryview(frame)[4:])
    request = decode(api.request, memoryview(frame)[4:], wide.version, position)
    return split_of(HANDLERS[key]().chunks, request) is not None
