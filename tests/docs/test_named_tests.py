"""Every test that a page of the documentation names is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
NAMES = sorted(
    (page.name, path, name)
    for page in (TOP / "docs").rglob("*.md")
    for path, name in set(NAMED.findall(page.read_text()))
)


@cache
def functions_of(path: str) -> frozenset[str]:
    tree = ast.parse((TOP / path).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_pages_name_tests() -> None:
    assert {"ordering.md", "deviations.md", "durability.md"} <= {page for page, _, _ in NAMES}


@pytest.mark.parametrize(("page", "path", "name"), NAMES)
def test_a_test_that_is_named_is_there(page: str, path: str, name: str) -> None:
    assert name in functions_of(path)
