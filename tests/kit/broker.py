"""A real broker process for tests: `ottla serve` on a free port of 127.0.0.1, in a directory of its own.

The tests fork it from a process that has its modules (`forks.py`), unless it has an environment or a prefix of its own.
The address is read from the line that `serve` prints once it accepts, so no port is ever guessed and nothing polls.
The port is held for as long as the broker may be started again: between its lives another worker's server got it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from kit.forks import Forks, Process
from kit.process_output import ProcessOutput

from ottla.testing.reserved_port import ReservedPort

READY = re.compile(r"listening on (?:\S+://)?(\S+):(\d+)")
LISTENER = re.compile(r"listening on (\S+)://\S+:(\d+)")
ANY_PORT = "PLAINTEXT://127.0.0.1:0"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
RETENTION_INTERVAL_MS = 24 * 60 * 60 * 1000
"""How often a broker that is not configured otherwise looks for old segments and for groups that nobody needs.

Tests write records stamped 2023, so that what they read is the same every day; by those stamps they are old enough to
go at the first look. Kafka's intervals of 5 and 10 minutes are shorter than a run: the test that was between its
writing and its reading just then found only some of its records.
"""


IMPORTS = ("ottla.cli.entry", "ottla.cli.serving", "ottla.broker.process")
"""What a start imports."""


class BrokerDidNotStart(AssertionError):
    """The process ended, or said nothing of an address, before the time was up. Carries what it printed."""


class BrokerProcess:
    """One `ottla serve` process. Start it with `start()`; `stop()` is a SIGTERM, `kill()` a SIGKILL.

    A killed or stopped broker can be started again on the same directory and the same port. `prefix` is put before the
    command (a wrapper that ends in `exec "$@"`).
    """

    all_forks: ClassVar[Forks | None] = None
    """What brokers without a prefix and an environment of their own are forked from (tests/conftest.py sets it)."""

    def __init__(
        self,
        directory: Path,
        overrides: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.overrides = {
            "listeners": ANY_PORT,
            "log.dirs": str(directory),
            "ottla.http.listener": "",  # the default port is one for all brokers of the machine
            "log.retention.check.interval.ms": str(RETENTION_INTERVAL_MS),
            "offsets.retention.check.interval.ms": str(RETENTION_INTERVAL_MS),
            **(overrides or {}),
        }
        self.environment = dict(environment or {})
        self.prefix = list(prefix)
        self.forks: Forks | None = None
        """What it is forked from in all of its lives without a prefix, with its environment."""
        self.port = 0
        self._reserved: ReservedPort | None = None
        """Given back when this object is forgotten: it may be started again after a `with`, too."""
        self.process: Process | None = None
        self._outputs: list[ProcessOutput] = []
        """One of each life of the process."""
        self._reader: threading.Thread | None = None
        self._ready = threading.Event()
        self._listens = False
        self._ports: dict[str, int] = {}
        """By listener, of those that have been announced."""
        self._announced = threading.Condition()

    @property
    def bootstrap(self) -> str:
        """`host:port` as clients want it."""
        return f"127.0.0.1:{self.port}"

    def port_of(self, listener: str) -> int:
        """The port of a listener by its name, once it is announced; `port` is that of the first one."""
        with self._announced:
            self._announced.wait_for(lambda: listener in self._ports, START_TIMEOUT_S)
        # Outside the condition: `output` reads lines, too, and the thread that reads them takes the condition.
        assert listener in self._ports, f"no listener {listener} was announced\n{self.output}"
        return self._ports[listener]

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        assert self.process is not None
        return self.process.pid

    @property
    def output(self) -> str:
        """Everything that the process, in all its lives, has printed until now, both streams.

        They share a pipe: from two of them, what was logged before the line with the address may be read after it.
        """
        return "\n".join(text for output in self._outputs if (text := output.text()))

    def command(self) -> list[str]:
        """The command line that `start` runs."""
        overrides = dict(self.overrides)
        if self.port:  # a second start keeps the address, so that clients find it again
            overrides["listeners"] = f"PLAINTEXT://127.0.0.1:{self.port}"
        pairs = [word for key, value in overrides.items() for word in ("--override", f"{key}={value}")]
        return [*self.prefix, sys.executable, "-m", "ottla", "serve", *pairs]

    def start(self) -> BrokerProcess:
        """Start the process and return once it accepts connections."""
        self.launch()
        return self.wait_until_ready()

    def launch(self) -> None:
        """Start the process and return at once; `wait_until_ready` or `kill` comes next."""
        if not self.port and self.overrides["listeners"] == ANY_PORT:
            self._reserved = ReservedPort()
            self.port = self._reserved.number
        ready = self._ready = threading.Event()
        self._listens = False
        self._ports.clear()
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **self.environment}
        forks = self.forks or (None if self.environment else self.all_forks)
        if forks is None or self.prefix:
            self.process = subprocess.Popen(
                self.command(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
            )
        else:
            self.process = forks.start(self.command()[1:], environment)
        assert self.process.stdout is not None

        def look_for_address(line: str) -> None:
            announced = LISTENER.search(line)
            if announced:
                with self._announced:
                    self._ports[announced[1]] = int(announced[2])
                    self._announced.notify_all()
            found = READY.search(line)
            if found and not ready.is_set() and "http" not in line.lower():
                self.port = int(found[2])
                self._listens = True
                ready.set()

        output = ProcessOutput(self.process.stdout, look_for_address)
        self._outputs.append(output)

        def read() -> None:
            output.follow()
            ready.set()  # it ended: do not wait for the time-out

        self._reader = threading.Thread(target=read, daemon=True)
        self._reader.start()

    def wait_until_ready(self) -> BrokerProcess:
        """Wait until a launched process accepts connections. Raises BrokerDidNotStart, and nothing runs then."""
        assert self.process is not None
        if not self._ready.wait(START_TIMEOUT_S) or self.process.poll() is not None or not self._listens:
            self.kill()
            raise BrokerDidNotStart(f"{' '.join(self.command())}\n{self.output}")
        return self

    def stop(self) -> int:
        """SIGTERM, wait, and return the exit status. A broker that does not stop is killed and fails the test."""
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the broker did not stop on SIGTERM\n{self.output}") from None
        self._forget()
        return status

    def kill(self) -> None:
        """SIGKILL: the process has no chance to write anything more."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)
        self._forget()

    def restart(self) -> BrokerProcess:
        """Stop cleanly and start again on the same directory and port."""
        self.stop()
        return self.start()

    def _forget(self) -> None:
        assert self.process is not None
        assert self._reader is not None
        self._reader.join(STOP_TIMEOUT_S)
        self._outputs[-1].close()
        self.process = None

    def __enter__(self) -> BrokerProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.stop()
