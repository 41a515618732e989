"""Answers that a fault holds back or loses: of handlers that answer, wait, refuse, or are cancelled."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kit.clock import ManualClock

from ottla.broker.api import Handler
from ottla.broker.runtime.in_flight_request import CloseConnection
from ottla.broker.runtime.pending import Pending
from ottla.broker.runtime.timers import Timers
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.testing.faults import Fault
from ottla.testing.faulty_gate import with_fault

LATE = Fault(ApiKey.PRODUCE, delay_ms=100)
LOST = Fault(ApiKey.PRODUCE, cuts=True, is_handled=True)


class Shell:
    """The services that an answer needs, and a clock that the test moves."""

    def __init__(self) -> None:
        self.clock, self.timers = ManualClock(), Timers()
        self.context: Any = SimpleNamespace(services=self)

    def handle(self, fault: Fault, answer: object) -> Pending[Any]:
        """What a handler returns under a fault; an exception is raised by the handler."""

        def handle(_request: object, _context: object) -> object:
            if isinstance(answer, BaseException):
                raise answer
            return answer

        result = with_fault(Handler(handle, (), ()), fault, "Produce").handle(None, self.context)
        assert isinstance(result, Pending)
        return result

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timers.run_due(self.clock.monotonic_ms())


def test_an_answer_is_held_back() -> None:
    shell = Shell()
    late = shell.handle(LATE, "answer")
    shell.advance(99)
    assert not late.done
    shell.advance(1)
    assert late.response == "answer"
    assert late.parks  # as if the client waited for the network


def test_the_delay_begins_when_the_answer_is_known() -> None:
    shell = Shell()
    pending: Pending[str] = Pending()
    late = shell.handle(LATE, pending)
    shell.advance(1_000)
    pending.complete("answer")
    shell.advance(99)
    assert not late.done
    shell.advance(1)
    assert late.response == "answer"
    assert not late.parks


def test_a_refusal_is_held_back() -> None:
    shell = Shell()
    refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    late = shell.handle(LATE, refusal)
    assert not late.done
    shell.advance(100)
    assert late.error is refusal


def test_a_lost_answer_closes_the_connection_when_it_is_known() -> None:
    shell = Shell()
    pending: Pending[str] = Pending()
    lost = shell.handle(LOST, pending)
    assert not lost.done
    pending.complete("answer")
    assert isinstance(lost.error, CloseConnection)
    for known in ("answer", None, KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)):
        assert isinstance(shell.handle(LOST, known).error, CloseConnection)


def test_a_closed_connection_is_closed_immediately() -> None:
    with pytest.raises(CloseConnection, match="acks=0"):
        Shell().handle(LATE, CloseConnection("acks=0"))


@pytest.mark.parametrize("fault", [LATE, LOST])
def test_a_client_that_leaves_cancels_the_request(fault: Fault) -> None:
    shell, cancelled = Shell(), []
    pending: Pending[str] = Pending()
    pending.on_cancel(lambda: cancelled.append(True))
    shell.handle(fault, pending).cancel()
    assert cancelled


def test_a_client_that_leaves_takes_its_timer_along() -> None:
    shell = Shell()
    shell.handle(LATE, "answer").cancel()
    assert len(shell.timers) == 0
