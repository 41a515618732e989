"""Hostile record batches of all three formats: sound ones, ones whose fields lie, bombs, nested wrappers.

Most bear a checksum that is right: otherwise nothing behind it would ever be reached.
"""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from collections.abc import Sequence

from ottla.protocol.records.batch import encode_batch, seal_batch
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.legacy import encode_message, encode_message_set
from ottla.protocol.records.legacy_compression import compress_messages
from ottla.protocol.records.record import Record, encode_record, encode_varint

NOW_MS = 1_700_000_000_000
TIMES = (NOW_MS, NOW_MS, NOW_MS + 1, 0, -1, -2, (1 << 63) - 1, -(1 << 63), NOW_MS + 10**12, 253402300800000)
NUMBERS = (0, 1, -1, 2, 100, (1 << 31) - 1, -(1 << 31), (1 << 31) - 2, 1 << 20)
LONGS = (0, 1, -1, 5, 1000, (1 << 63) - 1, -(1 << 63), 1 << 40)
BOMB_BYTES = 24 << 20
_BOMBS: dict[tuple[str, int], bytes] = {}


def hostile_records(chance: random.Random) -> bytes | None:
    """Bytes for a field of records; None for null."""
    kind = chance.randrange(20)
    if kind == 0:
        return None
    if kind == 1:
        return chance.choice((b"", b"\0" * 61, b"\xff" * 80, chance.randbytes(chance.randrange(120))))
    if kind < 6:
        return bytes(_sound(chance))
    if kind < 11:
        return _lying_batch(chance)
    if kind < 13:
        return _lying_records(chance)
    if kind == 13:
        return bytes(_sound(chance)) + bytes(_sound(chance))
    if kind == 14:
        return _bomb(chance)
    if kind < 18:
        return _old(chance)
    return _resealed(chance, bytearray(_sound(chance)))


def some_records(chance: random.Random, count: int | None = None) -> list[Record]:
    """Sound records, a few without key or value, some with headers."""
    count = chance.choice((1, 2, 3, 20)) if count is None else count
    return [
        Record(
            slot,
            NOW_MS + chance.choice((0, slot, -slot)),
            chance.choice((b"k", b"k2", b"k%d" % slot, None, b"")),
            chance.choice((b"v", None, b"", b"x" * 100)),
            chance.choice(((), (), (("h", b"1"), ("h", None)))),
        )
        for slot in range(count)
    ]


def _sound(chance: random.Random) -> bytearray:
    sequence = chance.choice((-1, -1, 0, 1, (1 << 31) - 1))
    return encode_batch(
        some_records(chance),
        compression=Compression(chance.randrange(5)),
        producer_id=-1 if sequence < 0 else chance.choice((0, 1, 1000)),
        producer_epoch=-1 if sequence < 0 else chance.choice((0, 0, 1)),
        base_sequence=sequence,
    )


def _lying_batch(chance: random.Random) -> bytes:
    """A batch whose header says something that is not so; the checksum is right."""
    records = some_records(chance)
    body = b"".join(
        encode_record(NOW_MS - NOW_MS, slot, each.key, each.value, each.headers) for slot, each in enumerate(records)
    )

    def lie(truth: int, lies: Sequence[int]) -> int:
        return chance.choice(lies) if chance.random() < 0.25 else truth

    batch = seal_batch(
        body,
        base_offset=lie(0, LONGS),
        leader_epoch=lie(-1, NUMBERS),
        attributes=chance.choice((0, 0, 0, 1, 2, 3, 4)),
        last_offset_delta=lie(len(records) - 1, NUMBERS),
        base_timestamp=lie(NOW_MS, TIMES),
        max_timestamp=lie(NOW_MS, TIMES),
        producer_id=lie(-1, LONGS),
        producer_epoch=lie(-1, (0, 1, -1, 32767, -32768)),
        base_sequence=lie(-1, NUMBERS),
        record_count=lie(len(records), NUMBERS),
    )
    if chance.random() < 0.3:
        struct.pack_into(">h", batch, 21, chance.choice((5, 6, 7, 8, 16, 32, 48, 64, 128, -1, 0x7FFF)))
        _seal(batch)
    if chance.random() < 0.2:
        struct.pack_into(">i", batch, 8, chance.choice((*NUMBERS, len(batch) - 13, len(batch) - 11, 49, 48)))
    return bytes(batch)


