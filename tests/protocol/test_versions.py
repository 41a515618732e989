"""Version ranges in Kafka's notation."""

from __future__ import annotations

import pytest

from ottla.protocol.versions import EVERY_VERSION, NO_VERSION, parse_versions


@pytest.mark.parametrize("text", ["3-13", "9+", "0", "none"])
def test_ranges_print_as_they_are_written(text: str) -> None:
    assert str(parse_versions(text)) == text


def test_both_ends_belong_to_a_range() -> None:
    versions = parse_versions("3-5")
    assert [version for version in range(8) if version in versions] == [3, 4, 5] == list(versions.versions())


def test_an_open_range_has_no_end_and_none_has_nothing() -> None:
    assert 32_767 in parse_versions("9+")
    assert 8 not in parse_versions("9+")
    assert 0 not in NO_VERSION
    assert 0 in EVERY_VERSION


@pytest.mark.parametrize("text", ["", "a", "1-", "-"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        parse_versions(text)
