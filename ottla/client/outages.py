"""Warnings about what fails again and again while a broker cannot be reached: each one once, then every 30 s.

A client tries to connect many times a second, for the sender, each lane of the fetcher and the metadata. Attempts that
fail as the one before are logged at DEBUG.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

REPEAT_S: Final = 30.0
METADATA: Final = "metadata"


def of_broker(node_id: int) -> str:
    """The subject of warnings about one broker."""
    return f"broker {node_id}"


class Outages:
    """See the module. A subject is a broker, or the metadata of the cluster."""

    def __init__(self) -> None:
        self._logged: dict[str, tuple[str, float]] = {}
        """By subject: what was logged as a warning, and when, by the clock of the loop."""

    def failed(self, logger: logging.Logger, subject: str, reason: str) -> None:
        """Log that an attempt failed."""
        now = asyncio.get_running_loop().time()
        logged, logged_at = self._logged.get(subject, ("", now))
        is_repeated = logged == reason and now - logged_at < REPEAT_S
        if not is_repeated:
            self._logged[subject] = (reason, now)
        logger.log(logging.DEBUG if is_repeated else logging.WARNING, "%s: %s", subject, reason)

    def over(self, subject: str) -> None:
        """Log the next failure, whatever its reason: an attempt has succeeded."""
        self._logged.pop(subject, None)
