"""JAAS entries as Kafka reads them."""

from __future__ import annotations

import pytest

from ottla.jaas import parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_an_entry_is_a_module_with_its_options() -> None:
    entry = parse_jaas(f"{PLAIN} required username=\"alice\" password='s p' user_bob=x-1.y_$;")
    assert entry.module_name == "PlainLoginModule"
    assert entry.options == {"username": "alice", "password": "s p", "user_bob": "x-1.y_$"}


@pytest.mark.parametrize(
    ("quoted", "value"),
    [
        (r'"a\"b"', 'a"b'),
        (r'"a\\b"', r"a\b"),
        (r"'it\'s'", "it's"),
        (r'"a;b=c//d"', "a;b=c//d"),
        (r'"\t\n\101\0601"', "\t\nA01"),
        (r'"\4001"', " 01"),  # two digits where the first is above 3
        ('"Ω"', "Ω"),
        ('""', ""),
    ],
)
def test_quotes_and_escapes_are_those_of_java(quoted: str, value: str) -> None:
    assert parse_jaas(f"M required user_x={quoted};").options == {"user_x": value}


def test_comments_and_lines_are_skipped_and_a_key_may_be_quoted() -> None:
    text = 'M Required // the flag\n /* its\noptions */ "user_a@b"="1" # = "2"\n;'.replace('# = "2"', "")
    assert parse_jaas(text).options == {"user_a@b": "1"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must be a JAAS entry"),
        ("M", "has no flag"),
        ("M needed;", "has no flag"),
        ("= required;", "must begin with the name"),
        ('M required user_x="secret"', "semicolon"),
        ('M required user_x="secret;', "quote that does not end"),
        ('M required user_x="secret\n";', "quote that does not end"),
        ("M required user_x=12secret;", "quote what is no plain word"),
        ('M required user_x "secret";', "after 0 options"),
        ("M required user_x=sec@ret;", "after 1 options"),
        ('M required; N required user_x="secret";', "has 2 login modules"),
    ],
)
def test_what_is_no_entry_is_refused_without_showing_it(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as refusal:
        parse_jaas(text)
    assert "secret" not in str(refusal.value)


def test_an_entry_shows_no_passwords() -> None:
    assert "secret" not in repr(parse_jaas('M required user_x="secret";'))
