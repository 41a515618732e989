"""Hostile framing: sound frames cut anywhere, lengths that lie, garbage, HTTP, TLS, silence in the middle."""

from __future__ import annotations

import random
import struct
from itertools import pairwise

from kit.fuzz.life import Life
from kit.fuzz.requests import one_request
from kit.fuzz.values import MessageMaker, mutate
from kit.fuzz.vocabulary import Vocabulary

from ottla.protocol.api import ApiKey

LINES = 4
SENDINGS = 12
APIS = (
    ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.FETCH, ApiKey.PRODUCE, ApiKey.LIST_OFFSETS, ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP, ApiKey.DESCRIBE_CLUSTER,
)  # fmt: skip
GARBAGE = (
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /topics HTTP/1.1\r\n\r\n{}",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x5a" * 60,
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"\0\0\0\0",
    b"\0\0\0\1\0",
    b"\0\0\0\7" + b"\0" * 7,
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\0\x40\0\0\0\x03\0\1",
    b"\0\x40\0\1\0\x03\0\1",
    b"\0" * 5000,
)


def live(chance: random.Random, life: Life) -> int:
    """One life of frames in pieces; how many reads there were. Raises Finding."""
    maker = MessageMaker(chance, Vocabulary())
    reads = 0
    for number in range(SENDINGS):
        line = chance.randrange(LINES)
        for piece in _pieces(chance, _stream(chance, maker, number)):
            if not life.is_open(line):
                life.step({"wait_ms": chance.choice((10, 40_000))})
                break
            life.step({"line": line, "send": piece})
            reads += 1
        what = chance.random()
        if what < 0.1:
            life.step({"line": line, "drop": True})
        elif what < 0.2:
            life.step({"wait_ms": chance.choice((1, 1_000, 70_000))})
    life.end()
    return reads


def _stream(chance: random.Random, maker: MessageMaker, number: int) -> bytes:
    """Some frames behind one another, often with something wrong in them."""
    stream = b""
    for slot in range(chance.choice((1, 1, 2, 5, 40))):
        frame = one_request(chance, maker, chance.choice(APIS), number * 100 + slot)
        if frame is not None and len(frame) < 100_000:
            stream += frame
    wrong = chance.random()
    if wrong < 0.15:
        stream += chance.choice(GARBAGE)
    elif wrong < 0.3:
        length = chance.choice((0, -1, 1, 3, 7, 8, 100, 1 << 22, (1 << 22) + 1, (1 << 31) - 1, -(1 << 31)))
        stream += struct.pack(">i", length) + stream[4:20]
    elif wrong < 0.45:
        stream = mutate(chance, stream)
    elif wrong < 0.55:
        stream = stream[: chance.randrange(len(stream) + 1)]
    return stream


def _pieces(chance: random.Random, stream: bytes) -> list[bytes]:
    """The stream as it may arrive."""
    how = chance.random()
    if how < 0.4:
        return [stream] if stream else []
    if how < 0.5 and len(stream) < 300:
        return [stream[at : at + 1] for at in range(len(stream))]
    cuts = sorted({chance.randrange(len(stream) + 1) for _ in range(chance.choice((1, 2, 6)))} | {0, len(stream)})
    return [stream[start:end] for start, end in pairwise(cuts)]
