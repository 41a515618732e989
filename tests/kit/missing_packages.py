"""One line instead of a traceback when a script runs with a Python that lacks the packages of the tests.

The scripts of `scripts` run with the active Python (CONTRIBUTING.md). This imports nothing but the standard library.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType

CANNOT_RUN = 69
"""EX_UNAVAILABLE of sysexits.h: the script cannot run here, which is not a failure of what it tests."""


def explain_missing_packages() -> None:
    """From now on a missing package ends the program with one line and status 69. Call it before the imports."""
    sys.excepthook = _explain


def _explain(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if isinstance(error, ModuleNotFoundError):
        missing = f"no module {error.name!r}"
    elif isinstance(error, ImportError) and error.name is None:  # Ottla's own message, such as that of checksums
        missing = f"not all packages ({error})"
    else:
        sys.__excepthook__(kind, error, traceback)
        return
    sys.stderr.write(
        f"{Path(sys.argv[0]).name}: {sys.executable} has {missing}: activate the environment of the tests,"
        " `. .venv/bin/activate` (scripts/test creates it)\n"
    )
    sys.exit(CANNOT_RUN)
