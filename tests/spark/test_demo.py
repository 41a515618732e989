"""The demo's own judgement: it must fail when Spark saw anything else than what was sent.

`scripts/demo` itself runs the rest.
"""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module")
def demo() -> Iterator[Any]:
    sys.path.insert(0, str(SCRIPTS))
    try:
        yield importlib.import_module("demo")
    finally:
        sys.path.remove(str(SCRIPTS))


@pytest.fixture(scope="module")
def source(demo: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pkg_resources", None)  # a new environment has none from Python 3.12 on
        made = demo.load_flights()
    ends = [100_000, 0, 200_000, demo.FLIGHTS - 300_000]
    made.expected.ends = dict(enumerate(ends))
    return made


def seen(source: Any) -> Any:
    """What Spark finds when all is well; an empty partition gives no row."""
    found = copy.deepcopy(source.expected)
    found.ends = {partition: end for partition, end in found.ends.items() if end}
    found.counts = dict(found.ends)
    found.distinct = dict(found.ends)
    found.firsts = dict.fromkeys(found.ends, 0)
    return found


def test_the_source_is_all_flights_keyed_with_null_for_nan_and_their_scheduled_time(demo: Any, source: Any) -> None:
    assert len(source.records) == demo.FLIGHTS
    key, value, time_ms = source.records[0]
    assert key == b"UA1545"
    assert value.startswith(b'{"year":2013,"month":1,"day":1,"dep_time":517,"sched_dep_time":515,')
    assert time_ms == 1_357_035_300_000  # 2013-01-01T10:15:00Z
    assert not any(b"NaN" in value for _, value, _ in source.records)
    assert sum(b'"dep_time":null' in value for _, value, _ in source.records) == 8255


def test_all_is_well_when_spark_saw_what_was_sent(demo: Any, source: Any) -> None:
    demo.compare(seen(source), source.expected)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda found: found.counts.update({0: 99_999}),
        lambda found: found.distinct.update({0: 99_999}),
        lambda found: found.ends.update({2: 200_001}),
        lambda found: found.firsts.update({2: 1}),
        lambda found: found.counts.update({7: 1}),
        lambda found: found.counts.pop(0),
        lambda found: setattr(found, "checksum", found.checksum + 1),
        lambda found: setattr(found, "key_checksum", found.key_checksum - 1),
        lambda found: setattr(found, "time_sum_ms", 0),
        lambda found: found.delays.pop(("UA", 1)),
    ],
)
def test_any_difference_fails_the_demo(spoil: Callable[[Any], object], demo: Any, source: Any) -> None:
    found = seen(source)
    spoil(found)
    with pytest.raises(demo.DemoFailed):
        demo.compare(found, source.expected)


def test_records_missing_from_the_broker_fail_the_demo(demo: Any, source: Any) -> None:
    expected = copy.deepcopy(source.expected)
    expected.ends[3] -= 1
    found = seen(source)
    for numbers in (found.counts, found.distinct, found.ends):
        numbers[3] -= 1
    with pytest.raises(demo.DemoFailed, match="336,775 records"):
        demo.compare(found, expected)


@pytest.mark.parametrize("columns", [80, 200])
def test_the_table_shows_every_carrier_and_month(columns: int, demo: Any, source: Any) -> None:
    import click

    lines = click.unstyle(demo.delay_table(source.expected, source.airlines, columns)).splitlines()
    assert len(lines) == 3 + 16 + 1
    assert lines[3].split()[0] == "UA"
    assert ("United Air Lines" in lines[3]) == (columns == 200)
    assert lines[-1].split()[-1] == "6.9"
    assert len({len(line) for line in lines[2:]}) == 1


def test_the_line_that_matters_is_taken_from_sparks_error(demo: Any) -> None:
    error = RuntimeError(
        "Job aborted\nTraceback:\n ottla.spark.errors.DataLoss: t-0: gone\n\tat org.apache.X\nSQLSTATE: 38000"
    )
    assert demo.last_line(error) == "ottla.spark.errors.DataLoss: t-0: gone"
    for reported in (
        "WriteFailed: t-0: too large",
        "DataLoss: t-0: gone",
        "CorruptBatch: t-0",
        "OptionError: unknown topic t",
    ):
        error = RuntimeError(
            f"Traceback\n  File x\nottla.spark.errors.{reported}\n SQLSTATE: 38000\n=== Streaming Query ===\nid"
        )
        assert demo.last_line(error) == f"ottla.spark.errors.{reported}"
    assert demo.last_line(RuntimeError("")) == "RuntimeError('')"


def test_an_archive_that_is_not_the_source_fails_the_demo(demo: Any, source: Any) -> None:
    whole = demo.Archived(demo.FLIGHTS, demo.FLIGHTS, source.expected.checksum, source.expected.key_checksum)
    demo.compare_archive(whole, source.expected)
    for field in ("records", "distinct", "checksum", "key_checksum"):
        spoilt = copy.copy(whole)
        setattr(spoilt, field, getattr(whole, field) + 1)
        with pytest.raises(demo.DemoFailed, match=r"the archive .* differs"):
            demo.compare_archive(spoilt, source.expected)


def test_windows_that_differ_from_the_source_fail_the_demo(demo: Any, source: Any) -> None:
    demo.compare_delays(dict(source.daily), source.daily)
    first = min(source.daily)
    flights, arrived, arrival = source.daily[first]
    with pytest.raises(demo.DemoFailed, match="the windows count 336,775 flights"):
        demo.compare_delays(source.daily | {first: (flights - 1, arrived, arrival)}, source.daily)
    with pytest.raises(demo.DemoFailed, match="1 windows differ"):
        demo.compare_delays(source.daily | {first: (flights, arrived, arrival + 1)}, source.daily)


def test_the_plot_is_a_picture(demo: Any, source: Any, tmp_path: Path) -> None:
    picture = tmp_path / "delays.png"
    demo.save_plot(source.daily, source.airlines, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000
