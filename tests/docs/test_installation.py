"""How the pages install Ottla: from a clone, as README.md says. No package index has it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.py"))]
_FROM_AN_INDEX = re.compile(r"pip install (?:-\S+ )*[\"']?ottla(?![\w\[-])")
"""`ottla[security]` adds an extra to the installed one, and asks no index for Ottla."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_installs_ottla_from_an_index(page: Path) -> None:
    assert not _FROM_AN_INDEX.findall(page.read_text())


def test_the_readme_installs_from_a_clone() -> None:
    assert "pip install ." in (ROOT / "README.md").read_text()
