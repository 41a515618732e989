"""Codes for older clients: an answer with other codes is otherwise the same answer."""

from __future__ import annotations

import pytest

from ottla.broker.runtime.pending import Pending
from ottla.broker.transactions.codes import FENCED_BEFORE, with_codes
from ottla.protocol.errors import ErrorCode, KafkaError


def test_only_the_code_of_an_error_is_replaced() -> None:
    answer: Pending[str] = Pending()
    translated = with_codes(answer, FENCED_BEFORE)
    answer.fail(KafkaError(ErrorCode.PRODUCER_FENCED, "another has taken over"))
    assert isinstance(translated.error, KafkaError)
    assert (translated.error.code, translated.error.message) == (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        "another has taken over",
    )


def test_a_response_is_passed_on() -> None:
    answer: Pending[str] = Pending()
    translated = with_codes(answer, FENCED_BEFORE)
    answer.complete("done")
    assert (translated.response, translated.error) == ("done", None)


@pytest.mark.parametrize(("parks", "is_cold"), [(True, False), (False, True)])
def test_an_answer_parks_and_is_cold_as_the_original(parks: bool, is_cold: bool) -> None:
    translated = with_codes(Pending[str](parks=parks, is_cold=is_cold), FENCED_BEFORE)
    assert (translated.parks, translated.is_cold) == (parks, is_cold)


def test_the_original_is_cancelled_too() -> None:
    answer: Pending[str] = Pending()
    with_codes(answer, FENCED_BEFORE).cancel()
    assert answer.done
