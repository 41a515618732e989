"""How many of something there are, in words: `1 group`, `2 groups`, `1,204 batches`."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """The number and the noun, which is given in the singular."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """`batches` of `batch`, `entries` of `entry`, `groups` of `group`."""
    if noun.endswith(("ch", "sh", "s", "x")):
        return f"{noun}es"
    return f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2:-1] not in "aeiou" else f"{noun}s"
