"""Which tests run on the same worker, one after the other, so that what they share is made once.

pytest-xdist hands out tests one by one, and each worker makes a fixture of a module's scope for itself: the image, a
broker with TLS, a Spark session three times over. So the tests of a file that has such a fixture are one unit of work,
and all that need the Spark session are one.

The process that hands them out knows the names of the tests and imports none. So files are read here instead of
pytest-xdist's own marks, which get lost on their way to it from pytest 9.2 on.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from kit.kinds import TESTS

SPARK: Final = "spark"
"""The unit of the tests that need the Spark session (tests/spark/conftest.py)."""
_NEEDS_SPARK: Final = "spark: SparkSession"
_MADE_ONCE: Final = '@pytest.fixture(scope="module"'


def unit_of(test: str) -> str:
    """The name of the unit to which a test belongs, by its id; the id itself where it is handed out alone."""
    return _unit_of_file(test.partition("::")[0]) or test


@cache
def _unit_of_file(file: str) -> str | None:
    path = TESTS.parent / file
    text = path.read_text() if path.is_file() else ""
    if _NEEDS_SPARK in text:
        return SPARK
    return file if _MADE_ONCE in text else None
