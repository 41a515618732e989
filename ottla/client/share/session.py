"""A share session with one leader (KIP-932): its epoch, its partitions, and the acknowledgements that it has to send.

The first request has epoch 0 and names all partitions. Each later one has the next epoch, and names only what is new,
forgotten, or acknowledged; an acknowledgement cannot be in the first one. After INVALID_SHARE_SESSION_EPOCH the session
is opened again (`reopen`), and its member keeps its records. After SHARE_SESSION_NOT_FOUND, and with the connection,
the session is lost (`lose`): the broker has given its records to others.

Renewals are sent apart, in requests that acquire nothing, before other acknowledgements (KIP-1222). Pure: the driver is
`fetcher.py`. Kafka's class is `ShareSessionHandler`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from ottla.client.connection import Connection
from ottla.client.errors import KafkaError
from ottla.client.share.acknowledgements import Run, batches_of, runs_of, split_expired
from ottla.client.structs import TopicPartition
from ottla.protocol.api.share_acknowledge import ShareAcknowledgeRequest
from ottla.protocol.api.share_fetch import AcknowledgeType, ShareFetchRequest

Place: TypeAlias = tuple[UUID, int]
"""A partition as in requests: topic id and index."""
Acknowledgements: TypeAlias = dict[Place, list[Run]]

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = 2**31 - 1

T = TypeVar("T")


class FetchLimits(NamedTuple):
    """The limits of one ShareFetch."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    acquire_mode: int


