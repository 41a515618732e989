from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples

from ottla.spark import planner
from ottla.spark.errors import DataLoss, OptionError
from ottla.spark.option_values import Address
from ottla.spark.options import read_options
from ottla.spark.planner import OffsetRange, TopicInfo, plan, split

ID = UUID(int=7)
LEADER = Address("h", 9092)


class FakeCluster:
    """Logs by (topic, partition): first offset, last offset, and the offset of each time."""

    def __init__(self, logs: Mapping[tuple[str, int], tuple[int, int]], times: Mapping[int, int | None] = {}) -> None:
        self.logs = logs
        self.times = times

    def describe(self, topics: Sequence[str] | None) -> dict[str, TopicInfo]:
        names = {name for name, _ in self.logs} if topics is None else set(topics)
        found = {}
        for name in names:
            partitions = tuple(sorted(index for topic, index in self.logs if topic == name))
            if partitions:
                leaders = dict.fromkeys(partitions[:1], LEADER)  # the other ones have none just now
                found[name] = TopicInfo(name, ID, partitions, name.startswith("__"), leaders)
        return found

    def list_offsets(self, times: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int | None]:
        return {
            place: self.logs[place][0] if time == -2 else self.logs[place][1] if time == -1 else self.times[time]
            for place, time in times.items()
        }


TWO = FakeCluster({("t", 0): (0, 100), ("t", 1): (20, 60)}, {1000: 30, 2000: 40, 9000: None})


def planned(cluster: FakeCluster = TWO, **given: str) -> list[tuple[str, int, int, int]]:
    options = {"kafka.bootstrap.servers": "h:1", **given}
    if not {"subscribe", "subscribePattern", "assign"} & set(given):
        options["subscribe"] = "t"
    return [(part.topic, part.partition, part.start, part.end) for part in plan(read_options(options), cluster)]


def test_by_default_each_partition_is_one_range_from_its_first_to_its_last_record() -> None:
    assert planned() == [("t", 0, 0, 100), ("t", 1, 20, 60)]
    assert plan(read_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t"}), TWO)[0].topic_id == ID


def test_a_range_names_the_leader_that_the_driver_knows() -> None:
    options = read_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t", "minPartitions": "3"})
    assert [(part.partition, part.leader) for part in plan(options, TWO)] == [(0, LEADER), (0, LEADER), (1, None)]


def test_empty_partitions_make_no_task() -> None:
    assert planned(FakeCluster({("t", 0): (5, 5), ("t", 1): (0, 1)})) == [("t", 1, 0, 1)]
    assert planned(FakeCluster({("t", 0): (5, 5)})) == []


def test_a_pattern_is_searched_for_in_names_as_sparks_own_source_does(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster({("flights", 0): (0, 1), ("flights2", 0): (0, 1), ("old-flights", 0): (0, 1)})
    assert [row[0] for row in planned(cluster, subscribePattern="flights")] == ["flights", "flights2", "old-flights"]
    assert [row[0] for row in planned(cluster, subscribePattern="^flights.?$")] == ["flights", "flights2"]
    assert planned(cluster, subscribePattern="trains") == []
    assert "no topic matches trains" in caplog.text


def test_a_pattern_passes_internal_topics_by_and_a_name_does_not() -> None:
    cluster = FakeCluster({("flights", 0): (0, 1), ("__consumer_offsets", 0): (0, 1)})
    assert [row[0] for row in planned(cluster, subscribePattern=".*")] == ["flights"]
    assert [row[0] for row in planned(cluster, subscribe="__consumer_offsets")] == ["__consumer_offsets"]


def test_only_assigned_partitions_are_read() -> None:
    assert planned(assign='{"t":[1]}') == [("t", 1, 20, 60)]
    with pytest.raises(OptionError, match="topic t has no partition 7"):
        planned(assign='{"t":[1,7]}')


def test_an_unknown_topic_is_named() -> None:
    with pytest.raises(OptionError, match="unknown topic nope"):
        planned(subscribe="t,nope")


def test_offsets_by_partition_with_earliest_and_latest_in_them() -> None:
    starts, ends = '{"t":{"0":5,"1":-2}}', '{"t":{"0":-1,"1":50}}'
    assert planned(startingOffsets=starts, endingOffsets=ends) == [("t", 0, 5, 100), ("t", 1, 20, 50)]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"startingOffsets": '{"t":{"0":5}}'}, "startingOffsets: every partition needs a number, t-1 has none; use -2"),
        ({"endingOffsetsByTimestamp": '{"t":{"0":5}}'}, "endingOffsetsByTimestamp: every partition .* t-1 has none"),
        ({"endingOffsets": '{"t":{"0":5,"1":30,"2":5}}'}, "endingOffsets: t-2 is not among"),
        (
            {"startingOffsets": '{"t":{"0":9,"1":30}}', "endingOffsets": '{"t":{"0":8,"1":30}}'},
            "t-0: the ending offset 8",
        ),
    ],
)
def test_limits_that_do_not_fit_the_topic_are_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        planned(**given)


