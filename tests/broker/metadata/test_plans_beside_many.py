"""Creating topics beside many: what is planned looks at those that matter for it, and sees what it must."""

from __future__ import annotations

from collections.abc import Iterator, ValuesView
from typing import Any
from uuid import UUID, uuid4

import pytest
from kit.exchange import make_topic
from kit.nodes import start_node

from ottla.broker.metadata.change_requests import NewTopic
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.metadata.placement import CountIn, Placement
from ottla.broker.metadata.plans import Rules, plan_topics
from ottla.protocol.errors import ErrorCode

ONE, OTHER = UUID(int=1), UUID(int=2)


class Watched(dict[str, Any]):
    """Topics that count how often all of them are looked at."""

    walks = 0

    def __iter__(self) -> Iterator[str]:
        self.walks += 1
        return super().__iter__()

    def values(self) -> ValuesView[Any]:
        self.walks += 1
        return super().values()


def image_of(*names: str) -> MetadataImage:
    node, _, _ = start_node()
    for name in names:
        make_topic(node, name)
    image = node.services.catalog.image
    image.topics = Watched(image.topics)
    return image


def rules(choose: Any) -> Rules:
    node, _, _ = start_node()
    return Rules(node.services.config, 0, uuid4, choose)


def codes(image: MetadataImage, *names: str) -> list[int]:
    requests = [NewTopic(name, partitions=1) for name in names]
    plan = plan_topics(image, requests, rules(lambda counts, planned: ONE), validate_only=False)
    return [result.error_code for result in plan.results]


def test_topics_with_plain_names_in_the_only_directory_look_at_no_other_topic() -> None:
    image = image_of("a", "b.c")
    assert codes(image, "d", "e", "f") == [0, 0, 0]
    assert image.topics.walks == 0  # type: ignore[attr-defined]  # Watched


def test_all_topics_are_looked_at_once_for_many_names_that_could_collide() -> None:
    image = image_of("a", "b.c")
    assert codes(image, "d.e", "f_g", "h.i") == [0, 0, 0]
    assert image.topics.walks == 1  # type: ignore[attr-defined]  # Watched


@pytest.mark.parametrize(("there", "new"), [("b.c", "b_c"), ("b_c", "b.c"), ("_", "."), ("a.b_c", "a_b.c")])
def test_names_collide_with_topics_and_with_each_other(there: str, new: str) -> None:
    wrong = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert codes(image_of(f"x{there}", "plain"), f"x{new}", "other") == [wrong, 0]
    assert codes(image_of("plain"), f"x{there}", "other", f"x{new}") == [0, 0, wrong]


def test_a_choice_of_directories_counts_those_that_are_there_once_and_those_that_are_planned() -> None:
    image = image_of("a", "b")
    seen: list[tuple[int, int]] = []
    (held,) = {state.directories[0] for topic in image.topics.values() for state in topic.partitions.values()}
    image.topics.walks = 0  # type: ignore[attr-defined]  # Watched

    def choose(count_in: CountIn, planned: Any) -> UUID:
        seen.append((count_in(held), count_in(OTHER)))
        return OTHER if count_in(OTHER) < count_in(held) else held

    placement = Placement(image, 1_000, choose)
    assert placement.take(3) == [OTHER, OTHER, held]
    assert placement.take(1) == [OTHER]
    assert seen == [(2, 0), (2, 1), (2, 2), (3, 2)]
    assert image.topics.walks == 1  # type: ignore[attr-defined]  # Watched
