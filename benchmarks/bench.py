"""Ottla's figures beside the least possible cost, in one run: `scripts/bench`; `--check` compares them with bounds.

Sections, each with rows: starts and idle memory (`start_figures.py`), requests beside a C program (`floor_ratios.py`),
the cost of `sync` beside `page-cache` if a request writes to several partitions (`partition_rounds.py`), consumers
that wait at the end of a log (`tail_ratios.py`), memory of connections and producer ids (`many.py`), the bundled client
beside confluent-kafka (`client_held.py`), and instructions with 1,000 ACLs (`cold_lines.py`).

    scripts/bench                                    all rows, and what is printed beside them
    scripts/bench --check                            all rows, some minutes; exit status 1 when a bound is missed
    scripts/bench --check --only "20 connections"    the rows whose name contains this
    scripts/bench --list                             the names of all rows
    scripts/bench --check --only tails --against 0f03e7f

`--against` measures another version in the same rounds of requests, of syncs and of tails.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time

import client_held
import cold_lines
import floor_ratios
import many
import partition_rounds
import servers
import start_figures
import tail_ratios
from held import CannotMeasure, Figure, Options, chosen, report
from versions import HELP, version

SECTIONS = [
    start_figures.SECTION,
    floor_ratios.SECTION,
    partition_rounds.SECTION,
    tail_ratios.SECTION,
    many.SECTION,
    client_held.SECTION,
    cold_lines.SECTION,
]
BUSY = 0.5
"""The load of the machine above which its times are not reliable."""


def machine(load: float) -> str:
    """The machine and the versions that the figures are of, as lines for people."""
    lines = [
        f"Python {platform.python_version()} ({platform.python_compiler()}), {os.cpu_count()} cores, "
        f"kernel {platform.release()}; load {load:.1f}",
        "The bounds are for a Python that was built with optimisations (Debian's, the image's).",
    ]
    if load > BUSY:
        lines.append("Other programs are at work: a bound that is missed may be their doing.")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="rounds of a workload; medians are printed (default 9)")
    parser.add_argument("--starts", type=int, default=3, help="starts of each server that share the rounds (default 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply the number of requests")
    parser.add_argument("--only", default="", help="run only rows whose name contains this (--list)")
    parser.add_argument("--against", type=version, help=HELP)
    parser.add_argument("--check", action="store_true", help="exit 1 when a bound is missed")
    parser.add_argument("--list", action="store_true", help="print the names of all rows")
    options = parser.parse_args()
    if options.list:
        print("\n".join(row for section in SECTIONS for row in section.rows))
        return 0
    if not any(chosen(section, options.only) for section in SECTIONS):
        parser.error(f"--only {options.only}: no row has this in its name (--list)")
    began = time.monotonic()
    print(machine(os.getloadavg()[0]))
    servers.build()
    figures: list[Figure] = []
    unmeasured: list[str] = []
    how = Options(options.rounds, options.starts, options.scale, options.against, options.check)
    for section in SECTIONS:
        names = chosen(section, options.only)
        if not names:
            continue
        print(flush=True)
        try:
            figures += section.run(names, how)
        except CannotMeasure as reason:
            unmeasured.append(str(reason))
    print("\n" + report(figures, unmeasured, time.monotonic() - began))
    return int(options.check and not all(one.is_met for one in figures))


if __name__ == "__main__":
    sys.exit(main())
