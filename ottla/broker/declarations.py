"""What the module of an API states of it, beside its handler: the rights that a request needs, and how it is chunked.

    NEEDS = (Need(AclOperation.DESCRIBE, ResourceType.TOPIC),)
    CHUNKS = (Chunks(("topics", "partitions"), ("topics", "partitions")),)

Data and no behaviour: the gate asks for the rights (`requests/gate.py`), `requests/chunks.py` splits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.protocol.acls import AclOperation, ResourceType


Path = tuple[str, ...]
"""Names of lists inside of each other, from the message down."""


class Need(NamedTuple):
    """A right that a request needs: `operation` on each resource of this type that it names, or on the cluster.

    The gate asks for it (`requests/rights.py`) where it is for the cluster and for all requests, and where `named` says
    which resource that is. Everything else is for the handler to ask (`Context.may`).
    """

    operation: AclOperation
    resource_type: ResourceType
    when: str = ""
    """Of which requests; empty for all."""
    unless: tuple[AclOperation, ResourceType] | None = None
    """A right that makes this one unnecessary: to the cluster, or to any resource of the type."""
    named: Path = ()
    """Where the request has the name: a field (no right is needed where it is null), or a list of names, or a list and
    the field of its elements."""
    answered: str = ""
    """The list of the response with an answer to each element of the list: those for which the right is lacking are
    refused for themselves. Empty: the request is."""
    lacking: str = ""
    """What becomes of a request for which the handler finds the right lacking."""


class Chunks(NamedTuple):
    """A list that is split where it is long, because its elements are asked for independently of each other."""

    requested: Path
    """Where the request has it."""
    answered: Path
    """Where the response has the answers to its elements, in the same order."""
