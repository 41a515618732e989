"""The servers that a benchmark drives: the C floor, Ottla and other brokers, as processes; CPU seconds and memory."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

HERE = Path(__file__).parent
BUILD = HERE / "build"
PEER_START_S = 240
LOOK_AGAIN_S = 0.002
"""Between two checks of a broker that starts: short compared with the start, and it leaves the processor to it."""


def build() -> None:
    """Compile the C programs if their sources are newer; print a line if there is no compiler."""
    BUILD.mkdir(exist_ok=True)
    compiler = shutil.which("cc") or shutil.which("gcc")
    for name in ("load", "floor", "tails"):
        source, program = HERE / f"{name}.c", BUILD / name
        if program.exists() and program.stat().st_mtime > source.stat().st_mtime:
            continue
        if compiler is None:
            sys.exit("The benchmarks need a C compiler (Debian: apt-get install gcc libc6-dev).")
        subprocess.run([compiler, "-O2", "-o", str(program), str(source)], check=True)


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, kernel and threads that have ended included, by the scheduler's own nanosecond clock."""
    return time.clock_gettime(~pid << 3 | 2)  # MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED): Linux' clock of a process


def resident_mb(pid: int) -> float:
    """Resident memory in MB (1e6 bytes)."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024 / 1e6


def free_port() -> int:
    """A port of 127.0.0.1 on which no process listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def warm_memory(size_mb: int = 4000) -> None:
    """Fill the page cache once and free it.

    In a virtual machine, memory that the guest has never used costs up to ten times as much at its first use, and would
    be charged to the first server. Free memory does not stay warm: if guests report it to their
    host (free page reporting), they lose it within seconds. So this is called before each workload, with about
    the memory that it touches: on such a machine 4 GB took 42 s.
    """
    with tempfile.TemporaryFile(prefix="ottla-bench-", dir=os.environ.get("OTTLA_BENCH_DIRECTORY")) as file:
        block = bytes(1 << 20)
        for _ in range(size_mb):
            file.write(block)


