"""Incremental fetch sessions (KIP-227): a client's partitions are remembered, so that only changes are sent.

A session belongs to no particular connection: a client that knows its id and next epoch may use it. Epochs: 0 opens a
session (and closes the one that is named), -1 closes it and fetches without one, 1 and up continue; 2^31-1 is followed
by 1.

The cache is limited by `max.incremental.fetch.session.cache.slots`. As in Kafka, a full cache gives a slot to a new
session only if one has not been used for two minutes, or a smaller one is older than that. Otherwise clients that come
and go would evict all others. A client that gets no slot fetches without a session (session id 0).

Kafka limits the number of sessions, but not their sizes. Here all of them together hold at most `MAX_PARTITIONS`:
sessions that have not been used for two minutes are evicted first. A client that gets no room even then fetches without
a session, or has to begin a new one.
Source: Kafka's FetchSession.scala, FetchSessionCache.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ottla.protocol.api.fetch import FetchRequest, FetchResponse
    from ottla.storage.files.clock import Clock

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = (1 << 31) - 1
EVICTABLE_AFTER_MS = 120_000
"""Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS."""
MAX_PARTITIONS = 200_000
"""Partitions of all sessions, 300 bytes each. A client may name some that do not exist, a few more each time, and a
client that is killed leaves its session behind."""

TopicKey: TypeAlias = "str | UUID"
"""A topic as the client names it: by name up to Fetch 12, by id from 13."""
PartitionKey: TypeAlias = tuple[TopicKey, int]


def random_ids() -> Callable[[], int]:
    """Returns ids that a client cannot guess. Without the module `random`, whose import would take longer."""
    return lambda: int.from_bytes(os.urandom(4), "big") % MAX_EPOCH + 1


class FetchTarget:
    """One partition that a client fetches: what it asked for, and what it got last.

    `topic_name` is the name of a topic id, noted when the id was found, and kept. So a session, or a request that
    waits, is answered that its topic is deleted or another one, not that the id is unknown.
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "key",
        "last_fetched_epoch",
        "max_bytes",
        "partition",
        "sent_high_watermark",
        "sent_log_start_offset",
        "topic",
        "topic_name",
    )

    def __init__(self, topic: TopicKey, asked: FetchRequest.FetchPartition) -> None:
        self.topic = topic
        self.topic_name: str | None = None
        self.partition = asked.partition
        self.key: PartitionKey = (topic, asked.partition)
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1
        self._ask(asked)

    def _ask(self, asked: FetchRequest.FetchPartition) -> None:
        self.fetch_offset = asked.fetch_offset
        self.max_bytes = asked.partition_max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch

    def update(self, asked: FetchRequest.FetchPartition) -> bool:
        """Apply a new request for it; what it got stays. Return whether more than the fetch offset has changed."""
        is_changed = (
            self.max_bytes != asked.partition_max_bytes
            or self.current_leader_epoch != asked.current_leader_epoch
            or self.last_fetched_epoch != asked.last_fetched_epoch
        )
        self._ask(asked)
        return is_changed

    def note_sent(self, data: FetchResponse.PartitionData) -> bool:
        """Record `data` as sent. Return whether it is news for the client."""
        news = bool(data.records) or data.error_code != ErrorCode.NONE or data.diverging_epoch is not None
        if data.high_watermark != self.sent_high_watermark:
            news = True
            self.sent_high_watermark = data.high_watermark
        if data.log_start_offset != self.sent_log_start_offset:
            news = True
            self.sent_log_start_offset = data.log_start_offset
        if data.error_code != ErrorCode.NONE:
            self.sent_high_watermark = -1  # the end of an error must be sent, even when nothing else has changed
        return news


class FetchSession:
    """A remembered set of partitions, in the order in which they are read: a partition that got data moves to the end.

    `changes` counts the requests that added or dropped partitions, or changed more than their fetch offsets, and the
    session's end.
    """

    __slots__ = ("changes", "created_ms", "epoch", "id", "is_closed", "last_used_ms", "targets", "uses_topic_ids")

    def __init__(self, session_id: int, *, uses_topic_ids: bool, now_ms: int) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.is_closed = False
        self.changes = 0
        self.targets: dict[PartitionKey, FetchTarget] = {}
        """(No OrderedDict, which hashes each key to iterate: the hash of a UUID is a call.)"""

    def update(
        self, wanted: Iterable[tuple[TopicKey, FetchRequest.FetchPartition]], forgotten: Iterable[PartitionKey]
    ) -> None:
        """Add or change wanted partitions, then drop forgotten ones."""
        targets = self.targets
        is_changed = False
        for topic, asked in wanted:
            target = targets.get((topic, asked.partition))
            if target is None:
                target = FetchTarget(topic, asked)
                targets[target.key] = target
                is_changed = True
            elif target.update(asked):
                is_changed = True
        for key in forgotten:
            if targets.pop(key, None) is not None:
                is_changed = True
        if is_changed:
            self.changes += 1

    def read_last(self, target: FetchTarget) -> None:
        """`target` has got data: the other ones come first next time (fairness under max.bytes)."""
        current = self.targets.pop(target.key, None)
        if current is not None:  # another one, where it was forgotten and added again while a Fetch waited
            self.targets[target.key] = current


