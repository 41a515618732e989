"""The stamp that shows whether what was remembered from earlier requests is still valid.

A request template (`ottla.broker.fast`) answers without the checks that the slow path made when the template was
learnt: does the topic exist, is the partition open, which configuration and leader epoch does it have, may the client
do that. Code that changes one of these facts calls `change`. The holder of a template compares one number per request.

One stamp for the whole broker, not one for each partition: docs/decisions/one-fast-path.md.
"""

from __future__ import annotations


class Validity:
    """The stamp of one broker. All calls on the broker's thread."""

    __slots__ = ("stamp",)

    def __init__(self) -> None:
        self.stamp = 0
        """Never decreases; what was learnt at another stamp is forgotten."""

    def change(self) -> None:
        """Note a change that may affect the answer to a request."""
        self.stamp += 1
