"""The fields of a query, checked: each error is one line that names the field. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from ottla.web_server import BadRequest

LARGEST_INT64 = 2**63 - 1


def refuse(line: str) -> BadRequest:
    """An error in a request, for people."""
    return BadRequest(HTTPStatus.BAD_REQUEST, line)


def integer(name: str, text: str, low: int = 0, high: int = LARGEST_INT64) -> int:
    """A whole number within bounds. Raises BadRequest."""
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdecimal() and len(text) <= 20 and low <= int(text) <= high:
        return int(text)
    bounds = f"{low:,} or more" if high == LARGEST_INT64 else f"from {low:,} to {high:,}"
    raise refuse(f"{name} must be a whole number, {bounds}, not {text[:40]!r}")


def optional_integer(query: Mapping[str, str], name: str, high: int = LARGEST_INT64) -> int | None:
    """The number of a field; None if it is missing or empty. Raises BadRequest."""
    text = query.get(name, "").strip()
    return integer(name, text, 0, high) if text else None


def choice(query: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """One of some words, by default the first. Raises BadRequest."""
    text = query.get(name, "") or choices[0]
    if text not in choices:
        raise refuse(f"{name} must be {', '.join(choices[:-1])} or {choices[-1]}, not {text[:40]!r}")
    return text


def places(text: str) -> dict[int, int]:
    """Offsets by partition, from `0:12,3:40`. Raises BadRequest."""
    found: dict[int, int] = {}
    for part in text.split(",") if text else []:
        partition, _, offset = part.partition(":")
        found[integer("places", partition, 0, 2**31 - 1)] = integer("places", offset)
    return found
