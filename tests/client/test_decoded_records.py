"""Records between a fetched batch and the program: taken once each, stopped between two, made when they are taken."""

from __future__ import annotations

import pickle
import threading

import pytest

from ottla.client import ConsumerRecord, CorruptRecords, TopicPartition
from ottla.client.assigned import DECODED_BYTES, DECODED_RECORDS, AssignedPartition, FetchedBatch
from ottla.client.consumer_options import ConsumerOptions
from ottla.client.decoded_records import DecodedRecords
from ottla.client.metrics import ConsumerMetrics
from ottla.client.polled_records import PolledRecords
from ottla.protocol.records.batch import Record, encode_batch, parse_header

PARTITION = TopicPartition("t", 3)


def rows(*offsets):
    return [("t", 3, offset, 7, None, b"v%d" % offset, ()) for offset in offsets]


# What is decoded ---------------------------------------------------------------------------------------------------


def test_the_next_offset_follows_what_was_taken():
    decoded = DecodedRecords(rows(4, 6, 9))
    assert (len(decoded), decoded.next_offset, decoded.is_begun) == (3, 4, False)
    record = next(decoded.records)
    assert type(record) is ConsumerRecord
    assert record == ("t", 3, 4, 7, None, b"v4", ())
    assert (len(decoded), decoded.next_offset, decoded.is_begun) == (2, 6, True)
    assert decoded.take(1) == rows(6)
    assert decoded.next_offset == 9
    assert decoded.take(5) == rows(9)
    assert (len(decoded), decoded.next_offset) == (0, -1)
    assert list(decoded.records) == []


def test_what_is_left_after_a_stop_is_taken_from_the_rest_alone():
    decoded = DecodedRecords(rows(1, 2, 3))
    records = decoded.records
    next(records)
    decoded.stop()
    rest = decoded.rest()
    assert next(records, None) is None
    assert decoded.next_offset == rest.next_offset == 2
    assert rest.is_begun
    assert [record.offset for record in rest.records] == [2, 3]


def test_threads_that_read_while_another_one_stops_get_each_record_once_and_in_order():
    decoded = DecodedRecords(rows(*range(100_000)))
    found: list[list[int]] = [[], []]
    is_over = threading.Event()

    def read(mine: list[int]) -> None:
        while not is_over.is_set() or decoded:
            mine.extend(record.offset for record in decoded.records)

    readers = [threading.Thread(target=read, args=[mine]) for mine in found]
    for reader in readers:
        reader.start()
    while decoded:
        decoded.stop()
        decoded = decoded.rest()
    is_over.set()
    for reader in readers:
        reader.join(60)
    assert sorted(found[0] + found[1]) == list(range(100_000))
    assert [sorted(mine) for mine in found] == found


# What is fetched ---------------------------------------------------------------------------------------------------


def fetched(base_offset, count=2, *, epoch=5, value=b"x"):
    records = [Record(base_offset + place, 7, None, value) for place in range(count)]
    batch = encode_batch(records, leader_epoch=epoch)
    return FetchedBatch(memoryview(batch), parse_header(batch), [])


def assigned_with(*batches):
    assigned = AssignedPartition(PARTITION, None)
    assigned.move(batches[0].header.base_offset)
    for batch in batches:
        assigned.add(batch)
    return assigned


def decode(assigned):
    assigned.decode_next(ConsumerOptions(), ConsumerMetrics(0), 0)
    return [row[2] for row in assigned.decoded.take(10**6)]


def test_several_batches_are_decoded_at_once():
    assigned = assigned_with(fetched(0), fetched(2), fetched(4))
    assert decode(assigned) == [0, 1, 2, 3, 4, 5]
    assert (assigned.position, assigned.buffered_bytes, len(assigned.fetched)) == (6, 0, 0)


@pytest.mark.parametrize(
    "batch", [fetched(0, DECODED_RECORDS), fetched(0, 2, value=bytes(DECODED_BYTES // 2))], ids=["records", "bytes"]
)
def test_what_is_decoded_at_once_has_a_bound(batch):
    after = fetched(batch.header.next_offset)
    assigned = assigned_with(batch, after)
    assert len(decode(assigned)) == batch.header.record_count
    assert list(assigned.fetched) == [after]
    assert len(decode(assigned)) == 2


def test_a_batch_of_another_leader_epoch_is_decoded_apart_so_that_each_position_has_its_own():
    assigned = assigned_with(fetched(0, epoch=5), fetched(2, epoch=6))
    assigned.decode_next(ConsumerOptions(), ConsumerMetrics(0), 0)
    assert assigned.consumed_epoch == -1
    next(assigned.decoded.records)
    assert (assigned.next_offset, assigned.consumed_epoch) == (1, 5)
    next(assigned.decoded.records)
    assigned.decode_next(ConsumerOptions(), ConsumerMetrics(0), 0)
    assert (assigned.next_offset, assigned.consumed_epoch) == (2, 5)
    next(assigned.decoded.records)
    assert (assigned.next_offset, assigned.consumed_epoch) == (3, 6)


def test_an_interrupt_in_the_middle_keeps_position_and_epoch():
    assigned = assigned_with(fetched(0), fetched(2))
    assigned.decode_next(ConsumerOptions(), ConsumerMetrics(0), 0)
    next(assigned.decoded.records)
    assigned.interrupt()
    assert (assigned.next_offset, assigned.consumed_epoch) == (1, 5)
    assert [record.offset for record in assigned.decoded.records] == [1, 2, 3]


def test_the_records_before_a_damaged_batch_are_read_before_it_is_reported():
    damaged = fetched(4)
    damaged.view[-1] ^= 1
    assigned = assigned_with(fetched(0), fetched(2), damaged, fetched(6))
    assert decode(assigned) == [0, 1, 2, 3]
    with pytest.raises(CorruptRecords) as refused:
        decode(assigned)
    assert (refused.value.offset, refused.value.next_offset, assigned.position) == (4, 6, 4)
    assert not assigned.fetched
    assert not assigned.decoded


# What getmany returns ----------------------------------------------------------------------------------------------


def test_polled_records_are_a_sequence_of_records_equal_to_a_list_of_them():
    records = PolledRecords(rows(1, 2, 3))
    made = [ConsumerRecord(*row) for row in rows(1, 2, 3)]
    assert records == made
    assert made == records
    assert records == PolledRecords(rows(1, 2, 3))
    assert records != made[:2]
    assert records != 3
    assert [type(record) for record in records] == [ConsumerRecord] * 3
    assert list(reversed(records)) == made[::-1]
    assert (records[0], records[-1], records[1:]) == (made[0], made[2], made[1:])
    assert type(records[0]) is ConsumerRecord
    assert made[1] in records
    assert (records.index(made[1]), records.count(made[1])) == (1, 1)
    assert (records + made[:1], made[:1] + records) == (made + made[:1], made[:1] + made)
    assert repr(records) == repr(made)
    with pytest.raises(TypeError, match="unhashable"):
        hash(records)
    assert not PolledRecords([])


def test_records_are_values_that_keep_nothing_of_their_batch():
    assigned = assigned_with(fetched(0, value=b"kept"))
    assigned.decode_next(ConsumerOptions(), ConsumerMetrics(0), 0)
    records = PolledRecords(assigned.decoded.take(2))
    assert pickle.loads(pickle.dumps(records)) == records
    assert pickle.loads(pickle.dumps(records[0])) == records[0]
    assert hash(records[0]) == hash(ConsumerRecord("t", 3, 0, 7, None, b"kept"))
    assert type(records[0].value) is bytes
