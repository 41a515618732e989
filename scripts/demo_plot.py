"""The demo's picture: mean arrival delay by carrier and day, from the topic that the stream keeps up to date."""

from __future__ import annotations

import calendar
import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FIRST_DAY = datetime.date(2013, 1, 1)
DAYS = 365
LARGEST_DELAY_MINUTES = 60


def save_plot(delays: Mapping[tuple[str, int], tuple[int, int, int]], airlines: Mapping[str, str], path: Path) -> None:
    """Draw a row per carrier, those with most flights on top, and a column per day; grey if no flight landed."""
    import matplotlib
    import numpy as np

    matplotlib.use("Agg")
    from matplotlib import pyplot

    totals: dict[str, int] = {}
    for (carrier, _), (flights, _, _) in delays.items():
        totals[carrier] = totals.get(carrier, 0) + flights
    carriers = sorted(totals, key=lambda carrier: -totals[carrier])
    first = (FIRST_DAY - datetime.date(1970, 1, 1)).days
    means = np.full((len(carriers), DAYS), np.nan)
    for (carrier, day), (_, arrived, arrival) in delays.items():
        if arrived and 0 <= day - first < DAYS:
            means[carriers.index(carrier), day - first] = arrival / arrived
    figure, axes = pyplot.subplots(figsize=(13, 5.2), layout="constrained")
    axes.set_facecolor("0.85")
    image = axes.imshow(
        means,
        aspect="auto",
        interpolation="nearest",
        cmap="RdYlGn_r",
        vmin=-LARGEST_DELAY_MINUTES,
        vmax=LARGEST_DELAY_MINUTES,
    )
    axes.set_yticks(range(len(carriers)), [f"{airlines.get(code, code)} ({totals[code]:,})" for code in carriers])
    starts = [(datetime.date(2013, month, 1) - FIRST_DAY).days for month in range(1, 13)]
    axes.set_xticks(starts, [calendar.month_abbr[month] for month in range(1, 13)])
    axes.set_title("Arrival delay by carrier and day, departures from New York 2013 (flights)", loc="left")
    bar = figure.colorbar(image, ax=axes, extend="both", pad=0.01)
    bar.set_label("mean arrival delay, minutes")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
