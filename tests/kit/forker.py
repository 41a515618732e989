"""A program from which Python processes are forked that have their imports behind them (`forks.py` says what for).

    python -c "$(cat forker.py)" CHANNEL MODULE...

Imports the modules, then takes requests from the socket with the descriptor CHANNEL: JSON of `arguments` (what follows
`python` on a command line), `environment`, `directory` and `is_new_session`, with four descriptors: the standard files
of the process, and a socket that gets its process id at once, and its exit status when it has ended. When the channel
is closed, it waits for the processes that still run, and ends.

What is imported has started no thread: a fork has only the one that forks.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import socket
import sys
from typing import Any, Literal, TextIO

MOST_BYTES = 1 << 20


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # pages that no collection touches are shared
    arguments = serve(channel)
    if arguments is not None:
        become(arguments)


def serve(channel: socket.socket) -> list[str] | None:
    """Fork on request until the channel is closed; in a forked process, return what it has to run."""
    living: dict[int, tuple[int, socket.socket]] = {}
    poller = select.poll()
    poller.register(channel, select.POLLIN)
    is_open = True
    while is_open or living:
        for descriptor, _ in poller.poll():
            if descriptor != channel.fileno():
                poller.unregister(descriptor)
                pid, report = living.pop(descriptor)
                os.close(descriptor)
                _, status = os.waitpid(pid, 0)
                _tell(report, os.waitstatus_to_exitcode(status))
                report.close()
                continue
            data, descriptors, _, _ = socket.recv_fds(channel, MOST_BYTES, 4)
            if not data:
                poller.unregister(channel)
                is_open = False
                continue
            pid = os.fork()
            if pid == 0:
                for other, (_, report) in living.items():
                    os.close(other)
                    report.close()
                channel.close()
                return settle(json.loads(data), descriptors)
            for one in descriptors[:3]:
                os.close(one)
            report = socket.socket(fileno=descriptors[3])
            _tell(report, pid)
            ended = os.pidfd_open(pid)
            living[ended] = pid, report
            poller.register(ended, select.POLLIN)
    return None


def _tell(report: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # nobody waits for it any more
        report.send(str(number).encode())


def settle(request: dict[str, Any], descriptors: list[int]) -> list[str]:
    """Give this process what it would have from its start; return its arguments."""
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    for descriptor in descriptors:
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    if request["is_new_session"]:
        os.setsid()
    if not os.environ.get("PYTHONUNBUFFERED"):
        sys.stdin = _opened(0, "r", sys.stdin)
        sys.stdout = _opened(1, "w", sys.stdout)
    arguments: list[str] = request["arguments"]
    return arguments


def _opened(number: int, mode: Literal["r", "w"], before: TextIO) -> TextIO:
    """A standard file, opened again: it is buffered by lines if it is a terminal now."""
    return open(number, mode, encoding=before.encoding, errors=before.errors, closefd=False)


def become(arguments: list[str]) -> None:
    """Do what `python` does with these arguments."""
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(arguments[1], {"__name__": "__main__"})  # a program of a test
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main()
