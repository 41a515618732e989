"""The processes that move records, under the audit: started, killed, paused, and started beside themselves.

A process that ends by itself (its producer was fenced, its session was lost) is started again, and counted.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from kit.forks import Forks, Process

SCRIPT = Path(__file__).with_name("mover.py")
LIBRARIES = {
    "classic": ("confluent-static", "kafka-python", "ottla"),
    "consumer": ("confluent-kip-848", "confluent-kip-848-static", "ottla-kip-848"),
}
"""One process each, by the protocol of their group; a static member is back in its group without a rebalance."""
HUNG = "hung"
HUNG_LINE = "nothing was done for"
"""How the line begins that such a process writes before the stacks of its threads."""
MAY_HANG = ("kafka-python",)
"""Libraries that do so by themselves, see `mover.py`. Of the others it is a breach."""
SOON_S = 0.4
LATE_S = 6.0
"""Longer than a session: the others take over its partitions, while its transaction is open."""
IS_LATE = 0.25
PAUSE_S = 5.0
"""Longer than a session: it goes on with partitions that are others' by then."""
_HUNG = re.compile(rf"^(?:{HUNG_LINE} \d+ s$|Timeout \(\d+:)", re.MULTILINE)
"""The second is faulthandler's line, of one that hangs while it ends."""
_CODE = re.compile(r"code=(\w+)")
_ERROR = re.compile(r"\w+Error\b")


_FORKS = Forks("confluent_kafka", "kafka", "ottla.client")


class Life(NamedTuple):
    """One process, and the file with what it prints."""

    process: Process
    output: Path

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def reason(self) -> str:
        """What it ended of: the last error that it printed."""
        printed = self.output.read_text(errors="replace")
        if _HUNG.search(printed):
            return HUNG
        line = (printed.splitlines() or [""])[-1]
        code, errors = _CODE.search(line), _ERROR.findall(line)
        return code[1] if code else errors[-1] if errors else line[:60]


class MoverProcess:
    """All lives of one transactional id."""

    def __init__(self, library: str, name: str, home: Path, chance: random.Random) -> None:
        self.library, self.name = library, name
        self.ends: Counter[str] = Counter()
        """What it ended of by itself, and how often; of `HUNG`, if it did nothing for long."""
        self._home, self._chance = home, chance
        self._lives = 0
        self._life: Life | None = None
        self._overtaken: list[Life] = []
        """Earlier lives that another was started beside."""
        self._due = 0.0
        """When it is started again; or, while it is paused, continued."""
        self._is_paused = False

    def tend(self, bootstrap: str) -> None:
        """Start it when it is time, or continue it; notice what has ended."""
        for life in [life for life in self._overtaken if not life.is_running]:
            self._overtaken.remove(life)
            self.ends[life.reason()] += 1
        if self._life is not None and not self._life.is_running:
            self.ends[self._life.reason()] += 1
            self._life, self._due = None, time.monotonic() + SOON_S
        if time.monotonic() < self._due:
            return
        if self._is_paused:
            self._continue()
        if self._life is None:
            self._start(bootstrap)

    def kill(self) -> int:
        """SIGKILL to it, and to what it was started beside; how many processes were killed."""
        running = [life for life in (self._life, *self._overtaken) if life is not None and life.is_running]
        for life in running:
            life.process.kill()
            life.process.wait()
        self._life, self._is_paused = None, False
        self._overtaken.clear()
        is_late = self._chance.random() < IS_LATE
        self._due = time.monotonic() + self._chance.random() * (LATE_S if is_late else SOON_S)
        return len(running)

    def pause(self) -> bool:
        """SIGSTOP, for a while; False if nothing runs."""
        if self._life is None or self._is_paused:
            return False
        self._life.process.send_signal(signal.SIGSTOP)
        self._is_paused, self._due = True, time.monotonic() + PAUSE_S
        return True

    def overtake(self, bootstrap: str) -> bool:
        """Start it once more, as if a supervisor took it for dead; False if nothing runs."""
        if self._life is None or self._is_paused:
            return False
        self._overtaken.append(self._life)
        self._start(bootstrap)
        return True

    def _continue(self) -> None:
        assert self._life is not None
        self._life.process.send_signal(signal.SIGCONT)
        self._is_paused = False

    def _start(self, bootstrap: str) -> None:
        self._lives += 1
        arguments = [str(SCRIPT), self.library, bootstrap, self.name, str(self._lives)]
        output = self._home / f"{self.name}.{self._lives}.log"
        with output.open("wb") as stream:
            process = _FORKS.start(arguments, {**os.environ, "PYTHONUNBUFFERED": "1"}, stdout=stream)
        self._life = Life(process, output)
