"""The order in which Java's hash maps and hash sets return texts.

Kafka walks over the subtopologies and topics of a topology in this order. It decides the number of partitions of some
repartition topics, and which topic an error names first, so Ottla follows it: a directory that moves from one broker
to the other keeps its internal topics. A table begins with 16 places, and doubles when it is more than three quarters
full. `["9", "10", "0"]` is returned as `["0", "9", "10"]`: their hashes are 57, 1567 and 48, their places 9, 15 and 0.

Source: the documentation of `java.lang.String.hashCode`, and the behaviour of `java.util.HashMap`.
"""

from __future__ import annotations

from collections.abc import Iterable

_FIRST_PLACES = 16
_BITS = 0xFFFF_FFFF


def in_hash_order(texts: Iterable[str]) -> list[str]:
    """The different texts, put into a new map. Those of one place keep their order."""
    different = list(dict.fromkeys(texts))
    places = _FIRST_PLACES
    while _is_full(len(different), places):
        places *= 2
    return sorted(different, key=lambda text: _place(text, places))


def in_computed_order(texts: Iterable[str], size: int) -> list[str]:
    """The different texts, put by `computeIfAbsent` into a map that was made for `size` entries.

    Before each call, also for a text that is there, that method checks whether the table is too full. It puts a new
    text before the others of its place.
    """
    different: dict[str, None] = {}
    places = 1 << (size - 1).bit_length()
    for text in texts:
        if _is_full(len(different), places):
            places *= 2
        different[text] = None
    last_first = list(reversed(different))
    return sorted(last_first, key=lambda text: _place(text, places))


def hash_code(text: str) -> int:
    """The hash of a text in Java, without sign: of its UTF-16 units, each weighted by a power of 31."""
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (code * 31 + (high << 8 | low)) & _BITS
    return code


def _is_full(size: int, places: int) -> bool:
    return size * 4 > places * 3


def _place(text: str, places: int) -> int:
    code = hash_code(text)
    return (code ^ (code >> 16)) & (places - 1)
