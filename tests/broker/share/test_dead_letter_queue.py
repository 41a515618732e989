"""Dead letters through crashes at every step, failing disks, topics that refuse them, and what all of it may take."""

from __future__ import annotations

import errno
import logging
from itertools import pairwise
from typing import Any

import pytest
from kit.nodes import ask, partition_of, pass_time
from kit.settings import BROKER, DELETE, SET, TOPIC, alter
from kit.share_nodes import Reader, ShareNode
from kit.topics import create, delete

from ottla.broker.metadata.change_requests import NewTopic
from ottla.broker.share import dead_letter_queue
from ottla.broker.share.deliveries import RecordState
from ottla.protocol.api.alter_share_group_offsets import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
from ottla.protocol.api.share_fetch import AcknowledgeType
from ottla.protocol.api.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import decode_batch, iter_batches

GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
ARCHIVING, ARCHIVED = RecordState.ARCHIVING, RecordState.ARCHIVED
LETTERS = "dlq.t"
IS_FOR_LETTERS = ("errors.deadletterqueue.group.enable", "true")
AUTO_CREATE = "errors.deadletterqueue.auto.create.topics.enable"
NAME, COPY = "errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"


def set_share_version(broker: ShareNode, level: int) -> None:
    update = UpdateFeaturesRequest.FeatureUpdateKey(
        feature="share.version", max_version_level=level, upgrade_type=1 if level == 2 else 2
    )
    answer = ask(broker.node, UpdateFeaturesRequest(feature_updates=[update]), 1)
    assert isinstance(answer, UpdateFeaturesResponse)
    assert answer.error_code == ErrorCode.NONE, answer


def begin(*, topic: bool = True, copies: bool = False, letters: int = 1, **keys: Any) -> ShareNode:
    """A broker whose group `g` has dead letters in a topic, which is there unless `topic` is false."""
    broker = ShareNode(**keys)
    set_share_version(broker, 2)
    if topic:
        create(broker.node, NewTopic(LETTERS, partitions=letters, configs=(IS_FOR_LETTERS,)))
    broker.set(NAME, LETTERS)
    broker.set(COPY, str(copies).lower())
    return broker


def rejected(broker: ShareNode, count: int = 1, partition: int = 0) -> Reader:
    """A member that has rejected so many records, as acknowledged."""
    broker.produce(count, partition=partition)
    reader = Reader(broker, partitions=(partition,))
    reader.fetch()
    assert reader.acknowledge((0, count - 1, [REJECT]), partition=partition) is ErrorCode.NONE
    return reader


def letters_in(broker: ShareNode, index: int = 0, topic: str = LETTERS) -> list[int]:
    """The offsets that the visible letters are about, in order."""
    return [int(dict(record.headers)["__dlq.errors.offset"] or b"-1") for record in records_in(broker, index, topic)]


def records_in(broker: ShareNode, index: int = 0, topic: str = LETTERS) -> list[Any]:
    partition = broker.node.services.catalog.partition(topic, index)
    if partition is None or partition.high_watermark == partition.log_start_offset:
        return []
    data = partition.read(partition.log_start_offset, 1 << 24, at_least_one=True).read_blocking()
    return [record for position, _ in iter_batches(data) for record in decode_batch(memoryview(data)[position:])]


def finish(broker: ShareNode) -> None:
    """Let everything happen that is due, and what follows from it."""
    for _ in range(30):
        broker.pass_ms(1)


def states(broker: ShareNode) -> list[RecordState]:
    state = broker.state()
    assert state is not None
    return [batch.state for batch in state.batches for _ in range(batch.first_offset, batch.last_offset + 1)]


def start_offset(broker: ShareNode) -> int:
    state = broker.state()
    assert state is not None
    return state.start_offset


def figures(broker: ShareNode) -> tuple[int, int, int]:
    """Letters written, given up, and waiting."""
    counters = broker.node.services.metrics.share_groups
    return counters.dead_letters, counters.lost_dead_letters, broker.coordinator.used.dead_letters.letter_count


# --- a crash at every step -------------------------------------------------------------------------------------------


def test_a_rejection_is_answered_before_its_letter_is_written_and_the_record_is_archiving() -> None:
    broker = begin()
    rejected(broker, 3)
    assert (letters_in(broker), states(broker), start_offset(broker)) == ([], [ARCHIVING] * 3, 0)
    finish(broker)
    assert (letters_in(broker), states(broker), start_offset(broker)) == ([0, 1, 2], [], 3)
    assert figures(broker) == (3, 0, 0)


