"""Kafka's numbers of access control: operations and types of resources, as ACLs and authorized operations have them.

Those that the APIs here need; Kafka's `AclOperation` and `ResourceType` have a few more. The type of a configuration
resource is another table (`ConfigResource.Type`).
"""

from __future__ import annotations

from enum import IntEnum


class AclOperation(IntEnum):
    """What may be done with a resource; bit n of a bit set of authorized operations (KIP-430) stands for n."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class ResourceType(IntEnum):
    """What an operation is done with. CLUSTER is one resource, named `kafka-cluster`."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
