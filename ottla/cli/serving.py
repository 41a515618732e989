"""Running the broker from a command line: `ottla serve`, and simple command lines of it without importing click.

Programs, units and images use such simple command lines: options that have a value, and at most one file. All others,
with errors or `--help`, are parsed by click (`serve.py`). Errors are the same either way.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # the form that type checkers know
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LOG_LEVELS = ("debug", "info", "warning", "error")
DEFAULT_LOG_LEVEL = "info"


def run_broker(
    properties: str | Path | None,
    overrides: Sequence[str],
    profile: str | None,
    log_level: str = DEFAULT_LOG_LEVEL,
    ready_line: str | None = None,
) -> int:
    """Run the broker until a signal ends it; the exit status. Raises ConfigError, one line for people."""
    import logging

    from ottla.config.broker import BrokerConfig
    from ottla.config.memory import memory_limit
    from ottla.config.sources import split_overrides

    if profile is not None:
        overrides = (*overrides, f"ottla.profile={profile}")
    config = BrokerConfig.load(
        properties, environ=os.environ, overrides=split_overrides(overrides), memory_bytes=memory_limit()
    )
    if config.ottla_create_topics:
        from ottla.config.created_topic_settings import check_created_topics

        check_created_topics(config)
    from ottla.broker.process import run

    return run(config, level=logging.getLevelName(log_level.upper()), ready_line=ready_line)


def quick_serve(arguments: list[str]) -> int | None:
    """The exit status of `ottla serve` with these arguments; None if click has to parse them."""
    given = _plain(arguments)
    if given is None:
        return None
    try:
        import fcntl  # noqa: F401  (what `require_posix` says in words, where it is missing)
        import resource  # noqa: F401
    except ImportError:
        return None
    from ottla.config.errors import ConfigError

    try:
        return run_broker(*given)
    except ConfigError as error:
        sys.stderr.write(f"ottla: {error}\n")
        return 1


def _plain(arguments: list[str]) -> tuple[str | None, list[str], str | None, str, str | None] | None:
    """(file, overrides, profile, level, ready line) of a simple command line, else None."""
    properties: str | None = None
    overrides: list[str] = []
    profile: str | None = None
    log_level = DEFAULT_LOG_LEVEL
    ready_line: str | None = None
    rest = iter(arguments)
    for argument in rest:
        if not argument.startswith("-"):
            if properties is not None or not argument:
                return None
            properties = argument
            continue
        option, equals, value = argument.partition("=")
        if not equals:
            value = next(rest, "")
        if option == "--override" and value:
            overrides.append(value)
        elif option == "--log-level" and value in LOG_LEVELS:
            log_level = value
        elif option == "--ready-line" and value:
            ready_line = value
        elif option == "--profile" and value and profile is None:
            from ottla.config.ours import PROFILE_NAMES

            if value not in PROFILE_NAMES:
                return None
            profile = value
        else:
            return None
    return properties, overrides, profile, log_level, ready_line
