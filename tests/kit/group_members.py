"""Members of a group as processes of their own (`group_member.py`), and waiting for what they tell."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE
from time import monotonic
from typing import Any

from kit.forks import Forks

PROGRAM = Path(__file__).with_name("group_member.py")
PATIENCE_S = 60.0
SESSION_MS = 30_000
"""Longer than a busy machine stops a process: a member that is given up for dead reads again what others have read."""
SHORT_SESSION_MS = 6_000 if "OTTLA_TEST_BOOTSTRAP" in os.environ else 2_500
"""For members whose death is waited for. Kafka allows no less than 6 s unless it is configured; the tests' broker does.
"""

_FORKS = Forks("aiokafka", "confluent_kafka", "kafka")

Place = tuple[str, int]


class Member:
    """One process. What it has reported: `assignment` (None before the first), `revoked` and `records` in order."""

    def __init__(self, library: str, bootstrap: str, group: str, topics: list[str], **options: Any) -> None:
        settings = {
            "bootstrap": bootstrap,
            "group": group,
            "topics": topics,
            "session_ms": SESSION_MS,
            "assignor": "range",
        }
        self.assignment: frozenset[Place] | None = None
        self.revoked: list[frozenset[Place]] = []
        self.records: list[tuple[str, int, int, str]] = []
        self.has_left = False
        self._reported = threading.Condition()
        self._errors: list[str] = []
        arguments = [str(PROGRAM), library, json.dumps(settings | options)]
        self.process = _FORKS.start(arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    @property
    def values(self) -> set[str]:
        """The values of the records that came."""
        return {record[3] for record in self.records}

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            with self._reported:
                if "assignment" in event:
                    self.assignment = frozenset((topic, partition) for topic, partition in event["assignment"])
                elif "revoked" in event:
                    self.revoked.append(frozenset((topic, partition) for topic, partition in event["revoked"]))
                elif "record" in event:
                    topic, partition, offset, value = event["record"]
                    self.records.append((topic, partition, offset, value))
                else:
                    self.has_left = True
                self._reported.notify_all()

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self._errors.extend(line.decode() for line in self.process.stderr)

    def wait(self, what: Callable[[Member], bool]) -> None:
        """Return once `what` is true of this member; it is checked whenever the member tells something."""
        give_up = monotonic() + PATIENCE_S
        with self._reported:
            while not what(self):
                left_s = give_up - monotonic()
                if left_s <= 0 or not self._reported.wait(left_s):
                    raise AssertionError(
                        f"assignment {self.assignment}, {len(self.records)} records, revoked {self.revoked}\n"
                        + "".join(self._errors[-20:])
                    )

    def leave(self) -> None:
        """Let it leave the group and end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.wait(lambda member: member.has_left)
        assert self.process.wait(PATIENCE_S) == 0

    def kill(self) -> None:
        """SIGKILL; nothing is said to the broker. Does nothing to one that has ended."""
        self.process.kill()
        self.process.wait(PATIENCE_S)
        for reader in self._readers:
            reader.join(PATIENCE_S)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None and not stream.closed:
                stream.close()
