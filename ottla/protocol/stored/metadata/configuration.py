"""Metadata records of settings of the cluster: configuration, features, producer ids, quotas."""

from __future__ import annotations

from ottla.protocol.message import Struct
from ottla.protocol.stored.metadata.record import MetadataRecord
from ottla.protocol.types import Bool, Float64, Int8, Int16, Int32, Int64, NullableString, String


class ConfigRecord(MetadataRecord, key=4, versions="0", flexible="0+"):
    """A key was set, or removed if `value` is null.

    `resource_type`: 2 topic, 4 broker (with an empty name: the default of all), 16 client metrics, 32 group.
    """

    resource_type: Int8
    resource_name: String
    name: String
    value: NullableString


class FeatureLevelRecord(MetadataRecord, key=12, versions="0", flexible="0+"):
    """A feature has this level from here on; 0 removes it. ``metadata.version`` is the first record of a log."""

    name: String
    feature_level: Int16


class ProducerIdsRecord(MetadataRecord, key=15, versions="0", flexible="0+"):
    """A broker was given a block of producer ids; the next block begins at `next_producer_id`."""

    broker_id: Int32
    broker_epoch: Int64 = -1
    next_producer_id: Int64


class ClientQuotaRecord(MetadataRecord, key=14, versions="0", flexible="0+"):
    """A quota was set or removed (KIP-546)."""

    class EntityData(Struct):
        """A part of the entity: `entity_type` user, client-id or ip; a null name is the default of that type."""

        entity_type: String
        entity_name: NullableString

    entity: list[EntityData]
    key: String
    value: Float64
    remove: Bool
