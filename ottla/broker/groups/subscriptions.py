"""The subscriptions of a consumer group's members: by name, and by regular expressions with the topics they matched.

They follow the members and the expressions' records. They are counted, so that a question needs one look-up. Source:
the subscription parts of Kafka's `ModernGroup` and `ConsumerGroup`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from ottla.broker.groups.consumer_member import ConsumerMember


class ResolvedExpression(NamedTuple):
    """The topics that an expression matched when it was last evaluated, and when that was."""

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
        """Follow a member that changed, was added (`old` is None) or removed (`new` is None)."""
        if old is not None:
            _subtract(self._by_name, old.subscribed_topic_names)
            if old.subscribed_topic_regex:
                _subtract(self._by_expression, (old.subscribed_topic_regex,))
        if new is not None:
            self._by_name.update(new.subscribed_topic_names)
            if new.subscribed_topic_regex:
                self._by_expression[new.subscribed_topic_regex] += 1

    def resolve(self, expression: str, resolved: ResolvedExpression | None) -> None:
        """Set what an expression matched; None forgets the expression."""
        if resolved is None:
            self._resolved.pop(expression, None)
        else:
            self._resolved[expression] = resolved

    @property
    def expressions(self) -> list[str]:
        """The expressions by which members subscribe."""
        return sorted(self._by_expression)

    @property
    def has_expressions(self) -> bool:
        """Whether any member subscribes by an expression."""
        return bool(self._by_expression)

    @property
    def resolved(self) -> Mapping[str, ResolvedExpression]:
        """What each expression matched last."""
        return self._resolved

    def is_used(self, expression: str) -> bool:
        """Whether any member subscribes by it."""
        return expression in self._by_expression

    def includes(self, topic: str) -> bool:
        """Whether any member subscribes to `topic`, by name or by an expression."""
        return topic in self._by_name or any(topic in resolved.topics for resolved in self._resolved.values())

    def names(self) -> set[str]:
        """All topics to which any member subscribes, including those that do not exist."""
        return set(self._by_name).union(*(resolved.topics for resolved in self._resolved.values()))

    def names_of(self, member: ConsumerMember) -> frozenset[str]:
        """The topics to which one member subscribes."""
        if not member.subscribed_topic_regex:
            return member.subscribed_topic_names
        resolved = self._resolved.get(member.subscribed_topic_regex)
        return member.subscribed_topic_names if resolved is None else member.subscribed_topic_names | resolved.topics


def _subtract(counts: Counter[str], gone: frozenset[str] | tuple[str, ...]) -> None:
    counts.subtract(gone)
    for name in gone:
        if counts[name] <= 0:
            del counts[name]
