"""The order in which Java's hash maps and hash sets give texts back.

Kafka walks over the subtopologies and topics of a topology in this order. It decides the number of partitions of some
repartition topics, and which topic an error names first, so Ottla follows it: a directory that moves from one broker
to the other keeps its internal topics. A table begins with 16 places, and doubles when it is more than three quarters
full. `["9", "10", "0"]` comes back as `["0", "9", "10"]`: their hashes are 57, 1567 and 48, their places 9, 15 and 0.

Source: the documentation of `java.lang.String.hashCode`, and the behaviour of `java.util.HashMap`.
"""

from __future__ import annotations

from collections.abc import Iterable

_BITS = 0xFFFF_FFFF


def in_hash_order(texts: Iterable[str], places: int = 16) -> list[str]:
    """The different texts. Those of one place keep their order. `places`: those of the empty table, a power of two."""
    different = list(dict.fromkeys(texts))
    while len(different) * 4 > places * 3:
        places *= 2
    return sorted(different, key=lambda text: _spread(hash_code(text)) & (places - 1))


def hash_code(text: str) -> int:
    """The hash of a text in Java, without sign: of its UTF-16 units, each weighted by a power of 31."""
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (code * 31 + (high << 8 | low)) & _BITS
    return code


def _spread(code: int) -> int:
    return code ^ (code >> 16)
