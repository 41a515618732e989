from __future__ import annotations

import click
import pytest

from ottla.cli.show import json_bytes, one_line, parse_time, show_bytes, show_time
from ottla.cli.tables import table_lines


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (None, "null"),
        (b"", '""'),
        (b"plain", '"plain"'),
        ("caf\u00e9 \u4e2d".encode(), '"caf\u00e9 \u4e2d"'),
        (b'a"b\\c', '"a\\"b\\\\c"'),
        (b"a\nb\x1b[31m", '"a\\nb\\x1b[31m"'),
        (b"\xff\x00", "0xff00"),
        (b"x" * 201, '"' + "x" * 200 + '"\u2026 (201 bytes)'),
        ("\u4e2d".encode() * 100, '"' + "\u4e2d" * 66 + '"\u2026 (300 bytes)'),
        ("\u2028".encode(), '"\\u2028"'),
    ],
)
def test_bytes_are_text_where_they_are_text_and_never_control_a_terminal(data: bytes | None, shown: str) -> None:
    assert show_bytes(data) == shown


def test_a_name_of_others_neither_controls_a_terminal_nor_begins_another_row_of_a_table() -> None:
    assert one_line("caf\u00e9 \u4e2d \\") == "caf\u00e9 \u4e2d \\"
    assert one_line("a\x1b[2J\nb\tc\x9b") == "a\\x1b[2J\\nb\\tc\\x9b"
    rows = [("evil\nadmins", "\x1b[31m"), ("plain", "x")]
    assert table_lines(rows, ("group", "client")) == [
        "group         client",
        "evil\\nadmins  \\x1b[31m",
        "plain         x",
    ]


def test_a_column_of_numbers_is_to_the_right_also_where_a_number_is_missing() -> None:
    assert table_lines([("orders", None, 7), ("sales", 1200, 12)], ("topic", "committed", "end")) == [
        "topic   committed  end",
        "orders          -    7",
        "sales       1,200   12",
    ]


def test_json_keeps_every_byte() -> None:
    assert json_bytes(b"text") == "text"
    assert json_bytes(b"\xff") == {"base64": "/w=="}
    assert json_bytes(None) is None


@pytest.mark.parametrize(
    ("timestamp_ms", "shown"),
    [
        (0, "1970-01-01 00:00:00.000Z"),
        (1_700_000_000_001, "2023-11-14 22:13:20.001Z"),
        (-1, "none"),
        (-2, "1969-12-31 23:59:59.998Z"),
        (2**62, f"{2**62} ms"),
        (-(2**63), f"{-(2**63)} ms"),
    ],
)
def test_a_time_is_shown_whatever_stands_in_the_record(timestamp_ms: int, shown: str) -> None:
    assert show_time(timestamp_ms) == shown


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        ("0", 0),
        ("1700000000001", 1_700_000_000_001),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        ("2023-11-14 22:13:20.001Z", 1_700_000_000_001),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
        ("2023-11-14", 1_699_920_000_000),
    ],
)
def test_a_time_may_be_a_number_or_a_calendar_time(text: str, timestamp_ms: int) -> None:
    assert parse_time(text) == timestamp_ms


def test_what_is_no_time_says_what_would_be() -> None:
    with pytest.raises(click.BadParameter, match="neither milliseconds since 1970 nor a time such as"):
        parse_time("tomorrow")
