"""The bytecodes that the bundled client executes for a record: `scripts/bench-client --bytecodes`.

All threads are counted, with the steps of the benchmark's own loop (which are few). A count does not depend on the load
of the machine, except where a wait may end before or after something else: a few in a hundred. A run of N records is
taken from one of twice as many, in this process, after one that warms up. The broker is another process.
"""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from types import FrameType
from typing import Any

import client_costs
import servers
import uvloop
from tabulate import tabulate

ALONE, OF_MANY = 300, 40_000
"""How many records of a run are counted: those that come one at a time, and those that are stored already."""
WARM_UP = 50


class Bytecodes:
    """Counts bytecodes of all threads that begin after `begin`, while `is_on`."""

    def __init__(self) -> None:
        self.count = 0
        self.is_on = False

    def begin(self) -> None:
        threading.settrace(self._enter)
        sys.settrace(self._enter)

    def end(self) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def _enter(self, frame: FrameType, event: str, _: Any) -> Any:
        if not self.is_on:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self._step

    def _step(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "opcode":
            self.count += 1
        return self._step


def counted(bytecodes: Bytecodes, name: str, address: str, topic: str, records: int) -> int:
    """Return the bytecodes of a run."""
    prepared = {**client_costs.LATENCY, **client_costs.ARRIVAL, **client_costs.CONSUME}[name](address, topic, records)
    bytecodes.count, bytecodes.is_on = 0, True
    try:
        if asyncio.iscoroutinefunction(prepared):
            uvloop.run(prepared())
        else:
            prepared()
    finally:
        bytecodes.is_on = False
    return bytecodes.count


def print_counts(only: str) -> None:
    """Count the rows that have `only` in their names, except those of clients in C."""
    table = []
    alone = [name for name in [*client_costs.LATENCY, *client_costs.ARRIVAL] if re.search("blocking|asyncio", name)]
    of_many = [name for name in client_costs.CONSUME if name.startswith("iterate")]
    with servers.Ottla("page-cache") as server:
        address = f"{server.host}:{server.port}"
        client_costs.run_apart("send_many, blocking", address, "stored", 2 * OF_MANY)
        bytecodes = Bytecodes()
        bytecodes.begin()
        try:
            for name in [name for name in alone + of_many if only in name]:
                records = ALONE if name in alone else OF_MANY
                slug = re.sub(r"\W+", "-", name)
                topics = ["stored"] * 3 if name in of_many else [f"{slug}-{number}" for number in range(3)]
                counted(bytecodes, name, address, topics[0], WARM_UP)
                fewer = counted(bytecodes, name, address, topics[1], records)
                more = counted(bytecodes, name, address, topics[2], 2 * records)
                table.append([name, f"{(more - fewer) / records:,.0f}"])
        finally:
            bytecodes.end()
    heads = ["bytecodes of a record", "of all threads"]
    print(tabulate(table, heads, tablefmt="github", disable_numparse=True, colalign=("left", "right")))
