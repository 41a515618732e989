"""What the two ways to be a member have in common: what they are given, what they offer, and the watch over polls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ottla.client.cluster import Cluster
from ottla.client.consumer_options import ConsumerOptions
from ottla.client.coordinator import Coordinator
from ottla.client.groups.commits import MemberIdentity
from ottla.client.groups.listeners import ListenerCalls
from ottla.client.groups.poll_gate import PollGate
from ottla.client.metrics import GroupMetrics
from ottla.client.structs import OffsetAndMetadata, TopicPartition
from ottla.protocol.errors import ErrorCode


class Partitions(Protocol):
    """The consumer's partitions, as a member may see and change them."""

    def owned(self) -> list[TopicPartition]:
        """What is assigned now."""

    def holdings(self) -> Mapping[TopicPartition, object]:
        """What is assigned now, each with an object that is another one when it was given up and came back."""

    def replace(self, wanted: Iterable[TopicPartition]) -> None:
        """Own these and no others; those that stay keep position and pause, new ones have no position yet."""

    def start_reading(self) -> None:
        """Look up where to begin, where the program has not sought."""

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """How far the program has read, where that is known."""

    def progress(self) -> object:
        """Something that is different after the program took a record."""


@dataclass(slots=True)
class GroupContext:
    """What a membership works with."""

    cluster: Cluster
    coordinator: Coordinator
    options: ConsumerOptions
    gate: PollGate
    partitions: Partitions
    listener: ListenerCalls
    commit_consumed: Callable[[], Awaitable[None]]
    """Commit how far the program got, if that shall be done for it; never raises."""
    want_topics: Callable[[Iterable[str]], None]
    """Keep the metadata of these topics beside those subscribed to: the other members' topics, for the leader."""
    now: Callable[[], float]
    metrics: GroupMetrics

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the group waits for this member."""
        return self.options.rebalance_timeout_ms or self.options.max_poll_interval_ms


class Membership(ABC):
    """A member of a group. `run` is one task; everything else is called from the same loop and returns at once."""

    @property
    @abstractmethod
    def identity(self) -> MemberIdentity | None:
        """Who commits for this member; None while the group does not know it."""

    @abstractmethod
    async def run(self) -> None:
        """Be a member until cancelled; raises KafkaError when the group does not want it."""

    @abstractmethod
    def on_subscription(self, topics: frozenset[str], server_pattern: str | None) -> None:
        """Hear which topics are subscribed to, or which pattern the broker is to match, whenever that may be new."""

    @abstractmethod
    def on_metadata(self) -> None:
        """Hear that the cluster's metadata is new."""

    @abstractmethod
    def on_commit_refused(self, identity: MemberIdentity, code: ErrorCode) -> None:
        """Hear that the group did not take a commit of that identity because of who it is."""

    @abstractmethod
    async def leave(self, reason: str, *, for_good: bool) -> None:
        """Leave the group, or (a static member) say as far as the protocol can that it will be back; best effort."""


class PollWatch:
    """Notices a program that asks for no more records: `max_poll_interval_ms` (KIP-62)."""

    def __init__(self, gate: PollGate, progress: Callable[[], object], limit_ms: int, now: float) -> None:
        self._gate = gate
        self._progress = progress
        self._limit_s = limit_ms / 1000
        self._seen: object = None
        self._seen_at = now

    def left_s(self, now: float) -> float:
        """Return how long the program may still take; 0 or less when it took too long."""
        seen = (self._gate.polls, self._progress())
        if self._gate.is_polled or seen != self._seen:
            self._seen, self._seen_at = seen, now
        return self._seen_at + self._limit_s - now
