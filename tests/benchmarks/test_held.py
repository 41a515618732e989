"""What `scripts/bench --check` says of a figure and its bound."""

from __future__ import annotations


def test_a_figure_at_its_bound_is_met_and_one_beyond_it_is_not() -> None:
    from held import Figure, at_least, at_most

    assert [Figure("row", value, at_most(2.2)).is_met for value in (2.1, 2.2, 2.21)] == [True, True, False]
    assert [Figure("row", value, at_least(0.45)).is_met for value in (0.46, 0.45, 0.44)] == [True, True, False]


def test_what_is_missed_is_named_with_its_distance_and_the_command_that_prints_it_alone() -> None:
    from held import Figure, at_least, at_most, report

    missed = [Figure("floor: small", 0.4, at_least(0.5)), Figure("start: first produce", 165, at_most(150), "ms")]
    said = report([*missed, Figure("memory", 1.0, at_most(2))], [], 60).splitlines()
    assert [line for line in said if line.startswith("MISSED")] == [
        "MISSED: floor: small: 0.4, promised ≥ 0.5: 20.0 % beyond it. "
        'This row alone: scripts/bench --check --only "floor: small"',
        "MISSED: start: first produce: 165 ms, promised ≤ 150: 10.0 % beyond it. "
        'This row alone: scripts/bench --check --only "start: first produce"',
    ]
    assert said[-1] == "1 of 3 bounds are met; this took 60 s"


def test_what_keeps_to_its_bound_and_is_wanted_better_says_so_and_where_the_reason_is() -> None:
    from held import PAGE, Figure, at_most, report

    bound = at_most(3.8, wanted=2.2)
    assert [Figure("row", value, bound).verdict for value in (2.2, 3.0, 4.18)] == [
        "met",
        "met; wanted ≤ 2.2",
        "MISSED by 10.0 %",
    ]
    assert PAGE in report([Figure("row", 3.0, bound)], [], 1)
    assert PAGE not in report([Figure("row", 2.0, bound)], [], 1)


def test_what_cannot_be_measured_is_named_and_counts_as_nothing() -> None:
    from held import report

    assert report([], ["instructions: needs valgrind"], 1).splitlines() == [
        "NOT MEASURED: instructions: needs valgrind",
        "0 of 0 bounds are met; this took 1 s",
    ]
