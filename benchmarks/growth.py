"""The growth of costs with partitions, connections, logs and groups, beside Apache Kafka: `scripts/bench-growth`.

    scripts/bench-growth                              all dimensions, beside Apache Kafka (Java 17+ and Maven)
    scripts/bench-growth --only "log size" --quick    one of them, two rounds
    scripts/bench-growth --peer 'klite sync=klite --listen 127.0.0.1:{port} --data-dir {directory}'
    scripts/bench-growth --plot                       draw docs/growth/*.svg from docs/growth/figures.json

Within a point the brokers take turns, round after round; medians are kept. New values replace that dimension in
the file of figures, with the machine's load beside them, and the plots are drawn again. Each line gets a slope: the
exponent with which the cost grew from the last but one value to the last, by both axes' logarithms. 0 is flat, 1 is
linear; lines that grow faster are named at the end. All brokers acknowledge records in the page cache, except in the
dimension `sync`, and except those whose name ends with "sync".
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import math
import os
import platform
import shlex
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import servers
from growth_dimensions import DIMENSIONS, Broker, Dimension, Figures, Measure
from tabulate import tabulate

HERE = Path(__file__).parents[1] / "docs" / "growth"
FIGURES = HERE / "figures.json"
FLAT, LINEAR = 0.25, 1.2
"""The slopes up to which a line counts as flat and as linear: two points of a shared machine are not more exact."""
WARM_MEASURES = 3
"""The warm-up measures of Kafka at its first value: a JVM compiles while it runs. Other brokers and values get one."""
DIMENSION_S = 200.0
"""The time after which a dimension begins no more rounds, except the one that each point needs."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="rounds per point; medians are kept (default 3)")
    parser.add_argument("--only", default="", help="measure only dimensions whose name contains this")
    parser.add_argument("--quick", action="store_true", help="one round, and no value above a tenth of the largest")
    parser.add_argument("--no-kafka", action="store_true", help="leave Apache Kafka out")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND", help="one more broker")
    parser.add_argument("--plot", action="store_true", help="measure nothing, draw the plots")
    parser.add_argument("--figures", type=Path, default=FIGURES, help="the file of figures (default %(default)s)")
    options = parser.parse_args()
    if options.plot:
        return draw(options.figures)
    for peer in options.peer:
        if "=" not in peer or "{port}" not in peer:
            parser.error(f"--peer {peer}: it should be NAME=COMMAND with {{port}} in the command")
    chosen = [dimension for dimension in DIMENSIONS if options.only in dimension.name]
    if not chosen:
        parser.error(f"--only {options.only}: there are {', '.join(dimension.name for dimension in DIMENSIONS)}")
    servers.build()
    brokers = contenders(options)
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, kernel {platform.release()}")
    kept: dict[str, Any] = json.loads(options.figures.read_text()) if options.figures.exists() else {}
    worse: list[str] = []
    for dimension in chosen:
        found = run(dimension, brokers, options)
        print(shown(dimension, found), end="\n\n", flush=True)
        worse += too_steep(dimension, found)
        kept[dimension.name] = found
        kept = {one.name: kept[one.name] for one in DIMENSIONS if one.name in kept}
        if not options.quick:
            options.figures.parent.mkdir(parents=True, exist_ok=True)
            options.figures.write_text(json.dumps(kept, indent=1) + "\n")
    for line in worse:
        print(f"WORSE THAN LINEAR: {line}")
    if not worse:
        print("no line grows faster than linearly")
    return 0 if options.quick else draw(options.figures)


def draw(figures: Path) -> int:
    """The plots beside the file of figures."""
    from growth_plot import save_plots

    for path in save_plots(json.loads(figures.read_text()), figures.parent):
        print(f"drawn: {path}")
    return 0


def contenders(options: argparse.Namespace) -> list[Broker]:
    """Ottla by both settings, Kafka by both unless it cannot run here, and the brokers of --peer."""

    def ottla(acks_all: str) -> Broker:
        def start(directory: Path | None) -> servers.Server:
            return servers.Ottla(acks_all, {"log.dirs": str(directory)} if directory else None)

        return Broker(f"ottla {acks_all}", start)

    def kafka(*, is_syncing: bool) -> Broker:
        def start(directory: Path | None) -> servers.Server:
            return servers.Kafka(is_syncing=is_syncing, directory=directory)

        return Broker("kafka sync" if is_syncing else "kafka page-cache", start)

    def peer(name: str, command: str) -> Broker:
        return Broker(name, lambda _: servers.Command(name, shlex.split(command)), has_kafkas_files=False)

    found = [ottla("page-cache"), ottla("sync")]
    if not options.no_kafka:
        try:
            with servers.Kafka(is_syncing=False):
                pass
        except servers.CannotRun as reason:
            print(f"without Apache Kafka: {reason}")
        else:
            found += [kafka(is_syncing=False), kafka(is_syncing=True)]
    return found + [peer(*one.split("=", 1)) for one in options.peer]


