"""Other systems, as far as Linux can show them: processes that lack the modules and names which a system has not.

`sitecustomize` takes them away before anything of ours is imported. docs/platforms.md says what this shows and what it
does not.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from kit.broker import IMPORTS, BrokerProcess
from kit.command import run
from kit.forks import Forks

import ottla
from ottla.cli import stdin_lines

ROOT = Path(__file__).parents[2]

TIMEOUT_S = 60.0

WINDOWS = """
import asyncio, mmap, multiprocessing, os, selectors, signal, socket, subprocess, sys, tempfile, threading

for name in ("crypt", "fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty", "uvloop"):
    sys.modules[name] = None
for module, names in {
    mmap: "MAP_ANONYMOUS MAP_PRIVATE MAP_SHARED PROT_READ PROT_WRITE",
    os: "O_CLOEXEC RWF_NOWAIT fdatasync fork getegid geteuid getgid getuid posix_fadvise pread preadv pwrite pwritev"
    " readv sched_getaffinity statvfs sysconf uname writev",
    signal: "SIGHUP SIGKILL SIGPIPE SIGQUIT SIGTSTP SIGUSR1 SIGUSR2 pthread_sigmask setitimer",
    socket: "SOCK_CLOEXEC SOCK_NONBLOCK SO_REUSEPORT",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
"""
"""What Python does not have on Windows of what it has on Linux. The event loop stays asyncio's for Linux."""

MACOS = """
import asyncio, fcntl, multiprocessing, os, socket, subprocess, sys, tempfile, time

for module, names in {
    os: "RWF_NOWAIT fdatasync posix_fadvise sched_getaffinity copy_file_range eventfd splice memfd_create",
    socket: "SOCK_CLOEXEC SOCK_NONBLOCK",
    time: "CLOCK_BOOTTIME",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
fcntl.F_FULLFSYNC = 51
of_linux = fcntl.fcntl
synced = open(os.environ["SYNCED"], "ab", buffering=0) if "SYNCED" in os.environ else None

def of_macos(descriptor, command, *arguments):
    if command != fcntl.F_FULLFSYNC:
        return of_linux(descriptor, command, *arguments)
    if synced is not None:
        synced.write(b"F_FULLFSYNC\\n")
    return os.fsync(descriptor)

fcntl.fcntl = of_macos
sys.platform = "darwin"
"""
"""What Python does not have on macOS, and its way to sync, which `fsync` alone is not there."""

ONE_AFTER_ANOTHER = """
import sys
from ottla.cli.main import main
for line in sys.argv[1:]:
    try:
        main(line.split(), prog_name="ottla")
    except SystemExit as end:
        print("ended with", end.code)
"""


def lacking(system: str, directory: Path) -> dict[str, str]:
    """The environment of a process without what this system lacks."""
    directory.mkdir(exist_ok=True)
    directory.joinpath("sitecustomize.py").write_text(system)
    return {"PYTHONPATH": os.pathsep.join([str(directory), *filter(None, [os.environ.get("PYTHONPATH")])])}


def python(
    environment: dict[str, str], *arguments: str, stdin: bytes = b"", module: Sequence[str] = ("-m", "ottla")
) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, *module, *arguments],
        input=stdin,
        capture_output=True,
        timeout=TIMEOUT_S,
        env={**os.environ, **environment},
        check=False,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return lacking(WINDOWS, tmp_path_factory.mktemp("windows"))


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["serve"], "ottla serve"),
        (["log", "dump", "."], "ottla log dump"),
        (["log", "verify", "."], "ottla log verify"),
        (["log", "strays"], "ottla log strays"),
        (["log", "explain", "t-0", "--offset", "0"], "ottla log explain of a directory"),
    ],
)
def test_on_windows_what_lives_in_data_directories_says_where_it_runs(
    arguments: list[str], what: str, windows: dict[str, str]
) -> None:
    status, out, err = python(windows, *arguments)
    assert (status, out) == (1, "")
    assert err == (
        f"ottla: {what} needs Linux or macOS: on Windows it runs in WSL or Docker (docs/platforms.md). "
        "The client, and the commands that ask a broker, work here\n"
    )


def test_on_windows_the_client_and_every_command_are_imported(windows: dict[str, str]) -> None:
    program = (
        # The builds for Linux ask for the kernel's version.
        "import os; os.uname = lambda: os.uname_result(('Linux', '', '6.1.0', '', ''))\n"
        "import numpy, pyarrow; del os.uname\n"
        "import importlib, pkgutil, ottla.cli, ottla.client, ottla.protocol, ottla.config\n"
        "for package in (ottla.cli, ottla.client, ottla.protocol, ottla.config):\n"
        "    for one in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        importlib.import_module(one.name)\n"
        "import sys; print('ottla.broker.server' in sys.modules, sys.modules['fcntl'])"
    )
    assert python(windows, "-c", program, module=()) == (0, "False None\n", "")


def test_on_windows_the_commands_that_ask_a_broker_work(windows: dict[str, str], own_broker: BrokerProcess) -> None:
    """The simple ones in one process, one after the other: to start thirteen takes long."""
    server = ("-b", own_broker.bootstrap)

    def said(*arguments: str, stdin: bytes = b"") -> str:
        status, out, err = python(windows, *arguments, *server, stdin=stdin)
        assert (status, "Traceback" in err) == (0, False), err
        return out

    said("topics", "create", "t", "--partitions", "1")
    said("produce", "t", stdin=b"one\ntwo\n")
    assert said("consume", "t", "-g", "g", "--from-beginning", "--max-messages", "2") == "one\ntwo\n"
    commands = [
        "ping",
        "consume t --from-beginning --max-messages 2",
        "topics list",
        "topics describe t",
        "groups list",
        "groups describe g",
        "configs alter --topic t --set retention.ms=1000",
        "configs describe --topic t",
        "topics delete t",
    ]
    lines = [" ".join((command, *server)) for command in commands]
    status, out, err = python(windows, "-c", ONE_AFTER_ANOTHER, *lines, module=())
    assert (status, "Traceback" in err) == (0, False), err
    _, read, topics, _, groups, _, _, configs, _, rest = out.split("ended with 0\n")
    assert (read, "t" in topics.split(), "g" in groups.split(), "retention.ms" in configs, rest) == (
        "one\ntwo\n",
        True,
        True,
        True,
        "",
    )
    assert "log.dirs" in python(windows, "config", "--effective")[1]


