"""Every saved input lives again, and no promise breaks: see tests/kit/fuzz and CONTRIBUTING.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit.fuzz.corpus import replay, saved
from kit.fuzz.run import bound_problem


@pytest.mark.parametrize("path", saved(), ids=lambda path: path.stem)
def test_a_saved_input_breaks_no_promise(path: Path) -> None:
    cost = replay(path)
    assert bound_problem(cost, is_timed=False) == ""


@pytest.mark.parametrize("path", saved(), ids=lambda path: path.stem)
def test_a_saved_input_says_why_it_is_kept(path: Path) -> None:
    assert len(json.loads(path.read_text(encoding="utf-8"))["reason"]) > 20
