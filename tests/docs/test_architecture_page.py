"""ARCHITECTURE.md names every file of the package, and no file that is gone."""

from __future__ import annotations

import re
from pathlib import Path

TOP = Path(__file__).parents[2]
PAGE = (TOP / "ARCHITECTURE.md").read_text()
BY_RULE = ("ottla/protocol/api/", "ottla/protocol/stored/", "ottla/broker/api/")
"""Folders of one file per API or record type, which need only their rule."""


def test_every_file_is_on_the_map() -> None:
    missing = [
        str(path.relative_to(TOP))
        for path in sorted((TOP / "ottla").rglob("*.py"))
        if path.name not in ("__init__.py", "__main__.py")
        and not str(path.relative_to(TOP)).startswith(BY_RULE)
        and f"`{path.name}`" not in PAGE
    ]
    assert missing == []


def test_nothing_on_the_map_is_gone() -> None:
    names = {path.name for folder in ("ottla", "benchmarks", "tests") for path in (TOP / folder).rglob("*")}
    listed = re.findall(r"^- `([a-z0-9_]+\.py)`", PAGE, re.MULTILINE)
    assert len(listed) > 100
    assert [name for name in listed if name not in names] == []
