from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples

from ottla.spark.errors import DataLoss, OptionError
from ottla.spark.option_values import Address
from ottla.spark.options import stream_options
from ottla.spark.planner import TopicInfo
from ottla.spark.rate_limit import share_out
from ottla.spark.stream_offsets import StreamOffsets
from ottla.spark.stream_planner import StreamPlanner

ID, OTHER_ID = UUID(int=7), UUID(int=8)
LEADER = Address("h", 9092)


class FakeCluster:
    """Logs by (topic, partition): first and last offset; a topic's id may change."""

    def __init__(self, logs: Mapping[tuple[str, int], tuple[int, int]]) -> None:
        self.logs = dict(logs)
        self.ids: dict[str, UUID] = {}
        self.questions: list[str] = []
        self.watermarks: dict[tuple[str, int], int] = {}
        """Where they are not the last offsets: an open transaction hides what comes before them."""

    def describe(self, topics: Sequence[str] | None) -> dict[str, TopicInfo]:
        self.questions.append("topics")
        names = {name for name, _ in self.logs} if topics is None else set(topics)
        found = {}
        for name in names:
            partitions = tuple(sorted(index for topic, index in self.logs if topic == name))
            if partitions:
                leaders = dict.fromkeys(partitions, LEADER)
                found[name] = TopicInfo(name, self.ids.get(name, ID), partitions, leaders=leaders)
        return found

    def list_offsets(self, times: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int | None]:
        self.questions.append(" ".join(sorted({"first" if time == -2 else "last" for time in times.values()})))
        return {place: self.logs[place][0 if time == -2 else 1] for place, time in times.items()}

    def high_watermarks(self, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return {place: self.watermarks.get(place, self.logs[place][1]) for place in places}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster({("t", 0): (0, 100), ("t", 1): (20, 60)})


@pytest.fixture
def clock() -> Clock:
    return Clock()


def planner(clock: Clock | None = None, **given: str) -> StreamPlanner:
    options = {"kafka.bootstrap.servers": "h:1", **given}
    if not {"subscribe", "subscribePattern", "assign"} & set(given):
        options["subscribe"] = "t"
    return StreamPlanner(stream_options(options), clock or Clock())


def at(*offsets: int, topic_id: UUID = ID) -> StreamOffsets:
    return StreamOffsets({("t", index): offset for index, offset in enumerate(offsets)}, {"t": topic_id})


def end(plan: StreamPlanner, start: StreamOffsets, cluster: FakeCluster, most: int | None = None) -> list[int]:
    found = plan.next_end(start, most, take_all=most is None and plan._options.limits.least is None, cluster=cluster)
    return [found.positions[place] for place in sorted(found.positions)]


def ranges(plan: StreamPlanner, start: StreamOffsets, stop: StreamOffsets, cluster: FakeCluster) -> list[str]:
    return [str(part) for part in plan.ranges(start, stop, cluster)]


def test_a_new_stream_starts_at_latest_by_default(cluster: FakeCluster) -> None:
    assert planner().initial(cluster) == at(100, 60)
    assert planner(startingOffsets="earliest").initial(cluster) == at(0, 20)
    assert planner(startingOffsets='{"t":{"0":-1,"1":30}}').initial(cluster) == at(100, 30)


def test_a_new_stream_has_one_start_however_often_spark_asks_for_it(cluster: FakeCluster) -> None:
    """In the first batch it asks twice: for the batch's end, and for its ranges."""
    plan = planner()
    start = plan.initial(cluster)
    assert end(plan, start, cluster) == [100, 60]
    cluster.logs["t", 0] = (0, 130)
    cluster.questions.clear()
    assert plan.initial(cluster) == start
    assert not cluster.questions
    assert end(plan, start, cluster) == [130, 60]


def test_a_start_outside_of_the_log_is_data_loss_or_moved_to_the_log(cluster: FakeCluster) -> None:
    starts = '{"t":{"0":101,"1":5}}'
    with pytest.raises(DataLoss, match="t-0: offset 101 does not exist, the log ends at 100"):
        planner(startingOffsets=starts).initial(cluster)
    assert planner(startingOffsets=starts, failOnDataLoss="false").initial(cluster) == at(100, 20)


def test_every_partition_needs_a_start_and_topics_must_exist(cluster: FakeCluster) -> None:
    with pytest.raises(OptionError, match="t-1 has none"):
        planner(startingOffsets='{"t":{"0":1}}').initial(cluster)
    with pytest.raises(OptionError, match="unknown topic nope"):
        planner(subscribe="nope").initial(cluster)


def test_offsets_survive_json_and_equal_ones_give_equal_text() -> None:
    offsets = StreamOffsets({("b", 10): 3, ("b", 9): 2, ("a", 0): 1}, {"b": ID})
    text = json.dumps(offsets.to_json())
    assert text == f'{{"a": {{"0": 1}}, "b": {{"9": 2, "10": 3}}, "$ids": {{"b": "{ID}"}}}}'
    again = StreamOffsets.from_json(json.loads(text))
    assert again == offsets
    assert json.dumps(again.to_json()) == text
    assert StreamOffsets.from_json({}).to_json() == {}


@pytest.mark.parametrize("document", [[], {"t": 5}, {"t": {"x": 1}}, {"t": {"0": "x"}}, {"$ids": {"t": "?"}}, None])
def test_a_checkpoint_of_something_else_is_refused(document: object) -> None:
    with pytest.raises(OptionError, match="checkpointLocation holds no offsets of this source"):
        StreamOffsets.from_json(document)


def test_offsets_of_sparks_own_source_are_understood(cluster: FakeCluster) -> None:
    start = StreamOffsets.from_json({"t": {"0": 90, "1": 50}})
    stop = planner().next_end(start, None, take_all=True, cluster=cluster)
    assert ranges(planner(), start, stop, cluster) == ["t-0 [90, 100)", "t-1 [50, 60)"]


def test_a_limit_is_shared_in_proportion_and_met_exactly(cluster: FakeCluster) -> None:
    assert end(planner(), at(0, 20), cluster, most=70) == [50, 40]
    assert end(planner(), at(0, 20), cluster, most=71) == [51, 40]
    assert end(planner(), at(0, 20), cluster, most=1000) == [100, 60]


@settings(max_examples=examples(100))
@given(
    waiting=st.dictionaries(st.tuples(st.just("t"), st.integers(0, 20)), st.integers(0, 10**9), max_size=12),
    most=st.integers(1, 10**6),
)
def test_a_share_is_never_more_than_waits_nor_nothing_where_something_waits(
    waiting: dict[tuple[str, int], int], most: int
) -> None:
    takes = share_out(waiting, most)
    busy = [place for place, count in waiting.items() if count]
    assert takes.keys() == waiting.keys()
    assert all(0 <= takes[place] <= waiting[place] for place in waiting)
    assert all(takes[place] for place in busy)
    assert sum(takes.values()) == min(sum(waiting.values()), max(most, len(busy)))


def test_the_example_of_the_module_is_true() -> None:
    assert list(share_out({("t", 0): 5, ("t", 1): 100, ("t", 2): 1}, 10).values()) == [1, 8, 1]


def test_a_batch_waits_for_enough_offsets_but_not_forever(cluster: FakeCluster, clock: Clock) -> None:
    plan = planner(clock, minOffsetsPerTrigger="50", maxTriggerDelay="10s")
    assert end(plan, at(90, 60), cluster) == [100, 60]  # the first one does not wait
    cluster.logs["t", 0] = (0, 140)
    clock.now += 9.9
    assert end(plan, at(100, 60), cluster) == [100, 60]
    cluster.logs["t", 0] = (0, 150)
    assert end(plan, at(100, 60), cluster) == [150, 60]  # enough
    cluster.logs["t", 0] = (0, 151)
    clock.now += 9.9
    assert end(plan, at(150, 60), cluster) == [150, 60]
    clock.now += 0.2
    assert end(plan, at(150, 60), cluster) == [151, 60]  # long enough


def test_available_now_ends_at_what_was_there_and_does_not_wait_for_more(cluster: FakeCluster, clock: Clock) -> None:
    plan = planner(clock, minOffsetsPerTrigger="50", maxTriggerDelay="1h")
    plan.stop_at_present_end()
    assert end(plan, at(95, 60), cluster) == [100, 60]
    cluster.logs["t", 0] = (0, 500)
    cluster.logs["t", 2] = (0, 10)
    assert end(plan, at(100, 60), cluster) == [100, 60]
    cluster.logs["t", 1] = (20, 70)
    assert end(plan, at(100, 60), cluster) == [100, 60]
    assert plan.newest == at(100, 60)


def test_available_now_from_latest_is_no_data_loss_when_records_come_before_the_start_is_known(
    cluster: FakeCluster,
) -> None:
    """Spark says that the trigger is AvailableNow before it asks where the stream begins."""
    plan = planner()
    plan.stop_at_present_end()
    cluster.logs["t", 0] = (0, 105)
    start = plan.initial(cluster)
    assert end(plan, start, cluster) == [105, 60]


def test_what_comes_while_a_stream_starts_at_latest_survives_a_crash_in_its_first_batch(cluster: FakeCluster) -> None:
    """Spark keeps where batches end, not where the first began: so that one ends where a start at latest begins."""
    starts = '{"t":{"0":-1,"1":30}}'
    for options, first_end in (({}, [100, 60]), ({"startingOffsets": starts}, [100, 70])):
        cluster.logs = {("t", 0): (0, 100), ("t", 1): (20, 60)}
        plan = planner(**options)
        start = plan.initial(cluster)
        cluster.logs = {("t", 0): (0, 110), ("t", 1): (20, 70)}
        assert end(plan, start, cluster, most=1000) == first_end
        stop = StreamOffsets({("t", index): offset for index, offset in enumerate(first_end)}, {"t": ID})
        again = planner(**options)  # after the crash: the end of the first batch is known, its start is asked for again
        assert not [part for part in ranges(again, again.initial(cluster), stop, cluster) if part.startswith("t-0")]
        assert end(again, stop, cluster) == [110, 70]
        assert end(plan, stop, cluster) == [110, 70]


def test_a_stream_that_does_not_start_at_latest_reads_in_its_first_batch(cluster: FakeCluster) -> None:
    plan = planner(startingOffsets="earliest")
    assert end(plan, plan.initial(cluster), cluster) == [100, 60]


def test_partitions_and_topics_that_appear_are_read_from_their_beginning(cluster: FakeCluster) -> None:
    plan = planner(subscribePattern="t.?")
    start = plan.initial(cluster)
    cluster.logs["t", 2] = (0, 7)
    cluster.logs["t2", 0] = (0, 9)
    stop = plan.next_end(start, None, take_all=True, cluster=cluster)
    assert ranges(plan, start, stop, cluster) == ["t-2 [0, 7)", "t2-0 [0, 9)"]


def test_a_new_partition_whose_first_records_are_gone_is_data_loss(cluster: FakeCluster) -> None:
    cluster.logs["t", 2] = (3, 7)
    with pytest.raises(DataLoss, match="t-2 is new to the stream, and its log starts at 3 already"):
        end(planner(), at(100, 60), cluster)
    plan = planner(failOnDataLoss="false")
    stop = plan.next_end(at(100, 60), None, take_all=True, cluster=cluster)
    assert ranges(plan, at(100, 60), stop, cluster) == ["t-2 [3, 7)"]


def test_a_partition_that_is_gone_is_data_loss_or_left_out(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    del cluster.logs["t", 1]
    with pytest.raises(DataLoss, match="t-1 does not exist any more; the stream was at offset 50"):
        end(planner(), at(90, 50), cluster)
    assert end(planner(failOnDataLoss="false"), at(90, 50), cluster) == [100]
    assert "continuing with the existing records" in caplog.text
    del cluster.logs["t", 0]
    assert end(planner(failOnDataLoss="false"), at(90, 50), cluster) == []


@pytest.mark.parametrize("selection", [{"assign": '{"t":[0]}'}, {"subscribe": "u"}, {"subscribePattern": "^u$"}])
def test_a_partition_that_the_options_do_not_select_any_more_is_not_said_to_be_gone(
    selection: dict[str, str], cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.logs["u", 0] = (0, 5)
    with pytest.raises(DataLoss, match=r"t-\d is not selected by the options any more; the stream was at offset"):
        end(planner(**selection), at(100, 50), cluster)
    end(planner(**selection, failOnDataLoss="false"), at(100, 50), cluster)
    assert "t-1 is not selected by the options any more; the stream was at offset 50" in caplog.text
    assert "not exist" not in caplog.text


def test_a_log_that_ends_before_the_streams_position_is_data_loss(cluster: FakeCluster) -> None:
    with pytest.raises(DataLoss, match="t-0: the stream was at offset 101, the log ends at 100"):
        end(planner(), at(101, 60), cluster)
    assert end(planner(failOnDataLoss="false"), at(101, 50), cluster) == [100, 60]


COMMITTED = {"kafka.isolation.level": "read_committed"}


@pytest.mark.parametrize("loss", ["true", "false"])
def test_a_stream_that_becomes_read_committed_waits_for_an_open_transaction_and_reads_nothing_twice(
    loss: str, cluster: FakeCluster
) -> None:
    """It has read the records of the open transaction, which begins before the stream's position."""
    cluster.watermarks["t", 0] = 120
    for plan in (planner(**COMMITTED, failOnDataLoss=loss), planner(**COMMITTED, failOnDataLoss=loss)):
        assert end(plan, at(110, 55), cluster) == [110, 60]
        assert end(plan, at(110, 60), cluster, most=3) == [110, 60]
    cluster.logs["t", 0] = (0, 105)
    assert end(plan, at(110, 60), cluster) == [110, 60]
    cluster.logs["t", 0] = (0, 120)
    assert end(plan, at(110, 60), cluster) == [120, 60]


def test_available_now_ends_before_an_open_transaction_that_the_stream_has_read(cluster: FakeCluster) -> None:
    cluster.watermarks["t", 0] = 120
    plan = planner(**COMMITTED)
    plan.stop_at_present_end()
    assert end(plan, at(110, 60), cluster) == [110, 60]


def test_a_log_that_is_shorter_than_a_read_committed_streams_position_is_data_loss(cluster: FakeCluster) -> None:
    cluster.watermarks["t", 0] = 105
    with pytest.raises(DataLoss, match="t-0: the stream was at offset 110, the log ends at 105;"):
        end(planner(**COMMITTED), at(110, 60), cluster)
    # What is left was read before, also what an open transaction hides.
    assert end(planner(**COMMITTED, failOnDataLoss="false"), at(110, 60), cluster) == [105, 60]


@pytest.mark.parametrize("loss", ["true", "false"])
def test_a_batch_planned_before_the_stream_became_read_committed_keeps_its_end(loss: str, cluster: FakeCluster) -> None:
    """After a crash Spark runs it again. A shorter one would leave records out: the next one begins at its end."""
    cluster.watermarks["t", 0] = 120
    plan = planner(**COMMITTED, failOnDataLoss=loss)
    assert ranges(plan, at(90, 60), at(110, 60), cluster) == ["t-0 [90, 110)"]
    cluster.watermarks["t", 0] = 105
    if loss == "true":
        with pytest.raises(DataLoss, match="t-0: offset 110 does not exist, the log ends at 105;"):
            plan.ranges(at(90, 60), at(110, 60), cluster)
    else:
        assert ranges(plan, at(90, 60), at(110, 60), cluster) == ["t-0 [90, 105)"]


def test_a_read_committed_stream_may_start_within_an_open_transaction(cluster: FakeCluster) -> None:
    cluster.watermarks["t", 0] = 120
    starts = {"startingOffsets": '{"t":{"0":110,"1":-2}}'}
    assert planner(**COMMITTED, **starts).initial(cluster) == at(110, 20)
    cluster.watermarks["t", 0] = 105
    with pytest.raises(DataLoss, match="t-0: offset 110 does not exist, the log ends at 105;"):
        planner(**COMMITTED, **starts).initial(cluster)


def test_a_topic_created_again_is_data_loss_or_read_from_its_beginning(cluster: FakeCluster) -> None:
    cluster.logs = {("t", 0): (0, 200), ("t", 1): (0, 5)}
    cluster.ids["t"] = OTHER_ID
    with pytest.raises(DataLoss, match="topic t was deleted and created again; the stream was at offset 100"):
        end(planner(), at(100, 60), cluster)
    plan = planner(failOnDataLoss="false")
    stop = plan.next_end(at(100, 60), None, take_all=True, cluster=cluster)
    assert ranges(plan, at(100, 60), stop, cluster) == ["t-0 [0, 200)", "t-1 [0, 5)"]


def test_a_planned_batch_whose_records_are_gone_is_data_loss_when_it_is_planned_again(cluster: FakeCluster) -> None:
    plan, mild = planner(), planner(failOnDataLoss="false")
    start, stop = at(10, 20), at(100, 60)
    assert ranges(plan, start, stop, cluster) == ["t-0 [10, 100)", "t-1 [20, 60)"]
    cluster.logs["t", 0] = (30, 90)
    with pytest.raises(DataLoss, match="t-0: offset 10 is gone, the log starts at 30"):
        plan.ranges(start, stop, cluster)
    assert ranges(mild, start, stop, cluster) == ["t-0 [30, 90)", "t-1 [20, 60)"]
    cluster.ids["t"] = OTHER_ID
    with pytest.raises(DataLoss, match=r"t-0 \[10, 100\) is to be read, but the topic was deleted and created again"):
        plan.ranges(start, stop, cluster)
    cluster.logs.clear()
    with pytest.raises(DataLoss, match="does not exist any more"):
        plan.ranges(start, stop, cluster)
    assert ranges(mild, start, stop, cluster) == []


def test_a_batch_asks_the_cluster_for_nothing_twice(cluster: FakeCluster) -> None:
    plan = planner()
    stop = plan.next_end(at(90, 60), None, take_all=True, cluster=cluster)
    assert ranges(plan, at(90, 60), stop, cluster) == ["t-0 [90, 100)"]
    assert cluster.questions == ["topics", "last", "first"]
    cluster.questions.clear()
    assert end(plan, stop, cluster) == [100, 60]  # a trigger that finds nothing
    assert cluster.questions == ["topics", "last"]
    cluster.questions.clear()
    assert ranges(plan, at(90, 60), stop, cluster) == ["t-0 [90, 100)"]  # asked a moment ago
    assert ranges(plan, at(80, 60), at(95, 60), cluster) == ["t-0 [80, 95)"]  # a batch of the checkpoint
    assert cluster.questions == ["first", "topics", "first", "last"]


def test_the_batches_of_available_now_ask_about_the_topics_of_each(cluster: FakeCluster) -> None:
    """The ends of the logs are those of the first batch, which may be hours ago."""
    plan = planner()
    plan.stop_at_present_end()
    first = plan.next_end(at(0, 20), 50, take_all=False, cluster=cluster)
    plan.ranges(at(0, 20), first, cluster)
    cluster.questions.clear()
    second = plan.next_end(first, 50, take_all=False, cluster=cluster)
    plan.ranges(first, second, cluster)
    assert cluster.questions == ["topics", "first", "last"]


def test_a_loss_is_logged_once_by_a_batch_that_waits_for_more_records(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    plan = planner(failOnDataLoss="false", minOffsetsPerTrigger="100")
    plan.next_end(at(90, 20), None, take_all=True, cluster=cluster)
    del cluster.logs["t", 1]
    for _ in range(3):
        assert end(plan, at(95, 50), cluster) == [95, 50]
    assert len(caplog.messages) == 1
    cluster.logs["t", 0] = (0, 300)
    assert end(plan, at(95, 50), cluster) == [300]
    assert end(plan, at(300, 50), cluster) == [300, 50]
    assert len(caplog.messages) == 2


def test_a_new_partition_that_has_lost_records_is_logged_once(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.logs["t", 2] = (3, 7)
    plan = planner(failOnDataLoss="false")
    stop = plan.next_end(at(100, 60), None, take_all=True, cluster=cluster)
    assert ranges(plan, at(100, 60), stop, cluster) == ["t-2 [3, 7)"]
    (message,) = caplog.messages
    assert message.startswith("t-2: offset 0 is gone, the log starts at 3")


def test_nothing_new_is_the_same_offsets_and_no_work(cluster: FakeCluster) -> None:
    plan = planner()
    assert plan.next_end(at(100, 60), 10, take_all=False, cluster=cluster).to_json() == at(100, 60).to_json()
    assert plan.ranges(at(100, 60), at(100, 60), cluster) == []


def test_the_ranges_of_a_batch_name_the_leaders_of_now(cluster: FakeCluster) -> None:
    assert [part.leader for part in planner().ranges(at(0, 20), at(100, 60), cluster)] == [LEADER, LEADER]


def test_a_batch_is_split_like_a_batch_query(cluster: FakeCluster) -> None:
    assert len(planner(minPartitions="5").ranges(at(0, 20), at(100, 60), cluster)) == 5
    assert len(planner(maxRecordsPerPartition="50").ranges(at(0, 20), at(100, 60), cluster)) == 3


@pytest.mark.parametrize(
    ("text", "ms"),
    [("500", 500), ("500ms", 500), ("30s", 30_000), ("15m", 900_000), ("2 h", 7_200_000), ("1D", 86_400_000)],
)
def test_the_delay_is_a_time_as_spark_writes_it(text: str, ms: int) -> None:
    options = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "maxTriggerDelay": text}
    assert stream_options(options).limits.longest_delay_ms == ms
