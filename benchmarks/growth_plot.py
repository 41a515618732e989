"""The plots of `growth.py`: a small panel for each line of figures, both axes logarithmic, a colour for each broker.

The background is transparent and the greys are between black and white, so that a page may be light or dark. Text stays
text in the SVG. The same figures give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 3
PANEL_INCHES = (3.3, 2.35)
INK, FAINT = "#6e7781", "#8b949e55"
COLOURS = {"ottla": "#2f81f7", "kafka": "#e36209"}
LINEAR = "linear growth"
MORE_COLOURS = ("#2da44e", "#a475f9", "#d4a72c")
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "ottla",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
}


def save_plots(figures: dict[str, Any], directory: Path) -> Iterator[Path]:
    """Draw `growth.svg`; yields the written paths."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = [(name, found, key) for name, found in figures.items() for key in found["lines"]]
    colours = _colours(figures)
    rows = -(-(len(panels) + 1) // COLUMNS)  # and one for the legend
    with matplotlib.rc_context(STYLE):
        size = (PANEL_INCHES[0] * COLUMNS, PANEL_INCHES[1] * rows)
        figure, grid = pyplot.subplots(rows, COLUMNS, figsize=size, layout="constrained", squeeze=False)
        cells = list(grid.flat)
        handles: dict[str, Any] = {}
        for axes, (name, found, key) in zip(cells, panels, strict=False):
            handles |= _panel(axes, found, key, colours)
            axes.set_title(f"{name}: {found['lines'][key]}")
        for axes in cells[len(panels) :]:
            axes.axis("off")
        order = sorted(handles, key=lambda name: (name == LINEAR, not name.startswith("ottla"), name))
        cells[len(panels)].legend(
            [handles[name] for name in order], order, loc="center left", borderpad=0, handlelength=2.4
        )
        path = directory / "growth.svg"
        figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
        pyplot.close(figure)
    yield path


def _colours(figures: dict[str, Any]) -> dict[str, str]:
    """The colour of each broker, by the first word of its name."""
    names = dict.fromkeys(name.split()[0] for found in figures.values() for name in found["brokers"])
    others = iter(MORE_COLOURS * 3)
    return {name: COLOURS.get(name) or next(others) for name in names}


def _panel(axes: Axes, found: dict[str, Any], key: str, colours: dict[str, str]) -> dict[str, Any]:
    """Draw one line of figures of all brokers, and return the legend's handles."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    handles: dict[str, Any] = {}
    for name, points in found["brokers"].items():
        line = sorted((int(value), figures[key]) for value, figures in points.items() if key in figures)
        if not line:
            continue
        syncs = name.endswith(" sync")
        (handles[name],) = axes.plot(
            *zip(*line, strict=True),
            color=colours[name.split()[0]],
            linestyle="--" if syncs else "-",
            marker="o",
            markersize=3.6,
            markerfacecolor="none" if syncs else None,
            linewidth=1.5,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    middle = (low * high) ** 0.5
    if high / low < 100:  # less than two decades would show noise as growth
        low, high = middle / 10, middle * 10
    axes.set_ylim(low, high)
    left, right = axes.get_xlim()
    (handles[LINEAR],) = axes.plot(
        [left, right], [low, low * right / left], color=INK, linewidth=0.8, linestyle=":", scalex=False, scaley=False
    )
    axes.set_xlabel(found["x"])
    axes.grid(visible=True, color=FAINT, linewidth=0.6)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_locator(LogLocator(10, numticks=8))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(_short))
    return handles


def _short(number: float, _: int) -> str:
    """1000 as 1 k."""
    for limit, letter in ((1e6, " M"), (1e3, " k")):
        if number >= limit:
            return f"{number / limit:g}{letter}"
    return f"{number:g}"
