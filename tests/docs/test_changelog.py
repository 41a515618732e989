"""The entries of CHANGELOG.md: a merge can leave two versions of one."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "CHANGELOG.md"
FEWEST_WORDS = 8
"""Shorter entries have many words in common although they say different things."""
SAME_FROM = 0.75
"""From this share of common words on, two entries say the same."""


def entries(text: str) -> list[str]:
    """The entries of a changelog, each in one line."""
    found = re.findall(r"^- (.*?)(?=^- |^#|\Z)", text, re.MULTILINE | re.DOTALL)
    return [" ".join(entry.split()) for entry in found]


def repeated(text: str) -> list[tuple[str, str]]:
    """The pairs of entries that say the same."""
    words = [(entry, set(entry.split())) for entry in entries(text)]
    return [
        (one, other)
        for (one, of_one), (other, of_other) in combinations(words, 2)
        if (fewer := min(len(of_one), len(of_other))) >= FEWEST_WORDS and len(of_one & of_other) >= SAME_FROM * fewer
    ]


def test_no_entry_is_there_twice() -> None:
    assert repeated(PAGE.read_text()) == []


def test_another_version_of_an_entry_is_found() -> None:
    text = """
### Changed
- `getone` of a consumer to which nothing is assigned raises RuntimeError, as Java's consumer does; it waited for ever.
- **Quotas** are exact.

### Fixed
- `getone` of a consumer to which nothing is assigned raises RuntimeError, as Java's consumer does;
  it waited forever.
"""
    assert len(repeated(text)) == 1
