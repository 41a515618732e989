"""UnregisterBroker (key 64), version 0: forget a broker that has left the cluster. There is only this one.

Any other id is BROKER_ID_NOT_REGISTERED, as in Kafka. This broker's own is INVALID_REQUEST: Kafka obeys, and a cluster
of one node is without a broker and a controller until it is started again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.protocol.api.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

NEEDS = (Need(AclOperation.ALTER, ResourceType.CLUSTER),)
CHUNKS = ()


def handle(request: UnregisterBrokerRequest, context: Context) -> UnregisterBrokerResponse:
    """Refuse it. Raises KafkaError."""
    broker_id = request.broker_id
    if broker_id == context.services.catalog.node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker ID {broker_id} is the only broker, and is running")
    raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
