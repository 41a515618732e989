"""Attempts of one task after each other and at once, with real transactions, without Spark: what readers see."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from kit.broker import BrokerProcess
from kit.command import run
from kit.to_the_end import values_of
from pyspark.sql.types import StructType

from ottla.client import ConfigChange, ConfigResource, ConfigResourceType, NewTopic, TopicPartition
from ottla.client.blocking import Admin, Producer
from ottla.protocol.errors import ErrorCode
from ottla.spark.errors import BrokerUnavailable, OptionError, WriteFailed
from ottla.spark.exactly_once import Outcome, check_tasks, end_left_open, write_once
from ottla.spark.progress import Attempt
from ottla.spark.task_identity import attempt_of_task
from ottla.spark.write_options import WriteOptions, write_options
from ottla.testing import EmbeddedBroker

SCHEMA = StructType().add("value", "binary")
PROGRESS = "spark-progress-sink"
FIRST = Attempt("sink", "query", 0, 0, "run", "write", is_alone=True)
"""Task 0 of the first batch."""


class At(NamedTuple):
    """A broker that is no EmbeddedBroker."""

    bootstrap_servers: str


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def options(broker: EmbeddedBroker | At, **given: str) -> WriteOptions:
    raw = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t", "exactlyOnceName": "sink"}
    raw |= {key.replace("__", "."): value for key, value in given.items()}
    return write_options(raw, SCHEMA)


def batches(*values: str, before_each: Callable[[int], None] = lambda _: None) -> Iterator[pa.RecordBatch]:
    """A batch for each value, each larger than a chunk of the sink, so that it is sent before the next is computed."""
    for index, value in enumerate(values):
        before_each(index)
        yield pa.record_batch([pa.array([value.encode()], pa.binary())], names=["value"])


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.spark.rows.CHUNK_BYTES", 1)


def write(
    broker: EmbeddedBroker | At,
    attempt: Attempt,
    *values: str,
    before_each: Callable[[int], None] = lambda _: None,
    **given: str,
) -> Outcome:
    return write_once(batches(*values, before_each=before_each), options(broker, **given), attempt)


def seen(broker: EmbeddedBroker | At, *, is_committed: bool = True) -> list[str]:
    return [value.decode() for value in values_of(broker.bootstrap_servers, "t", is_committed=is_committed)]


class Died(BaseException):
    """A worker that ends at once: nothing of it is sent any more."""


def die_at(count: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Die before the value of this number; the transaction stays open."""

    def before(index: int) -> None:
        if index == count:
            monkeypatch.setattr("ottla.spark.transaction.Transaction.abort", lambda self: None)
            raise Died

    return before


def test_the_attempts_after_the_first_write_nothing(broker: EmbeddedBroker) -> None:
    assert write(broker, FIRST, "a", "b") == (2, -1)
    for again in (FIRST, replace(FIRST, run="another run", write="another write")):
        assert write(broker, again, "a", "b") == (2, 0)
    assert seen(broker, is_committed=False) == ["a", "b"]


def test_all_rows_are_taken_although_none_is_written(broker: EmbeddedBroker) -> None:
    """Operators of Spark before the sink keep their state only then."""
    write(broker, FIRST, "a", "b", "c")
    taken: list[int] = []
    write(broker, FIRST, "a", "b", "c", before_each=taken.append)
    assert taken == [0, 1, 2]


def test_each_task_of_each_batch_writes_its_rows(broker: EmbeddedBroker) -> None:
    for batch in range(3):
        for task in range(3):
            attempt = replace(FIRST, batch=batch, task=task)
            assert write(broker, attempt, f"{batch}{task}") == (1, task - 1 if task else -1)
            assert write(broker, attempt, f"{batch}{task}") == (1, task)
    assert seen(broker, is_committed=False) == [f"{batch}{task}" for batch in range(3) for task in range(3)]


def test_a_task_without_rows_needs_no_transaction(broker: EmbeddedBroker) -> None:
    assert write(broker, FIRST) == (0, -1)
    with Admin(broker.bootstrap_servers) as admin:
        assert not admin.list_topics()


def test_what_a_dead_attempt_has_written_is_aborted_by_the_next(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Died):
        write(broker, FIRST, "a", "b", "c", before_each=die_at(2, monkeypatch))
    assert (seen(broker), seen(broker, is_committed=False)) == ([], ["a", "b"])
    assert write(broker, FIRST, "a", "b", "c") == (3, -1)
    assert seen(broker) == ["a", "b", "c"]
    assert seen(broker, is_committed=False) == ["a", "a", "b", "b", "c"]


