"""Many connections that ask for all there is and take nothing hold no more than the bound over all of them."""

from __future__ import annotations

import pytest
from kit.fuzz.crowd import Ask, all_asks, peak_bytes
from kit.fuzz.watch import Finding

from ottla.broker.runtime.answer_memory import AnswerMemory

CROWD, LARGE_CROWD = 60, 150


@pytest.mark.parametrize("ask", list(all_asks()), ids=str)
def test_a_crowd_keeps_to_the_bound_and_leaves_nothing_behind(ask: Ask) -> None:
    peak_bytes(ask, CROWD)


@pytest.mark.parametrize("ask", [Ask(2, is_cold=False), Ask(4, is_cold=True)], ids=str)
def test_a_broker_that_reads_for_everybody_at_once_would_be_seen(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AnswerMemory, "_has_room", lambda *_: True)
    monkeypatch.setattr(AnswerMemory, "_close_oldest", lambda *_: None)
    with pytest.raises(Finding, match="more than"):
        peak_bytes(ask, LARGE_CROWD)


def test_memory_that_is_not_given_back_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AnswerMemory, "note_released", lambda *_: None)
    with pytest.raises(Finding):
        peak_bytes(Ask(12, is_cold=True), CROWD)
