"""A page of a topic's records: from the newest back, from the beginning, an offset or a time on; with a search.

Records are read window by window (`merged_walk.py`), by a consumer without a group, which leaves no trace in the
cluster. A request ends after a number of records or a time, whichever comes first, and returns where the next one
continues: so an answer comes soon, and a search goes through a topic of any size in steps that a person sees.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from ottla.client import EARLIEST, LATEST, Admin, Consumer, TopicPartition
from ottla.console.clients import Clients
from ottla.console.merged_walk import Seen, Walk
from ottla.console.queries import choice, integer, optional_integer, places, refuse
from ottla.console.shown_records import LONG_BYTES, Search, shown_record
from ottla.web_server import BadRequest

FROM = ("newest", "beginning", "offset", "time")
ISOLATION = ("read_uncommitted", "read_committed")
DEFAULT_LIMIT = 50
MOST_RECORDS = 500
MOST_SCANNED = 100_000
"""Records that one request reads in a search."""
MOST_SECONDS = 8.0
MOST_PARTITIONS = 500
MOST_SEARCH_TEXT = 500
_WINDOW = 1_000
_POLL_MS = 500


@dataclass(frozen=True, slots=True)
class Reading:
    """What a page asks for. `at` continues an earlier one: an offset for each partition."""

    begins: str
    partition: int | None
    offset: int
    time_ms: int
    limit: int
    search: str
    isolation_level: str
    at: Mapping[int, int]

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Reading:
        """From the fields of a query. Raises BadRequest."""
        begins = choice(query, "from", FROM)
        search = query.get("search", "")
        if len(search) > MOST_SEARCH_TEXT:
            raise refuse(f"a search has {MOST_SEARCH_TEXT} characters at most")
        wanted = {"offset": "offset", "time": "time"}.get(begins)
        if wanted is not None and not query.get(wanted, "").strip():
            raise refuse(f"from={begins} needs the field {wanted}")
        return cls(
            begins,
            optional_integer(query, "partition", 2**31 - 1),
            optional_integer(query, "offset") or 0,
            optional_integer(query, "time") or 0,
            integer("limit", query.get("limit", "") or str(DEFAULT_LIMIT), 1, MOST_RECORDS),
            search,
            choice(query, "isolation", ISOLATION),
            places(query.get("at", "")),
        )

    @property
    def is_backwards(self) -> bool:
        """Whether the newest records come first."""
        return self.begins == "newest"


async def partitions_of(admin: Admin, topic: str, partition: int | None) -> list[TopicPartition]:
    """The partitions to read. Raises BadRequest, KafkaError."""
    described = (await admin.describe_topics([topic]))[topic]
    indexes = [one.partition for one in described.partitions]
    if partition is not None:
        if partition not in indexes:
            raise BadRequest(HTTPStatus.NOT_FOUND, f"{topic} has no partition {partition}")
        indexes = [partition]
    if len(indexes) > MOST_PARTITIONS:
        raise refuse(f"{topic} has {len(indexes):,} partitions: choose one, {MOST_PARTITIONS} can be merged")
    return [TopicPartition(topic, index) for index in indexes]


async def read_page(clients: Clients, topic: str, reading: Reading) -> dict[str, Any]:
    """Read a page. Raises BadRequest, KafkaError."""
    admin = await clients.admin()
    partitions = await partitions_of(admin, topic, reading.partition)
    edges = await _edges(admin, partitions, reading)
    lanes = sum(start < end for start, end in edges.values())
    per_lane = -(-2 * reading.limit // max(1, lanes))
    first = max(200, per_lane) if reading.search else max(5, per_lane)
    most = max(20, min(_WINDOW, MOST_SCANNED // max(1, lanes)))
    walk = Walk(edges, is_backwards=reading.is_backwards, first_window=min(first, most), most=most)
    records: list[dict[str, Any]] = []
    stopped = None
    if lanes:
        async with clients.reading(reading.isolation_level) as consumer:
            stopped = await _walk_on(consumer, topic, reading, walk, records)
    return {
        "records": records,
        "places": ",".join(f"{partition}:{offset}" for partition, offset in sorted(walk.places().items())),
        "more": not walk.is_done,
        "scanned": walk.scanned,
        "stopped": stopped,
    }


async def _walk_on(
    consumer: Consumer, topic: str, reading: Reading, walk: Walk, records: list[dict[str, Any]]
) -> str | None:
    """Read until the page is full. Returns what ended it before that: "scanned", "time" or None."""
    search = Search(reading.search)
    try:
        async with asyncio.timeout(MOST_SECONDS):
            while True:
                records += walk.take(reading.limit - len(records))
                windows = walk.windows()
                if len(records) >= reading.limit or not windows:
                    return None
                if walk.scanned >= MOST_SCANNED:
                    return "scanned"
                for partition, seen in (await read_windows(consumer, topic, windows, search)).items():
                    walk.add(partition, windows[partition], seen)
    except TimeoutError:
        return "time"


async def read_windows(
    consumer: Consumer, topic: str, windows: Mapping[int, tuple[int, int]], search: Search
) -> dict[int, list[Seen]]:
    """The records of some partitions whose offsets are in `[low, high)`. Raises KafkaError."""
    found: dict[int, list[Seen]] = {partition: [] for partition in windows}
    consumer.assign(TopicPartition(topic, partition) for partition in windows)
    for partition, (low, _) in windows.items():
        consumer.seek((topic, partition), low)
    consumer.resume(*consumer.assignment())
    unread = dict(windows)
    while unread:
        for one, records in (await consumer.getmany(timeout_ms=_POLL_MS)).items():
            if one.partition in unread:
                _see(records, unread[one.partition][1], search, found[one.partition])
        for partition, (_, high) in list(unread.items()):
            if await consumer.has_reached((topic, partition), high):
                del unread[partition]
                consumer.pause((topic, partition))
        await asyncio.sleep(0)  # a long search lets other requests be answered
    return found


def _see(records: Iterable[Any], high: int, search: Search, seen: list[Seen]) -> None:
    for record in records:
        if record.offset < high:
            shown = shown_record(record) if search.matches(record) else None
            seen.append(Seen(record.offset, record.timestamp_ms, shown))


async def _edges(admin: Admin, partitions: list[TopicPartition], reading: Reading) -> dict[int, tuple[int, int]]:
    """The offsets to read of each partition, `[start, end)`."""
    is_committed = reading.isolation_level == "read_committed"
    starts, ends = await asyncio.gather(
        admin.list_offsets(dict.fromkeys(partitions, EARLIEST)),
        admin.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=is_committed),
    )
    times = {}
    if reading.begins == "time" and not reading.at:
        times = await admin.list_offsets(dict.fromkeys(partitions, reading.time_ms))
    edges: dict[int, tuple[int, int]] = {}
    for one in partitions:
        first, last = starts[one], ends[one]
        start, end = first.offset if first is not None else 0, last.offset if last is not None else 0
        at = reading.at.get(one.partition)
        if reading.is_backwards:
            end = end if at is None else min(end, at)
        elif at is not None:
            start = max(start, at)
        elif reading.begins == "offset":
            start = max(start, reading.offset)
        elif reading.begins == "time":
            found = times[one]
            start = max(start, found.offset) if found is not None else end
        edges[one.partition] = (start, end)
    return edges


async def read_one(clients: Clients, topic: str, partition: int, offset: int) -> dict[str, Any]:
    """One record, its key and value up to 1 MiB each. Raises BadRequest if it is not there, KafkaError."""
    from ottla.console.shown_records import shown_record as shown

    admin = await clients.admin()
    (one,) = await partitions_of(admin, topic, partition)
    starts, ends = await asyncio.gather(admin.list_offsets({one: EARLIEST}), admin.list_offsets({one: LATEST}))
    first, last = starts[one], ends[one]
    if first is not None and last is not None and first.offset <= offset < last.offset:
        async with clients.reading("read_uncommitted") as consumer:
            consumer.assign([one])
            consumer.seek(one, offset)
            try:
                async with asyncio.timeout(MOST_SECONDS):
                    while not await consumer.has_reached(one, offset + 1):
                        for records in (await consumer.getmany(timeout_ms=_POLL_MS, max_records=1)).values():
                            for record in records:
                                if record.offset == offset:
                                    return shown(record, LONG_BYTES)
            except TimeoutError:
                raise BadRequest(HTTPStatus.GATEWAY_TIMEOUT, f"no answer within {MOST_SECONDS:g} s") from None
    raise BadRequest(HTTPStatus.NOT_FOUND, f"{topic}-{partition} has no record at offset {offset:,} (any more)")
