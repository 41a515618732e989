"""A producer whose first batch found no room begins with it, though a later one finds room before it comes again."""

from __future__ import annotations

import errno

import pytest
from kit.logs import NOW_MS, append, batch, disk, open_test_log
from kit.simulated_files import SimulatedFiles

from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import parse_header
from ottla.storage.files.health import IndependentDirectory
from ottla.storage.log.log import Log
from ottla.storage.producers import producer_beginnings
from ottla.storage.producers.producer_beginnings import ProducerBeginnings
from ottla.storage.producers.producer_state import ProducerStates

DAY_MS = 86_400_000
NONE, NO_ROOM, GAP = ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def sent(sequence: int, *, count: int = 1, producer_id: int = 7, epoch: int = 0) -> bytearray:
    return batch(*[b"v"] * count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


class ReservedDirectory(IndependentDirectory):
    """A directory that refuses records before they are looked at, as below `ottla.log.dir.reserve.bytes`."""

    has_room = True

    def leave(self, room: bool) -> None:
        self.has_room, self.room_bytes = room, 1 << 40 if room else 0

    def refusal(self, *, of_clients: bool) -> OSError | None:
        return None if self.has_room else OSError(errno.ENOSPC, "below the reserve")


class Volume:
    """A log whose volume is full when a test says so, in one of the two ways in which an append notices."""

    def __init__(self, way: str) -> None:
        self._files: SimulatedFiles = disk()
        self._health = ReservedDirectory()
        self._way = way
        self.log: Log = open_test_log(self._files, health=self._health)

    def append(self, *batches: bytearray, now_ms: int = NOW_MS) -> list[ErrorCode]:
        return [result.error_code for result in append(self.log, *batches, now_ms=now_ms)]

    def append_while_full(self, *batches: bytearray, now_ms: int = NOW_MS) -> list[ErrorCode]:
        if self._way == "write":
            self._files.fail("pwritev", "*.log", errno.ENOSPC)
        else:
            self._health.leave(room=False)
        codes = self.append(*batches, now_ms=now_ms)
        self._files.heal()
        self._health.leave(room=True)
        return codes


@pytest.fixture(params=["write", "reserve"])
def volume(request: pytest.FixtureRequest) -> Volume:
    return Volume(request.param)


def test_a_later_batch_is_refused_until_the_first_one_is_stored(volume: Volume) -> None:
    """The simulator's seed 5003742: the second was taken, and the first could never come again."""
    assert volume.append_while_full(sent(0)) == [NO_ROOM]
    assert volume.append(sent(1)) == [GAP]
    assert volume.append(sent(0), sent(1)) == [NONE, NONE]


def test_of_several_that_found_no_room_the_earliest_is_the_first(volume: Volume) -> None:
    volume.append_while_full(sent(1), sent(2))
    volume.append_while_full(sent(0))
    volume.append_while_full(sent(1))
    assert volume.append(sent(1), sent(2)) == [GAP, GAP]
    assert volume.append(sent(0), sent(1), sent(2)) == [NONE] * 3


def test_sequences_wrap(volume: Volume) -> None:
    last = 2**31 - 1
    volume.append_while_full(sent(0))
    volume.append_while_full(sent(last))
    assert volume.append(sent(0), sent(last), sent(0)) == [GAP, NONE, NONE]


def test_an_earlier_batch_than_the_one_that_found_no_room_is_taken(volume: Volume) -> None:
    """It was sent first and arrives last: a client that cut its batches again, or whose connection broke."""
    volume.append_while_full(sent(3))
    assert volume.append(sent(2), sent(3)) == [NONE, NONE]


def test_other_producers_and_those_without_an_id_go_on(volume: Volume) -> None:
    volume.append_while_full(sent(0), batch(b"plain"))
    assert volume.append(sent(4, producer_id=8), batch(b"plain")) == [NONE, NONE]


def test_a_producer_that_gave_up_begins_in_a_new_epoch(volume: Volume) -> None:
    volume.append_while_full(sent(0, epoch=1))
    assert volume.append(sent(5, epoch=2)) == [NONE]


def test_a_batch_of_an_older_epoch_does_not_take_the_place_of_the_newer_ones(volume: Volume) -> None:
    volume.append_while_full(sent(0, epoch=2))
    volume.append_while_full(sent(0, epoch=1))
    assert volume.append(sent(1, epoch=2)) == [GAP]


def expire(producers: ProducerStates, now_ms: int) -> None:
    for _ in producers.expire(now_ms):
        pass


def test_a_known_producer_has_its_own_order_and_a_repeat_that_finds_no_room_changes_nothing(volume: Volume) -> None:
    volume.append(sent(0), sent(1))
    volume.append_while_full(sent(0), now_ms=NOW_MS + 1)
    assert len(volume.log.producers) == 1
    expire(volume.log.producers, NOW_MS + DAY_MS)
    assert len(volume.log.producers) == 0
    assert volume.append(sent(2)) == [NONE]


def test_damaged_batches_say_nothing_of_a_producer(volume: Volume) -> None:
    damaged = sent(0)
    damaged[-1] ^= 1
    assert volume.append_while_full(damaged, damaged[:30], sent(0, producer_id=8)) != [NONE] * 3
    assert volume.append(sent(1)) == [NONE]


def test_it_is_forgotten_when_it_is_not_sent_again_for_as_long_as_producers_are_remembered(volume: Volume) -> None:
    producers = volume.log.producers
    volume.append_while_full(sent(0), now_ms=NOW_MS)
    volume.append_while_full(sent(0), now_ms=NOW_MS + 10)
    expire(producers, NOW_MS + 9 + DAY_MS)
    assert volume.append(sent(1)) == [GAP]
    expire(producers, NOW_MS + 10 + DAY_MS)
    assert volume.append(sent(1)) == [NONE]


def test_the_one_that_was_not_sent_for_longest_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_beginnings, "MAX_BEGINNINGS", 2)
    beginnings = ProducerBeginnings()
    for producer_id in (1, 2, 1, 3):
        beginnings.note(parse_header(sent(0, producer_id=producer_id)), NOW_MS)
    later = {producer_id: parse_header(sent(1, producer_id=producer_id)) for producer_id in (1, 2, 3)}
    assert {producer_id: beginnings.earlier(header) for producer_id, header in later.items()} == {1: 0, 2: None, 3: 0}
