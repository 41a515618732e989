"""Which tests run on the same worker, one after the other, so that what they share is made once.

pytest-xdist hands out tests one by one, and each worker makes a fixture of a module's scope for itself: the image, a
broker with TLS, a Spark session three times over. So the tests of a file that has such a fixture are one unit of work,
and all that need the Spark session are one. Of short tests a few of a file are a unit, since handing out takes longer
than many of them; tests of the kinds that take long are handed out alone.

The process that hands them out knows the names of the tests and imports none. So files are read here instead of
pytest-xdist's own marks, which get lost on their way to it from pytest 9.2 on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Final

from kit.kinds import TESTS, kind_of

SPARK: Final = "spark"
"""The unit of the tests that need the Spark session (tests/spark/conftest.py)."""
SHORT_TESTS: Final = 10
"""How many short tests are a unit."""
TAKE_LONG: Final = ("processes", "simulation", "old_clients", "spark")
_NEEDS_SPARK: Final = "spark: SparkSession"
_MADE_ONCE: Final = '@pytest.fixture(scope="module"'


def unit_of(test: str) -> str:
    """The name of the unit to which a test belongs, by its id; the id itself where it is handed out alone."""
    return _unit_of_file(test.partition("::")[0]) or test


def units_of(tests: Iterable[str]) -> dict[str, str]:
    """The unit of each of all tests that run, in their order."""
    units: dict[str, str] = {}
    before: Counter[str] = Counter()
    for test in tests:
        unit, file = unit_of(test), test.partition("::")[0]
        if unit == test and not _takes_long(file):
            unit = f"{file} {before[file] // SHORT_TESTS}"
            before[file] += 1
        units[test] = unit
    return units


@cache
def _takes_long(file: str) -> bool:
    return kind_of(TESTS.parent / file) in TAKE_LONG


@cache
def _unit_of_file(file: str) -> str | None:
    path = TESTS.parent / file
    text = path.read_text() if path.is_file() else ""
    if _NEEDS_SPARK in text:
        return SPARK
    return file if _MADE_ONCE in text else None
