"""The broker's process under the audit: its lives, how each ends, and how long a start takes."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Mapping
from pathlib import Path

from kit.audit.greedy import BOUND_BYTES
from kit.broker import IMPORTS, BrokerDidNotStart, BrokerProcess
from kit.forks import Forks
from kit.thread_shortage import ThreadShortage
from kit.wrong_clock import WrongClock

SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.min.cleanable.ratio": "0.1",
    "log.flush.offset.checkpoint.interval.ms": "300",
    "log.flush.start.offset.checkpoint.interval.ms": "300",
    "log.index.interval.bytes": "1024",
    "log.retention.check.interval.ms": "200",
    "log.segment.bytes": "65536",
    "log.segment.delete.delay.ms": "100",
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.segment.bytes": "30000",
    "ottla.connections.max.unsent.bytes": str(BOUND_BYTES),
    "replica.high.watermark.checkpoint.interval.ms": "300",
}
"""Everything often and in small pieces, so that kills fall beside rolls, cleanings, snapshots and checkpoints."""
_FORKS = Forks(*IMPORTS)
FEW_DESCRIPTORS = 160
"""Room for 60 connections, which is all that the audit's clients have, and for 60 files of logs."""
MOST_OF_A_START_S = 0.25
MOST_OF_A_STOP_S = 0.15
WAIT_S = 60.0
_READY = re.compile(r"ready after (\d+) ms")


class Victim:
    """A broker that is killed again and again, always on the same directory and port."""

    def __init__(self, directory: Path, chance: random.Random, settings: Mapping[str, str] | None = None) -> None:
        """`settings` are added to `SETTINGS`."""
        self.clock = WrongClock(directory.parent / f"{directory.name}-clock")
        """The wall clock of its lives."""
        self.threads = ThreadShortage(directory.parent / f"{directory.name}-clock")
        """Whether its lives are given threads."""
        all_settings = {**SETTINGS, **(settings or {})}
        self.process = BrokerProcess(directory, all_settings, {**self.clock.environment, **self.threads.environment})
        self.process.forks = _FORKS
        self.ready_ms: list[int] = []
        """How long each start took, by its own words: recovery and loading, without the interpreter's."""
        self.start_s: list[float] = []
        self._chance = chance

    @property
    def directory(self) -> Path:
        """The one of `log.dirs`."""
        return self.process.directory

    @property
    def bootstrap(self) -> str:
        """`host:port`, the same in each life."""
        return self.process.bootstrap

    def limit_descriptors(self, most: int | None) -> None:
        """Let the lives that come have so few, or as many as there are."""
        self.process.prefix = [] if most is None else ["sh", "-c", f'ulimit -n {most}; exec "$@"', "sh"]

    def start(self, *, is_sync: bool) -> None:
        """Start and wait until clients may come. Raises BrokerDidNotStart."""
        self.process.overrides["ottla.acks.all"] = "sync" if is_sync else "page-cache"
        began = time.monotonic()
        self.process.start()
        self.start_s.append(time.monotonic() - began)
        while len(_READY.findall(self.process.output)) <= len(self.ready_ms) and time.monotonic() < began + WAIT_S:
            time.sleep(0.002)  # the line follows the one that tells the port
        self.ready_ms = [int(found) for found in _READY.findall(self.process.output)]

    def kill(self) -> None:
        """`kill -9`, now."""
        self.process.kill()

    def kill_while_stopping(self) -> None:
        """SIGTERM, and `kill -9` some moments later."""
        process = self.process.process
        assert process is not None
        process.terminate()
        time.sleep(self._chance.random() * MOST_OF_A_STOP_S)
        self.process.kill()

    def stop(self) -> int:
        """SIGTERM, and wait; the exit status."""
        return self.process.stop()

    def kill_while_starting(self, *, is_sync: bool) -> bool:
        """Start, and `kill -9` some moments after it began to look at the directory; False when it ended by itself."""
        self.process.overrides["ottla.acks.all"] = "sync" if is_sync else "page-cache"
        self.process.launch()
        process = self.process.process
        assert process is not None
        deadline = time.monotonic() + WAIT_S
        while not self._has_opened(process.pid) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(self._chance.random() ** 2 * MOST_OF_A_START_S)
        was_alive = process.poll() is None
        self.process.kill()
        return was_alive

    def refusal(self, *, is_sync: bool) -> str | None:
        """The last line that a start said that does not come about; None when it does."""
        said = len(self.process.output)
        try:
            self.start(is_sync=is_sync)
        except BrokerDidNotStart:
            return self.process.output[said:].strip()
        return None

    def _has_opened(self, pid: int) -> bool:
        try:
            opened = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            return False  # it has ended, or one of them was closed meanwhile: look again
        return any(path.startswith(f"{self.directory}/") for path in opened)
