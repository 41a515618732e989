"""Acknowledgements as they come in a request: what is refused before any record is looked at."""

from __future__ import annotations

import pytest

from ottla.broker.share.acknowledging import acknowledgements_of
from ottla.broker.share.in_flight import Acknowledgement
from ottla.protocol.api.share_fetch import AcknowledgeType, ShareFetchRequest
from ottla.protocol.errors import ErrorCode, KafkaError

GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType


def batch(first: int, last: int, *types: int) -> ShareFetchRequest.AcknowledgementBatch:
    return ShareFetchRequest.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))


def reason(*batches: ShareFetchRequest.AcknowledgementBatch, may_renew: bool = True) -> str:
    with pytest.raises(KafkaError) as refused:
        acknowledgements_of(batches, may_renew=may_renew)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    return str(refused.value.message)


def test_a_batch_has_one_type_or_one_for_each_offset() -> None:
    assert acknowledgements_of([batch(0, 2, ACCEPT), batch(3, 5, GAP, RELEASE, REJECT)], may_renew=False) == [
        Acknowledgement(0, 2, [ACCEPT]),
        Acknowledgement(3, 5, [GAP, RELEASE, REJECT]),
    ]


def test_nothing_may_be_acknowledged() -> None:
    assert acknowledgements_of([], may_renew=False) == []


def test_batches_need_not_be_neighbours() -> None:
    assert len(acknowledgements_of([batch(0, 0, ACCEPT), batch(7, 7, ACCEPT)], may_renew=False)) == 2


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        ([batch(3, 2, ACCEPT)], "offsets 3 to 2 go down"),
        ([batch(-1, 2, ACCEPT)], "offset -1 is not after"),
        ([batch(0, 3, ACCEPT), batch(2, 4, ACCEPT)], "offset 2 is not after"),
        ([batch(5, 6, ACCEPT), batch(0, 1, ACCEPT)], "offset 0 is not after"),
        ([batch(0, 0)], "no acknowledge type"),
        ([batch(0, 2, ACCEPT, ACCEPT)], "a batch of 3 offsets has 2 acknowledge types"),
        ([batch(0, 1, ACCEPT, ACCEPT, ACCEPT)], "a batch of 2 offsets has 3 acknowledge types"),
        ([batch(0, 0, 5)], "5 is no acknowledge type"),
        ([batch(0, 0, -1)], "-1 is no acknowledge type"),
        ([batch(0, 1, ACCEPT, 9)], "9 is no acknowledge type"),
    ],
)
def test_what_cannot_be_is_refused(batches: list[ShareFetchRequest.AcknowledgementBatch], words: str) -> None:
    assert words in reason(*batches)


def test_the_offset_where_two_batches_meet_is_not_acquired_any_more_as_in_kafka() -> None:
    with pytest.raises(KafkaError, match="offset 3 is acknowledged twice") as refused:
        acknowledgements_of([batch(0, 3, ACCEPT), batch(3, 4, ACCEPT)], may_renew=True)
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE


@pytest.mark.parametrize("types", [(RENEW,), (ACCEPT, RENEW)])
def test_records_are_renewed_where_that_is_allowed(types: tuple[int, ...]) -> None:
    renewing = batch(0, len(types) - 1, *types)
    assert "may not be renewed" in reason(renewing, may_renew=False)
    assert acknowledgements_of([renewing], may_renew=True)
