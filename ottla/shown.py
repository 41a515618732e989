"""Counts and sizes for people: `1 group`, `1,204 batches`, `307.2 KiB`. Imports nothing."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """The number and the noun, which is given in the singular."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """`batches` of `batch`, `entries` of `entry`, `groups` of `group`."""
    if noun.endswith(("ch", "sh", "s", "x")):
        return f"{noun}es"
    return f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2:-1] not in "aeiou" else f"{noun}s"


def shown_bytes(count: int) -> str:
    """A size with its unit: `1 byte`, `812 bytes`, `307.2 KiB`, `1.0 TiB`."""
    if count < 1024:
        return counted(count, "byte")
    size, unit = count / 1024, "KiB"
    for larger in ("MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:,.1f} {unit}"
