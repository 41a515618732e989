"""Deadlines by name: each key is due once, at the time that was set last."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.coordination.deadlines import Deadlines


def test_the_earliest_is_at_hand() -> None:
    deadlines: Deadlines[str] = Deadlines()
    assert deadlines.next_ms is None
    deadlines.set("a", 20)
    deadlines.set("b", 10)
    assert deadlines.next_ms == 10
    assert (len(deadlines), "a" in deadlines, deadlines.at("a")) == (2, True, 20)


def test_what_is_put_off_is_not_due_before() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    deadlines.set("a", 30)
    assert deadlines.take(29) is None
    assert deadlines.take(30) == "a"
    assert deadlines.take(30) is None


def test_bringing_forward_never_puts_off() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.bring_forward("a", 30)
    deadlines.bring_forward("a", 10)
    deadlines.bring_forward("a", 20)
    assert deadlines.next_ms == 10


def test_a_key_that_is_put_off_again_and_again_has_one_entry() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for now_ms in range(1_000):
        deadlines.set("a", now_ms + 100)
        assert deadlines.take(now_ms) is None
    assert deadlines.entry_count == 1


def test_keys_that_come_and_go_leave_nothing_behind() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("stays", 1)
    for number in range(10_000):
        deadlines.set(f"member-{number}", 2**31)
        deadlines.cancel(f"member-{number}")
    assert deadlines.entry_count < 200
    assert (len(deadlines), deadlines.next_ms) == (1, 1)


def test_a_key_that_is_due_soon_and_then_late_and_soon_again_has_few_entries() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("stays", 2**20)
    for now_ms in range(10_000):
        deadlines.set("a", now_ms + 1)
        deadlines.set("a", now_ms + 2**31)
        assert deadlines.take(now_ms + 1) is None
    assert deadlines.entry_count < 200
    assert (len(deadlines), deadlines.next_ms, deadlines.at("a")) == (2, 2**20, 9_999 + 2**31)


def test_clearing_forgets_all() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 1)
    deadlines.clear()
    assert (deadlines.next_ms, len(deadlines)) == (None, 0)


@given(
    st.lists(
        st.tuples(st.sampled_from(["set", "forward", "cancel", "take"]), st.sampled_from("abcd"), st.integers(0, 50)),
        max_size=60,
    )
)
def test_it_behaves_as_a_dictionary_that_is_searched(steps: list[tuple[str, str, int]]) -> None:
    deadlines: Deadlines[str] = Deadlines()
    model: dict[str, float] = {}
    for kind, key, time_ms in steps:
        if kind == "set":
            deadlines.set(key, time_ms)
            model[key] = time_ms
        elif kind == "forward":
            deadlines.bring_forward(key, time_ms)
            model[key] = min(time_ms, model.get(key, time_ms))
        elif kind == "cancel":
            deadlines.cancel(key)
            model.pop(key, None)
        else:
            due = deadlines.take_due(time_ms)
            assert sorted(due) == sorted(k for k, at_ms in model.items() if at_ms <= time_ms)
            assert [model[k] for k in due] == sorted(model[k] for k in due)
            for k in due:
                del model[k]
        assert deadlines.next_ms == min(model.values(), default=None)
