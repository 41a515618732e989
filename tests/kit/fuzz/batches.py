"""Hostile record batches: through Produce of every version into topics of every kind, read back by Fetch of every
version, by ListOffsets and by the cleaner, before and after a restart.
"""

from __future__ import annotations

import random
import struct
from uuid import UUID

from kit.fuzz.life import Life
from kit.fuzz.records import hostile_records, some_records
from kit.fuzz.vocabulary import WITNESS

from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.api.fetch import FetchRequest
from ottla.protocol.api.list_offsets import ListOffsetsRequest
from ottla.protocol.api.produce import ProduceRequest
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import Request, encode
from ottla.protocol.records.batch import encode_batch

TOPICS = ("plain", "compacted", "compacted", "tight", "old")
PRODUCES_PER_LIFE = 40


def live(chance: random.Random, life: Life) -> int:
    """One life of batches; how many were sent. Raises Finding."""
    for number in range(PRODUCES_PER_LIFE):
        if not life.is_open(0):
            life.step({"wait_ms": 1_000})
        records = hostile_records(chance)
        weighs = records is not None and (chance.random() < 0.05 or len(records) > 10_000)
        life.step({"line": 0, "send": _produce(chance, life, number, records)}, weighs=weighs)
        what = chance.random()
        if what < 0.12:
            life.step({"line": 1, "send": _fetch(chance, life, number)}, weighs=chance.random() < 0.1)
        elif what < 0.2:
            life.step({"line": 1, "send": _list_offsets(chance, number)})
        elif what < 0.23:
            life.step({"clean": True})
        elif what < 0.24:
            life.step({"restart": chance.choice(("stop", "kill"))})
        life.step({"wait_ms": 100})
    for version in REGISTRY[ApiKey.FETCH].request.message_versions.versions():
        life.step({"line": 1, "send": _fetch(chance, life, version, version)})
        life.step({"wait_ms": 1_000})
    life.step({"clean": True})
    life.end()
    return PRODUCES_PER_LIFE


def _frame(request: Request, version: int, number: int) -> bytes:
    body = encode_request_header(request.message_key, version, number, "batches") + encode(request, version)
    return struct.pack(">i", len(body)) + body


def _topic_id(life: Life, name: str) -> UUID:
    return life.node.services.catalog.topics[name].id


def _produce(chance: random.Random, life: Life, number: int, records: bytes | None) -> bytes:
    api = REGISTRY[ApiKey.PRODUCE]
    version = chance.randint(api.min_version, api.max_version)
    topic = chance.choice(TOPICS)
    data = [ProduceRequest.PartitionProduceData(index=0, records=records)]
    if chance.random() < 0.1:  # beside one that is sound, and the same partition twice
        sound = bytes(encode_batch(some_records(chance, 2)))
        data.append(ProduceRequest.PartitionProduceData(index=chance.choice((0, 1)), records=sound))
    named = ProduceRequest.TopicProduceData(name=topic, topic_id=_topic_id(life, topic), partition_data=data)
    request = ProduceRequest(acks=chance.choice((-1, -1, 1, 0)), timeout_ms=1_000, topic_data=[named])
    return _frame(request, version, number)


def _fetch(chance: random.Random, life: Life, number: int, version: int | None = None) -> bytes:
    api = REGISTRY[ApiKey.FETCH]
    version = chance.randint(api.min_version, api.max_version) if version is None else version
    offset = chance.choice((0, 0, 1, 2, 5))
    partition = FetchRequest.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=chance.choice((0, 1, 200, 1 << 20))
    )
    names = dict.fromkeys((*TOPICS, WITNESS))
    topics = [
        FetchRequest.FetchTopic(topic=name, topic_id=_topic_id(life, name), partitions=[partition]) for name in names
    ]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=-1, topics=topics)
    return _frame(request, version, number)


def _list_offsets(chance: random.Random, number: int) -> bytes:
    api = REGISTRY[ApiKey.LIST_OFFSETS]
    version = chance.randint(api.min_version, api.max_version)
    stamp = chance.choice((-1, -2, -3, -4, 0, 1_700_000_000_000, (1 << 63) - 1, -(1 << 63)))
    topics = [
        ListOffsetsRequest.ListOffsetsTopic(
            name=name, partitions=[ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=stamp)]
        )
        for name in dict.fromkeys(TOPICS)
    ]
    return _frame(ListOffsetsRequest(replica_id=-1, topics=topics), version, number)