def test_the_driver_ends_what_dead_tasks_have_left_open(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else every reader with read_committed would wait for the time-out of the transaction."""
    with pytest.raises(Died):
        write(broker, FIRST, "a", "b", before_each=die_at(1, monkeypatch))
    with Admin(broker.bootstrap_servers) as admin:
        assert admin.describe_transactions(["sink-0"])["sink-0"].state == "Ongoing"
        end_left_open(options(broker), [0, 1])
        assert admin.describe_transactions(["sink-0"])["sink-0"].state != "Ongoing"
    assert seen(broker) == []


def test_a_task_that_fails_aborts_at_once(broker: EmbeddedBroker) -> None:
    def fail(index: int) -> None:
        if index:
            raise LookupError("the query has failed")

    with pytest.raises(LookupError):
        write(broker, FIRST, "a", "b", before_each=fail)
    with Admin(broker.bootstrap_servers) as admin:
        assert admin.describe_transactions(["sink-0"])["sink-0"].state == "CompleteAbort"


@pytest.mark.parametrize("is_first_to_finish", [True, False])
def test_of_two_attempts_at_once_one_writes(broker: EmbeddedBroker, is_first_to_finish: bool) -> None:
    """As with spark.speculation, or when the executors of a dead driver go on."""

    def second(index: int) -> None:
        if index == 1 and not is_first_to_finish:
            assert write(broker, FIRST, "a", "b") == (2, -1)

    if is_first_to_finish:
        write(broker, FIRST, "a", "b", before_each=second)
        assert write(broker, FIRST, "a", "b") == (2, 0)
    else:
        with pytest.raises(
            WriteFailed, match=r"sink-0: .*: another attempt of the task has taken over, or the task took"
        ):
            write(broker, FIRST, "a", "b", before_each=second)
    assert seen(broker) == ["a", "b"]


@pytest.mark.parametrize(
    ("api", "is_handled"),
    [
        ("EndTxn", True),
        ("EndTxn", False),
        ("InitProducerId", True),
        ("FindCoordinator", False),
        ("Fetch", False),
        ("Produce", True),
        ("Produce", False),
        ("CreateTopics", True),
    ],
)
def test_a_request_may_lose_its_answer(broker: EmbeddedBroker, api: str, is_handled: bool) -> None:
    write(broker, replace(FIRST, task=1), "before")  # a Fetch then finds something to fetch
    if api == "CreateTopics":
        with Admin(broker.bootstrap_servers) as admin:
            admin.delete_topics([PROGRESS])
    fault = broker.cut(api, handled=is_handled, times=1)
    assert write(broker, FIRST, "a", "b").records == 2
    assert fault.hits == 1
    assert seen(broker) == ["a", "b", "before"]


@pytest.mark.parametrize("is_handled", [True, False])
def test_after_an_end_that_never_gets_an_answer_the_next_attempt_knows_it(
    broker: EmbeddedBroker, is_handled: bool
) -> None:
    with (
        broker.cut("EndTxn", handled=is_handled),
        pytest.raises(BrokerUnavailable, match=r"sink-0: no answer to EndTxn within kafka\.delivery\.timeout\.ms 1"),
    ):
        write(broker, FIRST, "a", kafka__delivery__timeout__ms="1")
    assert write(broker, FIRST, "a").records == 1
    assert seen(broker) == ["a"]


def test_coordinators_that_move_are_found_again(broker: EmbeddedBroker) -> None:
    for api in ("FindCoordinator", "InitProducerId", "EndTxn"):
        broker.fail(api, ErrorCode.COORDINATOR_NOT_AVAILABLE.name, times=2)
    assert write(broker, FIRST, "a").records == 1
    assert seen(broker) == ["a"]


@pytest.mark.parametrize("api", ["Produce", "EndTxn"])
def test_a_transaction_that_took_too_long_is_an_error_that_names_the_option(broker: EmbeddedBroker, api: str) -> None:
    broker.fail(api, ErrorCode.INVALID_PRODUCER_EPOCH.name)
    with pytest.raises(WriteFailed, match=r"or the task took longer than kafka\.transaction\.timeout\.ms 5000$"):
        write(broker, FIRST, "a", kafka__transaction__timeout__ms="5000")


def test_a_timeout_that_the_broker_does_not_allow_is_an_error_that_names_both_keys(broker: EmbeddedBroker) -> None:
    says = r"INVALID_TRANSACTION_TIMEOUT .*; kafka.transaction.timeout.ms 900001 is more than its transaction.max.time"
    with pytest.raises(WriteFailed, match=says):
        write(broker, FIRST, "a", kafka__transaction__timeout__ms="900001")


@pytest.mark.parametrize("profile", ["kafka-2.8", "kafka-3.9"])
def test_brokers_before_kafka_4_add_partitions_first(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedBroker({"ottla.profile": profile}) as broker:
        with monkeypatch.context() as patched, pytest.raises(Died):
            write(broker, FIRST, "a", "b", "c", before_each=die_at(2, patched))
        write(broker, FIRST, "a", "b", "c")
        with broker.cut("EndTxn", handled=True, times=1):
            write(broker, replace(FIRST, batch=1), "d", "e")
        assert write(broker, replace(FIRST, batch=1), "d", "e") == (2, 0)
        assert broker.requests("AddPartitionsToTxn") >= 3
        assert seen(broker) == ["a", "b", "c", "d", "e"]


# Rows that are not the same ------------------------------------------------------------------------------------------


def test_a_task_that_has_another_number_of_rows_than_it_has_committed_fails(broker: EmbeddedBroker) -> None:
    write(broker, FIRST, "a", "b")
    with pytest.raises(WriteFailed, match="sink-0: batch 0 is committed with 2 rows of this task, and now there are 3"):
        write(broker, FIRST, "a", "b", "c")
    assert seen(broker, is_committed=False) == ["a", "b"]


def test_rows_of_a_task_that_the_batch_does_not_have_any_more_fail_it(broker: EmbeddedBroker) -> None:
    write(broker, replace(FIRST, task=3), "d")
    assert write(broker, FIRST, "a").highest_task == 3
    check_tasks("sink", 4, 3)
    with pytest.raises(WriteFailed, match="committed rows of task 3, and now it has tasks 0 to 1: the query divides"):
        check_tasks("sink", 2, 3)


def test_a_checkpoint_that_is_older_than_the_topic_fails(broker: EmbeddedBroker) -> None:
    write(broker, replace(FIRST, batch=8), "a")
    for task in (0, 1):
        with pytest.raises(WriteFailed, match="this is batch 7, and batch 8 of the query is committed already"):
            write(broker, replace(FIRST, batch=7, task=task), "b")
    assert seen(broker, is_committed=False) == ["a"]


def test_another_query_may_take_a_name_over_and_the_first_one_notices(broker: EmbeddedBroker) -> None:
    write(broker, replace(FIRST, batch=8), "a")
    fresh = replace(FIRST, query="fresh")
    write(broker, fresh, "b")
    write(broker, fresh, "b")
    with pytest.raises(WriteFailed, match="sink was used by query fresh after this query query; each query that runs"):
        write(broker, replace(FIRST, batch=9), "c")
    assert seen(broker, is_committed=False) == ["a", "b"]


def test_two_writes_of_a_function_of_foreach_batch_need_two_names(broker: EmbeddedBroker) -> None:
    in_function = replace(FIRST, is_alone=False)
    write(broker, in_function, "a")
    write(broker, in_function, "a")
    with pytest.raises(WriteFailed, match=r"batch 0 was written by another save\(\) of the same function; give each"):
        write(broker, replace(in_function, write="the second"), "b")
    write(broker, replace(in_function, write="the second", run="after a restart"), "a")
    assert seen(broker, is_committed=False) == ["a"]


# The progress topic --------------------------------------------------------------------------------------------------


def test_progress_is_in_a_compacted_topic_that_people_can_read(broker: EmbeddedBroker) -> None:
    write(broker, replace(FIRST, batch=3), "a", "b")
    with Admin(broker.bootstrap_servers) as admin:
        assert len(admin.describe_topics([PROGRESS])[PROGRESS].partitions) == 1
        resource = ConfigResource(ConfigResourceType.TOPIC, PROGRESS)
        assert admin.describe_configs([resource])[resource]["cleanup.policy"].value == "compact"
    (mark,) = values_of(broker.bootstrap_servers, PROGRESS)
    expected = {"version": 1, "query": "query", "batch": 3, "task": 0, "rows": 2, "run": "run", "write": "write"}
    assert json.loads(mark) == expected


def test_sinks_may_share_a_progress_topic(broker: EmbeddedBroker) -> None:
    """Also such whose names look like tasks of the other."""
    for name in ("sink", "sink-1"):
        for task in (0, 1):
            write(
                broker,
                replace(FIRST, name=name, task=task, query=name),
                f"{name} {task}",
                exactlyOnceName=name,
                progressTopic="shared",
            )
    assert seen(broker) == ["sink 0", "sink 1", "sink-1 0", "sink-1 1"]


def test_marks_are_found_far_from_the_end(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another sink has written much since, and the windows are small."""
    monkeypatch.setattr("ottla.spark.progress_topic._FIRST_WINDOW", 1)
    monkeypatch.setattr("ottla.spark.progress_topic._GROWTH", 2)
    write(broker, FIRST, "a")
    for batch in range(6):
        write(broker, replace(FIRST, name="other", query="other", batch=batch), "x", progressTopic=PROGRESS)
    assert write(broker, FIRST, "a") == (1, 0)
    assert seen(broker).count("a") == 1


def test_records_that_were_deleted_from_a_progress_topic_are_passed_over(broker: EmbeddedBroker) -> None:
    write(broker, FIRST, "a")
    write(broker, replace(FIRST, batch=1), "b")
    resource = ConfigResource(ConfigResourceType.TOPIC, PROGRESS)
    with Admin(broker.bootstrap_servers) as admin:
        admin.alter_configs({resource: [ConfigChange.set("cleanup.policy", "delete")]})
        admin.delete_records({TopicPartition(PROGRESS, 0): 2})
    assert write(broker, replace(FIRST, batch=1), "b") == (1, 0)
    assert seen(broker) == ["a", "b"]


def test_progress_is_found_after_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with BrokerProcess(tmp_path / "data", {"ottla.http.listener": "127.0.0.1:0"}) as process:
        broker = At(process.bootstrap)
        http = re.findall(r"health and metrics at http://(\S+) ", process.output)[-1]
        last = replace(FIRST, batch=9)
        for batch in range(9):
            write(broker, replace(FIRST, batch=batch), f"{batch}")
        with monkeypatch.context() as patched, pytest.raises(Died):
            write(broker, last, "x", "y", before_each=die_at(1, patched))
        write(broker, last, "x", "y")
        for command in (["roll", f"{PROGRESS}-0"], ["clean", PROGRESS]):
            assert run("log", *command, "--http", http).status == 0
        (mark,) = values_of(process.bootstrap, PROGRESS, is_committed=False)
        assert json.loads(mark)["batch"] == 9
        assert write(broker, last, "x", "y") == (2, 0)
        write(broker, replace(FIRST, batch=10), "z")
        assert seen(broker)[-3:] == ["x", "y", "z"]


def test_a_topic_from_which_progress_would_be_deleted_is_refused(broker: EmbeddedBroker) -> None:
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(PROGRESS)])
    with pytest.raises(WriteFailed, match=f"progress topic {PROGRESS} has cleanup.policy=delete, and old progress"):
        write(broker, FIRST, "a")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"nonsense", "the progress topic holds b'nonsense', which no sink has written"),
        (None, "the progress topic holds b'', which no sink has written"),
        (b'{"version": 1}', "which no sink has written"),
        (b'{"version": 2}', "the progress topic has a mark of version 2, of a newer Ottla"),
    ],
)
def test_a_record_that_is_no_mark_is_an_error(broker: EmbeddedBroker, value: bytes | None, says: str) -> None:
    write(broker, replace(FIRST, task=1), "a")
    with Producer(broker.bootstrap_servers, transactional_id="x") as producer, producer.transaction():
        producer.send(PROGRESS, value, key=b"sink-0")
    with pytest.raises(WriteFailed) as raised:
        write(broker, FIRST, "a")
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"exactlyOnceName": "a b"}, "exactlyOnceName: 'a b' cannot be a sink's name, which has 1 to 200 letters"),
        ({"exactlyOnceName": ""}, "exactlyOnceName: '' cannot be a sink's name"),
        ({"exactlyOnceName": "x" * 201}, "cannot be a sink's name"),
        ({"progressTopic": "a b"}, "progressTopic: 'a b' cannot be a topic's name"),
        ({"exactlyOnceNames": "a"}, "unknown option exactlyOnceNames; did you mean exactlyOnceName?"),
        ({"kafka.acks": "1"}, "exactlyOnceName needs kafka.acks=all and kafka.enable.idempotence=true"),
        ({"kafka.enable.idempotence": "false"}, "exactlyOnceName needs kafka.acks=all and"),
        ({"kafka.transactional.id": "x"}, "option exactlyOnceName names the sink, and its tasks make their ids"),
        ({"kafka.transaction.timeout.ms": "0"}, "kafka.transaction.timeout.ms: 0"),
    ],
)
def test_options_that_cannot_be(given: dict[str, str], says: str) -> None:
    raw = {"kafka.bootstrap.servers": "localhost:1", "topic": "t", "exactlyOnceName": "sink", **given}
    with pytest.raises(OptionError) as raised:
        write_options(raw, SCHEMA)
    assert says in str(raised.value)


def test_a_task_is_known_only_inside_of_spark() -> None:
    with pytest.raises(WriteFailed, match="exactlyOnceName needs a task of Spark to know which rows these are"):
        attempt_of_task("sink", "write", is_stream=True)


def test_options_of_transactions_need_a_name() -> None:
    raw = {"kafka.bootstrap.servers": "localhost:1", "topic": "t"}
    with pytest.raises(OptionError, match="progressTopic is for exactlyOnceName, which is not given"):
        write_options({**raw, "progressTopic": "p"}, SCHEMA)
    with pytest.raises(
        OptionError, match=r"kafka\.transaction\.timeout\.ms is for exactlyOnceName; without that there"
    ):
        write_options({**raw, "kafka.transaction.timeout.ms": "5"}, SCHEMA)
