from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.config.declare import (
    boolean,
    choice,
    double,
    finer,
    int32,
    int64,
    maybe_int32,
    password,
    text_of_double,
    words,
)
from ottla.config.errors import ConfigError
from ottla.config.options import Given, Option, Options, Origin, OriginKind, text_of

FILE = Origin(OriginKind.FILE, "server.properties:3")


class Sample(Options):
    """A heading.

    More of it.
    """

    a_count = int32(3, at_least=1, at_most=9, doc="A count.")
    big_number = int64(7, doc="A number.")
    hours = int32(168, at_least=-1, doc="Hours.")
    minutes = maybe_int32(at_least=-1, doc="Minutes.")
    ms = finer((minutes, 60_000), (hours, 3_600_000), at_least=-1, doc="Milliseconds.")
    some_words = words(("a",), "a", "b", doc="Words.")
    a_word = choice("x", "x", "y", doc="A word.")
    a_flag = boolean(False, doc="A flag.")
    a_share = double(0.5, at_most=1.0, doc="A share.")
    a_secret = password(doc="A secret.")


def option(key: str) -> Option:
    return Sample.by_key[key]


def read(key: str, text: str) -> object:
    return option(key).read(Given(text, FILE))


def test_the_key_is_the_name_with_dots() -> None:
    assert option("big.number").attribute == "big_number"


def test_the_heading_is_the_first_line_of_the_docstring() -> None:
    assert {option.section for option in Sample.by_key.values()} == {"A heading"}


def test_a_declaration_is_found_on_the_class_and_is_no_class_attribute() -> None:
    declared: object = Sample.a_count
    assert declared is option("a.count")
    assert "a_count" not in vars(Sample)
    assert not hasattr(Sample, "no_such_key")


def test_a_value_is_a_plain_attribute_of_the_instance() -> None:
    sample = Sample()
    sample.assign({"a.count": 5})
    assert vars(sample)["a_count"] == 5
    assert sample.big_number == 7


@pytest.mark.parametrize(
    ("set_", "ms"),
    [
        ({}, 168 * 3_600_000),
        ({"hours": 2}, 2 * 3_600_000),
        ({"hours": 2, "minutes": 5}, 5 * 60_000),
        ({"hours": 2, "minutes": 5, "ms": 7}, 7),
        ({"hours": 2, "ms": 7}, 7),
        ({"minutes": -1}, -1),
        ({"hours": -1}, -1),
    ],
)
def test_the_finest_unit_that_is_set_wins(set_: dict[str, object], ms: int) -> None:
    sample = Sample()
    sample.assign(set_)
    assert sample.ms == ms


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        ("a.count", "0", "must be an integer from 1 to 9"),
        ("a.count", "10", "must be an integer from 1 to 9"),
        ("a.count", "", "must be an integer from 1 to 9"),
        ("a.count", "1.0", "must be an integer from 1 to 9"),
        ("a.count", "0x2", "must be an integer from 1 to 9"),
        ("a.count", "\u0663", "must be an integer from 1 to 9"),
        ("big.number", "9223372036854775808", "must be an integer of at least 0, and at most 9223372036854775807"),
        ("big.number", "9" * 5000, "must be an integer of at least 0"),
        ("some.words", "a,c", "must be a list of a, b"),
        ("a.word", "X", "must be one of x, y"),
        ("a.flag", "yes", "must be true or false"),
        ("a.share", "1.5", "must be a number from 0 to 1"),
        ("a.share", "nan", "must be a number from 0 to 1"),
        ("a.share", "much", "must be a number from 0 to 1"),
    ],
)
def test_a_wrong_value_is_reported_in_one_line_with_what_is_allowed(key: str, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(key, text)
    assert caught.value.key == key
    assert caught.value.reason == reason
    line = str(caught.value)
    assert line.startswith(f"{key}=")
    assert line.endswith("(server.properties:3)")
    assert "\n" not in line
    assert len(line) < 300


def test_a_line_break_in_a_value_does_not_break_the_line() -> None:
    with pytest.raises(ConfigError) as caught:
        read("a.count", "1\n2")
    assert str(caught.value) == r"a.count=1\n2: must be an integer from 1 to 9 (server.properties:3)"


def test_bounds_themselves_are_allowed() -> None:
    assert [read("a.count", "1"), read("a.count", " 9 "), read("big.number", str(2**63 - 1))] == [1, 9, 2**63 - 1]


def test_a_secret_is_kept_exactly_and_said_to_be_sensitive() -> None:
    assert read("a.secret", " s p ") == " s p "
    assert option("a.secret").is_sensitive


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (0.0, "0.0"),
        (1.0, "1.0"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9999999.0, "9999999.0"),
        (10000000.0, "1.0E7"),
        (123456789.5, "1.234567895E8"),
        (1e300, "1.0E300"),
        (-2.5e-10, "-2.5E-10"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_a_floating_point_number_is_reported_as_java_writes_it(value: float, text: str) -> None:
    assert text_of_double(value) == text
    assert float(text) == value


def test_words_lose_space_and_repetition_and_keep_their_order() -> None:
    assert read("some.words", " b , a,b,, ") == ("b", "a")


@given(st.integers(-(2**63), 2**63 - 1))
def test_an_integer_survives_being_shown_and_read(value: int) -> None:
    class Whole(Options):
        """Numbers."""

        number = int64(0, at_least=-(2**63), doc="Any number.")

    assert Whole.by_key["number"].read(Given(text_of(value) or "", FILE)) == value
