"""Connections with requests to start that wait for a later turn, because the requests of the current one take long.

First come, first served, turn by turn, until a turn is long again. Connections that wait cost nothing meanwhile: if 500
clients send requests at the same time, each turn pays only for those that it starts.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.broker.runtime.turn import Turn

LOG = logging.getLogger("ottla.connection")


class Waiting(Protocol):
    """A connection that waits (`RequestPipeline`)."""

    def take_later_turn(self) -> None:
        """Start its requests, and send its replies."""


class LaterTurns:
    """See the module. Other code only reads `waiting`: every request checks whether it is empty."""

    __slots__ = ("_is_planned", "_turn", "waiting")

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self.waiting: OrderedDict[Waiting, None] = OrderedDict()
        self._is_planned = False

    def add(self, connection: Waiting) -> None:
        """Give `connection` its turn after those that wait already: at the end of this turn if they leave time."""
        self.waiting[connection] = None
        self._plan()

    def discard(self, connection: Waiting) -> None:
        """Remove `connection`: it has ended, or has nothing to start any more."""
        self.waiting.pop(connection, None)

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            try:
                self._turn.send_at_end(self._run)
            except BaseException:
                self._is_planned = False
                raise

    def _run(self) -> None:
        """Let connections start their requests until the turn is long."""
        self._is_planned = False
        waiting, turn = self.waiting, self._turn
        for _ in range(len(waiting)):
            if turn.is_long or not waiting:
                break
            connection, _nothing = waiting.popitem(last=False)
            try:
                connection.take_later_turn()
            except Exception:  # a bug; the connections after it must get their turn
                LOG.exception("bug: a connection's turn failed")
        if waiting:
            self._plan()
