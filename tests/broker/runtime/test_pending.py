"""A pending answer is given exactly once."""

from __future__ import annotations

from ottla.broker.runtime.pending import Pending


def test_the_first_completion_counts() -> None:
    pending: Pending[str] = Pending()
    reported: list[object] = []
    pending.then(lambda done: reported.append(done.response))
    pending.complete("first")
    pending.complete("second")
    pending.fail(ValueError())
    pending.cancel()
    assert reported == ["first"]


def test_a_listener_that_comes_late_is_called_at_once() -> None:
    pending: Pending[str] = Pending()
    pending.fail(ValueError("x"))
    reported: list[BaseException | None] = []
    pending.then(lambda done: reported.append(done.error))
    assert [str(error) for error in reported] == ["x"]


def test_cancelling_runs_the_callbacks_and_calls_no_listener() -> None:
    pending: Pending[str] = Pending(parks=True)
    events: list[str] = []
    pending.then(lambda done: events.append("called"))
    pending.on_cancel(lambda: events.append("cancelled"))
    pending.cancel()
    pending.complete("too late")
    assert events == ["cancelled"]


def test_what_is_complete_has_nothing_to_cancel() -> None:
    pending: Pending[str] = Pending()
    events: list[str] = []
    pending.on_cancel(lambda: events.append("cancelled"))
    pending.complete("done")
    pending.cancel()
    assert events == []