@pytest.mark.parametrize("stop", ["crashed", "restarted"])
def test_a_letter_that_was_not_written_is_written_by_the_next_start_without_any_member(stop: str) -> None:
    broker = begin()
    rejected(broker, 3)
    assert letters_in(broker) == []
    again: ShareNode = getattr(broker, stop)()
    finish(again)
    assert (letters_in(again), states(again), start_offset(again)) == ([0, 1, 2], [], 3)


def test_a_crash_after_each_step_loses_no_letter_and_never_delivers_the_record_again() -> None:
    """One more step of the broker each time, until the record is archived on the disk."""
    most_letters = 0
    for steps in range(40):
        broker = begin()
        rejected(broker)
        for _ in range(steps):
            broker.node.run_due()
            broker.turn()
            broker.node.services.syncer.run_one() if steps % 2 else None  # type: ignore[attr-defined]
        for seed in range(3):
            again = broker.crashed(seed)
            finish(again)
            found = letters_in(again)
            assert set(found) == {0}
            most_letters = max(most_letters, len(found))
            assert start_offset(again) == 1
            assert Reader(again).take() == []
    assert most_letters == 2, "a letter that was durable just before the crash is written once more"


def test_no_letter_is_written_before_it_is_durable_that_its_record_is_archiving() -> None:
    broker = begin()
    broker.produce(1)
    reader = Reader(broker)
    reader.fetch()
    pending = reader.begin_acknowledge((0, 0, [REJECT]))
    for _ in range(5):
        broker.turn()
        broker.node.run_due()
    assert not pending.done
    partition = partition_of(broker.node, LETTERS)
    assert partition.log.log_end_offset == 0
    again = broker.crashed()
    finish(again)
    assert (letters_in(again), Reader(again).take()) in (([], [(0, 0, 1)]), ([0], [])), "as the disk had it"


def test_a_rejection_is_forgotten_with_its_letters_where_neither_was_durable() -> None:
    broker = begin()
    broker.produce(1)
    reader = Reader(broker)
    reader.fetch()
    reader.begin_acknowledge((0, 0, [REJECT]))
    again = ShareNode(broker.files.kill(), broker.clock, **broker.keys)
    finish(again)
    assert letters_in(again) == []
    assert Reader(again).take() == [(0, 0, 1)]


# --- topics ----------------------------------------------------------------------------------------------------------


def test_a_letter_waits_while_the_disk_of_its_topic_fails_and_is_written_then(caplog: pytest.LogCaptureFixture) -> None:
    broker = begin()
    full = broker.files.fail("pwritev", f"*{LETTERS}-0/*", errno.ENOSPC, times=None)
    reader = rejected(broker)
    for _ in range(60):
        broker.pass_ms(1_000)
    assert (letters_in(broker), states(broker), figures(broker)) == ([], [ARCHIVING], (0, 0, 1))
    assert reader.acknowledge((0, 0, [ACCEPT])) is ErrorCode.INVALID_RECORD_STATE
    warnings = [one for one in caplog.records if "dead letters of t-0 cannot be written now" in one.message]
    assert 1 <= len(warnings) <= 2, "the same reason is logged once in a minute"
    broker.files.heal(full)
    for _ in range(40):
        broker.pass_ms(1_000)
    assert (letters_in(broker), start_offset(broker), figures(broker)) == ([0], 1, (1, 0, 0))


def test_waits_between_attempts_double_up_to_half_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = begin()
    broker.files.fail("pwritev", f"*{LETTERS}-0/*", errno.ENOSPC, times=None)
    tries: list[float] = []
    append = dead_letter_queue.append_elsewhere

    def counted(*arguments: Any) -> None:
        tries.append(broker.clock.monotonic_ms())
        append(*arguments)

    monkeypatch.setattr(dead_letter_queue, "append_elsewhere", counted)
    rejected(broker)
    for _ in range(1_300):
        broker.pass_ms(100)
    waits = [round((after - before) / 1000) for before, after in pairwise(tries)]
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]


