"""Reads one offset range of one partition: Fetch after Fetch, the next one sent before the last one is decoded.

The last offset in a response's batch headers decides where the next Fetch begins. So the next Fetch is sent as soon as
the headers are surveyed, and decoding overlaps with the broker's work. Batches are yielded with the offset from which
their records are wanted.

A task begins at the leader that the driver knew when it planned the range. It asks for metadata only when that broker
refuses, cannot be reached, or has less of the log than the range needs.

A task waits, up to `kafkaConsumer.pollTimeoutMs` without progress, for everything that moves or restarts: another
leader, a lost connection, a topic without metadata yet. Missing records are a DataLoss: deleted by retention, a topic
deleted or created again under the same name, a log that ends before the range. With failOnDataLoss=false they are a
warning, and the existing ones are read. Gaps inside a log are no loss: compaction and transaction markers leave them.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np

from ottla.arrow.batches import AbortedTransaction, Chunk, Survey, survey
from ottla.client_core.versions import ANY_VERSION
from ottla.protocol.api import ApiKey
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.errors import CorruptBatch
from ottla.spark.cluster import Cluster, Leader, Retriable
from ottla.spark.connection import buffer_of
from ottla.spark.errors import BrokerUnavailable, DataLoss, ProtocolFailure
from ottla.spark.planner import EARLIEST_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.client_core.exchange import Answer
    from ottla.protocol.types import Buffer
    from ottla.spark.client_options import ClientSettings
    from ottla.spark.connection import Connection
    from ottla.spark.option_values import Address
    from ottla.spark.planner import OffsetRange

logger = logging.getLogger(__name__)

_TOPIC_IDS_SINCE = 13  # Fetch names topics by id since this version, and a topic created again has another id

_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID})


class Fetched(NamedTuple):
    """Batches of the range; their records before `first_offset` are not wanted."""

    found: Survey
    first_offset: int
    aborted: tuple[AbortedTransaction, ...]


class _Gone(Exception):
    """The partition does not exist any more, or is of another topic with the same name."""


class RangeFetcher:
    """Fetches `wanted` once. `monotonic` and `sleep` are the clock, for tests."""

    def __init__(
        self,
        wanted: OffsetRange,
        settings: ClientSettings,
        *,
        fail_on_data_loss: bool,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._wanted = wanted
        self._settings = settings
        self._fail_on_data_loss = fail_on_data_loss
        self._monotonic = monotonic
        self._sleep = sleep
        self._cluster = Cluster(settings, persistent=False)
        self._leader: Leader | None = None
        self._planned_leader = wanted.leader
        """Where to begin without a look-up; None once that leader has been in doubt."""
        self._position = wanted.start
        self._asked = False
        self._progress_at = monotonic()
        self._failures = 0
        """Since the last progress."""

    def fetch(self) -> Iterator[Fetched]:
        """Yield the range's batches in order.

        Raises DataLoss, BrokerUnavailable, ProtocolFailure or CorruptBatch.
        """
        self._progress_at = self._monotonic()
        try:
            while self._position < self._wanted.end:
                try:
                    fetched = self._next()
                except (OSError, Retriable) as problem:
                    self._recover(problem)
                    continue
                except _Gone as gone:
                    self._lose(str(gone), self._wanted.end)
                    continue
                if fetched is not None:
                    yield fetched
                    self._progress_at = self._monotonic()  # the time that the consumer took is not the broker's
                    self._failures = 0
        finally:
            self._cluster.close()

    @property
    def _where(self) -> str:
        return f"{self._wanted.topic}-{self._wanted.partition}"

    def _next(self) -> Fetched | None:
        """Receive a response, send the next request, return the batches; None when there are none yet."""
        connection = self._connect()
        if not self._asked:
            self._ask(connection)
        received = connection.receive()
        self._asked = False
        partition = self._partition_of(connection.parse(received, FetchResponse))
        if partition is None:
            return None
        if partition.error_code:
            self._handle_error(ErrorCode.of(partition.error_code))
            return None
        found = survey(_chunk(received, partition.records))
        if not len(found.headers):
            if partition.records:  # since KIP-74 the first batch is sent whole, whatever the limits
                sent = memoryview(partition.records).nbytes
                raise CorruptBatch(f"the broker sent {sent} bytes without one whole batch; a batch's length is wrong")
            self._check_end(partition)
            return None
        first_offset = self._position
        if found.next_offset <= first_offset:
            raise CorruptBatch("the broker sent batches before the requested offset")
        self._position = found.next_offset
        if self._position < self._wanted.end:
            self._ask(connection)
        aborted = tuple(
            AbortedTransaction(item.producer_id, item.first_offset) for item in partition.aborted_transactions or ()
        )
        return Fetched(found, first_offset, aborted)

    def _connect(self) -> Connection:
        if self._planned_leader is not None:
            connection = self._connect_as_planned(self._planned_leader)
            if connection is not None:
                return connection
            self._planned_leader = None
        if self._leader is None:
            leader = self._cluster.leader(self._wanted.topic, self._wanted.partition)
            if leader is None:
                raise _Gone(f"{self._where} does not exist any more")
            if self._wanted.topic_id.int and leader.topic_id.int and leader.topic_id != self._wanted.topic_id:
                raise _Gone(f"topic {self._wanted.topic} was deleted and created again since the query was planned")
            self._leader = leader
        return self._cluster.connection(self._leader.address)

    def _connect_as_planned(self, address: Address) -> Connection | None:
        """Return the connection to the leader of the plan; None where a look-up is needed.

        It is needed when no usable broker has the address any more, and when the broker's Fetch names topics: then it
        cannot distinguish the planned topic from one that was created later under the same name.
        """
        try:
            connection = self._cluster.connection(address)
            version = self._fetch_version(connection)
        except (OSError, ProtocolFailure) as problem:
            logger.info("%s: %s; looking for the leader", self._where, problem)
            self._cluster.drop(address)
            return None
        return None if self._wanted.topic_id.int and version < _TOPIC_IDS_SINCE else connection

    def _fetch_version(self, connection: Connection) -> int:
        return connection.version(
            ApiKey.FETCH, at_most=ANY_VERSION if self._wanted.topic_id.int else _TOPIC_IDS_SINCE - 1
        )

    def _ask(self, connection: Connection) -> None:
        version = self._fetch_version(connection)
        partition = FetchRequest.FetchPartition(
            partition=self._wanted.partition,
            fetch_offset=self._position,
            partition_max_bytes=self._settings.fetch_max_bytes,
        )
        topic = FetchRequest.FetchTopic(
            topic=self._wanted.topic, topic_id=self._wanted.topic_id, partitions=[partition]
        )
        request = FetchRequest(
            max_wait_ms=self._settings.fetch_max_wait_ms,
            min_bytes=self._settings.fetch_min_bytes,
            max_bytes=self._settings.fetch_max_bytes,
            isolation_level=int(self._settings.read_committed),
            topics=[topic],
        )
        connection.send(request, version, wait_ms=self._settings.fetch_max_wait_ms)
        self._asked = True

    def _partition_of(self, response: FetchResponse) -> FetchResponse.PartitionData | None:
        """Return the partition's part of a response; None when the broker throttles the client (KIP-219)."""
        if response.error_code:
            self._handle_error(ErrorCode.of(response.error_code))
            raise Retriable(f"{self._where}: the broker answered {ErrorCode.of(response.error_code).name}")
        for topic in response.responses:
            for partition in topic.partitions:
                if partition.partition_index == self._wanted.partition:
                    return partition
        if response.throttle_time_ms > 0:
            if self._waited_too_long():
                raise Retriable(f"{self._where}: the broker throttles this client by a quota, and sends nothing")
            logger.info("%s: throttled by the broker for %s ms", self._where, response.throttle_time_ms)
            return None  # the broker handles the next request after that time
        raise ProtocolFailure(f"{self._where}: the broker left the partition out of its answer")

    def _check_end(self, partition: FetchResponse.PartitionData) -> None:
        """Handle a response without records at the position: the range has no more, or the replicas lag for a while.

        A leader whose visible end is after the range returns at least one batch of it, however large (KIP-74), if there
        is one: else the last records of the range were compacted away. The leader of the plan may be a follower by now.
        A follower answers Fetch as well (KIP-392) and may never have more, so the task looks up the leader first.
        """
        visible_end = partition.last_stable_offset if self._settings.read_committed else partition.high_watermark
        if visible_end >= self._wanted.end:
            self._position = self._wanted.end
        elif self._planned_leader is not None:
            self._planned_leader = None
        elif not self._waited_too_long():
            return
        elif self._settings.read_committed and partition.high_watermark >= self._wanted.end:
            hidden = f"an open transaction hides the records from offset {self._position} on"
            self._give_up(Retriable(f"{hidden} (kafka.isolation.level=read_committed)"))
        else:
            self._lose(
                f"{self._where}: no record from offset {self._position} on; the log ends at {partition.high_watermark}",
                self._wanted.end,
            )

    def _handle_error(self, error: ErrorCode) -> None:
        """Raise Retriable or ProtocolFailure, or move the position when records are gone."""
        if error == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._handle_out_of_range()
        elif error in _GONE:
            self._leader = self._planned_leader = None
            self._connect()  # raises _Gone if the metadata says the same
            raise Retriable(f"{self._where}: the broker answered {error.name}")
        elif error == ErrorCode.CORRUPT_MESSAGE:
            raise ProtocolFailure(
                f"{self._where}, at offset {self._position}: the broker answered {error.name}: the batch that holds"
                " this offset is damaged on its disk; the log of the broker says where"
            )
        elif error.retriable:
            raise Retriable(f"{self._where}: the broker answered {error.name} ({error.message})")
        else:
            raise ProtocolFailure(f"{self._where}: the broker answered {error.name} ({error.message})")

    def _handle_out_of_range(self) -> None:
        place = (self._wanted.topic, self._wanted.partition)
        first = self._cluster.list_offsets({place: EARLIEST_TIMESTAMP})[place] or 0
        last = self._cluster.high_watermarks([place])[place]
        if self._position < first:
            problem = f"{self._where}: offset {self._position} is gone, the log starts at {first}"
            self._lose(problem, min(first, self._wanted.end))
        elif self._position > last:
            self._lose(f"{self._where}: offset {self._position} is gone, the log ends at {last}", self._wanted.end)
        else:
            raise Retriable(f"{self._where}: offset {self._position} is out of the leader's range at the moment")

    def _lose(self, problem: str, next_position: int) -> None:
        """Report the records from the position to before `next_position` as lost, and continue there."""
        if self._fail_on_data_loss:
            raise DataLoss(
                f"{problem} (reading {self._wanted}); failOnDataLoss=false would read the existing records"
            ) from None
        left_out = f"offsets {self._position} to {next_position - 1} are left out"
        logger.warning("%s (reading %s); %s", problem, self._wanted, left_out)
        self._position = next_position
        self._progress_at = self._monotonic()

    def _recover(self, problem: Exception) -> None:
        """Drop the connection and the leader, and wait a moment; give up after a long time without progress.

        A broker that cannot be reached, after the look-up too, is a warning: the task may wait for minutes.
        """
        address = self._planned_leader or (None if self._leader is None else self._leader.address)
        if address is not None:
            self._cluster.drop(address)
            if isinstance(problem, OSError) and not isinstance(problem, BrokerUnavailable):
                problem = BrokerUnavailable(f"{address}: {problem}")
        self._leader = self._planned_leader = None
        self._asked = False
        if self._waited_too_long():
            self._give_up(problem)
        self._failures += 1
        is_away = isinstance(problem, OSError) and self._failures == 2
        logger.log(logging.WARNING if is_away else logging.INFO, "%s: %s; trying again", self._where, problem)
        self._sleep(self._settings.retry_backoff_ms / 1000)

    def _waited_too_long(self) -> bool:
        return self._monotonic() - self._progress_at >= self._settings.poll_timeout_ms / 1000

    def _give_up(self, problem: Exception) -> NoReturn:
        waited = f"no progress in {self._wanted} for {self._settings.poll_timeout_ms} ms"
        if isinstance(problem, Retriable):
            raise ProtocolFailure(f"{waited}: {problem}") from None
        raise BrokerUnavailable(f"{waited}: {problem}") from None


def _chunk(answer: Answer[bool], records: Buffer | None) -> Chunk:
    """Return the position of the records in the response's buffer, which continues after them."""
    buffer = buffer_of(answer)
    if not records:
        return Chunk(buffer, 0, 0)
    view = np.frombuffer(records, np.uint8)
    start = view.ctypes.data - buffer.ctypes.data
    return Chunk(buffer, start, start + len(view))
