"""Spark's Python processes, forked from one that has imported what all of them need.

Spark starts a new Python for each start of a stream and one for each kind of its workers, and a worker ends with a task
that fails. Importing PySpark, numpy, pyarrow and `ottla.spark` took each of them almost a second of processor, as long
as all else that a small stream does; and the Python of a stream has 10 s to say that it is there, which on a busy
machine was not enough.

So a *server* imports them once and forks. Spark runs `python`, a script beside the server's socket: it hands its
arguments, environment and standard streams to the server (`kit/forked_python_client.py`), and ends with the forked
process. In that one Spark finds the source as in any other: the folders that it looks through are those of Spark.
(What can be imported without which package is seen by `spark/test_executor_imports.py`, in new processes.)
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
IMPORTED: Final = (
    "numpy",
    "pyarrow.compute",
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    *(f"ottla.spark.{path.stem}" for path in sorted((ROOT / "ottla/spark").glob("[a-z]*.py"))),
)
"""What Spark runs, and what that imports."""
REQUEST_BYTES: Final = 1 << 18
LAUNCHER: Final = """\
#!/bin/sh
case "$1 $2" in
  "-m pyspark."*) exec {python} -I -S {client} {socket} "$@" ;;
esac
exec {python} "$@"
"""


@contextmanager
def forked_python(directory: Path) -> Iterator[Path]:
    """A program that Spark can run in the place of Python, while a server is there to fork from.

    Python itself where a process cannot wait for another one's child, as on macOS.
    """
    if not hasattr(os, "pidfd_open"):
        yield Path(sys.executable)
        return
    address, launcher = directory / "socket", directory / "python"
    client = Path(__file__).with_name("forked_python_client.py")
    words = {"python": sys.executable, "client": str(client), "socket": str(address)}
    launcher.write_text(LAUNCHER.format(**{name: shlex.quote(word) for name, word in words.items()}))
    launcher.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["OPENBLAS_NUM_THREADS"] = "1"  # else numpy starts threads, which no fork has
    environment["PYTHONHASHSEED"] = os.environ.get("PYTHONHASHSEED", "0")  # that of Spark's workers
    environment["PYTHONUNBUFFERED"] = "1"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(address))
        listening.listen(64)
        server = subprocess.Popen(
            [sys.executable, "-P", __file__, str(listening.fileno())],
            stdin=subprocess.PIPE,
            env=environment,
            pass_fds=[listening.fileno()],
        )
    try:
        yield launcher
    finally:
        assert server.stdin is not None
        server.stdin.close()
        server.wait(60)


def next_request(listening: socket.socket) -> dict[str, Any] | None:
    """Wait for requests in the server and fork; return the request in the new process, and None when all has ended."""
    while True:
        ready, _, _ = select.select([listening, sys.stdin], [], [])
        if sys.stdin in ready:
            return None
        connection, _ = listening.accept()
        with connection:
            message, streams, _, _ = socket.recv_fds(connection, REQUEST_BYTES, 3)
            process = os.fork()
            if process == 0:
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                    os.close(stream)
                request: dict[str, Any] = json.loads(message)
                return request
            connection.send(b"%d" % process)
        for stream in streams:
            os.close(stream)


def become(request: dict[str, Any]) -> None:
    """Run the module of a request as a new Python would."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    folders = [one for one in given if Path(one).is_dir()]  # not PySpark in a zip, whose contents take long to list
    sys.path[:0] = [request["directory"], *folders]
    _, module, *rest = request["arguments"]
    sys.argv[:] = ["-m", *rest]
    sys.modules.pop(module, None)  # it is run as `__main__`; else a warning says that it has been imported before
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def serve() -> None:
    """Be the server, which ends with its standard input."""
    listening = socket.socket(fileno=int(sys.argv[1]))
    sys.path.insert(0, str(ROOT))
    for name in IMPORTED:
        importlib.import_module(name)
    sys.path.remove(str(ROOT))
    gc.collect()
    gc.freeze()  # no fork goes through what all of them share
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    children = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they end
    request = next_request(listening)
    listening.close()
    if request is not None:
        signal.signal(signal.SIGINT, interrupt)
        signal.signal(signal.SIGCHLD, children)
        become(request)


if __name__ == "__main__":
    serve()
