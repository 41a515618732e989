"""The rows of `scripts/bench`: each has a name of its own, by which it can be measured alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"


def test_each_row_has_a_name_of_its_own() -> None:
    from bench import SECTIONS

    rows = [row for section in SECTIONS for row in section.rows]
    assert sorted(rows) == sorted(set(rows))


def test_a_row_s_name_chooses_its_section_alone() -> None:
    from bench import SECTIONS
    from held import chosen

    for section in SECTIONS:
        for row in section.rows:
            assert [other for other in SECTIONS if chosen(other, row)] == [section]
            assert row in chosen(section, row)


def test_the_page_names_the_rows_that_are_held_and_no_others() -> None:
    """The page's table of what is held has them as `row` at the beginning of a line."""
    from bench import SECTIONS

    named = re.findall(
        r"`((?:start|floor|sync beside page-cache|tails|memory|client|instructions): [^`]+)`", PAGE.read_text()
    )
    rows = [row for section in SECTIONS for row in section.rows]
    assert sorted(set(named)) == sorted(rows)


def test_the_ratios_of_a_start_are_those_of_its_rounds() -> None:
    from floor_ratios import by_starts

    assert by_starts([1.0, 2.0, 3.0, 10.0, 20.0, 7.0], [3, 2, 1, 0]) == [2.0, 15.0, 7.0]


def test_a_round_of_many_syncs_is_held_by_the_ratio_of_each_turn() -> None:
    from partition_rounds import held

    cached = [{"p50": 1.0, "cpu_us": 10.0}, {"p50": 2.0, "cpu_us": 10.0}, {"p50": 4.0, "cpu_us": 10.0}]
    synced = [{"p50": 3.0, "cpu_us": 20.0}, {"p50": 4.0, "cpu_us": 30.0}, {"p50": 4.0, "cpu_us": 40.0}]
    names = ["sync beside page-cache: 64 partitions, time", "sync beside page-cache: 64 partitions, CPU"]
    figures = held({64: {"sync": synced, "page-cache": cached}}, names)
    assert [(one.row, one.value) for one in figures] == [(names[0], 2.0), (names[1], 3.0)]


def test_a_client_s_runs_are_compared_with_those_of_the_same_round() -> None:
    from client_costs import Measured
    from client_held import held

    found = {
        "confluent-kafka produce": [Measured(1.0, 1), Measured(4.0, 1), Measured(2.0, 1)],
        "send, blocking": [Measured(2.0, 1), Measured(3.0, 1), Measured(2.5, 1)],
        "send_many, asyncio": [Measured(0.5, 1), Measured(1.0, 1), Measured(2.0, 1)],
        "confluent-kafka latency": [Measured(0.2, 0), Measured(0.2, 0), Measured(0.1, 0)],
        "latency, blocking": [Measured(0.3, 0), Measured(0.2, 0), Measured(0.2, 0)],
    }
    assert {one.row: one.value for one in held(found, 1_000_000)} == {
        "client: send, blocking": 2.5,
        "client: send_many, asyncio": 2.0,
        "client: latency, blocking": pytest.approx(1.5),
    }


def test_instructions_are_counted_of_workloads_that_there_are() -> None:
    from cold_lines import SMALL, WITH_ACLS, WORKLOADS

    assert {SMALL, WITH_ACLS} <= set(WORKLOADS)
