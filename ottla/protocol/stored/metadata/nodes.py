"""Metadata records of brokers and controllers.

A broker registers at each start with a new incarnation id, and gets an epoch: the offset of its record in the metadata
log. While it is fenced it leads nothing and is not shown to clients.
"""

from __future__ import annotations

from ottla.protocol.message import Struct, since, tagged
from ottla.protocol.stored.metadata.record import MetadataRecord
from ottla.protocol.types import Bool, Int8, Int16, Int32, Int64, NullableString, String, Uint16, Uuid


class RegisterBrokerRecord(MetadataRecord, key=0, versions="0-4", flexible="0+"):
    """A broker registered.

    Version 1 adds the controlled shutdown, version 2 the ZooKeeper migration, version 3 the log directories (KIP-858),
    version 4 those that take no new partitions (`cordoned.log.dirs`, KIP-1066); null if that is not known yet.
    """

    class BrokerEndpoint(Struct):
        """An advertised address; `security_protocol` 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

        name: String
        host: String
        port: Uint16
        security_protocol: Int16

    class BrokerFeature(Struct):
        """A feature and the levels that the broker can run at."""

        name: String
        min_supported_version: Int16
        max_supported_version: Int16

    broker_id: Int32
    is_migrating_zk_broker: Bool = since("2+", default=False)
    incarnation_id: Uuid
    broker_epoch: Int64
    end_points: list[BrokerEndpoint]
    features: list[BrokerFeature]
    rack: NullableString
    fenced: Bool = True
    in_controlled_shutdown: Bool = since("1+", default=False)
    log_dirs: list[Uuid] = tagged(0, "3+", factory=list)
    cordoned_log_dirs: list[Uuid] | None = tagged(1, "4+", default=None)


class UnregisterBrokerRecord(MetadataRecord, key=1, versions="0", flexible="0+"):
    """A broker was removed from the cluster."""

    broker_id: Int32
    broker_epoch: Int64


class BrokerRegistrationChangeRecord(MetadataRecord, key=17, versions="0-3", flexible="0+"):
    """A change of a registered broker.

    `fenced`: 1 now fenced, -1 no longer, 0 unchanged; `in_controlled_shutdown` (version 1): 1 entered, 0 unchanged;
    `log_dirs` (version 2): the directories that are online now, if the record has any; `cordoned_log_dirs` (version 3):
    those that take no new partitions now, null for no change.
    """

    broker_id: Int32
    broker_epoch: Int64
    fenced: Int8 = tagged(0, "0+", default=0)
    in_controlled_shutdown: Int8 = tagged(1, "1+", default=0)
    log_dirs: list[Uuid] = tagged(2, "2+", factory=list)
    cordoned_log_dirs: list[Uuid] | None = tagged(3, "3+", default=None)


class FenceBrokerRecord(MetadataRecord, key=7, versions="0", flexible="0+"):
    """A broker was fenced. Older form of BrokerRegistrationChangeRecord."""

    id: Int32
    epoch: Int64


class UnfenceBrokerRecord(MetadataRecord, key=8, versions="0", flexible="0+"):
    """A broker is no longer fenced. Older form of BrokerRegistrationChangeRecord."""

    id: Int32
    epoch: Int64


class RegisterControllerRecord(MetadataRecord, key=27, versions="0", flexible="0+"):
    """A controller registered (KIP-919)."""

    class ControllerEndpoint(Struct):
        """An address; `security_protocol` as for brokers."""

        name: String
        host: String
        port: Uint16
        security_protocol: Int16

    class ControllerFeature(Struct):
        """A feature and the levels that the controller can run at."""

        name: String
        min_supported_version: Int16
        max_supported_version: Int16

    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: Bool
    end_points: list[ControllerEndpoint]
    features: list[ControllerFeature]


class UnregisterControllerRecord(MetadataRecord, key=29, versions="0", flexible="0+"):
    """A controller was removed from the cluster."""

    controller_id: Int32
