"""Whether this broker serves the consumer protocol (Kafka's `KafkaApis.isConsumerGroupProtocolEnabled`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.metadata.features import CONSUMER_PROTOCOL_LEVEL, GROUP_VERSION_FEATURE
from ottla.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.catalog.catalog import Catalog
    from ottla.broker.groups.settings import GroupSettings


def check_consumer_protocol(settings: GroupSettings, catalog: Catalog) -> None:
    """Raise UNSUPPORTED_VERSION unless it is configured, and finalized as a feature."""
    is_configured = CONSUMER_PROTOCOL_TYPE in settings.rebalance_protocols
    _, levels = catalog.finalized_features()
    if not is_configured or levels.get(GROUP_VERSION_FEATURE, 0) < CONSUMER_PROTOCOL_LEVEL:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "this broker does not serve the consumer protocol")
