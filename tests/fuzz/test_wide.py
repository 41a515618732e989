"""A list in a request costs in proportion to its length, counted in steps of the interpreter, not in time.

`in` on a list and other loops inside C are not seen by the count; `scripts/fuzz --wide` times them.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from kit.fuzz.life import Life
from kit.fuzz.requests import SERVED
from kit.fuzz.wide import Wide, all_lists, frame_of

FEW, MANY = 20, 160
MOST_GROWTH = 1.3
"""Times what is in proportion: eight times the elements may cost ten times; of a square the count shows fifteen and
more."""


class Steps:
    """Backward jumps and lines of ottla's code, while it counts."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code.co_filename
        return self._line if "/ottla/" in code or code.startswith("<ottla") else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.count += 1
        return self._line


def _steps_of(wide: Wide, count: int) -> int:
    steps = Steps()
    with Life(with_kio=False) as life:
        frame = frame_of(wide, random.Random(1), count)
        assert frame is not None
        with steps.counting():
            life.step({"line": 0, "send": frame})
    return steps.count


@pytest.mark.parametrize("key", SERVED, ids=lambda key: key.name)
def test_a_list_costs_in_proportion_to_its_length(key: Any) -> None:
    for wide in all_lists((key,)):
        few, many = _steps_of(wide, FEW), _steps_of(wide, MANY)
        assert many <= few * MOST_GROWTH * MANY / FEW, f"{wide}: {FEW} elements take {few} steps, {MANY} take {many}"


def test_a_square_would_be_seen() -> None:
    steps = Steps()
    source = compile(
        "def square(count):\n for _ in range(count):\n  [x for x in range(count)]\n", "/ottla/made.py", "exec"
    )
    made: dict[str, Any] = {}
    exec(source, made)
    counts = []
    for count in (FEW, MANY):
        steps.count = 0
        with steps.counting():
            made["square"](count)
        counts.append(steps.count)
    assert counts[1] > counts[0] * MOST_GROWTH * MANY / FEW
