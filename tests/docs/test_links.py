"""Every link of the documentation leads somewhere, and the README leads to every page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
PAGES = sorted([*TOP.glob("*.md"), *(TOP / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]\[]*\]\(([^)\s]+)\)")
MENTIONED = re.compile(r"(?<!/)\b((?:docs|examples)/[\w./-]+\.(?:md|py))\b")
LONGEST = 300
LONGER: dict[str, str] = {
    "CHANGELOG.md": "a list that only grows",
    "ARCHITECTURE.md": "generated lists of files",
    "docs/configuration.md": "generated: one row for each key",
    "docs/wire-oracles.md": "generated: a row or two for each message",
    "docs/durability.md": "each promise is a row that names its test",
    "docs/security.md": "one page for all of security, so that nobody overlooks a part of it",
}
"""Pages above 300 lines, each with its reason."""


def without_code(page: str) -> str:
    """A page without its blocks and spans of code, in which brackets mean something else."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"(?ms)^```.*?^```$", "", page))


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    heads = re.findall(r"(?m)^#+ (.+)$", re.sub(r"(?ms)^```.*?^```$", "", page.read_text(encoding="utf-8")))
    return {
        re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head)).lower().replace(" ", "-")
        for head in heads
    }


def targets(page: Path) -> list[str]:
    """Where a page's links lead that stay in this repository."""
    return [t for t in LINK.findall(without_code(page.read_text(encoding="utf-8"))) if "://" not in t and t[0] != "<"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in targets(page):
        path, _, anchor = target.partition("#")
        there = (page.parent / path) if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_pages_that_are_mentioned_are_there(page: Path) -> None:
    """Also in code spans, as in `docs/cli.md`. The changelog speaks of pages of its day."""
    if page.name == "CHANGELOG.md":
        return
    mentioned = MENTIONED.findall(page.read_text(encoding="utf-8"))
    assert [name for name in mentioned if not (TOP / name).exists()] == []


def test_the_readme_leads_to_every_page() -> None:
    """In one step, or in two by a page of the same topic."""
    seen = {TOP / "README.md"}
    for _ in range(2):
        for page in tuple(seen):
            seen |= {
                there
                for target in targets(page)
                if (there := (page.parent / target.partition("#")[0]).resolve()).suffix == ".md" and there.exists()
            }
    pages = {page.resolve() for page in PAGES if page.parent.name != "decisions"}
    assert sorted(str(page.relative_to(TOP)) for page in pages - seen) == []


def test_long_pages_have_a_reason() -> None:
    lines = {str(page.relative_to(TOP)): len(page.read_text(encoding="utf-8").splitlines()) for page in PAGES}
    assert {name: count for name, count in lines.items() if count > LONGEST and name not in LONGER} == {}