@pytest.mark.parametrize(
    ("name", "configs", "reason"),
    [
        ("dlq.none", None, "topic dlq.none does not exist"),
        ("dlq.other", (), "topic dlq.other does not take them: set its errors.deadletterqueue.group.enable to true"),
        ("letters", (IS_FOR_LETTERS,), "the name of topic letters does not begin with dlq."),
    ],
)
def test_a_record_is_archived_without_a_letter_where_its_topic_may_not_be_used(
    name: str, configs: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = begin()
    if configs is not None:
        create(broker.node, NewTopic(name, configs=configs))
    broker.set(NAME, name)
    rejected(broker, 2)
    finish(broker)
    assert (start_offset(broker), figures(broker)) == (2, (0, 2, 0))
    errors = [one.message for one in caplog.records if one.levelno == logging.ERROR]
    assert errors == [f"group g: 2 records of t-0, from offset 0 on, archived without a dead letter: {reason}"]
    assert records_in(broker, topic=name) == []


def test_the_same_reason_is_logged_once_in_a_while(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_queue, "SAME_REASON_MS", 10_000)
    broker = begin(topic=False)
    broker.produce(1, 1, 1)
    reader = Reader(broker)
    reader.fetch()
    for offset in range(3):
        reader.acknowledge((offset, offset, [REJECT]))
        finish(broker)
        if offset:
            broker.pass_ms(11_000)
    errors = [one.message for one in caplog.records if one.levelno == logging.ERROR]
    assert len(errors) == 2
    assert figures(broker) == (0, 3, 0)


def test_a_topic_is_created_for_letters_with_the_settings_that_they_need() -> None:
    broker = begin(topic=False)
    assert alter(broker.node, BROKER, "", (AUTO_CREATE, SET, "true"))[0] is ErrorCode.NONE
    rejected(broker, 2)
    finish(broker)
    topic = broker.node.services.catalog.topics[LETTERS]
    assert topic.overrides == {
        "errors.deadletterqueue.group.enable": "true",
        "message.timestamp.type": "CreateTime",
    }
    assert (letters_in(broker), start_offset(broker)) == ([0, 1], 2)


def test_a_name_that_no_topic_can_have_is_given_up() -> None:
    broker = begin(topic=False)
    assert alter(broker.node, BROKER, "", (AUTO_CREATE, SET, "true"))[0] is ErrorCode.NONE
    broker.set(NAME, "dlq./")
    rejected(broker)
    finish(broker)
    assert (start_offset(broker), figures(broker)) == (1, (0, 1, 0))


def test_a_topic_that_needs_keys_refuses_only_the_letters_without_one() -> None:
    broker = begin(topic=False, copies=True)
    create(broker.node, NewTopic(LETTERS, configs=(IS_FOR_LETTERS, ("cleanup.policy", "compact"))))
    rejected(broker, 3)
    finish(broker)
    found = records_in(broker)
    assert figures(broker) == (len(found), 3 - len(found), 0)
    assert start_offset(broker) == 3
    assert all(record.key is not None for record in found)
    broker.set(COPY, "false")
    rejected_before = figures(broker)
    broker.produce(2)
    reader = Reader(broker, "b")
    reader.fetch()
    reader.acknowledge((3, 4, [REJECT]))
    finish(broker)
    assert figures(broker) == (rejected_before[0], rejected_before[1] + 2, 0)


def test_a_topic_that_is_deleted_meanwhile_takes_no_letters_of_the_next_records() -> None:
    broker = begin()
    rejected(broker)
    finish(broker)
    delete(broker.node, LETTERS)
    broker.produce(1)
    reader = Reader(broker, "b")
    reader.fetch()
    reader.acknowledge((1, 1, [REJECT]))
    finish(broker)
    assert (start_offset(broker), figures(broker)) == (2, (1, 1, 0))


def test_letters_of_a_group_that_names_no_topic_any_more_are_given_up() -> None:
    broker = begin()
    rejected(broker)
    broker.set(NAME, "")
    finish(broker)
    assert (start_offset(broker), figures(broker)) == (1, (0, 1, 0))


# --- the feature -----------------------------------------------------------------------------------------------------


def test_without_the_feature_a_record_is_archived_at_once() -> None:
    broker = begin()
    set_share_version(broker, 1)
    rejected(broker)
    assert start_offset(broker) == 1
    finish(broker)
    assert (letters_in(broker), figures(broker)) == ([], (0, 0, 0))


def test_letters_that_are_due_are_written_although_the_feature_is_lowered() -> None:
    broker = begin()
    rejected(broker)
    set_share_version(broker, 1)
    again = broker.restarted()
    finish(again)
    assert (letters_in(again), start_offset(again)) == ([0], 1)


# --- which records ---------------------------------------------------------------------------------------------------


def test_a_record_that_timed_out_at_its_last_delivery_has_a_letter() -> None:
    broker = begin()
    broker.set("share.delivery.count.limit", "1")
    broker.set("share.record.lock.duration.ms", "1000")
    broker.produce(1)
    Reader(broker).fetch()
    broker.pass_ms(2_000)
    (record,) = records_in(broker)
    headers = dict(record.headers)
    assert headers["__dlq.errors.message"] == b"Offset delivery count exceeded the threshold."
    assert headers["__dlq.errors.delivery.count"] == b"1"
    assert start_offset(broker) == 1


def test_a_letter_of_before_a_restart_says_why_as_far_as_the_delivery_count_shows_it() -> None:
    broker = begin()
    broker.set("share.delivery.count.limit", "1")
    rejected(broker)
    again = broker.restarted()
    finish(again)
    (record,) = records_in(again)
    assert dict(record.headers)["__dlq.errors.message"] == b"Offset delivery count exceeded the threshold."


def test_key_and_value_are_copied_and_records_that_the_log_has_lost_are_not() -> None:
    broker = begin(copies=True)
    broker.produce(2, 2)
    reader = Reader(broker)
    reader.fetch()
    partition_of(broker.node, "t").log.delete_records(1)
    reader.acknowledge((0, 3, [REJECT]))
    finish(broker)
    assert letters_in(broker) == [0, 1, 2, 3]
    assert [record.value is not None for record in records_in(broker)] == [False, True, True, True]


def test_a_topic_that_is_gone_meanwhile_leaves_letters_without_copies() -> None:
    broker = begin(copies=True)
    rejected(broker)
    delete(broker.node, "t")
    finish(broker)
    (record,) = records_in(broker)
    assert dict(record.headers)["__dlq.errors.topic"] == b"t"
    assert record.value is None


# --- bounds ----------------------------------------------------------------------------------------------------------


def test_a_batch_of_letters_is_no_larger_than_its_topic_takes() -> None:
    broker = begin(topic=False)
    create(broker.node, NewTopic(LETTERS, configs=(IS_FOR_LETTERS, ("max.message.bytes", "600"))))
    rejected(broker, 20)
    finish(broker)
    assert letters_in(broker) == list(range(20))
    assert start_offset(broker) == 20


def test_few_share_partitions_are_at_work_at_a_time_and_all_get_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_queue, "SHARE_PARTITIONS_AT_A_TIME", 1)
    broker = begin(letters=2)
    rejected(broker, 3, partition=0)
    rejected(broker, 3, partition=1)
    assert figures(broker)[2] == 6
    finish(broker)
    assert (letters_in(broker, 0), letters_in(broker, 1)) == ([0, 1, 2], [0, 1, 2])
    assert figures(broker) == (6, 0, 0)


