from __future__ import annotations

import re
from pathlib import Path

import pytest

import ottla
from ottla.shown import counted, shown_bytes

ROOT = Path(ottla.__file__).parent

NOUNS = "batch|entry|file|group|log|member|message|offset|partition|record|segment|topic"
COUNTED = re.compile(rf"(?:\}}|%d|%s) (?:{NOUNS}|entries|batches)s?\b")
"""A number that is put before a noun whose form was chosen when the line was written."""
SINGULAR = re.compile(rf"(?:\}}|%d|%s) (?:{NOUNS})\b(?!s)")


@pytest.mark.parametrize(
    ("number", "noun", "words"),
    [
        (0, "group", "0 groups"),
        (1, "group", "1 group"),
        (2, "group", "2 groups"),
        (1204, "batch", "1,204 batches"),
        (1, "entry", "1 entry"),
        (3, "entry", "3 entries"),
        (1, "committed offset", "1 committed offset"),
        (2, "key", "2 keys"),
    ],
)
def test_one_is_singular(number: int, noun: str, words: str) -> None:
    assert counted(number, noun) == words


@pytest.mark.parametrize(
    "path", [*sorted((ROOT / "cli").glob("*.py")), ROOT / "broker" / "server.py"], ids=lambda path: path.name
)
def test_no_line_for_people_has_a_plural_whatever_the_number(path: Path) -> None:
    """`1 groups with 1 committed offsets` is what this finds. (A size of one byte is not to be met.)"""
    found = [
        line.strip() for line in path.read_text().splitlines() if COUNTED.search(line) and not SINGULAR.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1,023 bytes"),
        (1536, "1.5 KiB"),
        (3 << 30, "3.0 GiB"),
        (9 << 50, "9,216.0 TiB"),
    ],
)
def test_sizes_are_for_people(size: int, shown: str) -> None:
    assert shown_bytes(size) == shown
