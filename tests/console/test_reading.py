"""Pages of records, single records and the live tail, from a broker."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from kit.console_page import ConsolePage, read_head

from ottla.client import Admin
from ottla.console import reading
from ottla.testing import EmbeddedBroker


@pytest.fixture
def numbers(broker: EmbeddedBroker) -> str:
    """A topic of 3 partitions with the numbers from 0 to 99, one a second, and partition 2 without records."""
    topic = broker.create_topic(partitions=3)
    for number in range(100):
        broker.send(topic, b"%d" % number, partition=number % 2, timestamp_ms=1_000 * number)
    return topic


def values(answer: dict[str, Any]) -> list[int]:
    return [int(record["value"]["text"]) for record in answer["records"]]


async def test_the_newest_records_of_all_partitions_come_first(page: ConsolePage, numbers: str) -> None:
    first = await page.get(f"topics/{numbers}/records?limit=30")
    assert values(first) == [*range(99, 69, -1)]
    assert (first["more"], first["places"]) == (True, "0:35,1:35,2:0")
    rest = await page.get(f"topics/{numbers}/records?limit=100&at={first['places']}")
    assert values(rest) == [*range(69, -1, -1)]
    assert rest["more"] is False


async def test_records_that_are_written_meanwhile_are_not_in_later_pages(
    broker: EmbeddedBroker, page: ConsolePage, numbers: str
) -> None:
    first = await page.get(f"topics/{numbers}/records?limit=1")
    await asyncio.to_thread(broker.send, numbers, b"100", partition=0)
    rest = await page.get(f"topics/{numbers}/records?limit=3&at={first['places']}")
    assert values(rest) == [98, 97, 96]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("from=beginning&limit=5", [0, 1, 2, 3, 4]),
        ("from=beginning&limit=5&partition=1", [1, 3, 5, 7, 9]),
        ("from=offset&offset=48&limit=9", [96, 97, 98, 99]),
        ("from=offset&offset=50", []),
        ("from=offset&offset=999", []),
        ("from=time&time=95500", [96, 97, 98, 99]),
        ("from=time&time=100000", []),
        ("partition=2", []),
        ("search=9&limit=7", [99, 98, 97, 96, 95, 94, 93]),
        ("search=77", [77]),
        ("search=nothing", []),
    ],
)
async def test_a_page_begins_where_it_is_asked_to(
    page: ConsolePage, numbers: str, query: str, expected: list[int]
) -> None:
    assert values(await page.get(f"topics/{numbers}/records?{query}")) == expected


async def test_a_search_is_bounded_and_continues(
    page: ConsolePage, numbers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_SCANNED", 60)  # so that it reads windows of 20 offsets
    first = await page.get(f"topics/{numbers}/records?search=7&limit=500")
    assert (first["stopped"], first["more"]) == ("scanned", True)
    assert 60 <= first["scanned"] < 100
    rest = await page.get(f"topics/{numbers}/records?search=7&limit=500&at={first['places']}")
    assert (rest["stopped"], rest["more"]) == (None, False)
    assert values(first) + values(rest) == [number for number in range(99, -1, -1) if "7" in str(number)]


async def test_offsets_that_hold_no_record_are_passed(broker: EmbeddedBroker, page: ConsolePage) -> None:
    """Markers of transactions, and a log whose last offsets are all markers."""
    from ottla.client import Producer

    topic = await asyncio.to_thread(broker.create_topic)
    async with Producer(broker.bootstrap_servers, transactional_id="console-test") as producer:
        for number in range(12):
            async with producer.transaction():
                await producer.send(topic, b"%d" % number)
    assert values(await page.get(f"topics/{topic}/records?limit=5")) == [11, 10, 9, 8, 7]
    everything = await page.get(f"topics/{topic}/records?from=beginning&limit=100")
    assert (values(everything), everything["more"]) == ([*range(12)], False)


async def test_records_of_an_open_transaction_are_hidden_on_request(broker: EmbeddedBroker, page: ConsolePage) -> None:
    from ottla.client import Producer

    topic = await asyncio.to_thread(broker.create_topic)
    async with Producer(broker.bootstrap_servers, transactional_id="console-open") as producer:
        async with producer.transaction():
            await producer.send_and_wait(topic, b"1")
            for isolation, expected in (("read_uncommitted", [1]), ("read_committed", [])):
                assert values(await page.get(f"topics/{topic}/records?isolation={isolation}")) == expected
        assert values(await page.get(f"topics/{topic}/records?isolation=read_committed")) == [1]


async def test_one_record_is_given_in_full(broker: EmbeddedBroker, page: ConsolePage) -> None:
    topic = await asyncio.to_thread(broker.create_topic)
    await asyncio.to_thread(broker.send, topic, b"x" * 5_000, None, key=b"\xff", headers=[("h", b"1")])
    (null, short) = (await page.get(f"topics/{topic}/records"))["records"]
    assert (short["value"]["cut"], len(short["value"]["text"])) == (True, 600)
    assert (null["value"], null["key"], null["headers"]) == (
        None,
        {"base64": "/w==", "bytes": 1},
        [["h", {"text": "1", "bytes": 1}]],
    )
    whole = await page.get(f"topics/{topic}/records/0/0")
    assert whole["value"] == {"text": "x" * 5_000, "bytes": 5_000}
    assert await page.refused(f"topics/{topic}/records/0/2") == (
        404,
        f"{topic}-0 has no record at offset 2 (any more)",
    )
    assert (await page.refused(f"topics/{topic}/records/7/0"))[0] == 404


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ("from=middle", "from must be newest, beginning, offset or time, not 'middle'"),
        ("from=offset", "from=offset needs the field offset"),
        ("from=offset&offset=-1", "offset must be a whole number, 0 or more, not '-1'"),
        ("from=time&time=soon", "time must be a whole number, 0 or more, not 'soon'"),
        ("limit=501", "limit must be a whole number, from 1 to 500, not '501'"),
        ("limit=0", "limit must be a whole number, from 1 to 500, not '0'"),
        ("isolation=none", "isolation must be read_uncommitted or read_committed, not 'none'"),
        ("at=0:x", "places must be a whole number, 0 or more, not 'x'"),
        ("search=" + "x" * 501, "a search has 500 characters at most"),
    ],
)
async def test_a_wrong_field_is_named(page: ConsolePage, numbers: str, query: str, line: str) -> None:
    assert await page.refused(f"topics/{numbers}/records?{query}") == (400, line)


async def test_a_topic_that_does_not_exist_is_404_and_not_created(page: ConsolePage) -> None:
    for path in ("topics/no-topic", "topics/no-topic/records", "topics/no-topic/tail", "topics/no-topic/groups"):
        status, line = await page.refused(path)
        assert (status, "no-topic" in line) == (404, True)
    status, _ = await page.post("topics/no-topic/records", {"value": {"text": "tea"}})
    assert status == 404
    assert "no-topic" not in [one["name"] for one in (await page.get("topics"))["topics"]]


async def test_the_tail_has_what_is_written_from_now_on(
    broker: EmbeddedBroker, page: ConsolePage, numbers: str
) -> None:
    reader, writer = await page.open("GET", f"/api/topics/{numbers}/tail?search=tea")
    async with asyncio.timeout(20):
        assert (await read_head(reader))[0] == 200
        assert json.loads(await reader.readline()) == {"records": [], "skipped": 0}
        await asyncio.to_thread(broker.send, numbers, b"tea", b"coffee", b"more tea", partition=2)
        found: list[str] = []
        while len(found) < 2:
            found += [record["value"]["text"] for record in json.loads(await reader.readline())["records"]]
        assert found == ["tea", "more tea"]
    writer.close()


async def test_a_tail_that_is_far_behind_skips_ahead(
    broker: EmbeddedBroker, page: ConsolePage, numbers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ottla.console import tail

    monkeypatch.setattr(tail, "MOST_BEHIND", 300)
    reader, writer = await page.open("GET", f"/api/topics/{numbers}/tail?partition=2")
    async with asyncio.timeout(20):
        await read_head(reader)
        await reader.readline()
        await asyncio.to_thread(broker.send, numbers, *(b"%d" % number for number in range(5_000)), partition=2)
        seen = skipped = 0
        last = ""
        while last != "4999":
            line = json.loads(await reader.readline())
            seen += len(line["records"])
            skipped += line["skipped"]
            last = line["records"][-1]["value"]["text"] if line["records"] else last
    assert skipped > 0
    assert seen + skipped == 5_000
    writer.close()


async def test_there_are_only_so_many_tails(page: ConsolePage, numbers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.console import clients

    monkeypatch.setattr(clients, "MOST_TAILS", 1)
    opened = [await page.open("GET", f"/api/topics/{numbers}/tail") for _ in range(2)]
    lines = []
    async with asyncio.timeout(20):
        for reader, _ in opened:
            await read_head(reader)
            lines.append(json.loads(await reader.readline()))
    assert sorted(lines, key=str) == [
        {"error": "1 live tails run already: close one of them", "final": False},
        {"records": [], "skipped": 0},
    ]
    for _, writer in opened:
        writer.close()


async def test_the_tail_of_a_topic_that_is_deleted_ends_for_good(
    broker: EmbeddedBroker, page: ConsolePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To its consumer it looks like a topic in which nothing is written."""
    from ottla.console import tail

    monkeypatch.setattr(tail, "_ALIVE_MS", 50)
    broker.create_topic("short-lived")
    reader, writer = await page.open("GET", "/api/topics/short-lived/tail")
    async with asyncio.timeout(20):
        await read_head(reader)
        await reader.readline()
        async with Admin(broker.bootstrap_servers) as admin:
            await admin.delete_topics(["short-lived"])
        lines = [json.loads(line) async for line in reader]
    assert all(line == {"records": [], "skipped": 0} for line in lines[:-1])
    assert lines[-1]["final"]
    assert "short-lived" in lines[-1]["error"]
    writer.close()


async def test_a_right_that_is_missing_is_403_and_ends_the_tail_for_good(
    broker: EmbeddedBroker, page: ConsolePage, numbers: str
) -> None:
    with broker.fail("ListOffsets", "TOPIC_AUTHORIZATION_FAILED", times=None):
        status, line = await page.refused(f"topics/{numbers}/records")
        assert (status, line.endswith("(TOPIC_AUTHORIZATION_FAILED)")) == (403, True)
        reader, writer = await page.open("GET", f"/api/topics/{numbers}/tail")
        async with asyncio.timeout(20):
            await read_head(reader)
            last = json.loads(await reader.readline())
        assert (last["final"], last["error"].endswith("(TOPIC_AUTHORIZATION_FAILED)")) == (True, True)
        writer.close()
