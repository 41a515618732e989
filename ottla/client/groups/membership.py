"""The common parts of the two kinds of members: their context, their interface, and the watch over polls."""

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
    """The interface to the consumer's partitions for a member."""

    def owned(self) -> list[TopicPartition]:
        """Return the assigned partitions."""

    def holdings(self) -> Mapping[TopicPartition, object]:
        """Return the assigned partitions, each with an object that changes when it is revoked and assigned again."""

    def replace(self, wanted: Iterable[TopicPartition]) -> None:
        """Own these partitions and no others; kept ones keep position and pause, new ones have no position yet."""

    def start_reading(self) -> None:
        """Look up the positions of partitions where the program has not called `seek`."""

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets up to which the program has read, where they are known."""

    def progress(self) -> object:
        """Return a value that differs after the program has taken a record."""


@dataclass(slots=True)
class GroupContext:
    """The objects that a membership uses."""

    cluster: Cluster
    coordinator: Coordinator
    options: ConsumerOptions
    gate: PollGate
    partitions: Partitions
    listener: ListenerCalls
    commit_consumed: Callable[[], Awaitable[None]]
    """Commit the consumed offsets, if automatic commits are enabled; never raises."""
    want_topics: Callable[[Iterable[str]], None]
    """Keep the metadata of these topics besides the subscribed ones: those of other members, for the leader."""
    now: Callable[[], float]
    metrics: GroupMetrics

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the group waits for this member in a rebalance."""
        return self.options.rebalance_timeout_ms or self.options.max_poll_interval_ms


class Membership(ABC):
    """A member of a group. `run` is one task; the rest is called in the same event loop, and returns immediately."""

    @property
    @abstractmethod
    def identity(self) -> MemberIdentity | None:
        """The identity for commits of this member; None while the group does not know it."""

    @abstractmethod
    async def run(self) -> None:
        """Be a member until cancelled; raises KafkaError when the group refuses it."""

    @abstractmethod
    def on_subscription(self, topics: frozenset[str], server_pattern: str | None) -> None:
        """Called with the subscribed topics, or the pattern for the broker, whenever they may have changed."""

    @abstractmethod
    def on_metadata(self) -> None:
        """Called after an update of the cluster's metadata."""

    @abstractmethod
    def on_commit_refused(self, identity: MemberIdentity, code: ErrorCode) -> None:
        """Called when the group has refused a commit because of this identity."""

    @abstractmethod
    async def leave(self, reason: str, *, for_good: bool) -> None:
        """Leave the group, or (a static member) report its later return if the protocol allows that; best effort."""


class PollWatch:
    """Detects a program that has stopped polling: `max_poll_interval_ms` (KIP-62)."""

    def __init__(self, gate: PollGate, progress: Callable[[], object], limit_ms: int, now: float) -> None:
        self._gate = gate
        self._progress = progress
        self._limit_s = limit_ms / 1000
        self._seen: object = None
        self._seen_at = now

    def left_s(self, now: float) -> float:
        """Return how much time the program has left until its next poll; 0 or less when it took too long."""
        seen = (self._gate.polls, self._progress())
        if self._gate.is_polled or seen != self._seen:
            self._seen, self._seen_at = seen, now
        return self._seen_at + self._limit_s - now
