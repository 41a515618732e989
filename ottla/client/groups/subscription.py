"""A consumer's subscription: topics by name, or all topics whose names match a pattern.

If the broker resolves patterns (the consumer protocol), it matches a pattern given as text, in RE2's syntax. Otherwise
the client matches it with whole names, in Python's syntax, as it always does with a compiled pattern. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from ottla.client.structs import as_names
from ottla.client_core.cluster_view import check_topic_name


@dataclass(frozen=True, slots=True)
class Subscription:
    """Either topics or a pattern; `server_pattern` is the text of a pattern that the broker matches."""

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    server_pattern: str | None = None
    includes_internal: bool = field(default=False, kw_only=True)

    @classmethod
    def of(
        cls, topics: Iterable[str] | None, pattern: str | re.Pattern[str] | None, *, on_server: bool, internal: bool
    ) -> Subscription:
        """Return the program's subscription; raises ValueError for an invalid one.

        `on_server`: whether the broker matches patterns; `internal`: whether a pattern may match internal topics.
        """
        if (topics is None) == (pattern is None):
            raise ValueError("subscribe to topics or to a pattern")
        if topics is not None:
            names = frozenset(as_names(topics))
            if not names:
                raise ValueError("subscribe to one topic at least; unsubscribe() ends a subscription")
            for name in names:
                check_topic_name(name)
            return cls(names)
        if not pattern:
            raise ValueError("an empty pattern matches no topic")
        if isinstance(pattern, re.Pattern):
            return cls(pattern=pattern, includes_internal=internal)
        if on_server:
            return cls(server_pattern=pattern)
        try:
            return cls(pattern=re.compile(pattern), includes_internal=internal)
        except re.error as wrong:
            raise ValueError(f"{pattern!r} is no regular expression: {wrong}") from None

    def names_among(self, existing: Iterable[tuple[str, bool]]) -> frozenset[str]:
        """Return the subscribed topics: the given names, or those of the pairs (name, is internal) that match."""
        if self.pattern is None:
            return self.topics
        matches = self.pattern.fullmatch
        return frozenset(
            name for name, is_internal in existing if (self.includes_internal or not is_internal) and matches(name)
        )
