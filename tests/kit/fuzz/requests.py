"""Hostile requests: every served API at every version, on three lines, with groups, topics and sessions that are
there."""

from __future__ import annotations

import random
import struct

from kit.fuzz.life import Life
from kit.fuzz.members import Members
from kit.fuzz.streams_members import StreamsMembers
from kit.fuzz.values import MessageMaker, mutate
from kit.fuzz.vocabulary import WITNESS, Vocabulary

from ottla.broker.api import HANDLERS
from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.errors import UnencodableMessage
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import encode

REQUESTS_PER_LIFE = 40
LINES = 3
MOST_BODY_BYTES = 1 << 20
GROUP_APIS = (
    ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.DESCRIBE_GROUPS, ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.OFFSET_DELETE, ApiKey.DELETE_GROUPS, ApiKey.LIST_GROUPS,
)  # fmt: skip
TAKES_AWAY = frozenset({ApiKey.DELETE_TOPICS, ApiKey.DELETE_RECORDS, ApiKey.DELETE_GROUPS, ApiKey.OFFSET_DELETE,
                         ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS})  # fmt: skip
SPARED = (WITNESS.encode(), b"__consumer_offsets")
"""What an administrator may of course take away; here it would blind the witness."""
SERVED = tuple(sorted(HANDLERS))
VERSIONS = {key: (REGISTRY[key].min_version, REGISTRY[key].max_version) for key in SERVED}


def live(chance: random.Random, life: Life, apis: tuple[ApiKey, ...] = SERVED) -> int:
    """One life of requests; how many were sent. Raises Finding."""
    maker = MessageMaker(chance, Vocabulary())
    is_about_groups = chance.random() < 0.5
    members, streams = Members(chance), StreamsMembers(chance)
    sent = 0
    for _ in range(REQUESTS_PER_LIFE):
        line = chance.randrange(LINES)
        what = chance.random()
        if what < 0.06 or not life.is_open(line):
            life.step({"wait_ms": chance.choice((1, 1_000, 12_000, 70_000))})
        elif what < 0.09:
            life.step({"line": line, "drop": True})
        elif what < 0.1:
            life.step({"restart": chance.choice(("stop", "kill"))})
        elif what < 0.12:
            life.step({"threads": chance.random() < 0.5})
        else:
            if is_about_groups and chance.random() < 0.6:
                frame = _of_a_member(chance, streams if chance.random() < 0.3 else members, sent)
            else:
                frame = one_request(chance, maker, chance.choice(GROUP_APIS if is_about_groups else apis), sent)
            if frame is None:
                continue
            sent += 1
            weighs = chance.random() < 0.03 or len(frame) > 20_000
            for answer in life.step({"line": line, "send": frame}, weighs=weighs):
                maker.reported.learn(answer)
                members.learn(answer)
                streams.learn(answer)
    life.end()
    return sent


def _of_a_member(chance: random.Random, members: Members | StreamsMembers, number: int) -> bytes | None:
    key, version, request = members.request(VERSIONS)
    try:
        body = encode(request, version)
    except UnencodableMessage:
        return None  # the version does not know what the member wants to say
    if chance.random() < 0.05:
        body = mutate(chance, body)
    header = encode_request_header(key, version, number, "member")
    return struct.pack(">i", len(header) + len(body)) + header + body


def one_request(chance: random.Random, maker: MessageMaker, key: ApiKey, number: int) -> bytes | None:
    """The frame of one request, sometimes bent; None where the value cannot be written at all."""
    api = REGISTRY[key]
    version = chance.randint(api.min_version, api.max_version)
    try:
        body = encode(maker.message(api.request, version), version)
    except UnencodableMessage:
        return None
    header = encode_request_header(key, version, number, chance.choice(("c", None, "", "a\nb", "x" * 300)))
    bend = chance.random()
    if bend < 0.12:
        body = mutate(chance, body)
    elif bend < 0.14:
        header = mutate(chance, header)
    elif bend < 0.15:
        header = struct.pack(">hh", chance.choice((key, 18, 999, -1)), chance.choice((-1, 99, 32767))) + header[4:]
    if len(body) > MOST_BODY_BYTES or (key in TAKES_AWAY and any(name in body for name in SPARED)):
        return None
    return struct.pack(">i", len(header) + len(body)) + header + body
