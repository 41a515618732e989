"""Columns for the terminal: numbers to the right with thousands separated, text to the left, two spaces between.

None, a cell without a value, is shown as `-`, aligned as its column.

Clients have chosen the names in cells, perhaps with control characters: these are escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ottla.cli.show import one_line

NONE: Final = "-"

MOST_WIDTH: Final = 48
"""The maximum width of a column. A longer cell moves the rest of its line to the right."""


def table_lines(rows: Iterable[Sequence[object]], headings: Sequence[str]) -> list[str]:
    """The lines of a table, headings first, without blanks at the ends.

    A column of numbers has a number, or None, in every row.
    """
    rows = list(rows)
    cells = [[_text(cell) for cell in row] for row in rows]
    columns = range(len(headings))
    widths = [min(max([len(headings[at]), *(len(row[at]) for row in cells)]), MOST_WIDTH) for at in columns]
    is_right = [_is_of_numbers([row[at] for row in rows]) for at in columns]
    return [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_right, strict=True)
        ).rstrip()
        for line in (list(headings), *cells)
    ]


def _text(cell: object) -> str:
    if cell is None:
        return NONE
    return f"{cell:,}" if _is_number(cell) else one_line(str(cell))


def _is_of_numbers(cells: Sequence[object]) -> bool:
    return any(map(_is_number, cells)) and all(cell is None or _is_number(cell) for cell in cells)


def _is_number(cell: object) -> bool:
    return isinstance(cell, (int, float)) and not isinstance(cell, bool)
