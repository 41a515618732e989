"""Every page of `docs/` that the code, a test, a script or the packaging names is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).parents[2]
NAMED = re.compile(r"(?<![\w/.-])docs/[a-z0-9_/-]+\.md\b")
FOLDERS = ("ottla", "pyspark_ottla", "tests", "scripts", "benchmarks", "examples", "packaging", ".github")
FILES = ("Dockerfile", "pyproject.toml", "compose.yaml")
PICTURES_AND_BYTES = {".pyc", ".bin", ".gz", ".png", ".svg", ".jar", ".log"}


def named_pages(text: str) -> set[str]:
    return set(NAMED.findall(text))


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((TOP / folder).rglob("*")):
            if path.is_file() and path.suffix not in PICTURES_AND_BYTES and "__pycache__" not in path.parts:
                yield path
    yield from (TOP / name for name in FILES if (TOP / name).exists())


def names() -> dict[str, set[str]]:
    """The pages that each file names."""
    found = {}
    for path in sources():
        if path == Path(__file__):
            continue
        pages = named_pages(path.read_bytes().decode(errors="ignore"))
        if pages:
            found[str(path.relative_to(TOP))] = pages
    return found


def test_a_page_that_is_named_is_there() -> None:
    named = names()
    assert {path.split("/", maxsplit=1)[0] for path in named} >= {"ottla", "tests", "scripts", "benchmarks"}
    missing = {path: sorted(page for page in pages if not (TOP / page).exists()) for path, pages in named.items()}
    assert {path: pages for path, pages in missing.items() if pages} == {}


def test_a_wrong_name_is_seen() -> None:
    text = "# see docs/decisions/one-gate.md, `docs/no-such-page.md` and https://example.org/docs/other.md"
    assert named_pages(text) == {"docs/decisions/one-gate.md", "docs/no-such-page.md"}
    assert [page for page in sorted(named_pages(text)) if not (TOP / page).exists()] == ["docs/no-such-page.md"]
