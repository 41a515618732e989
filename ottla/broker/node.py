"""The composition root: everything one broker consists of, without sockets and without a loop.

`Server` puts it under an event loop; a simulation drives the same object with a manual clock, simulated files and a
queued syncer (decisions.md 18).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.catalog import Catalog
    from ottla.broker.chores import Chores
    from ottla.broker.disk import Syncer
    from ottla.broker.fetch_sessions import FetchSessions
    from ottla.broker.metrics import Metrics
    from ottla.broker.timers import Timers
    from ottla.broker.turn import Turn
    from ottla.config.broker import BrokerConfig
    from ottla.storage.clock import Clock
    from ottla.storage.files import Files
    from ottla.storage.manager import LogManager


class Node:
    """One broker. `bound_listeners` maps a listener's name to the (host, port) that it is bound to, once it is."""

    config: BrokerConfig
    clock: Clock
    files: Files
    timers: Timers
    turn: Turn
    syncer: Syncer
    metrics: Metrics
    log_manager: LogManager
    catalog: Catalog
    chores: Chores
    fetch_sessions: FetchSessions
    bound_listeners: dict[str, tuple[str, int]]

    def start(self) -> None:
        """Open directories, catalog and logs, recover what needs it, plan the chores. Blocks."""
        raise NotImplementedError

    def stop(self) -> None:
        """Flush, sync, checkpoint and close everything; the directories are marked clean."""
        raise NotImplementedError
