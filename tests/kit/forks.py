"""Python processes that are forked from one that has their modules: a start costs a tenth of the processor time.

Tests start more than a thousand processes, and most of a start are the interpreter's imports. A forked process runs the
same program with the same arguments, environment and standard files, has an id of its own and can be killed like any
other. What it does not repeat is importing: tests of that start processes in the usual way.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from typing import IO, Any

PROGRAM = Path(__file__).with_name("forker.py")
CAN_FORK = hasattr(os, "pidfd_open")
"""Linux."""
READ_AT_A_START = ("LANG", "LC_", "LD_", "MALLOC_", "PYTHON", "TZ")
"""How the variables begin that an interpreter or its libraries read only when they start."""
MOST_FORKERS = 2
"""By such variables. A test that sets variables for its processes may get one for itself."""


class Forked:
    """A forked process, with what tests use of `subprocess.Popen`."""

    def __init__(self, arguments: Sequence[str], report: socket.socket, files: Sequence[IO[bytes] | None]) -> None:
        self.args = list(arguments)
        self.returncode: int | None = None
        self.stdin, self.stdout, self.stderr = files
        self._report = report
        weakref.finalize(self, report.close)
        self._lock = threading.Lock()
        self.pid = self._next_number()

    def _next_number(self) -> int:
        said = self._report.recv(64)
        if not said:
            raise ChildProcessError("the process that forks has ended")
        return int(said)

    def poll(self) -> int | None:
        """The exit status, or None while it runs."""
        return self._exit_status(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit status. Raises subprocess.TimeoutExpired."""
        status = self._exit_status(timeout)
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return status

    def _exit_status(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            waiter = select.poll()
            waiter.register(self._report, select.POLLIN)
            if waiter.poll(None if timeout is None else timeout * 1000):
                with self._lock:
                    if self.returncode is None:
                        self.returncode = self._next_number()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal; nothing happens if it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended since, and its status is on its way
                os.kill(self.pid, number)

    def communicate(self, data: bytes | None = None, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Write what is left of its standard input, read the rest of its output and wait for its end."""
        found: dict[str, bytes] = {}

        def read(name: str, file: IO[bytes]) -> None:
            with file:
                found[name] = file.read()

        files = {"out": self.stdout, "err": self.stderr}
        readers = [
            threading.Thread(target=read, args=(name, file), daemon=True)
            for name, file in files.items()
            if file is not None and not file.closed
        ]
        for reader in readers:
            reader.start()
        if self.stdin is not None and not self.stdin.closed:
            with suppress(BrokenPipeError), self.stdin:
                self.stdin.write(data or b"")
        self.wait(timeout)
        for reader in readers:
            reader.join(timeout)
        return found.get("out", b""), found.get("err", b"")

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


Process = subprocess.Popen[bytes] | Forked


class Forks:
    """Starts processes from one that has imported `modules`, which is started when it is first needed.

    With other variables of the kinds `READ_AT_A_START` it is another one.
    """

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        self._forkers: dict[tuple[tuple[str, str], ...], tuple[subprocess.Popen[bytes], socket.socket]] = {}
        self._evicted: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        stdin: int = DEVNULL,
        stdout: int | IO[Any] = PIPE,
        stderr: int | IO[Any] = STDOUT,
        start_new_session: bool = False,
    ) -> Process:
        """Start what `python ARGUMENTS` runs. The standard files and the session are as of `subprocess.Popen`."""
        environment = os.environ if environment is None else environment
        if not CAN_FORK:
            command = [sys.executable, *arguments]
            return subprocess.Popen(
                command,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=dict(environment),
                start_new_session=start_new_session,
            )
        with ExitStack() as given:

            def opened(file: int | IO[Any], mode: str) -> tuple[int, IO[bytes] | None]:
                """The descriptor that the process gets, and the file that the test gets."""
                if file == PIPE:
                    read, write = os.pipe()
                    theirs, mine = (read, write) if mode == "wb" else (write, read)
                    given.callback(os.close, theirs)
                    return theirs, open(mine, mode)
                if file == DEVNULL:
                    return given.enter_context(open(os.devnull, "r+b")).fileno(), None
                return file if isinstance(file, int) else file.fileno(), None

            files = [opened(stdin, "wb"), opened(stdout, "rb")]
            files.append((files[1][0], None) if stderr == STDOUT else opened(stderr, "rb"))
            here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            given.enter_context(there)
            request = {
                "arguments": list(arguments),
                "environment": dict(environment),
                "directory": os.getcwd(),
                "is_new_session": start_new_session,
            }
            descriptors = [*(theirs for theirs, _ in files), there.fileno()]
            socket.send_fds(self._channel(environment), [json.dumps(request).encode()], descriptors)
        return Forked([sys.executable, *arguments], here, [mine for _, mine in files])

    def _channel(self, environment: Mapping[str, str]) -> socket.socket:
        key = tuple(sorted((name, value) for name, value in environment.items() if name.startswith(READ_AT_A_START)))
        with self._lock:
            if key not in self._forkers:
                atexit.register(self.end)
                if len(self._forkers) >= MOST_FORKERS:
                    forker, channel = self._forkers.pop(next(iter(self._forkers)))
                    channel.close()
                    self._evicted.append(forker)
                here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with there:
                    command = [sys.executable, "-c", PROGRAM.read_text(), str(there.fileno()), *self._modules]
                    forker = subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        env=dict(environment),
                        pass_fds=[there.fileno()],
                    )
                self._forkers[key] = forker, here
            return self._forkers[key][1]

    def end(self) -> None:
        """End what processes are forked from. Those that still run continue, and their exit status gets lost."""
        with self._lock:
            for forker, channel in self._forkers.values():
                channel.close()
                self._evicted.append(forker)
            self._forkers.clear()
            for forker in self._evicted:
                forker.kill()
                forker.wait()
            self._evicted.clear()
