"""The warning about records that were never sent because the program, or its event loop, ended."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ottla.address import host_and_port


def warn_of_unsent(
    logger: logging.Logger, records: int, servers: Iterable[tuple[str, int]], when: str, remedy: str
) -> None:
    """Log how many records were not sent; nothing for 0. `when` the end came, and the calls that would have waited."""
    if records:
        were = "record was" if records == 1 else "records were"
        brokers = ",".join(host_and_port(host, port) for host, port in servers)
        words = "%d %s not sent to %s when %s ended: call %s, which wait for them and raise their errors"
        logger.warning(words, records, were, brokers, when, remedy)