@pytest.mark.parametrize(("is_windows", "end"), [(True, b""), (False, b"\r")])
async def test_a_carriage_return_belongs_to_the_line_end_on_windows_only(
    is_windows: bool, end: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdin_lines, "ENDS_WITH_CRLF", is_windows)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\r\nb\n\r\r\nlast")))
    lines = [line async for lines in stdin_lines.stdin_lines() for line in lines]
    assert lines == [b"a" + end, b"b", b"\r" + end, b"last"]


def test_on_windows_the_blocking_client_works(windows: dict[str, str], own_broker: BrokerProcess) -> None:
    program = (
        "import sys\n"
        "from ottla.client.blocking import Consumer, Producer\n"
        "with Producer(sys.argv[1]) as producer:\n"
        "    producer.send('b', b'value').result()\n"
        "with Consumer(sys.argv[1], group_id='g', auto_offset_reset='earliest') as consumer:\n"
        "    consumer.subscribe(['b'])\n"
        "    print(consumer.getone().value)\n"
    )
    status, out, err = python(windows, "-c", program, own_broker.bootstrap, module=())
    assert (status, out) == (0, "b'value'\n"), err


def test_on_macos_a_broker_serves_and_syncs_by_f_fullfsync(tmp_path: Path) -> None:
    synced = tmp_path / "synced"
    environment = lacking(MACOS, tmp_path / "macos") | {"SYNCED": str(synced)}
    broker = BrokerProcess(tmp_path / "data", environment=environment)
    broker.forks = Forks(*IMPORTS)
    with broker:
        server = ("-b", broker.bootstrap)
        before = synced.read_bytes().count(b"\n")
        assert python(environment, "produce", "t", *server, stdin=b"x" * 200_000 + b"\n")[0] == 0
        assert synced.read_bytes().count(b"\n") > before
        whole = ("t", *server, "--from-beginning", "--max-messages", "1")
        status, out, err = python(environment, "consume", *whole)
        assert (status, len(out)) == (0, 200_001), err
        assert broker.stop() == 0
        broker.start()
        assert len(run("consume", *whole).out) == 200_001
        broker.kill()
        broker.start()
        assert len(run("consume", *whole).out) == 200_001
        assert "Traceback" not in broker.output


def test_without_crc32cs_wheel_checksums_are_crcmods(tmp_path: Path) -> None:
    environment = lacking(
        "from importlib.machinery import PathFinder as finder\n"
        "find = finder.find_spec\n"
        "finder.find_spec = staticmethod(lambda name, *rest: None if 'crc32c' in name else find(name, *rest))\n",
        tmp_path / "site",
    )
    program = (
        "import sys; from ottla.protocol.records.checksum import crc32c\n"
        "print(hex(crc32c(b'123456789')), 'crcmod' in sys.modules)"
    )
    assert python(environment, "-c", program, module=()) == (0, "0xe3069283 True\n", "")
    with BrokerProcess(tmp_path / "data", environment=environment) as broker:
        server = ("-b", broker.bootstrap)
        assert python(environment, "produce", "t", *server, stdin=b"one\n")[0] == 0
        assert python({}, "consume", "t", *server, "--from-beginning", "--max-messages", "1")[1] == "one\n"
        (line,) = [line for line in broker.output.splitlines() if "crcmod" in line]
        assert "WARNING" in line
        assert "because crc32c is not installed: `pip install" in line


def test_a_copy_in_a_zip_knows_its_version_without_metadata(tmp_path: Path) -> None:
    """As Spark's executors get it (`--py-files`), and as a frozen program has it."""
    with zipfile.ZipFile(tmp_path / "ottla.zip", "w") as archive:
        for path in (ROOT / "ottla").rglob("*"):
            if path.suffix in (".py", ".properties"):
                archive.write(path, path.relative_to(ROOT))
    environment = lacking(
        "import importlib.metadata\n"
        "found = importlib.metadata.distribution\n"
        "def distribution(name):\n"
        "    if name == 'ottla':\n"
        "        raise importlib.metadata.PackageNotFoundError(name)\n"
        "    return found(name)\n"
        "importlib.metadata.distribution = distribution\n",
        tmp_path / "site",
    )
    environment["PYTHONPATH"] = f"{tmp_path / 'ottla.zip'}{os.pathsep}{environment['PYTHONPATH']}"
    program = (
        "import importlib, ottla\n"
        "names = 'broker.server', 'cli.main', 'client', 'client.blocking', 'spark', 'spark.connection'\n"
        "modules = [importlib.import_module(f'ottla.{name}') for name in names]\n"
        "assert all('ottla.zip' in module.__file__ for module in modules)\n"
        "print(ottla.__version__)"
    )
    assert python(environment, "-P", "-c", program, module=()) == (0, f"{ottla.__version__}\n", "")
    assert python(environment, "--version", module=("-P", "-m", "ottla"))[1] == f"Ottla {ottla.__version__}\n"
