"""What the tests with real clients send: records with keys, nulls, headers and their own times, over two partitions."""

from __future__ import annotations

from dataclasses import dataclass, field

BASE_TIMESTAMP_MS = 1_700_000_000_000
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True)
class Sample:
    """A record as a test wants it back."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: list[tuple[str, bytes]] = field(default_factory=list)


def samples(count: int = 100) -> list[Sample]:
    """`count` records, ten seconds apart; every seventh without a key, every eleventh of the rest without a value."""
    return [
        Sample(
            None if i % 7 == 6 else b"key-%d" % (i % 5),
            None if i % 11 == 10 and i % 7 != 6 else (b"value-%d " % i) * 8,
            BASE_TIMESTAMP_MS + i * 10_000,
            [("trace", b"t-%d" % i), ("empty", b"")] if i % 3 == 0 else [],
        )
        for i in range(count)
    ]
