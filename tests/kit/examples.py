"""How many examples Hypothesis makes: a test's own number in a whole run, a fifth of it in a quick one.

@settings(max_examples=examples(300))
"""

from __future__ import annotations

import os
from typing import Final

QUICK_VARIABLE: Final = "TEST_QUICK"
"""Set by `--quick` for all processes of the run, before any test is imported."""
LEAST: Final = 5
DEFAULT: Final = 100
"""Of tests that name no number; Hypothesis's own."""


def examples(number: int) -> int:
    """`number`, or what a quick run takes instead."""
    return max(LEAST, number // 5) if os.environ.get(QUICK_VARIABLE) else number
