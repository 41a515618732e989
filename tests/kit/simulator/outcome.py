"""What the run of one world has shown: the promise that was broken, if any, and where its machines have stopped."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field

from kit.simulator.model import Violation


@dataclass
class Outcome:
    """What a world has shown."""

    seed: int
    violation: str | None = None
    operations: int = 0
    losses: Counter[str] = field(default_factory=Counter)
    sites: Counter[str] = field(default_factory=Counter)


class LoggedBugs(logging.Handler):
    """Collects what the broker itself calls a bug."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record's text if it names a bug. Raises the Violation that a client raised within the broker."""
        if "bug" in record.msg:
            said = record.getMessage()
            if record.exc_info and record.exc_info[1] is not None:
                if isinstance(record.exc_info[1], Violation):
                    raise record.exc_info[1]
                said += f": {record.exc_info[1]!r}"
            self.found.append(said)