@pytest.mark.parametrize(
    ("given", "ranges"),
    [
        ({"endingOffsets": '{"t":{"0":30,"1":10}}'}, [("t", 0, 0, 30)]),  # t-1 starts at 20
        ({"startingOffsets": '{"t":{"0":5,"1":-2}}', "endingOffsets": '{"t":{"0":30,"1":10}}'}, [("t", 0, 5, 30)]),
        ({"startingTimestamp": "2000", "endingOffsets": '{"t":{"0":39,"1":60}}'}, [("t", 1, 40, 60)]),
        ({"startingOffsets": '{"t":{"0":35,"1":29}}', "endingTimestamp": "1000"}, [("t", 1, 29, 30)]),
    ],
)
@pytest.mark.parametrize("loss", ["true", "false"])
def test_an_end_before_a_start_that_the_log_decides_makes_an_empty_partition_and_a_warning(
    loss: str, given: dict[str, str], ranges: list[tuple[str, int, int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    """Only two numbers that contradict each other are a mistake; the log may lose its oldest records at any time."""
    assert planned(failOnDataLoss=loss, **given) == ranges
    (message,) = caplog.messages
    assert re.match(r"nothing is read where the end is before the start: t-[01] \[\d+, \d+\)$", message)


def test_times_start_and_end_at_the_first_record_that_is_as_new() -> None:
    assert planned(startingTimestamp="1000", endingTimestamp="2000") == [("t", 0, 30, 40), ("t", 1, 30, 40)]


def test_an_end_after_the_last_record_in_time_is_the_end_of_the_log() -> None:
    assert planned(startingTimestamp="1000", endingTimestamp="9000") == [("t", 0, 30, 100), ("t", 1, 30, 60)]


def test_a_start_after_the_last_record_in_time_is_an_error_unless_the_strategy_says_latest() -> None:
    with pytest.raises(OptionError, match="t-0 has no record at or after that time"):
        planned(startingTimestamp="9000")
    assert planned(startingTimestamp="9000", startingOffsetsByTimestampStrategy="latest") == []


@pytest.mark.parametrize(
    ("given", "says", "rest"),
    [
        ({"startingOffsets": '{"t":{"0":0,"1":19}}'}, "t-1: offset 19 is gone, the log starts at 20", ("t", 1, 20, 60)),
        (
            {"endingOffsets": '{"t":{"0":-1,"1":61}}'},
            "t-1: offset 61 does not exist, the log ends at 60",
            ("t", 1, 20, 60),
        ),
        ({"startingOffsets": '{"t":{"0":0,"1":61}}'}, "t-1: offset 61 does not exist, the log ends at 60", None),
        (
            {"startingOffsets": '{"t":{"0":0,"1":61}}', "endingOffsetsByTimestamp": '{"t":{"0":9000,"1":1000}}'},
            "t-1: offset 61 does not exist, the log ends at 60",
            None,
        ),
        (
            {"endingOffsets": '{"t":{"0":-1,"1":10}}', "startingOffsets": '{"t":{"0":0,"1":5}}'},
            "offset 5 is gone",
            None,
        ),
    ],
)
def test_offsets_that_are_not_there_are_data_loss(
    given: dict[str, str], says: str, rest: tuple[str, int, int, int] | None, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DataLoss, match=says):
        planned(**given)
    assert planned(failOnDataLoss="false", **given) == [("t", 0, 0, 100), *([rest] if rest else [])]
    assert says in caplog.text


def test_an_end_after_the_last_stable_offset_is_not_said_to_be_missing() -> None:
    given = {"endingOffsets": '{"t":{"0":-1,"1":61}}', "kafka.isolation.level": "read_committed"}
    with pytest.raises(DataLoss, match="t-1: offset 61 cannot be read, the last stable offset is 60 "):
        planned(**given)


def ranges(*sizes: int) -> list[OffsetRange]:
    return [OffsetRange("t", ID, index, 10, 10 + size) for index, size in enumerate(sizes)]


def test_min_partitions_cuts_the_largest_ranges_evenly() -> None:
    pieces = split(ranges(100, 10), 5, None)
    assert [(piece.partition, piece.end - piece.start) for piece in pieces] == [(0, 25)] * 4 + [(1, 10)]


def test_max_records_bounds_every_piece() -> None:
    assert [piece.end - piece.start for piece in split(ranges(10, 3), None, 4)] == [3, 3, 4, 3]


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=6),
    st.none() | st.integers(1, 80),
    st.none() | st.integers(1, 60),
)
@settings(max_examples=examples(100))
def test_splitting_loses_and_doubles_nothing(sizes: list[int], minimum: int | None, most: int | None) -> None:
    whole = ranges(*sizes)
    pieces = split(whole, minimum, most)
    covered = [(piece.partition, offset) for piece in pieces for offset in range(piece.start, piece.end)]
    assert covered == [(part.partition, offset) for part in whole for offset in range(part.start, part.end)]
    assert all(piece.start < piece.end for piece in pieces)
    assert len(pieces) >= min(minimum or 0, sum(sizes))
    assert most is None or max(piece.end - piece.start for piece in pieces) <= most


def test_more_tasks_than_a_driver_can_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "MAX_TASKS", 10)
    assert len(split(ranges(100), 10, None)) == 10
    with pytest.raises(OptionError, match="more than 10 tasks"):
        split(ranges(100), 11, None)
    with pytest.raises(OptionError, match="more than 10 tasks"):
        split(ranges(100), None, 9)