def test_a_failing_disk_keeps_no_other_group_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_queue, "SHARE_PARTITIONS_AT_A_TIME", 1)
    broker = begin(letters=2)
    broker.files.fail("pwritev", f"*{LETTERS}-0/*", errno.ENOSPC, times=None)
    rejected(broker, 1, partition=0)
    finish(broker)
    rejected(broker, 1, partition=1)
    finish(broker)
    assert (letters_in(broker, 0), letters_in(broker, 1)) == ([], [0])


def test_no_record_is_acquired_while_too_many_wait_for_their_letters() -> None:
    broker = begin()
    broker.set("share.partition.max.record.locks", "3")
    full = broker.files.fail("pwritev", f"*{LETTERS}-0/*", errno.ENOSPC, times=None)
    reader = rejected(broker, 3)
    broker.produce(1)
    assert reader.take() == []
    broker.files.heal(full)
    for _ in range(40):
        broker.pass_ms(1_000)
    assert reader.take() == [(3, 3, 1)]


def test_a_share_partition_is_forgotten_after_its_letters() -> None:
    broker = begin()
    reader = rejected(broker)
    reader.close()
    assert broker.counts() == (0, 1, 1)
    pass_time(broker.node, broker.clock, 310_000, step_ms=10_000)
    assert broker.counts() == (0, 0, 1)
    assert letters_in(broker) == [0]


def test_an_administrator_who_sets_the_offset_meanwhile_takes_no_letter_away() -> None:
    broker = begin()
    rejected(broker).close()
    kind = AlterShareGroupOffsetsRequest
    partition = kind.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
    topic = kind.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[partition])
    broker.answer(broker.begin(kind(group_id="g", topics=[topic]), 0), AlterShareGroupOffsetsResponse, 0)
    finish(broker)
    assert letters_in(broker) == [0]
    assert Reader(broker, "b").take() == [(0, 0, 1)]


def test_what_the_topic_does_not_take_today_it_may_take_tomorrow() -> None:
    broker = begin()
    assert alter(broker.node, TOPIC, LETTERS, (IS_FOR_LETTERS[0], DELETE, None))[0] is ErrorCode.NONE
    rejected(broker)
    finish(broker)
    assert figures(broker) == (0, 1, 0)
    assert alter(broker.node, TOPIC, LETTERS, (IS_FOR_LETTERS[0], SET, "true"))[0] is ErrorCode.NONE
    broker.produce(1)
    reader = Reader(broker, "b")
    reader.fetch()
    reader.acknowledge((1, 1, [REJECT]))
    finish(broker)
    assert letters_in(broker) == [1]
