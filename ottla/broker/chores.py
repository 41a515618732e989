"""Background work, in small visible steps: each chore has a name, an interval and figures.

A chore is a plain function that does one bounded step and says when it wants to run next. Nothing here knows of a
loop: `Chores` asks the node's timers, so a manual clock drives all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.node import Node


class Chores:
    """All background work of one node. `start` plans the first steps, `stop` cancels what is planned."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def start(self) -> None:
        """Plan every chore's first step."""
        raise NotImplementedError

    def stop(self) -> None:
        """Cancel every planned step."""
        raise NotImplementedError
