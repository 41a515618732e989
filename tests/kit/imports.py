"""What a process has imported that only runs asyncio and logs: a start cannot do without."""

from __future__ import annotations

import subprocess
import sys
from functools import cache


@cache
def unavoidable() -> frozenset[str]:
    """Their names; `dataclasses` is one of them from Python 3.14 on, where `traceback` imports it for colours."""
    program = "import asyncio, logging, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return frozenset(done.stdout.split())
