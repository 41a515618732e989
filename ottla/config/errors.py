"""The one exception of this package: a key, its value, what is wrong with it and what would be right, in one line."""

from __future__ import annotations


class ConfigError(ValueError):
    """A value that cannot be used.

    `str(error)` is one line for people. `key` is Kafka's name of the key, `value` the text that was given (hidden when
    the key holds a secret), `reason` says what is wrong and what is allowed, `origin` where the value was set.
    """

    def __init__(self, key: str, value: str | None, reason: str, *, origin: str = "") -> None:
        self.key = key
        self.value = value
        self.reason = reason
        self.origin = origin
        super().__init__(key, value, reason, origin)

    def __str__(self) -> str:
        """`log.segment.bytes=12: must be at least 1024 (server.properties:7)`."""
        where = f" ({self.origin})" if self.origin else ""
        shown = self.key if self.value is None else f"{self.key}={_one_line(self.value)}"
        return f"{shown}: {self.reason}{where}"

    def for_client(self) -> str:
        """The text for clients. It begins as Kafka's, since tools show it:
        `Invalid value 12 for configuration segment.bytes: must be ...`.
        """
        if self.value is None:
            is_sentence = self.reason[:1].isupper()
            return self.reason if is_sentence else f"{self.key} {self.reason}"
        return f"Invalid value {_one_line(self.value)} for configuration {self.key}: {self.reason}"


def _one_line(value: str) -> str:
    shown = value if value.isprintable() else repr(value)[1:-1]
    return shown if len(shown) <= 120 else f"{shown[:117]}..."
