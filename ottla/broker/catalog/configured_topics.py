"""The topics of `ottla.create.topics`, which a start creates before clients are accepted.

All entries are checked first, and then created together, both as CreateTopics does. So one refused entry refuses the
start, and nothing is created. The records of all topics are one batch of the metadata log: after a crash the next start
finds all of them or none. It creates the directories that are missing, as after a crash in a CreateTopics request, and
the topics then exist. An existing topic is never changed.

Imported only where the key is set. Called by `Server.start`, on the broker's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.broker.metadata.change_requests import NewTopic, TopicResult
from ottla.config.created_topics import BROKER_DEFAULT
from ottla.shown import counted

if TYPE_CHECKING:
    from ottla.broker.catalog.catalog import Catalog
    from ottla.config.created_topics import CreatedTopic

logger = logging.getLogger(__name__)

KEY = "ottla.create.topics"


def create_configured_topics(
    catalog: Catalog, configured: Sequence[CreatedTopic], done: Callable[[str | None], None]
) -> None:
    """Create the topics that do not exist; `done(None)` when all accept requests, else `done` with the error in one
    line.
    """
    missing = [topic for topic in configured if topic.name not in catalog.topics]
    _warn_of_other_sizes(catalog, configured)
    if not missing:
        done(None)
        return
    requests = [NewTopic(topic.name, topic.partitions, topic.replicas, configs=topic.configs) for topic in missing]

    def checked(results: list[TopicResult]) -> None:
        problem = _problem(missing, results)
        if problem is not None:
            done(problem)
        else:
            catalog.create_topics(requests, created)

    def created(results: list[TopicResult]) -> None:
        problem = _problem(missing, results)
        if problem is None:
            topics = ", ".join(f"{one.name} ({counted(one.partitions, 'partition')})" for one in results)
            logger.info("%s: created %s", KEY, topics)
        done(problem)

    catalog.create_topics(requests, checked, validate_only=True)


def _warn_of_other_sizes(catalog: Catalog, configured: Sequence[CreatedTopic]) -> None:
    for wanted in configured:
        topic = catalog.topics.get(wanted.name)
        if topic is not None and wanted.partitions not in (BROKER_DEFAULT, len(topic.partitions)):
            logger.warning(
                "%s: %s: the topic exists with %s and is left as it is",
                KEY,
                wanted.entry,
                counted(len(topic.partitions), "partition"),
            )


def _problem(topics: Sequence[CreatedTopic], results: Sequence[TopicResult]) -> str | None:
    """The first refusal."""
    for topic, result in zip(topics, results, strict=True):
        if result.failed:
            return f"{KEY}: {topic.entry}: {result.error_message or result.error_code.message}"
    return None