class Server:
    """A server process with an address; ends with the `with` block."""

    name: str
    host = "127.0.0.1"
    port: int
    process: subprocess.Popen[str]
    ready_seconds: float
    """The time from the start of its process until it listened."""
    stop_s = 20
    """The time after which it is killed if it has not ended."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="ottla-bench-", dir=os.environ.get("OTTLA_BENCH_DIRECTORY")))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.process.terminate()
        try:
            self.process.wait(self.stop_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def keep_to(self, *processors: int) -> None:
        """Run on these processors only, with all existing threads."""
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), processors)

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """Create a topic, and wait until it has a leader."""
        from ottla.client import LATEST, Admin, TopicPartition

        async def create() -> None:
            async with Admin(bootstrap_servers=f"{self.host}:{self.port}") as admin:
                await admin.create_topic(topic, partitions=partitions)
                await admin.list_offsets({TopicPartition(topic, 0): LATEST})

        asyncio.run(create())

    @property
    def pid(self) -> int:
        """The process that serves."""
        return self.process.pid

    @property
    def cpu(self) -> float:
        """CPU seconds so far."""
        return cpu_seconds(self.pid)


class Floor(Server):
    """floor.c: no protocol, no sync, one write per receive."""

    name = "floor"

    def __init__(self, arguments: list[str], how: str = "sendfile") -> None:
        super().__init__()
        self.process = subprocess.Popen(
            [str(BUILD / "floor"), str(self.directory / "data"), *arguments, how], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """Do nothing: the floor has no topics."""


class Ottla(Server):
    """`ottla serve` as a person starts it, with `ottla.acks.all` named; of the checkout in `tree` if that is given."""

    def __init__(self, acks_all: str, overrides: dict[str, str] | None = None, tree: Path | None = None) -> None:
        super().__init__()
        self.name = f"ottla {acks_all}"
        settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(self.directory),
            "ottla.acks.all": acks_all,
            "message.max.bytes": "8388608",
            **(overrides or {}),
        }
        words = [word for key, value in settings.items() for word in ("--override", f"{key}={value}")]
        # pip compiles what it installs; without bytecode, a checkout would be compiled again by every start (0.1 s).
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        if tree is not None:
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(tree), environment.get("PYTHONPATH"))))
        self.started_at = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ottla", "serve", *words],
            cwd=tree,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        said = []
        for line in self.process.stdout:
            said.append(line)
            found = re.search(r"listening on \S*?([\d.]+):(\d+)", line)
            if found:
                self.port = int(found[2])
                break
        else:
            sys.exit(f"the broker did not start:\n{''.join(said)}")
        self.ready_seconds = time.perf_counter() - self.started_at
        # A pipe without a reader would block the broker at some point.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()


class CannotRun(Exception):
    """A peer cannot run here; the message is one line for people."""


class Command(Server):
    """A broker that a command of the user starts; {port} and {directory} in its words are replaced."""

    def __init__(self, name: str, words: list[str]) -> None:
        super().__init__()
        self.name = name
        self.port = free_port()
        self.started_at = time.perf_counter()
        places = {"{port}": str(self.port), "{directory}": str(self.directory / "data")}
        if shutil.which(words[0]) is None:
            shutil.rmtree(self.directory)
            raise CannotRun(f"{name}: there is no program {words[0]}")
        self._log = (self.directory / "output").open("w+")
        self.process = subprocess.Popen(
            [re.sub(r"\{(?:port|directory)\}", lambda found: places[found[0]], word) for word in words],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            self.ready_seconds = self._await_port()
        except BaseException:  # Ctrl-C, too: only this function knows the process
            self.__exit__(None, None, None)
            raise

    def _await_port(self) -> float:
        """Seconds from the start of the process until it listens. Raises CannotRun with its output."""
        while time.perf_counter() - self.started_at < PEER_START_S:
            if self.process.poll() is not None:
                self._log.seek(0)
                said = self._log.read().strip()
                raise CannotRun(f"{self.name} ended with status {self.process.returncode}: {said[-2000:]}")
            with socket.socket() as probe:
                if probe.connect_ex((self.host, self.port)) == 0:
                    return time.perf_counter() - self.started_at
            time.sleep(LOOK_AGAIN_S)
        raise CannotRun(f"{self.name} did not listen on port {self.port} within {PEER_START_S} s")


class Kafka(Command):
    """Apache Kafka as `scripts/interop/apache-kafka` runs it: one node in KRaft mode, formatted before its time counts.

    `is_syncing` makes it sync each batch before it answers (`log.flush.interval.messages=1`). A given `directory`
    outlives it, with the data in `node-1/data`.
    """

    stop_s = 70  # the script waits a minute for its virtual machine; a killed script would leave it running

    def __init__(
        self,
        *,
        is_syncing: bool,
        directory: Path | None = None,
        overrides: dict[str, str] | None = None,
        version: str | None = None,
    ) -> None:
        words = [
            sys.executable,
            str(HERE.parent / "scripts" / "interop" / "apache-kafka"),
            "--port={port}",
            f"--directory={directory or '{directory}'}",
            "--heap=1g",
            "--override=message.max.bytes=8388608",
        ]
        words += [f"--override={key}={value}" for key, value in (overrides or {}).items()]
        if version is not None:
            words.append(f"--version={version}")
        if is_syncing:
            words.append("--override=log.flush.interval.messages=1")
        super().__init__("kafka sync" if is_syncing else "kafka page-cache", words)
        # The script first formats the directory in another process: only the broker's own time counts.
        self.ready_seconds = time.time() - self._java().create_time()

    @property
    def pid(self) -> int:
        """The process id of the virtual machine, not of the script."""
        pid: int = self._java().pid
        return pid

    def _java(self) -> psutil.Process:
        return psutil.Process(self.process.pid).children()[-1]


def processors() -> tuple[int, int] | None:
    """One processor for the server and one for the load generator; None if there is only one."""
    allowed = sorted(os.sched_getaffinity(0))
    return (allowed[0], allowed[-1]) if len(allowed) > 1 else None


def load(
    server: Server,
    frame: Path,
    connections: int,
    inflight: int,
    requests: int,
    error_at: int,
    *fetch: int,
    processor: int | None = None,
) -> dict[str, float]:
    """Run the generator against a server, on one `processor` if it is given; return its figures and the server's CPU
    microseconds per request.
    """
    keep_to = None if processor is None else partial(os.sched_setaffinity, 0, {processor})
    before = server.cpu
    done = subprocess.run(
        [str(BUILD / "load"), server.host, str(server.port), str(frame)]
        + [str(number) for number in (connections, inflight, requests, error_at, *fetch)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=keep_to,
    )
    if done.returncode:
        sys.exit(f"{server.name}: {done.stderr.strip()}")
    count, seconds, sent, received, p50, p99, p999 = (float(word) for word in done.stdout.split())
    return {
        "cpu_us": (server.cpu - before) / count * 1e6,
        "rate": count / seconds,
        "mb_s": max(sent, received) / seconds / 1e6,
        "p50": p50,
        "p99": p99,
        "p999": p999,
    }
