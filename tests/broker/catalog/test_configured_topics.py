"""The topics of `ottla.create.topics`: all or none are created, existing ones stay, and a crash is no harm."""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import Mapping

import pytest
from kit.clock import ManualClock
from kit.nodes import DATA, start_node
from kit.simulated_files import CrashPoint, SimulatedFiles

from ottla.broker.catalog.catalog import NewTopic
from ottla.broker.catalog.configured_topics import create_configured_topics
from ottla.broker.node import Node

TOPICS = "orders:3,users:1:1:compact"


def start(topics: str, files: SimulatedFiles | None = None, **keys: object) -> tuple[Node, SimulatedFiles, str | None]:
    """A node as a server starts it, its disk, and the error."""
    node, files, _ = start_node(files, ManualClock(), ottla_create_topics=topics, **keys)
    errors: list[str | None] = []
    catalog = node.services.catalog
    create_configured_topics(catalog, node.services.config.ottla_create_topics, errors.append)
    node.settle()
    (error,) = errors
    return node, files, error


def sizes(node: Node) -> Mapping[str, int]:
    """The number of partitions of each topic, all of which accept requests."""
    topics = node.services.catalog.topics.values()
    assert all(all(topic.partitions) for topic in topics)
    return {topic.name: len(topic.partitions) for topic in topics}


def test_topics_are_created_with_their_settings() -> None:
    node, _, error = start(TOPICS + ",plain", num_partitions=2)
    assert error is None
    assert sizes(node) == {"orders": 3, "users": 1, "plain": 2}
    configs = {name: topic.config.overrides for name, topic in node.services.catalog.topics.items()}
    assert configs == {"orders": {}, "users": {"cleanup.policy": "compact"}, "plain": {}}


def test_existing_topics_stay_as_they_are_and_another_size_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    node, files, _ = start(TOPICS)
    ids = {name: topic.id for name, topic in node.services.catalog.topics.items()}
    node.stop()
    with caplog.at_level(logging.WARNING):
        again, _, error = start("orders:5,users:1:1:delete,more", files)
    assert error is None
    assert sizes(again) == {"orders": 3, "users": 1, "more": 1}
    topics = again.services.catalog.topics
    assert {name: topics[name].id for name in ids} == ids
    assert topics["users"].config.overrides == {"cleanup.policy": "compact"}
    assert [record.getMessage() for record in caplog.records if "ottla.create.topics" in record.getMessage()] == [
        "ottla.create.topics: orders:5: the topic exists with 3 partitions and is left as it is"
    ]


def test_a_start_that_finds_all_topics_writes_nothing_for_them() -> None:
    node, files, _ = start(TOPICS)
    node.stop()
    again, _, _ = start_node(files, ManualClock())
    before = again.services.catalog.metadata_end_offset
    create_configured_topics(again.services.catalog, node.services.config.ottla_create_topics, lambda _: None)
    again.settle()
    assert again.services.catalog.metadata_end_offset == before


@pytest.mark.parametrize(
    ("topics", "says"),
    [
        ("good,large:21", "ottla.create.topics: large:21: "),
        ("good,a.b,a_b", "ottla.create.topics: a_b: a_b collides with a.b"),
    ],
)
def test_one_refused_entry_refuses_all(topics: str, says: str) -> None:
    node, _, error = start(topics, ottla_max_partitions=20)
    assert error is not None
    assert error.startswith(says)
    assert sizes(node) == {}


def test_a_full_disk_is_an_error_and_the_next_start_continues() -> None:
    files = SimulatedFiles()
    node, _, _ = start_node(files, ManualClock())
    node.stop()
    files.fail("make_directory", f"{DATA}/orders-1", errno.ENOSPC)
    node, _, error = start(TOPICS, files)
    assert error is not None
    assert error.startswith("ottla.create.topics: orders:3: the topic exists, but the disk is full")
    node.stop()
    files.heal()
    again, _, error = start(TOPICS, files)
    assert error is None
    assert sizes(again) == {"orders": 3, "users": 1}


def test_a_crash_at_any_call_leaves_a_start_that_creates_all() -> None:
    files = SimulatedFiles()
    start(TOPICS, files)
    states = set()
    for call in range(1, files.calls + 1):
        crashing = SimulatedFiles()
        crashing.crash_at = call
        with pytest.raises(CrashPoint):
            start(TOPICS, crashing)
        survivor = crashing.crash(random.Random(call))
        found, _, _ = start_node(survivor, ManualClock())
        states.add(tuple(sorted(sizes(found))))
        next_disk = survivor.crash(random.Random(call))
        node, _, error = start(TOPICS, next_disk)
        assert error is None, f"call {call}"
        assert sizes(node) == {"orders": 3, "users": 1}, f"call {call}"
    assert states == {(), ("orders", "users")}


def test_a_topic_that_was_deleted_is_created_again_by_the_next_start() -> None:
    node, files, _ = start(TOPICS)
    node.services.catalog.delete_topics(["orders"], lambda _: None)
    node.services.catalog.create_topics([NewTopic("other")], lambda _: None)
    node.settle()
    node.stop()
    again, _, error = start(TOPICS, files)
    assert error is None
    assert sizes(again) == {"orders": 3, "users": 1, "other": 1}
