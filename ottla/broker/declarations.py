"""The declarations in the module of an API, beside its handler: the rights of a request, and how it is chunked.

    NEEDS = (Need(AclOperation.DESCRIBE, ResourceType.TOPIC),)
    CHUNKS = (Chunks(("topics", "partitions"), ("topics", "partitions")),)

Data without behaviour: the gate checks the rights (`requests/gate.py`), `requests/chunks.py` splits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.protocol.acls import AclOperation, ResourceType


Path = tuple[str, ...]
"""The names of nested lists, from the message down."""


class ById(NamedTuple):
    """From a version on, requests name a topic by its id, in another field."""

    field: str
    first_version: int


class Need(NamedTuple):
    """A right that a request needs: `operation` on each resource of this type that it names, or on the cluster.

    The gate checks it (`requests/rights.py`) if it is for the cluster and for all requests, or if `named` is the path
    of the resource. The handler checks all other rights (`Context.may`).
    """

    operation: AclOperation
    resource_type: ResourceType
    when: str = ""
    """Which requests need it; empty: all."""
    unless: tuple[AclOperation, ResourceType] | None = None
    """A right that replaces this one: to the cluster, or to any resource of the type."""
    named: Path = ()
    """The path of the name in the request: a field (null needs no right), or a list of names, or a list and the field
    of its elements."""
    answered: str = ""
    """The list of the response with an answer to each element of the list: elements without the right are refused
    individually. Empty: the whole request is refused."""
    by_id: ById | None = None
    """Where newer versions have the id of the topic in place of its name: the right to the topic is checked, and an
    element whose id no topic has is refused with UNKNOWN_TOPIC_ID."""
    lacking: str = ""
    """What happens to a request if the handler finds that the right is missing."""


class Chunks(NamedTuple):
    """A list that is split if it is long, because its elements are independent of each other."""

    requested: Path
    """Its path in the request."""
    answered: Path
    """The path of the answers to its elements in the response, in the same order."""
