"""Connections that have requests to start and wait for a turn, because the requests of the present one take long.

First come, first served, a turn at a time, until that is long again. The others are not looked at meanwhile: 500
clients that ask for something at once cost each of their turns only what it starts.
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
        """Start what it has to start, and send what is there."""


class LaterTurns:
    """See the module. `waiting` is only read by others: every request asks whether it is empty."""

    __slots__ = ("_is_planned", "_turn", "waiting")

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self.waiting: OrderedDict[Waiting, None] = OrderedDict()
        self._is_planned = False

    def add(self, connection: Waiting) -> None:
        """Let `connection` have its turn after those that wait already; at the end of the present turn if they leave
        time for it.
        """
        self.waiting[connection] = None
        self._plan()

    def discard(self, connection: Waiting) -> None:
        """`connection` has ended, or has nothing to start any more."""
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
        """Give connections their turn until it is long."""
        self._is_planned = False
        waiting, turn = self.waiting, self._turn
        for _ in range(len(waiting)):
            if turn.is_long or not waiting:
                break
            connection, _nothing = waiting.popitem(last=False)
            try:
                connection.take_later_turn()
            except Exception:  # a bug of its own; the connections behind it must get their turn
                LOG.exception("bug: a connection's turn failed")
        if waiting:
            self._plan()
