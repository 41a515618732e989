"""The bounds of the bundled client beside confluent-kafka: a part of `scripts/bench`, measured by `client_costs.py`.

Each run has the million records of `scripts/bench-client`: with fewer, the work that a client does once would count.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from client_costs import CONSUME, LATENCY, PRODUCE, Measured, compare
from held import Figure, Options, Section, at_least, at_most

TITLE = "client: "
SEND_AT_MOST = dict.fromkeys(("send, blocking", "send, asyncio"), at_most(3))
"""CPU microseconds of a record."""
BESIDE_AT_LEAST = {
    name: at_least(1)
    for name in (
        "send_many, blocking",
        "send_many, asyncio",
        "send_many of Arrow, blocking",
        "arrow, blocking",
        "arrow, asyncio",
    )
}
"""confluent-kafka's CPU divided by this client's: of `produce`, and of `consume`."""
LATENCY_AT_MOST = {"latency, blocking": at_most(1.1, wanted=1), "latency, asyncio": at_most(1)}
"""The median time of a single record divided by confluent-kafka's."""
HELD_RECORDS, HELD_ROUNDS = 1_000_000, 3


def print_held(names: Sequence[str], _: Options) -> list[Figure]:
    """Measure and print these rows."""
    wanted = {name.removeprefix(TITLE) for name in names}
    return held(compare(HELD_RECORDS, HELD_ROUNDS, wanted.__contains__), HELD_RECORDS)


def held(found: Mapping[str, list[Measured]], records: int) -> list[Figure]:
    """The measured values of the rows that have a bound."""
    figures = []
    for group in (PRODUCE, CONSUME, LATENCY):
        base = next(iter(group))
        for name in group:
            runs = list(zip(found.get(name, []), found.get(base, []), strict=True)) if name in found else []
            if (bound := SEND_AT_MOST.get(name)) is not None and runs:
                each_us = statistics.median(run.cpu for run, _ in runs) / records * 1e6
                figures.append(Figure(TITLE + name, each_us, bound, "us of CPU a record"))
            elif (bound := BESIDE_AT_LEAST.get(name)) is not None and runs:
                cheaper = statistics.median(other.cpu / run.cpu for run, other in runs)
                figures.append(Figure(TITLE + name, cheaper, bound))
            elif (bound := LATENCY_AT_MOST.get(name)) is not None and runs:
                slower = statistics.median(run.cpu / other.cpu for run, other in runs)
                figures.append(Figure(TITLE + name, slower, bound))
    return figures


SECTION = Section([TITLE + name for name in (*SEND_AT_MOST, *BESIDE_AT_LEAST, *LATENCY_AT_MOST)], print_held)
