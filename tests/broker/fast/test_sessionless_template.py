"""Requests of several partitions without a session: what a template answers, and what is left to the slow path.

That both answer alike is `test_templates_and_slow_path.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pytest
from kit.exchange import Exchange, batch, fetch_templates, make_topic, produce_request
from kit.nodes import partition_of, pass_time, start_node

from ottla.broker.fast.parked_templates import ParkedPartitionsFetch
from ottla.broker.fast.sessionless_template import SessionlessTemplate
from ottla.broker.fetch.delayed_fetch import DelayedFetch
from ottla.broker.node import Node
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.storage.segment.slice import LogSlice

FIRST, SECOND = "orders", "payments"
WAIT_MS = 500
Key = tuple[str, int]
EACH: tuple[Key, ...] = ((FIRST, 0), (FIRST, 1), (SECOND, 0))


class Reader:
    """A client that names all that it wants, each time, and goes on where it has read."""

    def __init__(self, version: int = 12) -> None:
        self.node, _, self.clock = start_node(ottla_acks_all="page-cache")
        make_topic(self.node, FIRST, 2)
        make_topic(self.node, SECOND, 1)
        self.version = version
        self.client, self.producer = Exchange(self.node), Exchange(self.node)
        self.positions: dict[Key, int] = dict.fromkeys(EACH, 0)
        self.by_template: list[bool] = []
        """Whether each request was answered, or waited, without the slow path."""

    def put(self, *keys: Key) -> None:
        for name, index in keys or EACH:
            self.producer.ask(produce_request(name, batch(), partition=index), 9)

    def send(self, keys: Sequence[Key] = EACH, *, min_bytes: int = 1, max_bytes: int = 1 << 20) -> None:
        topics: list[FetchRequest.FetchTopic] = []
        for name, index in keys:
            if not topics or topics[-1].topic != name:
                topic_id = self.node.services.catalog.topics[name].id
                topics.append(FetchRequest.FetchTopic(topic=name, topic_id=topic_id, partitions=[]))
            topics[-1].partitions.append(
                FetchRequest.FetchPartition(
                    partition=index, fetch_offset=self.positions[name, index], partition_max_bytes=1000
                )
            )
        request = FetchRequest(
            max_wait_ms=WAIT_MS, min_bytes=min_bytes, max_bytes=max_bytes, session_epoch=-1, topics=topics
        )
        with patch("ottla.broker.requests.dispatch.decode_request_header", wraps=decoded) as slow:
            self.client.send(request, self.version)
            self.node.settle()
        self.by_template.append(not slow.called)

    def fetch(self, keys: Sequence[Key] = EACH, **more: int) -> dict[Key, int]:
        """Send, and take the answer."""
        self.send(keys, **more)
        return self.take()

    def take(self) -> dict[Key, int]:
        """How many bytes of records the one answer has, by partition, in its order."""
        answer = self.client.reply()
        assert isinstance(answer, FetchResponse)
        names = {topic.id: topic.name for topic in self.node.services.catalog.topics.values()}
        found: dict[Key, int] = {}
        for topic in answer.responses:
            for data in topic.partitions:
                assert not data.error_code
                key = topic.topic or names[topic.topic_id], data.partition_index
                found[key] = len(data.records or b"")
                self.positions[key] = data.high_watermark
        return found


def decoded(*arguments: Any) -> Any:
    from ottla.protocol.headers import decode_request_header

    return decode_request_header(*arguments)


@pytest.mark.parametrize("version", range(4, 19))
def test_all_that_is_named_is_answered_from_the_second_request_on(version: int) -> None:
    reader = Reader(version)
    for number in range(4):
        reader.put()
        found = reader.fetch()
        assert list(found) == list(EACH)
        assert all(found.values()), number
    assert reader.by_template == [False, True, True, True]


@pytest.mark.parametrize("version", [4, 7, 12, 18])
def test_one_that_finds_nothing_waits_and_is_told_about_all(version: int) -> None:
    reader = Reader(version)
    reader.put()
    reader.fetch()
    with patch.object(DelayedFetch, "park") as slow:
        for _ in range(3):
            reader.send()
            assert not reader.client.transport.written
            assert isinstance(reader.client.connection.queue.in_flight[0], ParkedPartitionsFetch)
            reader.put((FIRST, 1))
            found = reader.take()
            assert [key for key, size in found.items() if size] == [(FIRST, 1)]
            assert list(found) == list(EACH)
        reader.send()
        pass_time(reader.node, reader.clock, WAIT_MS)
        assert reader.take() == dict.fromkeys(EACH, 0)
    assert not slow.called


def test_it_waits_for_its_minimum_over_all_partitions() -> None:
    reader = Reader()
    reader.put()
    reader.fetch(min_bytes=150)
    reader.send(min_bytes=150)
    reader.put((FIRST, 0))
    assert not reader.client.transport.written
    reader.put((SECOND, 0), (FIRST, 1))
    assert sum(reader.take().values()) >= 150
    assert reader.by_template == [False, True]


def test_partitions_are_named_in_any_order_and_left_out() -> None:
    reader = Reader()
    reader.put()
    reader.fetch()
    for keys in ([EACH[2], EACH[0], EACH[1]], [EACH[1], EACH[2]], [EACH[0]], [EACH[1], EACH[2], EACH[0]]):
        reader.put()
        assert list(reader.fetch(keys)) == keys
    assert reader.by_template == [False, True, True, True, True]


def test_a_partition_that_was_not_named_before_takes_the_slow_path_once() -> None:
    reader = Reader()
    for keys in (EACH[:2], EACH[1:], EACH[:2], EACH):
        reader.put()
        assert list(reader.fetch(keys)) == list(keys)
    assert reader.by_template == [False, False, True, True]


def test_one_that_is_named_twice_takes_the_slow_path() -> None:
    reader = Reader()
    reader.put()
    reader.fetch()
    reader.put()
    reader.send([EACH[0], EACH[0], EACH[1]])
    assert reader.by_template == [False, False]


def test_once_several_were_named_a_single_one_needs_no_template_of_its_own() -> None:
    reader = Reader()
    reader.put()
    reader.fetch([EACH[0]])
    reader.fetch([EACH[0], EACH[1]])
    template = fetch_templates(reader.client)
    assert isinstance(template, SessionlessTemplate)
    reader.put()
    reader.fetch([EACH[1]])
    assert fetch_templates(reader.client) is template
    assert reader.by_template == [False, False, True]


def test_more_partitions_than_are_looked_at_at_once_take_the_slow_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.fast.sessionless_template.MOST_PARTITIONS", 2)
    reader = Reader()
    for _ in range(3):
        reader.put()
        reader.fetch()
    assert reader.by_template == [False, False, False]
    for keys in (EACH[:2], EACH[1:], EACH[1:], EACH[:2]):
        reader.put()
        reader.fetch(keys)
    assert reader.by_template[3:] == [False, False, True, False]  # what was named before is forgotten


def test_at_another_stamp_one_that_waits_goes_on_by_the_slow_path() -> None:
    reader = Reader()
    reader.put()
    reader.fetch()
    reader.send()
    reader.clock.advance(200)
    reader.node.services.validity.change()
    reader.put((FIRST, 0))
    assert [key for key, size in reader.take().items() if size] == [(FIRST, 0)]
    reader.put()
    reader.fetch()
    reader.send()
    reader.node.services.validity.change()
    pass_time(reader.node, reader.clock, WAIT_MS)
    assert reader.take() == dict.fromkeys(EACH, 0)


def test_one_that_waits_leaves_nothing_behind_when_its_client_goes() -> None:
    reader = Reader()
    reader.put()
    reader.fetch()
    reader.send()
    reader.client.connection.connection_lost(None)
    reader.put()
    assert not any(is_watched(reader.node, key) for key in EACH)


def is_watched(node: Node, key: Key) -> bool:
    return partition_of(node, *key).is_watched


def test_behind_two_requests_for_cold_records_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader()
    reader.put()
    reader.fetch()
    log = partition_of(reader.node, FIRST, 0).log
    hot = log.read

    def cold(offset: int, *_: int, **__: Any) -> LogSlice:
        records = hot(offset, 200, end_offset=log.log_end_offset).read_blocking()
        log.reader.forget_hints()
        return LogSlice(None, len(records), load=lambda: records)

    looked: list[bool] = []
    look = SessionlessTemplate.look

    def noting(self: SessionlessTemplate, *arguments: Any) -> Any:
        looked.append(True)
        return look(self, *arguments)

    monkeypatch.setattr(SessionlessTemplate, "look", noting)
    for are_cold, is_looked_at in ((True, True), (True, True), (True, False), (False, False), (False, True)):
        looked.clear()
        reader.put()
        with monkeypatch.context() as patched:
            if are_cold:
                log.reader.forget_hints()
                patched.setattr(log, "read", cold)
            reader.fetch()
        assert bool(looked) == is_looked_at
