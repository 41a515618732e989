"""Work in steps: when it goes on, what becomes of its errors, and when a step has done enough."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.broker.runtime.pending import Pending
from ottla.broker.runtime.steps import Pace, Steps, in_steps


class Request:
    """Runs a step whenever the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.log: list[str] = []

    def later(self, step: Callable[[], None]) -> None:
        self.waiting.append(step)

    def begin_step(self) -> None:
        self.log.append("begin")

    def end_step(self) -> None:
        self.log.append("end")

    def turn(self) -> None:
        self.waiting.pop(0)()


def counting(steps: int, log: list[str]) -> Steps[int]:
    for number in range(steps - 1):
        log.append(str(number))
        yield
    return steps


def pending_of(result: int | Pending[int]) -> Pending[int]:
    assert isinstance(result, Pending)
    return result


def test_a_result_of_one_step_is_there_at_once() -> None:
    request = Request()
    assert in_steps(counting(1, request.log), request) == 1
    assert not request.waiting


def test_each_later_step_has_a_turn_of_its_own_and_is_surrounded() -> None:
    request = Request()
    pending = pending_of(in_steps(counting(3, request.log), request))
    assert request.log == ["0"]
    request.turn()
    assert request.log == ["0", "begin", "1", "end"]
    assert not pending.done
    request.turn()
    assert (pending.response, request.waiting) == (3, [])


def test_an_error_of_the_first_step_is_raised_and_that_of_a_later_one_is_the_answer() -> None:
    def failing(steps: int) -> Steps[int]:
        yield from counting(steps, [])
        raise ValueError("no more")

    request = Request()
    with pytest.raises(ValueError, match="no more"):
        in_steps(failing(1), request)
    pending = pending_of(in_steps(failing(2), request))
    request.turn()
    assert str(pending.error) == "no more"
    assert request.log == ["begin", "end"]


def test_nothing_goes_on_for_a_connection_that_has_ended() -> None:
    request = Request()
    steps = counting(3, request.log)
    pending_of(in_steps(steps, request)).cancel()
    request.turn()
    assert request.log == ["0"]
    assert not request.waiting
    assert next(steps, None) is None, "it holds on to nothing"


@pytest.mark.parametrize("steps", [1, 2])
def test_a_result_that_is_not_there_yet_is_waited_for(steps: int) -> None:
    waits_for: Pending[int] = Pending()

    def waiting() -> Steps[Pending[int]]:
        yield from counting(steps, [])
        return waits_for

    request = Request()
    pending = pending_of(in_steps(waiting(), request))
    for _ in range(steps - 1):
        request.turn()
    assert not pending.done
    waits_for.complete(7)
    assert pending.response == 7


@pytest.mark.parametrize(("elements", "steps"), [(0, 1), (2, 1), (3, 1), (5, 2), (6, 2), (7, 3)])
def test_a_list_is_made_so_many_at_a_time(elements: int, steps: int) -> None:
    request = Request()
    result = in_steps(Pace(3).made(str, range(elements)), request)
    taken = 1
    while request.waiting:
        request.turn()
        taken += 1
    made = result.response if isinstance(result, Pending) else result
    assert (made, taken) == ([str(number) for number in range(elements)], steps)


def test_all_lists_of_an_answer_count_together() -> None:
    pace = Pace(4)
    assert [pace.is_up(elements) for elements in (1, 2, 1, 3, 5, 1)] == [False, False, False, True, False, True]
