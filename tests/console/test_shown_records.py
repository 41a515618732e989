"""Records as the page gets them."""

from __future__ import annotations

import pytest

from ottla.client import ConsumerRecord
from ottla.console.shown_records import Search, shown_bytes, shown_record


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (None, None),
        (b"", {"text": "", "bytes": 0}),
        ("tea für 2".encode(), {"text": "tea für 2", "bytes": 10}),
        (b"\xff\x00", {"base64": "/wA=", "bytes": 2}),
        (b"a\x00b", {"base64": "YQBi", "bytes": 3}),  # UTF-8, but nothing that a person reads
        (b"a\x7f", {"base64": "YX8=", "bytes": 2}),
        ("\u202eyek".encode(), {"base64": "4oCueWVr", "bytes": 6}),  # a browser would show "key"
        ("\u2067אב\u2069\t\n".encode(), {"text": "\u2067אב\u2069\t\n", "bytes": 12}),
        (b'{"a": 1}', {"text": '{"a": 1}', "bytes": 8, "json": True}),
        (b"{a}", {"text": "{a}", "bytes": 3}),
        (b"12", {"text": "12", "bytes": 2}),
        (b"[" * 5000, {"text": "[" * 600, "bytes": 5000, "cut": True}),
    ],
)
def test_a_value_says_how_it_is_read(data: bytes | None, shown: dict[str, object] | None) -> None:
    assert shown_bytes(data) == shown


def test_a_long_text_is_not_cut_inside_of_a_character() -> None:
    assert shown_bytes("aé€😀".encode(), 9) == {"text": "aé€", "bytes": 10, "cut": True}
    assert shown_bytes("aé€😀".encode(), 5) == {"text": "aé", "bytes": 10, "cut": True}
    assert shown_bytes(b"ab\xff" + b"c" * 10, 3) == {"base64": "YWL/", "bytes": 13, "cut": True}


def test_many_headers_are_counted() -> None:
    shown = shown_record(ConsumerRecord("t", 1, 2, -1, None, b"v", tuple((f"h{n}", None) for n in range(53))))
    assert (len(shown["headers"]), shown["more_headers"], shown["time"]) == (50, 3, None)


@pytest.mark.parametrize(
    ("text", "is_found"),
    [("", True), ("TEA", True), ("anna", True), ("trace", True), ("42", True), ("coffee", False)],
)
def test_a_search_is_in_keys_values_and_headers(text: str, is_found: bool) -> None:
    record = ConsumerRecord("t", 0, 0, 0, b"Anna", b"a tea", (("trace", b"42"), ("empty", None)))
    assert Search(text).matches(record) is is_found
