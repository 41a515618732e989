"""How the times of consumers that wait are counted, and what is said where Kafka is as good or better."""

from __future__ import annotations

import pytest


def test_a_record_that_has_not_come_counts_with_the_time_that_it_was_waited_for() -> None:
    from tail_clients import elapsed_us

    assert elapsed_us([1_000, 2_000, 3_000], [(500, 700), (1_000, 4_000), (3_000, 3_500)], 9_000) == [3.0, 7.0, 0.5]


def test_a_row_in_which_kafka_is_as_fast_is_named_with_the_command_that_measures_it() -> None:
    from tails import PLAIN, Row, not_better

    row = Row(PLAIN, 50, 100)
    ours = [{"p50": 100.0, "p99": 300.0, "cpu_us": 9.0}]
    theirs = [{"p50": 200.0, "p99": 200.0, "cpu_us": 20.0}]
    assert not_better(row, {"ottla": ours, "kafka": theirs}) == [
        "no session: 50 consumers, 100/s: e2e p99 300 us, Kafka's 200 (50 % above it). "
        'This row alone: scripts/bench-tails --check --only "no session: 50 consumers, 100/s"'
    ]
    assert not_better(row, {"ottla": theirs, "kafka": [{"p50": 201.0, "p99": 201.0, "cpu_us": 21.0}]}) == []
    assert not_better(row, {"ottla": ours}) == []


def test_a_row_without_consumers_has_no_times_to_compare() -> None:
    from tails import PLAIN, Row, not_better

    zero = {"p50": 0.0, "p99": 0.0}
    assert not_better(Row(PLAIN, 0, 100), {"ottla": [zero | {"cpu_us": 1.0}], "kafka": [zero | {"cpu_us": 2.0}]}) == []


def test_an_answer_s_cost_is_compared_with_that_of_the_same_round() -> None:
    from tail_ratios import ratios

    each, other = ([{"answer_us": value} for value in values] for values in ((3.0, 8.0), (1.0, 4.0)))
    assert ratios(each, other) == [2.0, 3.0]


def test_groups_that_take_longer_than_with_kafka_are_named() -> None:
    from group_etl import slower

    kafka = [(50.0, 52.0)]
    assert slower({"ottla sync": [(60.0, 51.0)], "kafka page-cache": kafka}) == [
        "TestGroupETL: time 60.0 s, Kafka's 50.0 (20 % above it)"
    ]
    assert slower({"ottla sync": [(50.0, 52.0)], "kafka page-cache": kafka}) == []
    assert slower({"ottla sync": [(50.0, 52.0)]}) == ["Ottla as it comes was not compared with Apache Kafka"]


def test_a_broker_that_delivers_half_of_the_records_is_charged_for_all_of_them() -> None:
    """It used half a core for 10,000 deliveries a second of 20,000."""
    from tail_ratios import cores_of
    from tails import PLAIN, Row

    assert cores_of(Row(PLAIN, 200, 100), {"cpu_us": 0.5 / 10_000 * 1e6, "cores": 0.5}) == pytest.approx(1.0)
