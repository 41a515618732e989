"""The order of Java's hash maps: known hashes, growing tables, and texts that share a place."""

from __future__ import annotations

import pytest

from ottla.broker.groups.streams.hash_order import hash_code, in_computed_order, in_hash_order


@pytest.mark.parametrize(
    ("text", "code"),
    [("", 0), ("a", 97), ("Aa", 2112), ("BB", 2112), ("hello", 99162322), ("polygenelubricants", 0x8000_0000)],
)
def test_a_hash_is_that_of_java(text: str, code: int) -> None:
    assert hash_code(text) == code


def test_a_character_outside_of_the_first_plane_is_two_units() -> None:
    assert hash_code("\U0001f600") == 0xD83D * 31 + 0xDE00


def test_the_places_decide_the_order() -> None:
    assert in_hash_order(["9", "10", "0"]) == ["0", "9", "10"]


def test_texts_of_one_place_keep_their_order() -> None:
    assert in_hash_order(["BB", "Aa", "BB"]) == ["BB", "Aa"]
    assert in_hash_order(["Aa", "BB"]) == ["Aa", "BB"]


@pytest.mark.parametrize(("size", "first"), [(12, "0"), (13, "A")])
def test_a_table_grows_when_it_is_more_than_three_quarters_full(size: int, first: str) -> None:
    """The hash of "0" is 48: place 0 of 16, and 16 of 32. Those of "A", "B", ... are 65 and more: places 1, 2, ..."""
    letters = [chr(ord("A") + number) for number in range(size - 1)]
    assert in_hash_order([*letters, "0"])[0] == first


def test_a_map_for_two_entries_grows_only_at_the_next_call() -> None:
    """Of two places, "a" (97) has the second and "b" (98) the first; of four they have 1 and 2."""
    assert in_computed_order(["a", "b"], size=2) == ["b", "a"]
    assert in_computed_order(["a", "b", "a"], size=2) == ["a", "b"]


def test_the_last_computed_text_of_a_place_comes_first() -> None:
    assert in_computed_order(["Aa", "BB"], size=16) == ["BB", "Aa"]
