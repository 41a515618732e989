"""A subscription means the topics that were named, or those whose whole names match."""

from __future__ import annotations

import re

import pytest

from ottla.client.groups.subscription import Subscription

EXISTING = [("orders", False), ("orders-eu", False), ("my-orders", False), ("__consumer_offsets", True)]


def subscription(topics=None, pattern=None, *, on_server=False, internal=False):
    return Subscription.of(topics, pattern, on_server=on_server, internal=internal)


def test_named_topics_are_meant_whether_they_exist_or_not():
    assert subscription(["orders", "none"]).names_among(EXISTING) == {"orders", "none"}
    assert subscription("orders").names_among(EXISTING) == {"orders"}


def test_a_pattern_means_whole_names_of_topics_that_are_not_internal():
    assert subscription(pattern="orders.*").names_among(EXISTING) == {"orders", "orders-eu"}
    assert subscription(pattern=re.compile(".*s")).names_among(EXISTING) == {"orders", "my-orders"}
    assert subscription(pattern=".*", internal=True).names_among(EXISTING) == {name for name, _ in EXISTING}


def test_text_goes_to_a_broker_that_matches_and_a_compiled_pattern_does_not():
    assert subscription(pattern="(?P<x", on_server=True).server_pattern == "(?P<x"  # RE2's affair, not ours
    assert subscription(pattern=re.compile("a"), on_server=True).server_pattern is None


@pytest.mark.parametrize(
    ("topics", "pattern", "said"),
    [
        (None, None, "to topics or to a pattern"),
        (["a"], "b", "to topics or to a pattern"),
        ([], None, "one topic at least"),
        ([""], None, "cannot be the name"),
        (["x" * 250], None, r"'x{30}'\.\.\. cannot be the name of a topic: it has 250 characters, and names have at"),
        (None, "", "matches no topic"),
        (None, "(", "no regular expression"),
    ],
)
def test_what_cannot_be_subscribed_to_is_refused(topics, pattern, said):
    with pytest.raises(ValueError, match=said):
        subscription(topics, pattern)


def test_a_topic_of_a_wrong_type_is_named():
    with pytest.raises(TypeError, match="a topic's name must be a str, not int"):
        subscription([7], None)
