"""ARCHITECTURE.md: its lists are made by scripts/architecture, its essay is short and names only files that exist."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).parents[2]
PAGE = (TOP / "ARCHITECTURE.md").read_text()
MOST_ESSAY_LINES = 80
PICTURES = 2
"""The layers; a Produce."""


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(TOP / "scripts" / "architecture"))


def test_the_lists_are_what_the_files_say(script: dict[str, Any]) -> None:
    """If this fails: scripts/architecture writes them."""
    assert PAGE.partition(script["MARKER"])[2] == "\n\n" + script["lists"](TOP)


def test_every_file_is_on_the_page(script: dict[str, Any]) -> None:
    listed = set()
    room = ""
    for line in PAGE.partition(script["MARKER"])[2].splitlines():
        if line.startswith("#"):
            name = line.lstrip("# ")
            room = name if name in ("ottla", "benchmarks") else f"ottla/{name}"
        elif line.startswith(("- `", "`")):
            listed |= {f"{room}/{name}" for name in re.findall(r"`([a-z0-9_]+\.py)`", line.partition(" — ")[0])}
    files = {
        str(path.relative_to(TOP))
        for path in (TOP / "ottla").rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")
    }
    assert files - listed == set()
    assert {one for one in listed - files if not (TOP / one).exists()} == set()


def test_the_essay_is_short_and_names_no_file_that_is_gone(script: dict[str, Any]) -> None:
    essay = PAGE.partition(script["MARKER"])[0]
    assert len(essay.rstrip().splitlines()) < MOST_ESSAY_LINES
    assert essay.count("```mermaid\n") == PICTURES
    there = [
        str(path.relative_to(TOP))
        for folder in ("ottla", "tests", "benchmarks")
        for path in (TOP / folder).rglob("*.py")
    ]
    named = re.findall(r"`([a-z0-9_/]+\.py)`", essay)
    assert [name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in there)] == []


def test_rooms_stand_in_the_order_of_their_layers_from_the_bottom_up(script: dict[str, Any]) -> None:
    contracts = [
        {"type": "layers", "layers": ["p.top", "p.left | p.right", "p.bottom"]},
        {"type": "layers", "containers": ["p.top"], "layers": ["(b)", "a"]},
        {"type": "forbidden", "source_modules": ["p.bottom"]},
    ]
    layers = script["layers_by_package"]({"tool": {"importlinter": {"contracts": contracts}}})
    assert layers == {"p": ["bottom", "left", "right", "top"], "p.top": ["a", "b"]}


@pytest.mark.parametrize(
    ("docstring", "sentence"),
    [
        ("One file.", "One file."),
        ("A file over\ntwo lines: `a.b`. More.", "A file over two lines: `a.b`."),
        ("Is it there?\n\nWho knows.", "Is it there?"),
    ],
)
def test_the_first_sentence_is_whole(script: dict[str, Any], tmp_path: Path, docstring: str, sentence: str) -> None:
    path = tmp_path / "one.py"
    path.write_text(f'"""{docstring}\n"""\n')
    assert script["first_sentence"](path) == sentence


@pytest.mark.parametrize(
    "text", ['"""Each with one function\n\n    handle()\n"""', '"""Two things:\n\none.\n"""', "A = 1"]
)
def test_a_file_that_opens_without_a_sentence_is_named(script: dict[str, Any], tmp_path: Path, text: str) -> None:
    path = tmp_path / "one.py"
    path.write_text(text + "\n")
    with pytest.raises(script["NoSentence"], match=r"one\.py"):
        script["first_sentence"](path)
