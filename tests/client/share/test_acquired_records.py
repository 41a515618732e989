"""Acquired records know what the program has taken, and what it has said of it."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.client import AcknowledgeType, TopicPartition
from ottla.client.share.acquired_records import AcquiredRecords
from ottla.client.share.session import ShareSession

ACCEPT, RELEASE, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW


@pytest.fixture
def make():
    def records(*offsets, is_explicit=False):
        rows = [("t", 0, offset, 0, None, b"%d" % offset, (), 1) for offset in offsets]
        session = ShareSession(1, "g", "m")
        return AcquiredRecords(TopicPartition("t", 0), (UUID(int=1), 0), session, rows, 10.0, is_explicit=is_explicit)

    return records


def ranges(runs):
    return [(run.first_offset, run.last_offset, run.kind) for run in runs]


def test_implicit_acknowledgements_are_of_the_records_taken_since_the_last_ones(make):
    records = make(3, 4, 5, 8)
    assert ranges(records.accept_taken()) == []
    assert [one.offset for one in records.take(2)] == [3, 4]
    assert ranges(records.accept_taken()) == [(3, 4, ACCEPT)]
    assert [one.offset for one in records.records] == [5, 8]
    assert not records.is_done
    assert ranges(records.accept_taken()) == [(5, 5, ACCEPT), (8, 8, ACCEPT)]
    assert records.is_done


def test_each_record_is_acknowledged_once_but_renewed_before_that(make):
    records = make(0, 1, 2, is_explicit=True)
    records.take(2)
    assert records.unanswered_count == 2
    assert records.acknowledge(0, RENEW)
    assert records.unanswered_count == 1
    assert records.acknowledge(1, ACCEPT)
    assert not records.acknowledge(1, RELEASE)
    assert not records.acknowledge(1, RENEW)
    assert not records.acknowledge(9, ACCEPT)
    runs, renewals = records.said()
    assert (ranges(runs), renewals) == ([(1, 1, ACCEPT)], {0})
    assert records.said() == ([], set())
    assert records.acknowledge(0, RENEW)
    assert records.acknowledge(0, RELEASE)
    runs, renewals = records.said()
    assert (ranges(runs), renewals) == ([(0, 0, RELEASE)], set())
    assert records.unanswered_count == 0
    assert not records.is_done


def test_records_that_are_left_can_be_released_and_a_reader_gets_none_of_them(make):
    records = make(0, 1, 2, 3, is_explicit=True)
    reader = records.records
    next(reader)
    assert ranges(records.release_left()) == [(1, 3, RELEASE)]
    assert list(reader) == []
    assert not records.acknowledge(1, ACCEPT)
    assert records.acknowledge(0, ACCEPT)
    records.said()
    assert records.is_done


def test_taken_records_are_put_back_for_another_reader(make):
    records = make(0, 1, 2, 3)
    records.take(1)
    records.accept_taken()
    records.take(2)
    rest = records.put_back(2)
    assert ranges(records.accept_taken()) == []
    assert records.is_done
    assert [one.offset for one in rest.take(9)] == [1, 2, 3]
    assert ranges(rest.accept_taken()) == [(1, 3, ACCEPT)]


def test_of_two_acknowledgements_of_a_record_at_once_one_counts(make):
    records = make(0, 1, is_explicit=True)
    records.take(2)
    assert records.acknowledge(0, RENEW)
    assert records.acknowledge(0, ACCEPT)
    assert records.acknowledge(1, ACCEPT)
    runs, renewals = records.said()
    assert (ranges(runs), renewals) == ([(0, 1, ACCEPT)], set())
