"""The records that a run of the broker writes about itself, and about changed partitions. Pure.

A start registers the broker with a new incarnation id and its log directories, fenced, as Kafka's controller does, and
then unfences it; the broker epoch is the offset of the registration. A stop fences it. Partitions in a directory that
was not stopped cleanly get a new leader epoch, because records that consumers have seen may be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.broker.metadata.features import SUPPORTED_FEATURES
from ottla.broker.metadata.partition_state import PartitionState
from ottla.protocol.stored.metadata import (
    NO_LEADER_CHANGE,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

FENCE, UNFENCE = 1, -1
ENTERED_SHUTDOWN = 1
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Kafka's security protocols; their numbers are the positions."""
NO_PORTS: Mapping[str, int] = MappingProxyType({})
"""The ports of a broker without sockets."""


class Registration(NamedTuple):
    """The broker that registers, and its epoch."""

    node_id: int
    epoch: int

    def records(
        self,
        config: BrokerConfig,
        incarnation: UUID,
        directories: Sequence[UUID],
        bound_ports: Mapping[str, int] = NO_PORTS,
    ) -> list[MetadataRecord]:
        """The records that register and unfence the broker. `bound_ports`: the ports of its sockets, by listener, in
        place of a port 0 of the configuration.
        """
        return [
            RegisterBrokerRecord(
                broker_id=self.node_id,
                incarnation_id=incarnation,
                broker_epoch=self.epoch,
                end_points=list(_endpoints(config, bound_ports)),
                features=[
                    RegisterBrokerRecord.BrokerFeature(
                        name=name, min_supported_version=first, max_supported_version=last
                    )
                    for name, (first, last) in SUPPORTED_FEATURES.items()
                ],
                rack=config.broker_rack or None,
                fenced=True,
                log_dirs=list(directories),
            ),
            BrokerRegistrationChangeRecord(broker_id=self.node_id, broker_epoch=self.epoch, fenced=UNFENCE),
        ]

    def farewell(self) -> BrokerRegistrationChangeRecord:
        """The record of an orderly stop."""
        return BrokerRegistrationChangeRecord(
            broker_id=self.node_id,
            broker_epoch=self.epoch,
            fenced=FENCE,
            in_controlled_shutdown=ENTERED_SHUTDOWN,
        )


def partition_change(
    topic_id: UUID, index: int, state: PartitionState, *, node_id: int, elect: bool, directory_id: UUID | None
) -> PartitionChangeRecord | None:
    """The change record for a partition that is opened in `directory_id`; None if it agrees with the image.

    `elect` starts a leader epoch with this broker as the leader.
    """
    moved = directory_id is not None and state.directories != (directory_id,)
    if not elect and not moved:
        return None
    return PartitionChangeRecord(
        partition_id=index,
        topic_id=topic_id,
        leader=node_id if elect else NO_LEADER_CHANGE,
        isr=[node_id] if elect and state.isr != (node_id,) else None,
        directories=[directory_id] if moved and directory_id is not None else None,
    )


def _endpoints(config: BrokerConfig, bound_ports: Mapping[str, int]) -> Iterable[RegisterBrokerRecord.BrokerEndpoint]:
    """The addresses that clients get, as far as they do not depend on the client."""
    for listener in config.listeners:
        advertised = config.advertised(listener.name)
        address = listener if advertised is None else advertised
        yield RegisterBrokerRecord.BrokerEndpoint(
            name=listener.name,
            host=address.host or "localhost",
            port=address.port or bound_ports.get(listener.name, 0),
            security_protocol=SECURITY_PROTOCOLS.index(str(listener.protocol.value)),
        )