class FetchSessions:
    """The cache of sessions of one node."""

    def __init__(
        self,
        max_slots: int,
        clock: Clock,
        chooser: Callable[[], int] | None = None,
        max_partitions: int = MAX_PARTITIONS,
    ) -> None:
        self._max_slots = max_slots
        self._max_partitions = max_partitions
        self._clock = clock
        self._choose = random_ids() if chooser is None else chooser
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        """The least recently used session is first."""
        self.partition_count = 0
        """The number of partitions in all sessions."""
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        """All open sessions; the least recently used is first."""
        return iter(self._sessions.values())

    def find(self, session_id: int) -> FetchSession | None:
        """The open session with this id."""
        return self._sessions.get(session_id)

    def close(self, session_id: int) -> None:
        """Close and forget a session; nothing when it is unknown."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.is_closed = True
            session.changes += 1
            self.partition_count -= len(session.targets)

    def open(
        self, wanted: list[tuple[TopicKey, FetchRequest.FetchPartition]], *, uses_topic_ids: bool
    ) -> FetchSession | None:
        """A new session with these partitions, or None when the cache has no slot or no room for it."""
        now_ms = self._clock.monotonic_ms()
        if not wanted or not self._make_room(len(wanted), now_ms) or not self._make_slot(len(wanted), now_ms):
            return None
        session_id = self._choose()
        while session_id in self._sessions:
            session_id = self._choose()
        session = self._sessions[session_id] = FetchSession(session_id, uses_topic_ids=uses_topic_ids, now_ms=now_ms)
        session.update(wanted, ())
        self.partition_count += len(session.targets)
        return session

    def update(
        self,
        session: FetchSession,
        wanted: Iterable[tuple[TopicKey, FetchRequest.FetchPartition]],
        forgotten: Iterable[PartitionKey],
    ) -> None:
        """Apply what the request of a resumed session adds, changes and drops; a session without partitions is closed.

        Raises KafkaError FETCH_SESSION_ID_NOT_FOUND, after which clients begin again, if there is no room for what it
        adds; then the session is closed.
        """
        before = len(session.targets)
        session.update(wanted, forgotten)
        self.partition_count += len(session.targets) - before
        if not session.targets:
            self.close(session.id)
        elif len(session.targets) > before and not self._make_room(0, session.last_used_ms):
            self.close(session.id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def resume(self, session_id: int, epoch: int, *, uses_topic_ids: bool) -> FetchSession:
        """The session of an incremental request, moved to its next epoch.

        Raises KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self.move_on(session)
        return session

    def move_on(self, session: FetchSession) -> None:
        """A request of this open session was accepted: move it to its next epoch, and make it the one used last."""
        session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        session.last_used_ms = self._clock.monotonic_ms()
        self._sessions.move_to_end(session.id)

    def _make_room(self, partition_count: int, now_ms: int) -> bool:
        """Evict unused sessions if necessary. Return whether so many more partitions can be held."""
        while self.partition_count + partition_count > self._max_partitions:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.last_used_ms <= EVICTABLE_AFTER_MS:
                return False
            self._evict(oldest)
        return True

    def _evict(self, session: FetchSession) -> None:
        self.close(session.id)
        self.evictions += 1

    def _make_slot(self, partition_count: int, now_ms: int) -> bool:
        if len(self._sessions) < self._max_slots:
            return True
        if not self._sessions:
            return False  # no slots at all
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms <= EVICTABLE_AFTER_MS:
            smallest = min(
                (session for session in self._sessions.values() if now_ms - session.created_ms > EVICTABLE_AFTER_MS),
                key=lambda session: len(session.targets),
                default=None,
            )
            if smallest is None or len(smallest.targets) >= partition_count:
                return False
            oldest = smallest
        self._evict(oldest)
        return True
