"""What a test writes and looks at: the records of a topic, the members and the progress of a group.

By the bundled client, as any other program would; the clients are made when a method first needs them.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from ottla.client.admin_group_results import SHARE, STREAMS
from ottla.client.offsets import LATEST
from ottla.client.structs import TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.shown import counted
from ottla.testing.faults import CLIENT_ID
from ottla.testing.waiting import PAUSE_S, NotInTime, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.client.admin_group_results import GroupDescription, GroupListing
    from ottla.client.blocking import Admin, Consumer, Producer
    from ottla.client.structs import ConsumerRecord, RecordMetadata
    from ottla.testing.registry_thread import SchemaRegistry

TIMEOUT_S: Final = 10.0
STABLE: Final = "Stable"
_READ_MS: Final = 50
_MARKERS_BYTES: Final = 65_536
"""Bytes of a read that looks for a record after markers: some 800 of them, and not all records of a group that is far
behind.
"""


class ClientMethods(ABC):
    """The methods. `client_options`: options of the clients that they use."""

    def __init__(self, client_options: Mapping[str, object] | None) -> None:
        self._client_options = dict(client_options or {})
        self._admin: Admin | None = None
        self._producer: Producer | None = None
        self._making = threading.Lock()
        """Held while one of the two is made, or taken to be closed: threads share them."""

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """The address of the broker."""

    @property
    def admin(self) -> Admin:
        """A blocking `ottla.Admin` that is connected to it; it is closed when the broker ends."""
        from ottla.client.blocking import Admin

        with self._making:
            if self._admin is None:
                self._admin = Admin(self._options())
            return self._admin

    def schema_registry(self, topic: str = "_schemas", *, timeout_s: float = TIMEOUT_S) -> SchemaRegistry:
        """A schema registry on the broker's topic: `with broker.schema_registry() as registry: registry.url`.

        `timeout_s` is how long its requests wait for the broker.
        """
        from ottla.testing.registry_thread import SchemaRegistry

        return SchemaRegistry(self.bootstrap_servers, self._client_options, topic, timeout_s=timeout_s)

    def create_topic(
        self, name: str | None = None, *, partitions: int = 1, configs: Mapping[str, str | None] | None = None
    ) -> str:
        """Create a topic and return its name, by default a new one. Raises KafkaError, for example if it exists."""
        name = name or f"topic-{uuid.uuid4().hex[:12]}"
        self.admin.create_topic(name, partitions=partitions, configs=configs)
        return name

    def send(
        self,
        topic: str,
        *values: bytes | None,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> list[RecordMetadata]:
        """Write a record for each value, and return their places when all are written. Raises KafkaError.

        The topic is created if it does not exist, unless `auto.create.topics.enable` is false.
        """
        producer = self._writer()
        deliveries = [
            producer.send(topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms)
            for value in values
        ]
        return [delivery.result() for delivery in deliveries]

    def records(self, topic: str, *, isolation_level: str = "read_uncommitted") -> list[ConsumerRecord]:
        """All records that the topic has now, by partition and offset.

        With `isolation_level="read_committed"` without those of aborted and open transactions. Raises KafkaError, for
        example for a topic that does not exist.
        """
        with self._reader(topic, isolation_level) as consumer:
            return _read_to(consumer, consumer.end_offsets(consumer.assignment()))

    def last_records(self, topic: str, most: int, last: int) -> tuple[list[ConsumerRecord], int]:
        """As `records`; of a topic with more than `most` offsets only the `last` ones of each partition. Also returns
        how many offsets were passed over. Raises KafkaError.
        """
        with self._reader(topic, "read_uncommitted") as consumer:
            starts = consumer.beginning_offsets(consumer.assignment())
            ends = consumer.end_offsets(consumer.assignment())
            before = 0
            if sum(ends[one] - start for one, start in starts.items()) > most:
                for one, start in starts.items():
                    begins = max(start, ends[one] - last)
                    consumer.seek(one, begins)
                    before += begins - start
            return _read_to(consumer, ends), before

    def wait_for_records(
        self,
        topic: str,
        count: int = 1,
        *,
        timeout_s: float = TIMEOUT_S,
        isolation_level: str = "read_uncommitted",
    ) -> list[ConsumerRecord]:
        """Wait until the topic has at least so many records, and return those that were read by then, by partition and
        offset. The topic may be created meanwhile. Raises NotInTime.
        """
        __tracebackhide__ = True
        deadline = time.monotonic() + timeout_s
        found: list[ConsumerRecord] = []
        with contextlib.ExitStack() as stack:
            consumer: Consumer | None = None
            while len(found) < count:
                if consumer is None:
                    try:
                        consumer = stack.enter_context(self._reader(topic, isolation_level))
                    except KafkaError as error:
                        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                            raise
                else:
                    found += _some(consumer)
                if len(found) < count and time.monotonic() >= deadline:
                    there = "does not exist" if consumer is None else f"has {counted(len(found), 'record')}"
                    raise NotInTime(f"topic {topic!r} {there} after {timeout_s:g} s; {count:,} were awaited")
                if consumer is None:
                    time.sleep(PAUSE_S)  # the topic is looked for again
        return _sorted(found)

    def wait_for_members(self, group: str, count: int = 1, *, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until a group has exactly so many members, and each has its assignment. For groups of all protocols; 0
        waits until it is empty or gone. Raises NotInTime.

        A consumer with `auto.offset.reset=latest` looks for the ends of its partitions after that, and misses what is
        written before: `wait_for_readers` waits for it.
        """

        __tracebackhide__ = True

        def look() -> str | None:
            listing = self._listing(group)
            if listing is None:
                return None if not count else f"group {group!r} does not exist"
            described = self._describe(listing)
            members = len(described.members)
            if members == count and (not count or described.state == STABLE):
                return None
            there = f"group {group!r} has {counted(members, 'member')} and is {described.state}"
            return f"{there}, not {count:,} and Stable" if count else f"{there}, not empty"

        wait_until(look, timeout_s)

    def wait_until_consumed(self, group: str, *topics: str, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until the committed offsets of a group are at the end of these topics, by default of all topics of which
        it has committed offsets. A share group has acknowledged all records then. Raises NotInTime.

        The markers of transactions are no records: a group that commits the offset after its last record has consumed
        everything, although the log ends after the marker.
        """

        __tracebackhide__ = True
        with_records: set[tuple[TopicPartition, int, int]] = set()

        def look() -> str | None:
            listing = self._listing(group)
            if listing is None:
                return f"group {group!r} does not exist"
            committed = self._committed(listing)
            wanted = set(topics) or {partition.topic for partition in committed}
            if not wanted:
                return f"group {group!r} has committed no offset"
            for partition, end in sorted(self._ends(wanted).items()):
                start = committed.get(partition, 0)
                missing = end - start
                if missing > 0:
                    if (partition, start, end) not in with_records and not self._has_records(partition, start, end):
                        continue
                    with_records.add((partition, start, end))  # not read again while neither offset moves
                    where = f"{partition.topic}-{partition.partition}"
                    return f"group {group!r} has not consumed {counted(missing, 'record')} of {where}"
            return None

        wait_until(look, timeout_s)

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The committed offset of a group in each partition where it has one; of a share group, the offset before which
        all records are acknowledged. Empty for a group that does not exist.
        """
        listing = self._listing(group)
        return {} if listing is None else self._committed(listing)

    # -- inside

    def _writer(self) -> Producer:
        from ottla.client.blocking import Producer

        with self._making:
            if self._producer is None:
                self._producer = Producer(self._options())
            return self._producer

    def _close_clients(self) -> None:
        with self._making:
            admin, self._admin = self._admin, None
            producer, self._producer = self._producer, None
        if admin is not None:
            admin.close()
        if producer is not None:
            producer.close()

    def _options(self) -> dict[str, object]:
        own = {"bootstrap.servers": self.bootstrap_servers, "client.id": CLIENT_ID}
        return {**own, **self._client_options}

    def _reader(self, topic: str, isolation_level: str) -> Consumer:
        """A consumer of all partitions of the topic, from its beginning. Raises KafkaError: it does not exist."""
        from ottla.client.blocking import Consumer

        if topic not in self.admin.list_topics(include_internal=True):  # a consumer would wait for it
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} does not exist")
        own = {"auto.offset.reset": "earliest", "isolation.level": isolation_level}
        consumer = Consumer({**self._options(), **own})
        try:
            consumer.assign_topics(topic)
        except BaseException:
            consumer.close()
            raise
        return consumer

    def _has_records(self, partition: TopicPartition, start: int, end: int) -> bool:
        """Whether there are records, and not only markers, from the start offset on and before the end offset."""
        from ottla.client.blocking import Consumer

        own = {"auto.offset.reset": "earliest", "max.partition.fetch.bytes": _MARKERS_BYTES}
        with Consumer({**self._options(), **own}) as consumer:
            consumer.assign([partition])
            consumer.seek(partition, start)
            while not consumer.has_reached(partition, end):
                if any(record.offset < end for record in _some(consumer)):
                    return True
        return False

    def _listing(self, group: str) -> GroupListing | None:
        """The group in the list of all groups; None if it does not exist."""
        return next((one for one in self.admin.list_groups() if one.group_id == group), None)

    def _describe(self, listing: GroupListing) -> GroupDescription:
        describe = {SHARE: self.admin.describe_share_groups, STREAMS: self.admin.describe_streams_groups}
        group = listing.group_id
        return describe.get(listing.group_type, self.admin.describe_groups)([group])[group]

    def _committed(self, listing: GroupListing) -> dict[TopicPartition, int]:
        """The offset up to which the group has consumed each partition."""
        group = listing.group_id
        if listing.group_type == SHARE:
            found = self.admin.share_group_offsets({group: None})[group]
            return {one: place.start_offset for one, place in found.items() if place is not None}
        return {one: place.offset for one, place in self.admin.list_group_offsets({group: None})[group].items()}

    def _ends(self, topics: set[str]) -> dict[TopicPartition, int]:
        """The end of each partition of these topics."""
        described = self.admin.describe_topics(sorted(topics))
        partitions = [TopicPartition(name, one.partition) for name in described for one in described[name].partitions]
        found = self.admin.list_offsets(dict.fromkeys(partitions, LATEST))
        return {one: 0 if place is None else place.offset for one, place in found.items()}


def _read_to(consumer: Consumer, ends: Mapping[TopicPartition, int]) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    while not all(consumer.has_reached(partition, end) for partition, end in ends.items()):
        found += _some(consumer)
    return _sorted(one for one in found if one.offset < ends[TopicPartition(one.topic, one.partition)])


def _some(consumer: Consumer) -> list[ConsumerRecord]:
    """The next records, if some come soon."""
    return [record for records in consumer.getmany(timeout_ms=_READ_MS).values() for record in records]


def _sorted(records: Iterable[ConsumerRecord]) -> list[ConsumerRecord]:
    return sorted(records, key=lambda record: (record.partition, record.offset))
