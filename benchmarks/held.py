"""Figures that `scripts/bench --check` compares with a bound: the result, the margin, and the command for one row.

A bound is a promise: it is met on an idle machine, with room for noise. If a goal has not been reached, the bound is
what has been reached, and `wanted` is the goal: docs/performance.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

COMMAND = "scripts/bench --check"
PAGE = 'docs/performance.md, "Wanted and not reached"'


@dataclass(frozen=True)
class Bound:
    """A figure has to be at most `limit`, or at least; `wanted` is the goal, if the limit is weaker than that."""

    limit: float
    is_least: bool = False
    wanted: float | None = None

    def is_met_by(self, value: float, limit: float | None = None) -> bool:
        """Whether a value meets this bound, or another limit on the same side."""
        limit = self.limit if limit is None else limit
        return value >= limit if self.is_least else value <= limit

    def __str__(self) -> str:
        return f"{'≥' if self.is_least else '≤'} {self.limit:g}"


def at_most(limit: float, wanted: float | None = None) -> Bound:
    return Bound(limit, wanted=wanted)


def at_least(limit: float, wanted: float | None = None) -> Bound:
    return Bound(limit, is_least=True, wanted=wanted)


@dataclass(frozen=True)
class Options:
    """How a section measures."""

    rounds: int
    starts: int
    scale: float
    against: Path | None
    is_check: bool = False
    """Measure only rows with a bound, and those that they are compared with."""


@dataclass(frozen=True)
class Figure:
    """The measured value of a row, with its unit ("" for a ratio) and its bound."""

    row: str
    value: float
    bound: Bound
    unit: str = ""

    @property
    def is_met(self) -> bool:
        return self.bound.is_met_by(self.value)

    @property
    def shown(self) -> str:
        return f"{self.value:.3g}" if abs(self.value) < 100 else f"{self.value:,.0f}"

    @property
    def beyond_percent(self) -> float:
        """The distance of the figure beyond the bound, in percent of the bound; less than 0 if it is met."""
        beyond = self.value / self.bound.limit - 1
        return 100 * (-beyond if self.bound.is_least else beyond)

    @property
    def verdict(self) -> str:
        """In words."""
        if not self.is_met:
            return f"MISSED by {self.beyond_percent:.1f} %"
        wanted = self.bound.wanted
        if wanted is None or self.bound.is_met_by(self.value, wanted):
            return "met"
        return f"met; wanted {'≥' if self.bound.is_least else '≤'} {wanted:g}"


@dataclass(frozen=True)
class Section:
    """Rows that are measured together. `run` measures the given rows, prints their table and returns those with a
    bound; raises CannotMeasure.
    """

    rows: Sequence[str]
    """Their whole names: what `--only` searches."""
    run: Callable[[Sequence[str], Options], list[Figure]]


class CannotMeasure(Exception):
    """A section needs something that this machine lacks; the message is one line for people."""


def chosen(section: Section, only: str) -> list[str]:
    """The rows whose name contains this text."""
    return [row for row in section.rows if only in row]


def report(figures: Sequence[Figure], unmeasured: Sequence[str], seconds: float) -> str:
    """Print all bounds in a table, and the commands for those that are missed."""
    rows = [[one.row, f"{one.shown} {one.unit}".rstrip(), f"{one.bound}", one.verdict] for one in figures]
    missed = [one for one in figures if not one.is_met]
    parts = [tabulate(rows, ["row", "measured", "bound", ""], disable_numparse=True)] if rows else []
    if any(one.is_met and one.verdict != "met" for one in figures):
        parts.append(f"What is met and wanted better: {PAGE}.")
    parts += [f"NOT MEASURED: {line}" for line in unmeasured]
    for one in missed:
        parts.append(
            f"MISSED: {one.row}: {one.shown} {one.unit}".rstrip() + f", promised {one.bound}: {one.beyond_percent:.1f} "
            f'% beyond it. This row alone: {COMMAND} --only "{one.row}"'
        )
    parts.append(f"{len(figures) - len(missed)} of {len(figures)} bounds are met; this took {seconds:.0f} s")
    return "\n".join(parts)