def run(dimension: Dimension, brokers: list[Broker], options: argparse.Namespace) -> dict[str, Any]:
    """All points of one dimension: each line of figures by broker and value, and the machine's load meanwhile."""
    rounds = 1 if options.quick else options.rounds
    values = [value for value in dimension.values if not options.quick or value * 10 <= max(dimension.values)]
    points: dict[str, dict[int, Figures]] = {}
    began_s, load = time.monotonic(), os.getloadavg()[0]
    with contextlib.ExitStack() as running:
        measures: dict[str, Measure] = {}
        for broker in brokers:
            if dimension.takes(broker):
                measures[broker.name] = running.enter_context(dimension.session(broker))
                points[broker.name] = {}
        for value in values:
            results: dict[str, list[Figures]] = {}
            for number in range(-WARM_MEASURES if value == values[0] else -1, rounds):
                if number > 0 and time.monotonic() - began_s > DIMENSION_S:
                    break
                for name in list(measures):
                    if number < -1 and not name.startswith("kafka"):
                        continue
                    try:
                        figures = measures[name](value)
                    except (Exception, SystemExit) as reason:  # a broker that cannot do this is left out, with a line
                        print(f"{dimension.name} {value:,}: without {name}: {type(reason).__name__} {reason}")
                        del measures[name]
                        results.pop(name, None)
                        continue
                    if number >= 0:
                        results.setdefault(name, []).append(figures)
            for name, each in results.items():
                points[name][value] = {
                    key: float(f"{statistics.median(one[key] for one in each):.4g}") for key in each[0]
                }
            print(f"done: {dimension.name} {value:,}", file=sys.stderr)
    loads = f"{min(load, os.getloadavg()[0]):.1f} to {max(load, os.getloadavg()[0]):.1f}"
    return {
        "taken": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "machine": f"{os.cpu_count()} cores, kernel {platform.release()}, Python {platform.python_version()}",
        "load": loads,
        "rounds": rounds,
        "seconds": round(time.monotonic() - began_s),
        "x": dimension.x,
        "lines": dimension.lines,
        "brokers": {name: {str(value): figures for value, figures in of.items()} for name, of in points.items() if of},
    }


def slope(line: list[tuple[float, float]]) -> float:
    """The exponent between the last two points; 0 if there is only one."""
    if len(line) < 2:
        return 0.0
    (x, y), (last_x, last_y) = line[-2:]
    return math.log(max(last_y, 1e-9) / max(y, 1e-9)) / math.log(last_x / x)


def verdict(exponent: float) -> str:
    """In words."""
    if exponent <= FLAT:
        return "flat"
    return "linear or less" if exponent <= LINEAR else "worse than linear"


def lines_of(found: dict[str, Any]) -> list[tuple[str, str, list[tuple[float, float]]]]:
    """(broker, figure, its points) of a dimension."""
    return [
        (name, key, [(float(value), figures[key]) for value, figures in points.items() if key in figures])
        for key in found["lines"]
        for name, points in found["brokers"].items()
    ]


def shown(dimension: Dimension, found: dict[str, Any]) -> str:
    """A row for each line."""
    rows = []
    values = sorted({int(value) for points in found["brokers"].values() for value in points})
    for name, key, line in lines_of(found):
        by_value = dict(line)
        exponent = slope(line)
        cells = [f"{by_value[value]:,.4g}" if value in by_value else "" for value in values]
        rows.append([found["lines"][key], name, *cells, f"{exponent:.2f}", verdict(exponent)])
    title = f"{dimension.name} ({found['x']}); load {found['load']}, {found['rounds']} rounds, {found['seconds']} s"
    headers = ["figure", "broker", *(f"{value:,}" for value in values), "slope", ""]
    return title + "\n" + tabulate(rows, headers, disable_numparse=True)


def too_steep(dimension: Dimension, found: dict[str, Any]) -> list[str]:
    """Lines that grow faster than linearly."""
    return [
        f"{dimension.name}: {found['lines'][key]} of {name}, slope {slope(line):.2f}"
        for name, key, line in lines_of(found)
        if slope(line) > LINEAR
    ]


if __name__ == "__main__":
    sys.exit(main())
