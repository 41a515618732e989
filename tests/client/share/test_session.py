"""A share session names what is new, forgotten or acknowledged, and each request has the next epoch."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.client import AcknowledgeType, ErrorCode, KafkaError, TopicPartition
from ottla.client.share.acknowledgements import Run
from ottla.client.share.session import FetchLimits, ShareSession

LIMITS = FetchLimits(max_wait_ms=500, min_bytes=1, max_bytes=1000, max_records=10, acquire_mode=0)
TOPIC = UUID(int=7)
WANTED = {(TOPIC, index): TopicPartition("t", index) for index in range(3)}
ACCEPTED = Run(0, 4, AcknowledgeType.ACCEPT, 10.0)
LOST = KafkaError(ErrorCode.NETWORK_EXCEPTION, "lost")


@pytest.fixture
def session():
    opened = ShareSession(1, "g", "m")
    opened.fetch(WANTED, LIMITS)
    opened.answered()
    return opened


def named(request):
    return [(topic.topic_id, one.partition_index) for topic in request.topics for one in topic.partitions]


def acknowledged(request):
    return {
        one.partition_index: [
            (batch.first_offset, batch.last_offset, batch.acknowledge_types) for batch in one.acknowledgement_batches
        ]
        for topic in request.topics
        for one in topic.partitions
    }


def test_the_first_request_opens_the_session_with_all_partitions():
    session = ShareSession(1, "g", "m")
    session.add((TOPIC, 0), TopicPartition("t", 0), [ACCEPTED])
    first = session.fetch(WANTED, LIMITS)
    assert (first.group_id, first.member_id, first.share_session_epoch) == ("g", "m", 0)
    assert acknowledged(first) == {0: [], 1: [], 2: []}
    assert not session.is_open
    session.answered()
    assert session.is_open
    assert acknowledged(session.fetch(WANTED, LIMITS)) == {0: [(0, 4, [1])]}


def test_later_requests_have_only_changes(session):
    second = session.fetch(WANTED, LIMITS)
    assert (second.share_session_epoch, second.topics, second.forgotten_topics_data) == (1, [], [])
    session.answered()
    third = session.fetch({(TOPIC, 1): TopicPartition("t", 1), (TOPIC, 5): TopicPartition("t", 5)}, LIMITS)
    assert (third.share_session_epoch, named(third)) == (2, [(TOPIC, 5)])
    (forgotten,) = third.forgotten_topics_data
    assert (forgotten.topic_id, sorted(forgotten.partitions)) == (TOPIC, [0, 2])


def test_acknowledgements_are_sent_once_and_have_a_result_each(session):
    session.add((TOPIC, 1), TopicPartition("t", 1), [ACCEPTED])
    assert session.has_acknowledgements
    assert acknowledged(session.acknowledge()) == {1: [(0, 4, [1])]}
    assert session.has_acknowledgements
    assert session.answered() == {(TOPIC, 1): [ACCEPTED]}
    assert not session.has_acknowledgements
    assert named(session.fetch(WANTED, LIMITS)) == []


def test_renewals_have_a_request_of_their_own(session):
    session.add((TOPIC, 1), TopicPartition("t", 1), [ACCEPTED])
    session.renew((TOPIC, 1), TopicPartition("t", 1), {5, 6, 9}, 10.0)
    renewal = session.renewal()
    assert (renewal.is_renew_ack, acknowledged(renewal)) == (True, {1: [(5, 6, [4]), (9, 9, [4])]})
    session.answered()
    final = session.acknowledge(is_final=True)
    assert (final.is_renew_ack, final.share_session_epoch) == (False, -1)
    assert acknowledged(final) == {1: [(0, 4, [1])]}


def test_a_session_that_is_opened_again_sends_everything_again_after_its_first_request(session):
    session.renew((TOPIC, 0), TopicPartition("t", 0), {5}, 10.0)
    session.add((TOPIC, 1), TopicPartition("t", 1), [ACCEPTED])
    session.renewal()
    session.reopen()
    again = session.fetch(WANTED, LIMITS)
    assert (again.share_session_epoch, acknowledged(again)) == (0, {0: [], 1: [], 2: []})
    session.answered()
    assert acknowledged(session.renewal()) == {0: [(5, 5, [4])]}
    session.answered()
    assert acknowledged(session.acknowledge()) == {1: [(0, 4, [1])]}


def test_a_lost_session_names_the_partitions_whose_acknowledgements_are_lost(session):
    session.add((TOPIC, 0), TopicPartition("t", 0), [ACCEPTED])
    session.acknowledge()
    session.add((TOPIC, 1), TopicPartition("t", 1), [ACCEPTED])
    session.renew((TOPIC, 2), TopicPartition("t", 2), {5}, 10.0)
    assert sorted(session.lose(LOST)) == [("t", 0), ("t", 1), ("t", 2)]
    assert session.loss is LOST
    assert not session.has_acknowledgements


def test_acknowledgements_whose_lock_has_ended_are_not_sent(session):
    late = Run(7, 8, AcknowledgeType.ACCEPT, 20.0)
    session.add((TOPIC, 0), TopicPartition("t", 0), [ACCEPTED, late])
    session.renew((TOPIC, 1), TopicPartition("t", 1), {5}, 10.0)
    assert sorted(session.take_expired(10.0)) == [("t", 0), ("t", 1)]
    assert session.take_expired(10.0) == []
    assert not session.has_renewals
    assert acknowledged(session.acknowledge()) == {0: [(7, 8, [1])]}


def test_after_the_largest_epoch_comes_one():
    session = ShareSession(1, "g", "m", epoch=2**31 - 1)
    assert session.fetch(WANTED, LIMITS).share_session_epoch == 2**31 - 1
    session.answered()
    assert session.fetch(WANTED, LIMITS).share_session_epoch == 1
