"""Internal topics that are created once, and errors that are remembered for a while."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from kit.clock import ManualClock

from ottla.broker.groups.streams.configured_topology import InternalTopic
from ottla.broker.groups.streams.internal_topics import MOST_ERRORS, InternalTopics
from ottla.broker.metadata.change_requests import NewTopic, ResultsCallback, TopicResult
from ottla.protocol.errors import ErrorCode

KEEP_MS = 10_000


class SlowCatalog:
    """A catalog that creates topics when the test lets it."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[NewTopic], ResultsCallback]] = []

    def create_topics(self, requests: Sequence[NewTopic], done: ResultsCallback, **_: Any) -> None:
        self.asked.append((list(requests), done))

    def finish(self, code: ErrorCode = ErrorCode.NONE, message: str | None = None) -> None:
        requests, done = self.asked.pop(0)
        done([TopicResult(one.name, error_code=code, error_message=message) for one in requests])


def topic(name: str, partitions: int = 3, replication_factor: int = 0, **configs: str) -> InternalTopic:
    return InternalTopic(name, partitions, replication_factor, configs)


@pytest.fixture
def catalog() -> SlowCatalog:
    return SlowCatalog()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def internal(catalog: SlowCatalog, clock: ManualClock) -> InternalTopics:
    return InternalTopics(catalog, clock)  # type: ignore[arg-type]  # the part of a catalog that it uses


def create(internal: InternalTopics, *topics: InternalTopic) -> None:
    internal.create(topics, KEEP_MS, lambda _: None)


def test_topics_are_created_as_the_topology_has_them(internal: InternalTopics, catalog: SlowCatalog) -> None:
    create(internal, topic("a", 3, 0, retention="1"), topic("b", 1, 2))
    ((requests, _),) = catalog.asked
    assert requests == [NewTopic("a", 3, -1, configs=[("retention", "1")]), NewTopic("b", 1, 2, configs=[])]


def test_a_topic_that_is_being_created_is_not_asked_for_again(internal: InternalTopics, catalog: SlowCatalog) -> None:
    create(internal, topic("a"))
    create(internal, topic("a"), topic("b"))
    create(internal, topic("a"), topic("b"))
    assert [[one.name for one in requests] for requests, _ in catalog.asked] == [["a"], ["b"]]
    catalog.finish()
    create(internal, topic("a"))
    assert len(catalog.asked) == 2, "if it is still missing, it was deleted"


def test_an_error_is_reported_and_the_topic_not_tried_again_until_it_is_forgotten(
    internal: InternalTopics, catalog: SlowCatalog, clock: ManualClock
) -> None:
    create(internal, topic("a"))
    assert internal.failures([topic("a")]) == ""
    catalog.finish(ErrorCode.INVALID_REPLICATION_FACTOR, "one broker")
    assert internal.failures([topic("a"), topic("b")]) == "a (one broker)"
    clock.advance(KEEP_MS - 1)
    create(internal, topic("a"))
    assert catalog.asked == []
    clock.advance(1)
    assert internal.failures([topic("a")]) == ""
    create(internal, topic("a"))
    assert len(catalog.asked) == 1


def test_an_error_without_words_has_those_of_its_code(internal: InternalTopics, catalog: SlowCatalog) -> None:
    create(internal, topic("a"))
    catalog.finish(ErrorCode.INVALID_CONFIG)
    assert internal.failures([topic("a")]) == f"a ({ErrorCode.INVALID_CONFIG.message})"


def test_a_topic_that_somebody_else_has_created_is_no_error(internal: InternalTopics, catalog: SlowCatalog) -> None:
    create(internal, topic("a"))
    catalog.finish(ErrorCode.TOPIC_ALREADY_EXISTS, "it exists")
    assert internal.failures([topic("a")]) == ""


def test_three_errors_are_shown_and_the_others_counted(internal: InternalTopics, catalog: SlowCatalog) -> None:
    topics = [topic(name) for name in "abcde"]
    create(internal, *topics)
    catalog.finish(ErrorCode.INVALID_CONFIG, "no")
    assert internal.failures(topics) == "a (no), b (no), c (no) and 2 more"
    assert internal.failures(topics[:3]) == "a (no), b (no), c (no)"


def test_so_many_errors_are_kept_and_the_oldest_are_forgotten(internal: InternalTopics, catalog: SlowCatalog) -> None:
    create(internal, *(topic(f"t{number}") for number in range(MOST_ERRORS + 1)))
    catalog.finish(ErrorCode.INVALID_CONFIG, "no")
    assert internal.failures([topic("t0")]) == ""
    assert internal.failures([topic("t1")]) == "t1 (no)"
    assert internal.failures([topic(f"t{MOST_ERRORS}")]) == f"t{MOST_ERRORS} (no)"
