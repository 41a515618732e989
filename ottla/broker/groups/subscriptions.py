"""What the members of a consumer group subscribe to: by name, and by regular expressions with the topics they matched.

Follows the members and the expressions' records; counts, so that one question costs one look-up. Source: the
subscription parts of Kafka's `ModernGroup` and `ConsumerGroup`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from ottla.broker.groups.consumer_member import ConsumerMember


class ResolvedExpression(NamedTuple):
    """The topics that an expression matched when it was last looked at, and when that was."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class Subscriptions:
    """The subscriptions of one group."""

    def __init__(self) -> None:
        self._by_name: Counter[str] = Counter()
        self._by_expression: Counter[str] = Counter()
        self._resolved: dict[str, ResolvedExpression] = {}

    def replace(self, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        """A member changed, came (`old` is None) or went (`new` is None)."""
        if old is not None:
            _subtract(self._by_name, old.subscribed_topic_names)
            if old.subscribed_topic_regex:
                _subtract(self._by_expression, (old.subscribed_topic_regex,))
        if new is not None:
            self._by_name.update(new.subscribed_topic_names)
            if new.subscribed_topic_regex:
                self._by_expression[new.subscribed_topic_regex] += 1

    def resolve(self, expression: str, resolved: ResolvedExpression | None) -> None:
        """An expression was looked at, or is forgotten."""
        if resolved is None:
            self._resolved.pop(expression, None)
        else:
            self._resolved[expression] = resolved

    @property
    def expressions(self) -> list[str]:
        """The expressions that members subscribe to."""
        return sorted(self._by_expression)

    @property
    def has_expressions(self) -> bool:
        """Whether any member subscribes by one."""
        return bool(self._by_expression)

    @property
    def resolved(self) -> Mapping[str, ResolvedExpression]:
        """What was last matched, by expression."""
        return self._resolved

    def is_used(self, expression: str) -> bool:
        """Whether any member subscribes to it."""
        return expression in self._by_expression

    def includes(self, topic: str) -> bool:
        """Whether any member subscribes to `topic`, in whichever way."""
        return topic in self._by_name or any(topic in resolved.topics for resolved in self._resolved.values())

    def names(self) -> set[str]:
        """All topics that any member subscribes to, those that do not exist included."""
        return set(self._by_name).union(*(resolved.topics for resolved in self._resolved.values()))

    def names_of(self, member: ConsumerMember) -> frozenset[str]:
        """The topics that one member subscribes to."""
        if not member.subscribed_topic_regex:
            return member.subscribed_topic_names
        resolved = self._resolved.get(member.subscribed_topic_regex)
        return member.subscribed_topic_names if resolved is None else member.subscribed_topic_names | resolved.topics


def _subtract(counts: Counter[str], gone: frozenset[str] | tuple[str, ...]) -> None:
    counts.subtract(gone)
    for name in gone:
        if counts[name] <= 0:
            del counts[name]