def _lying_records(chance: random.Random) -> bytes:
    """A sound header over records whose varints lie."""
    count = chance.choice((1, 2, 3))
    body = bytearray()
    for slot in range(count):
        record = bytearray(encode_record(chance.choice((0, 1, -1)), slot, b"key", b"value", (("h", b"v"),)))
        at = chance.randrange(len(record))
        how = chance.randrange(4)
        if how == 0:
            record[at] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF))
        elif how == 1:
            record[at:at] = chance.choice((b"\xff" * 9 + b"\x01", b"\xff" * 12, b"\x80" * 10, b"\xff\xff\xff\xff\x0f"))
        elif how == 2:
            record[:1] = encode_varint(chance.choice((0, -1, 1, 1 << 20, (1 << 31) - 1, -(1 << 31))))
        else:
            del record[at:]
        body += record
    return bytes(
        seal_batch(
            body, base_offset=0, leader_epoch=-1, attributes=chance.choice((0, 0, 1, 4)), last_offset_delta=count - 1,
            base_timestamp=chance.choice(TIMES), max_timestamp=chance.choice(TIMES), producer_id=-1, producer_epoch=-1,
            base_sequence=-1, record_count=count,
        )
    )  # fmt: skip


def _seal(batch: bytearray) -> None:
    from ottla.protocol.records.batch import compute_crc

    if len(batch) >= 61:
        struct.pack_into(">I", batch, 17, compute_crc(batch))


def _resealed(chance: random.Random, batch: bytearray) -> bytes:
    """Bytes anywhere behind the checksum changed, the checksum made right again."""
    for _ in range(chance.choice((1, 1, 3))):
        at = chance.randrange(21, len(batch))
        batch[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, batch[at] ^ (1 << chance.randrange(8))))
    _seal(batch)
    return bytes(batch)


def _bomb(chance: random.Random) -> bytes:
    """A few kilobytes that become 24 MiB; as a v2 batch or as a v1 message."""
    form, codec = chance.choice(("v2", "v1", "v0")), chance.choice((1, 3))
    if (form, codec) not in _BOMBS:
        body = bytes(BOMB_BYTES)
        if form == "v2":
            made = seal_batch(
                body, base_offset=0, leader_epoch=-1, attributes=4 if codec == 3 else 1, last_offset_delta=0,
                base_timestamp=NOW_MS, max_timestamp=NOW_MS, producer_id=-1, producer_epoch=-1, base_sequence=-1,
                record_count=1,
            )  # fmt: skip
        else:
            magic = 1 if form == "v1" else 0
            made = encode_message(magic, 0, NOW_MS, None, compress_messages(Compression(codec), body, magic), codec)
        _BOMBS[form, codec] = bytes(made)
    return _BOMBS[form, codec]


def _old(chance: random.Random) -> bytes:
    """Messages of formats v0 and v1, sound or not, wrapped or wrapped twice."""
    magic = chance.choice((0, 1))
    codec = Compression(chance.choice((0, 0, 1, 2, 3)))
    plain = [each._replace(headers=()) for each in some_records(chance)]
    data = encode_message_set(plain, magic, compression=codec)
    kind = chance.randrange(6)
    if kind == 0:  # a wrapper in a wrapper
        inner = bytes(encode_message_set(plain, magic, compression=Compression.GZIP))
        data = encode_message(magic, 3, NOW_MS, None, gzip.compress(inner), 1)
    elif kind == 1:  # a wrapper of nothing, of null, of half a message, of the other format
        inside = chance.choice((b"", bytes(encode_message_set(plain, 1 - magic)), bytes(data[:-3]), b"\0" * 30))
        data = encode_message(
            magic, chance.choice((0, 5)), NOW_MS, None, chance.choice((None, gzip.compress(inside))), 1
        )
    elif kind == 2:
        at = chance.randrange(len(data))
        data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        if chance.random() < 0.8 and len(data) >= 26:
            size = min(max(12 + struct.unpack_from(">i", data, 8)[0], 16), len(data))
            struct.pack_into(">I", data, 12, zlib.crc32(data[16:size]))
    elif kind == 3:
        data = encode_message(
            magic, chance.choice(LONGS), chance.choice(TIMES), b"k", b"v", chance.choice((0, 4, 5, 8, 9, 0x10, 0xFF))
        )
    return bytes(data)
