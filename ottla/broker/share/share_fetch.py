"""A ShareFetch: reads the available records of a session's partitions, lets the member have them, or waits for some.

    look -> enough -> acquire -> answer        look -> too little -> park -> woken by a share partition -> look ...

Records are acquired only when the answer is made: what a worker reads from the disk meanwhile may have gone to another
member by then, or been deleted, and is left out. One member at a time reads a share partition by a worker.

An answer leaves when what it rests on is durable: the acknowledgements that came with the request, and the start of a
share partition that is read first. Source: Kafka's `DelayedShareFetch` and `ShareFetchUtils`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.broker.partitions.read_damage import note_damage, note_read_error
from ottla.broker.runtime.answer_memory import SHARES
from ottla.broker.share.deliveries import Acquired, Wanted
from ottla.protocol.api.share_fetch import AcquireMode, ShareFetchRequest, ShareFetchResponse
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.peer import RequestContext
    from ottla.broker.services import Services
    from ottla.broker.share.sessions import Place, ShareSession
    from ottla.broker.share.share_partition import SharePartition
    from ottla.protocol.types import Buffer
    from ottla.storage.segment.slice import LogSlice

PartitionData = ShareFetchResponse.PartitionData

PARTITIONS_PER_LOOK = 500
"""Partitions of a session that one look goes through: 10 us each. Others come first in the next request."""
MOST_BYTES_HERE = 256 * 1024
"""More than that is read by a worker, also if it is in memory: so much is copied in 30 us, and to hand a read over to
another thread costs as much."""


class Found:
    """One partition of the session, as this request sees it: what was read of it, or why nothing can be."""

    __slots__ = ("data", "error", "offset", "piece", "place", "share_partition")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.share_partition: SharePartition | None = None
        self.error: KafkaError | None = None
        self.piece: LogSlice | None = None
        self.offset = 0
        self.data: Buffer | None = None
        """What a worker has read."""


class ShareFetchRead:
    """See the module's text. All calls on the broker's thread.

    `find` gives the share partition of a place, or raises KafkaError. `acknowledged` has the results of the
    acknowledgements that came with the request, by place. `answer(response, share_partitions)` sends the answer once
    what it rests on is durable.
    """

    def __init__(
        self,
        request: ShareFetchRequest,
        context: RequestContext,
        services: Services,
        session: ShareSession,
        find: Callable[[Place], SharePartition],
        acknowledged: dict[Place, KafkaError | None],
    ) -> None:
        self._request = request
        self._context = context
        self._services = services
        self._session = session
        self._find = find
        self._acknowledged = acknowledged
        self._max_bytes = min(request.max_bytes, services.config.fetch_max_bytes)
        if context.quota is not None:
            self._max_bytes = context.quota.fetch_bytes(self._max_bytes)
        self._min_bytes = min(request.min_bytes, max(self._max_bytes, 1))
        self._copies_at_most = services.answer_memory.max_bytes // SHARES
        self._found: list[Found] = []
        self._bytes = 0
        self._records = 0
        """About so many records are in what was read."""
        self.share_partitions: dict[SharePartition, None] = {}
        """Those on whose records the answer rests."""

    @property
    def is_over(self) -> bool:
        """Whether the session has ended meanwhile: nothing may be acquired for it any more."""
        return self._session.is_closed

    # --- reading ---------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Read what is available now, as far as the request's limits need it."""
        self._found, self._bytes, self._records = [], 0, 0
        if self._request.max_records <= 0 or self.is_over:
            return
        for place in self._session.in_turn()[:PARTITIONS_PER_LOOK]:
            found = Found(place)
            self._found.append(found)
            self._read(found)

    def is_answerable(self) -> bool:
        """Whether there are enough bytes, or there is an error that should not wait."""
        return (
            not self._found
            or self._bytes >= self._min_bytes
            or any(one.error is not None for one in self._found)
            or any(error is not None for error in self._acknowledged.values())
        )

    def watched(self) -> list[SharePartition]:
        """The share partitions that may bring more."""
        return [one.share_partition for one in self._found if one.share_partition is not None]

    def _read(self, found: Found) -> None:
        try:
            share_partition = found.share_partition = self._find(found.place)
            offset = share_partition.readable_from()
            room = min(self._max_bytes - self._bytes, self._copies_at_most)
            missing_records = self._request.max_records - self._records
            missing_bytes = self._min_bytes - self._bytes
            if offset is None or share_partition.is_being_read or room <= 0:
                return
            if missing_records <= 0 and missing_bytes <= 0:
                return  # it comes first in a later request
            found.offset = offset
            read_size = share_partition.read_size
            enough = min(read_size.bytes_for(max(missing_records, 0)), room)
            found.piece = self._piece(share_partition, offset, enough)
            if enough < room and found.piece.length < missing_bytes:
                found.piece = self._piece(share_partition, offset, room)
            self._bytes += found.piece.length
            self._records += read_size.records_in(found.piece.length)
        except (KafkaError, OSError) as error:
            self._refuse(found, error)

    def _piece(self, share_partition: SharePartition, offset: int, most_bytes: int) -> LogSlice:
        return share_partition.partition.read(
            offset,
            most_bytes,
            at_least_one=self._bytes == 0,
            committed_only=share_partition.committed_only,
            allow_map=False,
            most_copied_bytes=MOST_BYTES_HERE,
        )

    def _refuse(self, found: Found, error: KafkaError | OSError) -> None:
        found.piece = found.data = None
        share_partition = found.share_partition
        if isinstance(error, OSError):
            if share_partition is not None:
                note_read_error(share_partition.partition, error)
            found.error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            return
        found.error = error
        if error.code is ErrorCode.CORRUPT_MESSAGE and share_partition is not None:
            services = self._services
            note_damage(
                services.metrics, services.clock.monotonic_ms(), share_partition.partition, str(found.offset), error
            )

    # --- what a worker reads (`fetch_aside.Aside`) -------------------------------------------------------------------

    def is_ready(self) -> bool:
        """Whether nothing is left to be read by a worker."""
        return not self._cold()

    def shorten(self, most_bytes: int) -> int:
        """Let what is read take that much, but for the first batch; how much."""
        taken_bytes = 0
        for found in self._found:
            piece = found.piece
            if piece is None:
                continue
            if taken_bytes and taken_bytes + piece.length > most_bytes:
                found.piece = None
            else:
                taken_bytes += piece.length
        return taken_bytes

    def put_back(self) -> list[int]:
        """Let go of everything that was read; which partitions had something."""
        self._found, self._bytes, self._records = [], 0, 0
        return []

    def read_anew(self, indexes: Sequence[int], most_bytes: int) -> None:
        """Read once more, at most so many bytes in all, but for the first batch."""
        self._max_bytes = min(self._max_bytes, most_bytes)
        self.look()

    def run_aside(self, done: Callable[[BaseException | None], None], is_given_up: Callable[[], bool]) -> None:
        """Read in a worker; `done` on the broker's thread, with an error only if there is a bug."""
        cold = self._cold()
        for _, share_partition, _ in cold:
            share_partition.is_being_read = True

        def read() -> list[bytes | KafkaError | OSError]:
            return [_read_blocking(piece, is_given_up) for _, _, piece in cold]

        def came(pieces: Sequence[bytes | KafkaError | OSError] | None, error: BaseException | None) -> None:
            for _, share_partition, _ in cold:
                share_partition.is_being_read = False
            for (found, _, _), piece in zip(cold, pieces or (), strict=False):
                found.piece = None
                if isinstance(piece, (KafkaError, OSError)):
                    self._refuse(found, piece)
                else:
                    found.data = piece
            done(error)
            for _, share_partition, _ in cold:
                share_partition.wake()

        try:
            self._services.workers.run(read, came)
        except BaseException:
            for _, share_partition, _ in cold:
                share_partition.is_being_read = False
            raise

    def size_bytes(self) -> int:
        """Bytes of memory in what has been read."""
        return sum(len(found.data) if found.data is not None else 0 for found in self._found)

    def _cold(self) -> list[tuple[Found, SharePartition, LogSlice]]:
        return [
            (found, found.share_partition, found.piece)
            for found in self._found
            if found.piece is not None
            and found.piece.length
            and found.piece.view is None
            and found.share_partition is not None
        ]

    # --- the answer ------------------------------------------------------------------------------------------------

    def response(self) -> ShareFetchResponse:
        """Let the member have what was read, and say what it has."""
        by_topic: dict[object, ShareFetchResponse.ShareFetchableTopicResponse] = {}
        response = ShareFetchResponse(responses=[], node_endpoints=[])
        missing_records = self._request.max_records
        acknowledged = dict(self._acknowledged)
        quota = self._context.quota
        may_send = quota is None or not self._bytes or quota.may_fetch(self._bytes)
        for found in self._found:
            data, records = self._data(found, missing_records if may_send else 0)
            missing_records -= records
            if found.share_partition is not None and not found.share_partition.is_begun:
                self.share_partitions[found.share_partition] = None
            is_acknowledged = found.place in acknowledged
            if is_acknowledged:
                _add_result(data, acknowledged.pop(found.place))
            if is_acknowledged or data.error_code or data.acquired_records:
                self._add(by_topic, response, found.place, data)
        for place, error in acknowledged.items():
            data = _partition_data(place[1])
            _add_result(data, error)
            self._add(by_topic, response, place, data)
        return response

    def _data(self, found: Found, most_records: int) -> tuple[PartitionData, int]:
        """A partition's part of the answer, and how many records the member has of it."""
        data = _partition_data(found.place[1])
        share_partition = found.share_partition
        read = found.data if found.data is not None else None if found.piece is None else found.piece.view
        if share_partition is not None and found.offset < share_partition.partition.log_start_offset:
            read = None  # deleted while a worker read them: the list of their aborted transactions is lost
        if found.error is None and read and share_partition is not None and most_records > 0 and not self.is_over:
            try:
                share_partition.check()
                records, acquired = share_partition.acquire(
                    found.offset, read, self._wanted(most_records, share_partition)
                )
            except KafkaError as error:
                self._refuse(found, error)
            else:
                data.records = records
                data.acquired_records = [_acquired_records(one) for one in acquired]
                self.share_partitions[share_partition] = None
                return data, _count(acquired)
        if found.error is not None:
            data.error_code, data.error_message = found.error.code, found.error.message
        return data, 0

    def _wanted(self, most_records: int, share_partition: SharePartition) -> Wanted:
        settings = share_partition.settings
        return Wanted(
            self._session.member_id,
            most_records,
            max(self._request.batch_size, 1),
            settings.most_in_flight,
            self._services.clock.monotonic_ms() + settings.lock_duration_ms,
            is_strict=self._request.share_acquire_mode == AcquireMode.RECORD_LIMIT,
            most_deliveries=settings.most_deliveries,
        )

    def _add(
        self,
        by_topic: dict[object, ShareFetchResponse.ShareFetchableTopicResponse],
        response: ShareFetchResponse,
        place: Place,
        data: PartitionData,
    ) -> None:
        topic = by_topic.get(place[0])
        if topic is None:
            topic = ShareFetchResponse.ShareFetchableTopicResponse(topic_id=place[0], partitions=[])
            by_topic[place[0]] = topic
            response.responses.append(topic)
        topic.partitions.append(data)


def _read_blocking(piece: LogSlice, is_given_up: Callable[[], bool]) -> bytes | KafkaError | OSError:
    """In a worker thread: the bytes, or what is wrong with them (no batch is there) or with the disk."""
    try:
        return b"" if is_given_up() else piece.read_blocking()
    except (KafkaError, OSError) as error:
        return error
    except ValueError as error:  # the file was closed meanwhile: its topic is gone
        return OSError(str(error))


def _acquired_records(acquired: Acquired) -> ShareFetchResponse.AcquiredRecords:
    return ShareFetchResponse.AcquiredRecords(
        first_offset=acquired.first_offset,
        last_offset=acquired.last_offset,
        delivery_count=acquired.delivery_count,
    )


def _partition_data(index: int) -> PartitionData:
    return PartitionData(
        partition_index=index, current_leader=ShareFetchResponse.LeaderIdAndEpoch(), records=b"", acquired_records=[]
    )


def _add_result(data: PartitionData, error: KafkaError | None) -> None:
    if error is not None:
        data.acknowledge_error_code, data.acknowledge_error_message = error.code, error.message


def _count(acquired: Sequence[Acquired]) -> int:
    return sum(one.last_offset - one.first_offset + 1 for one in acquired)
