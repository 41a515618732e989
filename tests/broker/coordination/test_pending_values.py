"""Which values of open transactions count when a marker ends them: the newest by the log, as Kafka has it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.coordination.pending_values import PendingValues

KEYS = ("a", "b")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 3), st.sampled_from(KEYS)),
        st.tuples(st.just("plain"), st.just(0), st.sampled_from(KEYS)),
        st.tuples(st.just("tombstone"), st.just(0), st.sampled_from(KEYS)),
        st.tuples(st.sampled_from(["commit", "abort"]), st.integers(1, 3), st.just("")),
    ),
    max_size=30,
)


def test_a_value_counts_from_its_commit_on() -> None:
    transactions: PendingValues[str, int] = PendingValues()
    transactions.write(7, "a", 1)
    assert transactions.is_open("a")
    assert transactions.end(7, is_commit=True) == [("a", 1)]
    assert not transactions.is_open("a")
    assert not transactions


def test_an_aborted_value_never_counts() -> None:
    transactions: PendingValues[str, int] = PendingValues()
    transactions.write(7, "a", 1)
    assert transactions.end(7, is_commit=False) == []
    assert transactions.end(7, is_commit=True) == []


def test_a_superseded_value_does_not_count_and_its_key_is_open_until_the_end() -> None:
    transactions: PendingValues[str, int] = PendingValues()
    transactions.write(7, "a", 1)
    transactions.supersede("a")
    assert transactions.is_open("a")
    assert transactions.end(7, is_commit=True) == []
    assert not transactions.is_open("a")


def test_of_two_transactions_the_later_value_counts_whichever_ends_first() -> None:
    for first, second in ((7, 8), (8, 7)):
        transactions: PendingValues[str, int] = PendingValues()
        transactions.write(7, "a", 1)
        transactions.write(8, "a", 2)
        kept: dict[str, int] = {}
        kept.update(transactions.end(first, is_commit=True))
        kept.update(transactions.end(second, is_commit=True))
        assert kept == {"a": 2}


def test_a_tombstone_drops_what_was_written_before_it_and_not_what_comes_later() -> None:
    transactions: PendingValues[str, int] = PendingValues()
    transactions.write(7, "a", 1)
    transactions.forget("a")
    assert not transactions.is_open("a")
    transactions.write(7, "a", 2)
    assert transactions.end(7, is_commit=True) == [("a", 2)]


@given(STEPS)
def test_the_result_is_that_of_kafkas_comparison_of_record_offsets(steps: list[tuple[str, int, str]]) -> None:
    """Kafka keeps the offset of each record: a pending one counts unless a newer record of its key does."""
    transactions: PendingValues[str, int] = PendingValues()
    kept: dict[str, int] = {}
    model: dict[str, int] = {}
    pending: dict[int, dict[str, int]] = {}
    for offset, (what, producer, key) in enumerate(steps):
        if what == "write":
            transactions.write(producer, key, offset)
            pending.setdefault(producer, {})[key] = offset
        elif what == "plain":
            kept[key] = offset
            transactions.supersede(key)
            model[key] = offset
        elif what == "tombstone":
            kept.pop(key, None)
            transactions.forget(key)
            model.pop(key, None)
            for written in pending.values():
                written.pop(key, None)
        else:
            kept.update(transactions.end(producer, is_commit=what == "commit"))
            for name, at in pending.pop(producer, {}).items():
                if what == "commit" and at > model.get(name, -1):
                    model[name] = at
        assert kept == model
        assert {name for name in KEYS if transactions.is_open(name)} == {
            name for written in pending.values() for name in written
        }
