"""The levels of this process's loggers, as Kafka's resource type BROKER_LOGGER returns and changes them.

Names are Python's, and `root` for the root logger; levels are Kafka's words. A level lasts until the broker stops.
Called by the two handlers that know loggers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from ottla.broker.metadata.change_requests import DELETE, SET, SUBTRACT
from ottla.config.options import ConfigEntry, ConfigSource, ConfigType
from ottla.protocol.errors import ErrorCode, KafkaError

BROKER_LOGGER = 8
"""Kafka's ConfigResource.Type.BROKER_LOGGER."""
ROOT = "root"
LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}
"""Kafka's levels as Python's; a level in between is returned as the one below it."""

Changes = Sequence[tuple[str, int, str | None]]
"""(logger, operation, level) in the order of the request."""


def describe_loggers(names: Iterable[str] | None = None) -> list[ConfigEntry]:
    """The effective level of each existing logger, or of the existing ones among `names`."""
    known = _loggers()
    wanted = known if names is None else [name for name in dict.fromkeys(names) if name in known]
    return [
        ConfigEntry(
            name=name,
            value=_word(_logger(name).getEffectiveLevel()),
            source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
            read_only=False,
            is_sensitive=False,
            is_default=False,
            synonyms=(),
            type=ConfigType.STRING,
            documentation="Level of a logger of the broker's process, until it stops.",
        )
        for name in sorted(wanted)
    ]


def check_logger_changes(changes: Changes) -> None:
    """Raise KafkaError for changes that Kafka refuses, too."""
    if len({name for name, _, _ in changes}) < len(changes):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [name[:200] for name, operation, level in changes if operation != DELETE and level is None]
    if nulls:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}")
    known = _loggers()
    for name, operation, level in changes:
        if operation not in (SET, DELETE):
            word = "SUBTRACT" if operation == SUBTRACT else "APPEND"
            message = f"{word} operation is not allowed for the BROKER_LOGGER resource"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        if name not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name[:200]} does not exist!")
        if operation == DELETE and name == ROOT:
            message = "Removing the log level of the root logger is not allowed"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        if operation == SET and level not in LEVELS:
            message = (
                f"Cannot set the log level of {name[:200]} to {str(level)[:40]} as it is not a supported log level."
                f" Valid log levels are {', '.join(LEVELS)}"
            )
            raise KafkaError(ErrorCode.INVALID_CONFIG, message)


def set_logger_levels(changes: Changes) -> None:
    """Set levels; a deleted level is inherited from the parent again. Call `check_logger_changes` first."""
    for name, operation, level in changes:
        _logger(name).setLevel(logging.NOTSET if operation == DELETE or level is None else LEVELS[level])


def _loggers() -> set[str]:
    """The existing loggers; Python's table also has placeholders for parents that no code has requested."""
    table = logging.root.manager.loggerDict
    return {ROOT, *(name for name, one in list(table.items()) if isinstance(one, logging.Logger))}


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _word(level: int) -> str:
    return next((word for word, number in reversed(LEVELS.items()) if number <= level), "TRACE")
