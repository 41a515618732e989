"""Warnings about subscribed topics that cannot be read: they do not exist, or the user may not see them.

A consumer waits for such a topic, since it may be created later. A mistyped name waits forever, so the log names it,
once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from ottla.client_core.topic_metadata import TopicMetadata
from ottla.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)


class MissingTopics:
    """The topics of one subscriber, `group billing`, that were missing at the last look.

    `may_appear`: brokers may be creating a topic because it was asked about, so it is reported at the second look.
    """

    def __init__(self, subscriber: str, *, may_appear: bool = False) -> None:
        self._subscriber = subscriber
        self._may_appear = may_appear
        self._missing: frozenset[str] = frozenset()
        self._reported: frozenset[str] = frozenset()

    def look(self, topics: Iterable[str], known: Mapping[str, TopicMetadata]) -> None:
        """Log a warning for each subscribed topic that is missing since the last look, and when it has appeared."""
        subscribed = {name: known[name].error for name in topics if name in known}
        missing = {name: error for name, error in subscribed.items() if _is_missing(error)}
        for name in sorted(missing.keys() - self._reported):
            if not self._may_appear or name in self._missing:
                logger.warning("%s: %s", self._subscriber, _words(name, missing[name]))
                self._reported |= {name}
        for name in sorted(self._reported - missing.keys()):
            if name in subscribed and not subscribed[name]:
                logger.info("%s: topic %s exists now", self._subscriber, name)
                self._reported -= {name}
        self._missing = frozenset(missing)
        self._reported &= frozenset(topics)


def _is_missing(error: ErrorCode) -> bool:
    """Whether waiting is not enough; another error that can be retried ends by itself."""
    return bool(error) and (error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not error.retriable)


def _words(name: str, error: ErrorCode) -> str:
    if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return f"there is no topic {name}: nothing is read from it before it is created (or subscribe to another name)"
    return f"nothing is read from topic {name}: {error.message} ({error.name})"
