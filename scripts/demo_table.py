"""The demo's table: mean arrival delay by carrier and month, the later the redder."""

from __future__ import annotations

import calendar
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from demo_spark import Summary

MONTHS = range(1, 13)
NAME_WIDTH = 24
FULL_WIDTH = 4 + NAME_WIDTH + 9 + 6 * 13
SCALE = ((0, "green"), (10, None), (20, "yellow"))
"""The colours up to these minutes; red above."""


def delay_table(found: Summary, airlines: Mapping[str, str], columns: int) -> str:
    """Return the table, with the airlines' names if the terminal is wide enough."""
    is_wide = columns >= FULL_WIDTH
    carriers = sorted({carrier for carrier, _ in found.delays}, key=lambda carrier: -_flights(found, carrier))
    lines = [click.style("  Mean arrival delay in minutes, by carrier and month (Spark)", bold=True), ""]
    months = "".join(f"{calendar.month_abbr[month]:>6}" for month in MONTHS)
    lines.append(click.style(f"  {_name('', 'Carrier', is_wide)}{'Flights':>9}{months}{'Year':>6}", dim=True))
    for carrier in carriers:
        cells = "".join(_cell([found.delays.get((carrier, month))]) for month in MONTHS)
        year = _cell([found.delays.get((carrier, month)) for month in MONTHS])
        flights = f"{_flights(found, carrier):>9,}"
        lines.append(f"  {_name(carrier, airlines.get(carrier, ''), is_wide)}{flights}{cells}{year}")
    everyone = [[row for (_, of), row in found.delays.items() if of == month] for month in MONTHS]
    total = f"{sum(row[0] for row in found.delays.values()):>9,}"
    cells = "".join(map(_cell, everyone)) + _cell(list(found.delays.values()))
    lines.append(f"  {click.style(_name('', 'All', is_wide), bold=True)}{total}{cells}")
    return "\n".join(lines)


def _flights(found: Summary, carrier: str) -> int:
    return sum(row[0] for (of, _), row in found.delays.items() if of == carrier)


def _name(carrier: str, name: str, is_wide: bool) -> str:
    if not is_wide:
        return f"{carrier or name[:7]:<7}"
    return f"{carrier:<3}{name[: NAME_WIDTH - 1]:<{NAME_WIDTH}}"


def _cell(rows: Sequence[tuple[int, ...] | None]) -> str:
    arrived = sum(row[1] for row in rows if row)
    if not arrived:
        return f"{'·':>6}"
    delay = sum(row[2] for row in rows if row) / arrived
    colour = next((colour for limit, colour in SCALE if delay <= limit), "red")
    return click.style(f"{delay:>6.1f}", fg=colour)
