"""The time of a new broker inside a test, beside `ottla serve` as a process: its start until clients can connect, and
its end.

    PYTHONPATH=. python benchmarks/embedded_start.py
    PYTHONPATH=. python benchmarks/embedded_start.py --rounds 50

In turn, the median of each: `EmbeddedBroker.start` and `close`; and a process from its exec to the line with its
address, then SIGTERM to its end. The first embedded broker of a process, which imports everything, has a row of its
own. Both have the settings of an embedded broker.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from tabulate import tabulate

Times = tuple[float, float]
"""The start and the end, in milliseconds."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="brokers of each kind (default %(default)s)")
    options = parser.parse_args()
    first = embedded()
    embedded_times: list[Times] = []
    process_times: list[Times] = []
    for _ in range(options.rounds):
        embedded_times.append(embedded())
        process_times.append(process())
    rows = {
        "embedded, the first of the process": first,
        "embedded": medians(embedded_times),
        "`ottla serve`": medians(process_times),
    }
    table = [(name, *(f"{ms:.1f}" for ms in (*times, sum(times)))) for name, times in rows.items()]
    print(tabulate(table, ["broker", "start, ms", "end, ms", "together"], disable_numparse=True))
    print(f"\na process takes {sum(medians(process_times)) / sum(medians(embedded_times)):.1f} times as long")
    return 0


def medians(times: list[Times]) -> Times:
    starts, ends = zip(*times, strict=True)
    return statistics.median(starts), statistics.median(ends)


def embedded() -> Times:
    began = time.perf_counter()
    from ottla.testing import EmbeddedBroker

    broker = EmbeddedBroker().start()
    started = time.perf_counter()
    broker.close()
    return (started - began) * 1000, (time.perf_counter() - started) * 1000


def process() -> Times:
    from ottla.testing.embedded_broker import DEFAULTS

    with tempfile.TemporaryDirectory() as directory:
        settings = {**DEFAULTS, "log.dirs": directory}
        overrides = [word for key, value in settings.items() for word in ("--override", f"{key}={value}")]
        command = [sys.executable, "-m", "ottla", "serve", "--log-level", "error", *overrides]
        began = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
            assert broker.stdout is not None
            assert broker.stdout.readline().startswith("listening on ")
            started = time.perf_counter()
            broker.send_signal(signal.SIGTERM)
            broker.wait()
            return (started - began) * 1000, (time.perf_counter() - started) * 1000


if __name__ == "__main__":
    sys.exit(main())
