"""The picture of `peers.py`: CPU time of a request for each broker, and time and memory of a start; logarithmic axes.

One panel for each promise, since only brokers with the same promise are compared; beside each bar its figure, and the
ratio to Ottla's. Colours and fonts are those of the growth plots.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from growth_plot import COLOURS, FAINT, INK, MORE_COLOURS, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INCHES = (10.2, 7.6)
BAR = 0.8
"""The height of a group of bars; two groups are 1 apart."""
PROMISES = {"page-cache": "in the page cache", "sync": "on disk"}
"""The promise of an answer: where the record is."""
NAMES = {"ottla": "Ottla", "kafka": "Apache Kafka", "tansu": "Tansu (in memory)"}


def save_plot(figures: dict[str, Any], directory: Path) -> Path:
    """Draw `peers.svg` there, and return its path."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    brokers = list(dict.fromkeys(row["broker"].split()[0] for row in figures["rows"]))
    others = iter(MORE_COLOURS * 3)
    colours = {name: COLOURS.get(name) or next(others) for name in brokers}
    with matplotlib.rc_context(STYLE):
        figure = pyplot.figure(figsize=INCHES, layout="constrained")
        grid = figure.add_gridspec(2, 2, height_ratios=(3.4, 1))
        shown: dict[str, Any] = {}
        for column, (promise, title) in enumerate(PROMISES.items()):
            axes = figure.add_subplot(grid[0, column])
            groups = _requests(figures["rows"], is_synced=promise == "sync")
            shown |= _bars(axes, groups, colours, unit=" µs")
            axes.set_title(f"CPU time of a request, records {title}")
        for column, (key, title) in enumerate(
            (("first record, ms", "start to first accepted record"), ("idle memory, MB", "idle memory"))
        ):
            axes = figure.add_subplot(grid[1, column])
            starts = {broker.split()[0]: found[key] for broker, found in _starts(figures["starts"]).items()}
            group = {name: (value, value / starts["ottla"]) for name, value in starts.items()}
            _bars(axes, {"": group}, colours, unit=" " + key.rpartition(" ")[2])
            axes.set_title(title)
        figure.legend(
            [shown[name] for name in brokers],
            [NAMES.get(name, name) for name in brokers],
            loc="outside lower center",
            ncols=len(brokers),
            title="bars are logarithmic; in brackets: how many times Ottla's",
            title_fontsize=8.5,
        )
        path = directory / "peers.svg"
        figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
        pyplot.close(figure)
    return path


Groups = dict[str, dict[str, tuple[float, float]]]
"""By workload and broker: the figure of the bar, and its ratio to Ottla's."""


def _requests(rows: list[dict[str, Any]], *, is_synced: bool) -> Groups:
    """CPU µs by workload (in two lines) and broker, of the brokers with the same promise."""
    groups: Groups = {}
    for row in rows:
        if _is_synced(row["broker"]) == is_synced:
            groups.setdefault(row["workload"].replace(", ", "\n"), {})[row["broker"].split()[0]] = (
                row["cpu_us"],
                row["ratio"],
            )
    return groups


def _is_synced(broker: str) -> bool:
    return broker.endswith(" sync")


def _starts(starts: dict[str, Any]) -> dict[str, Any]:
    """One line for each broker: that of its default, if it has two settings (Ottla syncs, Kafka does not)."""
    defaults = {"ottla": "ottla sync", "kafka": "kafka page-cache"}
    return {name: found for name, found in starts.items() if defaults.get(name.split()[0], name) == name}


def _bars(axes: Axes, groups: Groups, colours: dict[str, str], *, unit: str) -> dict[str, Any]:
    """Draw a group of horizontal bars for each name, the first on top; one bar of each broker, for the legend."""
    shown = {}
    for place, of_group in enumerate(groups.values()):
        height = BAR / len(of_group)
        for slot, (broker, (value, ratio)) in enumerate(of_group.items()):
            y = place - BAR / 2 + height * (slot + 0.5)
            shown[broker] = axes.barh(y, value, height * 0.86, color=colours[broker])
            text = f"{value:,.0f}{unit}" if value >= 10 else f"{value:.1f}{unit}"
            if broker != "ottla":
                text += f"  ({ratio:,.{int(ratio < 10)}f} \N{MULTIPLICATION SIGN})"
            axes.annotate(text, (value, y), (4, 0), textcoords="offset points", va="center", fontsize=7.5)
    axes.set_yticks(range(len(groups)), list(groups))
    axes.invert_yaxis()
    axes.set_xscale("log")
    values = [value for of_group in groups.values() for value, _ in of_group.values()]
    left, right = min(values) / 2, max(values)
    axes.set_xlim(left, right * (right / left) ** 0.4)  # room for the figures beside the longest bars
    axes.grid(visible=True, axis="x", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    return shown