class ShareSession:
    """See the module."""

    def __init__(self, leader_id: int, group_id: str, member_id: str, epoch: int = INITIAL_EPOCH) -> None:
        self.leader_id = leader_id
        self.connection: Connection | None = None
        """The connection of its requests. The broker ends the session with it."""
        self.loss: KafkaError | None = None
        """Why it was lost; None while it is in use."""
        self._group_id = group_id
        self._member_id = member_id
        self._epoch = epoch
        self._places: set[Place] = set()
        self._names: dict[Place, TopicPartition] = {}
        self._pending: Acknowledgements = {}
        self._renewals: dict[Place, dict[int, float]] = {}
        """Offsets to be renewed, each with the end of its lock."""
        self.in_flight: Acknowledgements = {}
        """The acknowledgements in the request that waits for its answer."""

    @property
    def is_open(self) -> bool:
        """Whether the broker has it."""
        return self._epoch != INITIAL_EPOCH

    @property
    def has_renewals(self) -> bool:
        """Whether there are renewals to be sent."""
        return bool(self._renewals)

    @property
    def has_acknowledgements(self) -> bool:
        """Whether there are acknowledgements without an answer."""
        return bool(self._pending or self._renewals or self.in_flight)

    def pending_outside(self, wanted: Mapping[Place, TopicPartition]) -> bool:
        """Whether acknowledgements are to be sent for partitions that are not fetched (any more)."""
        return not self._pending.keys() <= wanted.keys()

    # Acknowledgements -------------------------------------------------------------------------------------------

    def add(self, place: Place, partition: TopicPartition, runs: Iterable[Run]) -> None:
        """Send these acknowledgements with the next request."""
        runs = list(runs)
        if runs:
            self._names[place] = partition
            self._pending.setdefault(place, []).extend(runs)

    def renew(self, place: Place, partition: TopicPartition, offsets: Iterable[int], lock_until: float) -> None:
        """Send a request that renews the locks of these offsets."""
        renewed = dict.fromkeys(offsets, lock_until)
        if renewed:
            self._names[place] = partition
            self._renewals.setdefault(place, {}).update(renewed)

    def put_back(self) -> None:
        """Send the acknowledgements in flight again: the broker has refused their whole request."""
        sent, self.in_flight = self.in_flight, {}
        for place, runs in sent.items():
            self.retry(place, runs)

    def retry(self, place: Place, runs: Iterable[Run]) -> None:
        """Send acknowledgements again, which were in a request."""
        for run in runs:
            if run.kind is AcknowledgeType.RENEW:
                offsets = range(run.first_offset, run.last_offset + 1)
                self._renewals.setdefault(place, {}).update(dict.fromkeys(offsets, run.lock_until))
            else:
                self._pending.setdefault(place, []).append(run)

    def name_of(self, place: Place) -> TopicPartition | None:
        """Return the partition at a place that the session has had; None for others."""
        return self._names.get(place)

    def take_expired(self, now: float) -> list[TopicPartition]:
        """Drop the acknowledgements whose lock has ended; return their partitions."""
        expired: set[Place] = set()
        for place, runs in list(self._pending.items()):
            lasting, ended = split_expired(runs, now)
            if ended:
                expired.add(place)
                self._pending[place] = lasting
                if not lasting:
                    del self._pending[place]
        for place, offsets in list(self._renewals.items()):
            lasting_offsets = {offset: until for offset, until in offsets.items() if until > now}
            if len(lasting_offsets) < len(offsets):
                expired.add(place)
                self._renewals[place] = lasting_offsets
                if not lasting_offsets:
                    del self._renewals[place]
        return [self._names[place] for place in expired]

    # Requests ---------------------------------------------------------------------------------------------------

    def fetch(self, wanted: Mapping[Place, TopicPartition], limits: FetchLimits) -> ShareFetchRequest:
        """Return the next ShareFetch, of exactly these partitions; with the acknowledgements, except in a first one."""
        if self.is_open:
            self.in_flight, self._pending = self._pending, {}
        self._names.update(wanted)
        named = [place for place in wanted if place not in self._places or place in self.in_flight]
        forgotten = self._places - wanted.keys()
        self._places = set(wanted)
        return ShareFetchRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=limits.max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            max_records=limits.max_records,
            batch_size=limits.max_records,
            share_acquire_mode=limits.acquire_mode,
            topics=[
                ShareFetchRequest.FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        ShareFetchRequest.FetchPartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                ShareFetchRequest.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=types
                                )
                                for first, last, types in batches_of(self.in_flight.get((topic_id, index), ()))
                            ],
                        )
                        for index in indexes
                    ],
                )
                for topic_id, indexes in _by_topic(named).items()
            ],
            forgotten_topics_data=[
                ShareFetchRequest.ForgottenTopic(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in _by_topic(forgotten).items()
            ],
        )

    def renewal(self) -> ShareAcknowledgeRequest:
        """Return the ShareAcknowledge that renews locks."""
        renewals, self._renewals = self._renewals, {}
        self.in_flight = {
            place: [
                run
                for until in sorted(set(offsets.values()))
                for run in runs_of(
                    sorted(offset for offset, its in offsets.items() if its == until), AcknowledgeType.RENEW, until
                )
            ]
            for place, offsets in renewals.items()
        }
        return self._acknowledge(self._epoch, is_renew_ack=True)

    def acknowledge(self, *, is_final: bool = False) -> ShareAcknowledgeRequest:
        """Return the ShareAcknowledge with all other acknowledgements; with `is_final` it ends the session."""
        self.in_flight, self._pending = self._pending, {}
        return self._acknowledge(FINAL_EPOCH if is_final else self._epoch, is_renew_ack=False)

    def _acknowledge(self, epoch: int, *, is_renew_ack: bool) -> ShareAcknowledgeRequest:
        return ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=epoch,
            is_renew_ack=is_renew_ack,
            topics=[
                ShareAcknowledgeRequest.AcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=[
                        ShareAcknowledgeRequest.AcknowledgePartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                ShareAcknowledgeRequest.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=types
                                )
                                for first, last, types in batches_of(self.in_flight[topic_id, index])
                            ],
                        )
                        for index in indexes
                    ],
                )
                for topic_id, indexes in _by_topic(self.in_flight).items()
            ],
        )

    # Answers ----------------------------------------------------------------------------------------------------

    def answered(self) -> Acknowledgements:
        """Note that the broker has accepted the request; return the acknowledgements that were in it."""
        self._epoch = 1 if self._epoch == _MAX_EPOCH else self._epoch + 1
        sent, self.in_flight = self.in_flight, {}
        return sent

    def reopen(self) -> None:
        """Open it again with the next request: the broker expects another epoch. Acknowledgements are sent after."""
        self._epoch = INITIAL_EPOCH
        self._places = set()
        self.put_back()

    def lose(self, error: KafkaError) -> list[TopicPartition]:
        """Note that the session is lost; return the partitions whose acknowledgements are lost with it."""
        self.loss = error
        places = {*self._pending, *self._renewals, *self.in_flight}
        self._pending, self._renewals, self.in_flight = {}, {}, {}
        return [self._names[place] for place in places]


def _by_topic(places: Iterable[Place]) -> dict[UUID, list[int]]:
    found: dict[UUID, list[int]] = defaultdict(list)
    for topic_id, index in places:
        found[topic_id].append(index)
    return found
