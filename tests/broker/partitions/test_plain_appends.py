"""What a template remembers of many partitions: when it asks them again, and when not."""

from __future__ import annotations

from types import SimpleNamespace

from ottla.broker.partitions.first_appends import FEW_PARTITIONS
from ottla.broker.partitions.plain_appends import REMEMBERED_MS, PlainAppends
from ottla.storage.log.log_append import BEGINS_SEGMENT, PLAIN

COUNT = FEW_PARTITIONS + 1
NOW_MS = 1_000_000


class Log:
    """One that counts how often it is asked."""

    def __init__(self, roll_at_ms=NOW_MS * 2, room_bytes=1 << 30):
        self.roll_at_ms = roll_at_ms
        self.room_bytes = room_bytes
        self.asked = 0

    def next_append(self, records, now_ms):
        self.asked += 1
        return BEGINS_SEGMENT if now_ms > self.roll_at_ms or len(records) > self.room_bytes else PLAIN

    def next_segment(self):
        return self.roll_at_ms, self.room_bytes


def partitions_of(**limits):
    return [SimpleNamespace(log=Log(**limits)) for _ in range(COUNT)]


def asked(partitions):
    return sum(one.log.asked for one in partitions)


BATCHES = [memoryview(bytes(10))] * COUNT


def test_the_same_partitions_are_asked_once_in_a_while_and_others_at_once():
    plain, partitions = PlainAppends(), partitions_of()
    for after_ms in (0, 1, REMEMBERED_MS):
        assert plain.are_expected(list(partitions), BATCHES, 330, NOW_MS + after_ms)
        assert asked(partitions) == COUNT
    assert plain.are_expected(partitions, BATCHES, 330, NOW_MS + REMEMBERED_MS + 1)
    assert asked(partitions) == 2 * COUNT
    others = partitions[1:] + partitions[:1]
    assert plain.are_expected(others, BATCHES, 330, NOW_MS + REMEMBERED_MS + 1)
    assert asked(partitions) == 3 * COUNT


def test_they_are_asked_when_the_first_segment_is_too_old():
    plain, partitions = PlainAppends(), partitions_of(roll_at_ms=NOW_MS + 10)
    for after_ms, expected in ((0, True), (10, True), (11, False), (12, False)):
        assert plain.are_expected(partitions, BATCHES, 330, NOW_MS + after_ms) is expected
    assert asked(partitions) == 3 * COUNT


def test_they_are_asked_when_more_was_sent_than_the_fullest_segment_has_room_for():
    plain, partitions = PlainAppends(), partitions_of(room_bytes=1_000)
    partitions[3].log.room_bytes = 700
    for count in (1, 1, 2):  # 330 and 330 fit, and not 330 more
        assert plain.are_expected(partitions, BATCHES, 330, NOW_MS)
        assert asked(partitions) == count * COUNT
    for one in partitions:
        one.log.room_bytes = 5
    assert not plain.are_expected(partitions, BATCHES, 330, NOW_MS + REMEMBERED_MS + 1)
