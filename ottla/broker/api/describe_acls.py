"""DescribeAcls (key 29), versions 0-3: the access control entries that a filter matches.

There is no authorizer, and the answer is that of an Apache Kafka without one: SECURITY_DISABLED. Tools take that for
what it says; that the API was missing, they took for a broker that is broken. Numbers that mean nothing get the same
answer; Kafka closes the connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from ottla.broker.declarations import Need
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.protocol.api.describe_acls import DescribeAclsRequest

NEEDS = (Need(AclOperation.DESCRIBE, ResourceType.CLUSTER),)
CHUNKS = ()


def handle(request: DescribeAclsRequest, context: Context) -> NoReturn:
    """Raises KafkaError: SECURITY_DISABLED, always."""
    raise KafkaError(ErrorCode.SECURITY_DISABLED, "there is no authorizer, so that there are no ACLs")
