"""The program gets the acquired records of an answer; the client acknowledges everything else that is acquired."""

from __future__ import annotations

import pytest

from ottla.client import AcknowledgeType, CorruptRecords, TopicPartition, UndecodableRecord
from ottla.client.share.acquisition import Decoder
from ottla.protocol.api.share_fetch import ShareFetchResponse
from ottla.protocol.records.batch import Record, encode_batch

GAP, RELEASE, REJECT = AcknowledgeType.GAP, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
PARTITION = TopicPartition("t", 0)


def batch(*offsets):
    records = [Record(offset, offset, None, b"%d" % offset) for offset in offsets]
    return bytes(encode_batch(records, base_offset=offsets[0]))


def decoded(records, *ranges, value_deserializer=None):
    answered = ShareFetchResponse.PartitionData(
        partition_index=0,
        current_leader=ShareFetchResponse.LeaderIdAndEpoch(),
        records=records,
        acquired_records=[
            ShareFetchResponse.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in ranges
        ],
    )
    found = Decoder(True, None, value_deserializer).decode(PARTITION, answered)
    pieces = [
        [(row[2], row[-1]) for row in piece] if isinstance(piece, list) else type(piece) for piece in found.pieces
    ]
    return pieces, sorted(found.refused)


@pytest.mark.parametrize(
    ("ranges", "rows"),
    [
        ([(0, 5, 1)], [(offset, 1) for offset in range(6)]),
        ([(2, 3, 4)], [(2, 4), (3, 4)]),
        ([(0, 0, 1), (2, 4, 2), (5, 5, 3)], [(0, 1), (2, 2), (3, 2), (4, 2), (5, 3)]),
        ([(5, 5, 3), (0, 0, 1)], [(0, 1), (5, 3)]),
    ],
)
def test_only_acquired_records_come_each_with_its_delivery_count(ranges, rows):
    assert decoded(batch(0, 1, 2) + batch(3, 4, 5), *ranges) == ([rows], [])


def test_what_compaction_has_removed_is_a_gap():
    records = batch(1, 3) + batch(7, 8)
    rows = [(1, 1), (3, 1), (7, 1), (8, 1)]
    assert decoded(records, (0, 9, 1)) == ([rows], [(0, 0, GAP), (2, 2, GAP), (4, 6, GAP), (9, 9, GAP)])
    assert decoded(records, (0, 2, 1), (4, 5, 1)) == ([[(1, 1)]], [(0, 0, GAP), (2, 2, GAP), (4, 5, GAP)])
    assert decoded(b"", (0, 9, 1)) == ([], [(0, 9, GAP)])


def test_what_an_answer_lacks_at_its_end_is_released():
    records = batch(0, 1) + batch(2, 3)
    assert decoded(records[:-1], (0, 3, 1)) == ([[(0, 1), (1, 1)]], [(2, 3, RELEASE)])


def test_a_damaged_batch_is_rejected_and_the_others_come():
    damaged = bytearray(batch(2, 3))
    damaged[-1] ^= 1
    pieces, refused = decoded(batch(0, 1) + damaged + batch(4), (0, 2, 1), (4, 4, 1))
    assert pieces == [[(0, 1), (1, 1)], CorruptRecords, [(4, 1)]]
    assert refused == [(2, 2, REJECT)]


def test_after_an_impossible_header_everything_is_rejected():
    damaged = bytearray(batch(2, 3))
    damaged[8:12] = (1).to_bytes(4, "big")
    pieces, refused = decoded(batch(0, 1) + damaged, (0, 3, 1))
    assert pieces == [[(0, 1), (1, 1)], CorruptRecords]
    assert refused == [(2, 3, REJECT)]


def test_a_record_that_a_deserializer_refuses_is_released_and_the_others_come():
    def refusing(value):
        if value == b"1":
            raise ValueError("no")
        return value

    pieces, refused = decoded(batch(0, 1, 2), (0, 2, 1), value_deserializer=refusing)
    assert pieces == [[(0, 1)], UndecodableRecord, [(2, 1)]]
    assert refused == [(1, 1, RELEASE)]
