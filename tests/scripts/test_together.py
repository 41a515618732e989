"""What tests share is made once in a run: they run on the same worker."""

from __future__ import annotations

import re
import subprocess
import sys

from kit.kinds import TESTS
from kit.together import SHORT_TESTS, SPARK, unit_of, units_of


def test_the_tests_of_a_file_that_makes_something_once_are_a_unit() -> None:
    image = "tests/image/test_image.py"
    assert unit_of(f"{image}::test_the_image_holds_no_installer") == image
    assert unit_of(f"{image}::test_any_user_may_run_it[1000:0]") == image


def test_all_that_needs_the_spark_session_is_a_unit() -> None:
    using = [path for path in TESTS.glob("spark/test_*.py") if re.search(r"\bspark: SparkSession", path.read_text())]
    assert len(using) > 3
    assert {unit_of(f"tests/spark/{path.name}::test_of_it") for path in using} == {SPARK}


def test_other_tests_are_handed_out_alone() -> None:
    single = "tests/storage/log/test_log_read.py::test_a[::x@y]"
    assert unit_of(single) == single
    assert unit_of("tests/elsewhere.py::test_b") == "tests/elsewhere.py::test_b"


def test_a_few_short_tests_of_a_file_are_a_unit() -> None:
    file = "tests/storage/log/test_log_read.py"
    tests = [f"{file}::test_{number}" for number in range(2 * SHORT_TESTS + 1)]
    other = "tests/storage/log/test_log_model.py::test_c"
    units = units_of([*tests, other])
    assert [*units] == [*tests, other]
    assert [len([test for test in tests if units[test] == unit]) for unit in dict.fromkeys(units.values())] == [
        SHORT_TESTS,
        SHORT_TESTS,
        1,
        0,
    ]


def test_tests_that_take_long_are_handed_out_alone() -> None:
    tests = [f"tests/crash/test_simulator.py::test_{number}" for number in range(3)]
    assert units_of(tests) == dict(zip(tests, tests, strict=True))


def test_a_unit_runs_on_one_worker_of_several() -> None:
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "-v", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*command, "tests/image/test_requirements.py"], cwd=TESTS.parent, stdout=subprocess.PIPE, text=True, check=True
    )
    workers = re.findall(r"(?m)^\[(gw\d)\] .*PASSED", run.stdout)
    assert len(workers) > 5
    assert len({*workers}) == 1
