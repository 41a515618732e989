"""The stamp that says whether what was remembered of earlier requests still holds.

A request template (`ottla.broker.fast`) answers without asking again what the slow path asked when the template was
learnt: does the topic exist, is the partition open, which configuration and leader epoch does it have, may the client
do that. Whatever changes one of these answers calls `change`. The holder of a template compares one number per request.

One stamp for the whole broker, not one for each partition: docs/decisions/one-fast-path.md.
"""

from __future__ import annotations


class Validity:
    """The stamp of one broker. All calls on the broker's thread."""

    __slots__ = ("stamp",)

    def __init__(self) -> None:
        self.stamp = 0
        """Never goes back; what was learnt at another stamp is forgotten."""

    def change(self) -> None:
        """Something has changed on which the meaning of a request rests."""
        self.stamp += 1
