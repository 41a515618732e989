"""docs/durability.md names a test for each line of its tables, and every test that a page names is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs" / "durability.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
GROUP = "all of them"
"""The name that the page gives to the tests which each kind of acknowledgement goes through."""
WITHOUT_TESTS = "## What it costs"
"""The one section whose table has figures, which the benchmark prints."""


@cache
def functions_of(path: str) -> frozenset[str]:
    """The test functions of a file."""
    tree = ast.parse((TOP / path).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def rows() -> list[tuple[str, str]]:
    """(header, row) of every table that makes promises."""
    found = []
    for section in re.split(r"(?m)^(?=## )", PAGE):
        if section.startswith(WITHOUT_TESTS):
            continue
        for table in re.findall(r"(?m)(?:^\|.*\n)+", section):
            header, _, *lines = table.splitlines()
            found += [(header, line) for line in lines]
    return found


def test_every_promise_names_its_test() -> None:
    assert len(rows()) > 40
    without = [
        row for header, row in rows() if not header.endswith("| test |") or not (NAMED.search(row) or GROUP in row)
    ]
    assert without == []


def test_a_name_is_in_the_last_column() -> None:
    """The last cell has the tests and nothing else, so that a line is not taken for tested by something said in it."""
    cells = [row.rstrip("|").rsplit("|", 1)[1].strip() for _, row in rows()]
    assert [cell for cell in cells if NAMED.sub("", cell).replace(GROUP, "").strip()] == []


@pytest.mark.parametrize(
    ("path", "name"),
    sorted({named for page in (TOP / "docs").glob("*.md") for named in NAMED.findall(page.read_text())}),
)
def test_a_test_that_is_named_is_there(path: str, name: str) -> None:
    assert (TOP / path).is_file()
    assert name in functions_of(path)


def test_every_kind_of_acknowledgement_that_is_tried_is_on_the_page() -> None:
    """The other way round: `KINDS` of tests/crash/test_answers.py."""
    tree = ast.parse((TOP / "tests" / "crash" / "test_answers.py").read_text())
    kinds = [
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "Kind"
        and isinstance(node.args[0], ast.Constant)
    ]
    assert len(kinds) > 10
    table = PAGE.partition("## Everything else that is acknowledged")[2].partition("\n## ")[0]
    assert [kind for kind in kinds if str(kind).split(" of ")[0] not in table] == []
