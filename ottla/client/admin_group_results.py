"""An Admin's results about groups: their members, assignments and states."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.client.admin_streams_results import StreamsMember, StreamsTopology
from ottla.client.structs import BrokerAddress, TopicPartition

CLASSIC = "classic"
CONSUMER = "consumer"
SHARE = "share"
STREAMS = "streams"


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list of groups. Texts are empty if the broker is too old to return them."""

    group_id: str
    protocol_type: str
    """ "consumer" for consumers, "connect" for Connect, "share", "streams"; empty for a group that has only committed
    offsets.
    """
    state: str
    """Kafka's name: Stable, PreparingRebalance, CompletingRebalance, Empty, Dead; Assigning and Reconciling in the
    consumer and streams protocols; NotReady in the streams protocol, while topics are missing.
    """
    group_type: str
    """ "classic", "consumer", "share", "streams", or a newer kind; in lower case."""


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group. Fields that its protocol does not have are None, or empty."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    topics: list[str] = field(default_factory=list)
    """The topics that it subscribes to by name."""
    pattern: str | None = None
    assignment: list[TopicPartition] = field(default_factory=list)
    target_assignment: list[TopicPartition] | None = None
    """The partitions that the broker wants it to own, in the consumer protocol."""
    epoch: int | None = None
    speaks_classic: bool = True
    """Whether it uses the classic protocol, perhaps in a group of the consumer protocol."""
    streams: StreamsMember | None = None
    """Its tasks and its process, in the streams protocol; it has no `assignment` of partitions."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group in full; `assignor` is its chosen one. Epochs are None in the classic protocol."""

    group_id: str
    group_type: str
    protocol_type: str
    state: str
    assignor: str
    coordinator: BrokerAddress
    members: list[MemberDescription]
    epoch: int | None = None
    assignment_epoch: int | None = None
    topology: StreamsTopology | None = None
    """Of a streams group."""


@dataclass(frozen=True, slots=True)
class ShareGroupOffset:
    """Where a share group is in a partition. All records before `start_offset` are acknowledged or archived."""

    start_offset: int
    lag: int | None
    """The records that are not acknowledged or archived yet; None if the broker does not know (before Kafka 4.2)."""
    leader_epoch: int
