"""Operations over HTTP: what they do to logs, and whom they are refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from kit.clock import ManualClock
from kit.logs import batch
from kit.nodes import start_node

from ottla.broker.catalog.catalog import NewTopic
from ottla.broker.http import server as http
from ottla.broker.http.operations import clean, cleaning, explain, operations_of, retain, roll
from ottla.broker.http.server import HttpServer, Page
from ottla.broker.node import Node
from ottla.storage.log.append import AppendEntry, AppendResult


def fill(node: Node, clock: ManualClock, topic: str, batches: int) -> None:
    node.services.catalog.create_topics([NewTopic(topic, configs=(("retention.ms", "1000"),))], lambda outcomes: None)
    node.settle()
    partition = node.services.catalog.partition(topic, 0)
    assert partition is not None
    log = partition.log
    for _ in range(batches):
        log.append([AppendEntry(memoryview(batch(b"value", stamps=[clock.wall_ms()])), 9)], clock.wall_ms())
    ticket = log.begin_sync()
    assert ticket is not None
    ticket.run()
    log.end_sync(ticket)


def reported(page: Page) -> tuple[int, dict[str, Any]]:
    return page.status.value, json.loads(page.body)


def retained(node: Node, asked: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
    """What `retain` answers, at once or after its steps."""
    answer = retain(node.services, asked)
    if isinstance(answer, Page):
        return reported(answer)
    while not answer.done:
        node.run_due()
    assert answer.response is not None
    return reported(answer.response)


def test_roll_begins_a_segment_at_the_log_end_once() -> None:
    node, _, clock = start_node()
    fill(node, clock, "orders", 3)
    assert reported(roll(node.services, {"partition": "orders-0"})) == (
        200,
        {"partition": "orders-0", "is_rolled": True, "base_offset": 3},
    )
    assert reported(roll(node.services, {"partition": "orders-0"}))[1]["is_rolled"] is False
    partition = node.services.catalog.partition("orders", 0)
    assert partition is not None
    assert [segment.base_offset for segment in partition.log.segments] == [0, 3]


class Stored:
    def appended(self, index: int, result: AppendResult) -> None:
        assert not result.error_code


def compacted(node: Node, clock: ManualClock, topic: str, **configs: str) -> None:
    """Ten records of one key, in two sealed segments."""
    keys = {"cleanup.policy": "compact"} | {key.replace("_", "."): value for key, value in configs.items()}
    node.services.catalog.create_topics([NewTopic(topic, configs=list(keys.items()))], lambda outcomes: None)
    node.settle()
    partition = node.services.catalog.partition(topic, 0)
    assert partition is not None
    for number in range(10):
        data = batch(b"value %d" % number, stamps=[clock.wall_ms()])
        partition.gather(AppendEntry(memoryview(data), 9), Stored(), 0)
        node.settle()
        if number in (4, 9):
            partition.log.roll(clock.wall_ms())


def test_clean_compacts_a_topic_now_and_cleaning_shows_the_result() -> None:
    node, _, clock = start_node()
    compacted(node, clock, "orders")
    (row,) = reported(clean(node.services, node.cleaner, {"topic": "orders"}))[1]["partitions"]
    assert (row["partition"], row["state"]) == ("orders-0", "waiting")
    for _ in range(50):
        node.run_due()
        node.settle()
    (row,) = reported(cleaning(node.services, node.cleaner, {"topic": "orders"}))[1]["partitions"]
    assert (row["state"], row["records_removed"], row["end_offset"]) == ("done", 9, 10)
    assert row["bytes_after"] < row["bytes_before"]


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ({}, 400, "ask for ?topic=NAME"),
        ({"topic": "nothing"}, 404, "there is no topic nothing"),
        ({"topic": "plain"}, 400, "plain is not compacted: its cleanup.policy is delete"),
        ({"topic": "plain", "more": "1"}, 400, "ask for ?topic=NAME"),
    ],
)
def test_clean_refuses_what_cannot_be_cleaned(asked: dict[str, str], status: int, words: str) -> None:
    node, _, clock = start_node()
    fill(node, clock, "plain", 1)
    assert reported(clean(node.services, node.cleaner, asked)) == (status, {"error": words})


def test_explain_shows_of_each_segment_why_it_is_there() -> None:
    node, _, clock = start_node()
    compacted(node, clock, "orders", cleanup_policy="compact,delete", retention_ms="60000")
    status, body = reported(explain(node.services, node.cleaner, {"partition": "orders-0"}))
    assert (status, body["dirty_ratio"], body["first_dirty_offset"]) == (200, 1.0, 0)
    first, second, active = body["segments"]
    assert first["compaction"] == "dirty: the cleaner cleans it when its turn comes"
    assert first["retention"] == "kept: its newest record is not older than retention.ms, 60000"
    assert first["retained_until_ms"] == first["newest_ms"] + 60_001
    assert (second["base_offset"], second["end_offset"], second["is_active"]) == (5, 10, False)
    assert active["compaction"].startswith("not yet: the active segment")
    assert active["retention"] == "kept: the active segment, which is empty"
    clean(node.services, node.cleaner, {"topic": "orders"})
    for _ in range(50):
        node.run_due()
        node.settle()
    clock.advance(60_001)
    body = reported(explain(node.services, node.cleaner, {"partition": "orders-0"}))[1]
    assert [one["compaction"] for one in body["segments"][:-1]] == ["clean: an earlier cleaning has gone through it"]
    assert body["segments"][0]["retention"].startswith("deleted at the next check: its newest record is older")
    assert retained(node, {"topic": "orders"})[0] == 200
    assert len(reported(explain(node.services, node.cleaner, {"partition": "orders-0"}))[1]["segments"]) == 1


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ({"min_compaction_lag_ms": "1000"}, "not yet: it, or one before it, has a record younger than"),
        ({"min_cleanable_dirty_ratio": "1"}, "dirty, not yet due: 1.00 of the log is dirty, it must be more than"),
        ({"cleanup_policy": "delete"}, "never: cleanup.policy does not say compact"),
    ],
)
def test_explain_says_why_a_segment_is_not_cleaned(configs: dict[str, str], words: str) -> None:
    node, _, clock = start_node()
    compacted(node, clock, "orders", **configs)
    body = reported(explain(node.services, node.cleaner, {"partition": "orders-0"}))[1]
    assert body["segments"][0]["compaction"].startswith(words)
    assert reported(explain(node.services, node.cleaner, {"partition": "nothing-0"}))[0] == 404
    assert reported(explain(node.services, node.cleaner, {"partition": "orders"}))[0] == 400


def test_retain_deletes_what_is_due_and_nothing_else() -> None:
    node, _, clock = start_node()
    fill(node, clock, "orders", 3)
    fill(node, clock, "others", 2)
    roll(node.services, {"partition": "orders-0"})
    assert retained(node, {})[1]["partitions"][0]["deleted_segments"] == []
    clock.advance(1_001)
    status, body = retained(node, {"topic": "orders"})
    assert status == 200
    (row,) = body["partitions"]
    assert (row["partition"], row["deleted_segments"], row["log_start_offset"]) == ("orders-0", [0], 3)
    assert row["deleted_bytes"] > 0
    others = node.services.catalog.partition("others", 0)
    assert others is not None
    assert others.log.log_start_offset == 0
    assert [one["partition"] for one in retained(node, {})[1]["partitions"]] == ["orders-0", "others-0"]


@pytest.mark.parametrize(
    ("operation", "asked", "status", "words"),
    [
        (roll, {}, 400, "partition=TOPIC-N"),
        (roll, {"partition": "orders"}, 400, "partition=TOPIC-N"),
        (roll, {"partition": "orders-0", "more": ""}, 400, "partition=TOPIC-N"),
        (roll, {"partition": "orders-1"}, 404, "there is no partition orders-1"),
        (roll, {"partition": "nothing-0"}, 404, "there is no partition nothing-0"),
        (roll, {"partition": "__cluster_metadata-0"}, 404, "there is no partition"),
        (retain, {"topic": "nothing"}, 404, "there is no topic nothing"),
        (retain, {"topics": "orders"}, 400, "topic=NAME"),
    ],
)
def test_what_is_asked_wrongly_is_refused(operation: Any, asked: Mapping[str, str], status: int, words: str) -> None:
    node, _, clock = start_node()
    fill(node, clock, "orders", 1)
    code, body = reported(operation(node.services, asked))
    assert code == status
    assert words in body["error"]


def test_a_log_that_takes_no_writes_is_not_rolled() -> None:
    node, _, clock = start_node()
    fill(node, clock, "orders", 1)
    (directory,) = node.services.log_manager.directories
    directory.mark_offline(OSError(5, "the disk is gone"))
    status, body = reported(roll(node.services, {"partition": "orders-0"}))
    assert status == 503
    assert body["error"].startswith("orders-0: ")


# --- over a socket


@pytest.fixture
async def server() -> AsyncIterator[HttpServer]:
    node, _, clock = start_node()
    fill(node, clock, "orders", 1)
    running = HttpServer("127.0.0.1", 0, {}, operations_of(node.services, node.cleaner))
    await running.start()
    yield running
    await running.stop()


MARK = "X-Ottla: 1"


async def ask(server: HttpServer, target: str, *headers: str, method: str = "POST", host: str = "x") -> bytes:
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "Connection: close", MARK, *headers, "", ""]
    return await send(server, lines)


async def send(server: HttpServer, lines: list[str]) -> bytes:
    reader, writer = await asyncio.open_connection(*server.address)
    writer.write("\r\n".join(lines).encode())
    answer = await reader.read()
    writer.close()
    return answer


async def test_an_operation_is_asked_by_post(server: HttpServer) -> None:
    answer = await ask(server, "/log/roll?partition=orders-0", "Content-Length: 0")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b'"is_rolled": true' in answer
    answer = await ask(server, "/log/roll?partition=orders-0", method="GET")
    assert answer.startswith(b"HTTP/1.1 405 ")
    assert b"Allow: POST\r\n" in answer


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("X-Ottla: 1", 200),
        ("Content-Type: application/json; charset=utf-8", 200),
        ("Content-Type: text/plain", 403),
        ("Content-Type: application/x-www-form-urlencoded", 403),
        ("Accept: application/json", 403),
    ],
)
async def test_what_the_form_of_a_web_page_can_send_is_not_enough(server: HttpServer, header: str, status: int) -> None:
    lines = ["POST /log/retain HTTP/1.1", "Host: x", "Connection: close", header, "", ""]
    assert (await send(server, lines)).startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.parametrize("header", ["Origin: http://evil.example", "Sec-Fetch-Site: cross-site"])
async def test_a_web_page_may_not_ask(server: HttpServer, header: str) -> None:
    assert (await ask(server, "/log/retain", header)).startswith(b"HTTP/1.1 403 ")


async def test_a_name_that_a_web_page_may_have_pointed_here_may_not_be_asked(server: HttpServer) -> None:
    assert (await ask(server, "/log/retain", host="evil.example:9644")).startswith(b"HTTP/1.1 421 ")
    assert (await ask(server, "/log/retain", host="127.0.0.1:9644")).startswith(b"HTTP/1.1 200 ")


async def test_another_machine_may_not_ask(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "is_loopback", lambda host: False)
    assert (await ask(server, "/log/retain")).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("query", ["partition", "partition=a&partition=b", "&".join(f"f{n}=" for n in range(11))])
async def test_a_broken_query_is_400(server: HttpServer, query: str) -> None:
    assert (await ask(server, f"/log/roll?{query}")).startswith(b"HTTP/1.1 400 ")
