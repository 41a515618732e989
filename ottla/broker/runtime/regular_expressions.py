"""Regular expressions that members subscribe to: checked, and matched against the names of topics.

They come from clients, so they run on RE2, which needs linear time in the length of the name. Kafka's broker uses
RE2/J, the same language. The whole name has to match. Internal topics match like any other, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import re2

from ottla.protocol.errors import ErrorCode, KafkaError

MAX_LENGTH = 1024
"""Longest expression, in characters. Kafka has no limit of its own."""
MAX_MEMORY_BYTES = 1 << 20
"""The most memory of a compiled expression. It also bounds how far a repetition can expand."""


def compile_expression(expression: str) -> Any:
    """The compiled expression, with `fullmatch`.

    Raises KafkaError(INVALID_REGULAR_EXPRESSION) if RE2 refuses it or it is too long.
    """
    if len(expression) > MAX_LENGTH:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex has {len(expression)} characters; {MAX_LENGTH} are the most",
        )
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY_BYTES
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{expression}` is not a valid regular expression: {text}",
        ) from error


def matching(expression: str, names: Iterable[str]) -> frozenset[str]:
    """The names that match as a whole. Raises what `compile_expression` raises."""
    compiled = compile_expression(expression)
    return frozenset(name for name in names if compiled.fullmatch(name) is not None)
