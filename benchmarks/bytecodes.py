"""A count of executed bytecodes, which no busy machine changes: for benchmarks of steps without a loop."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any


class Bytecodes:
    """Counts the bytecodes of functions that are called by `run`, by function."""

    def __init__(self) -> None:
        self.of: Counter[CodeType] = Counter()

    def run(self, function: Callable[[], object]) -> None:
        sys.settrace(self._enter)
        try:
            function()
        finally:
            sys.settrace(None)

    @property
    def count(self) -> int:
        return sum(self.of.values())

    def _enter(self, frame: FrameType, _: str, __: Any) -> Any:
        code, of = frame.f_code, self.of
        frame.f_trace_lines, frame.f_trace_opcodes = False, True

        def step(_: FrameType, event: str, __: Any) -> Any:
            if event == "opcode":
                of[code] += 1
            return step

        return step
