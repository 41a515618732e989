"""The read of one Fetch request: its partitions are found and checked, their batches read within its limits, and the
answer made of them.

Partitions are checked in the order of the request, as many at a time as the caller wants, and again when they have
changed. The result for each is a view of hot bytes, or a slice that a worker reads for the answer, once memory is
reserved for it (`fetch_aside.py`). Nothing here waits: the caller decides, and asks whether there is enough, or an
error that must be returned immediately (`is_answerable`).
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.broker.catalog.topic import find_partition
from ottla.broker.fetch.fetch_aside import AsideRead
from ottla.broker.fetch.fetch_rights import is_of_replica
from ottla.broker.fetch.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchTarget
from ottla.broker.formats.conversion import FIRST_FETCH_VERSION_WITH_BATCHES, MAX_FETCH_BYTES
from ottla.broker.formats.fetch_conversion import CONVERTED_WEIGHT, NOTHING_HERE, ConvertedPart, convert_parts
from ottla.broker.partitions.read_damage import note_damage, note_read_error
from ottla.broker.runtime.answer_memory import SHARES
from ottla.broker.runtime.pending import Pending
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.log.log_reader import ANY_BYTES, SMALLEST_MAP_BYTES

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.broker.fetch.fetch_sessions import FetchSession
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.peer import RequestContext
    from ottla.broker.services import Services
    from ottla.storage.segment.slice import LogSlice

PartitionData = FetchResponse.PartitionData

READ_COMMITTED = 1
NO_EPOCH = -1
FIRST_VERSION_WITH_MAX_BYTES = 3
FIRST_WITH_STORAGE_ERROR = 6
FIRST_VERSION_WITH_ZSTD = 10


class FetchRead:
    """See the module. All calls are made on the broker's thread.

    `on_throttled` is called if a quota makes the answer empty and the request has opened a session. `may_read` returns
    whether the client may read a topic, by its name; None where no rights are configured.

    `partitions[i]` is the partition of `targets[i]`, None where there is none; `_results[i]` and `_slices[i]` are what
    was read of it. All three grow with `look`.
    """

    def __init__(
        self,
        request: FetchRequest,
        context: RequestContext,
        services: Services,
        session: FetchSession | None,
        targets: list[FetchTarget],
        on_throttled: Callable[[], None] | None = None,
        may_read: Callable[[str], bool] | None = None,
    ) -> None:
        self.targets = targets
        self._quota = context.quota
        self._on_throttled = on_throttled
        self.partitions: list[Partition | None] = []
        self._services = services
        self._may_read = may_read
        self._peer = context.connection
        self._api_version = context.api_version
        self._session = session
        self._is_incremental = session is not None and request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH)
        self._max_bytes = min(request.max_bytes, services.config.fetch_max_bytes)
        if self._quota is not None:
            self._max_bytes = self._quota.fetch_bytes(self._max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._is_of_replica = is_of_replica(request)
        self._committed_only = request.isolation_level == READ_COMMITTED
        self._allow_map = context.connection.endpoint.sends_maps
        self._gives_each = context.api_version < FIRST_VERSION_WITH_MAX_BYTES
        self._converts = context.api_version < FIRST_FETCH_VERSION_WITH_BATCHES
        if self._converts:
            self._allow_map = False
            self._max_bytes = min(self._max_bytes, MAX_FETCH_BYTES)
        self._most_copied_bytes = NOTHING_HERE if self._converts else SMALLEST_MAP_BYTES
        self._copied_bytes = 0
        """The bytes of those `_slices` that are small copies in memory."""
        self._copies_at_most = services.answer_memory.max_bytes // SHARES
        self._results: list[PartitionData] = []
        self._slices: list[LogSlice | None] = []
        self._bytes = 0
        self._cut: set[int] = set()
        """Partitions of which more is visible than was read."""
        self._is_due = False

    def look(self, first: int, end: int) -> None:
        """Read the partitions `first` to `end` for the first time."""
        for index, target in enumerate(self.targets[first:end], first):
            partition, code = self._find(target)
            self.partitions.append(partition)
            self._slices.append(None)
            if partition is None:
                self._is_due = True
                self._results.append(_failed(target, code))
            else:
                self._results.append(self._read(index, target, partition))

    def look_again(self, indexes: Iterable[int]) -> bool:
        """Find and read partitions again that have changed. Return whether the request is answerable now."""
        for index in indexes:
            target = self.targets[index]
            partition, code = self._find(target)
            self.partitions[index] = partition  # another one, where the topic was deleted and created again
            if partition is None:
                self._is_due = True
                self._results[index] = _failed(target, code)
                self._drop(index)
            else:
                self._results[index] = self._read(index, target, partition)
        return self.is_answerable()

    def is_answerable(self) -> bool:
        """Whether there are enough bytes, or there is an error that should not wait."""
        return (
            self._is_due
            or not self.targets
            or self._bytes >= self._min_bytes
            or (bool(self._cut) and self._has_enough())
        )

    def _has_enough(self) -> bool:
        """Whether there are enough bytes although fewer were read: a read ends with a whole batch, which may be well
        below its limit. Waiting would not bring more. Kafka counts the bytes that exist, up to the limit of each
        partition, and does not wait where a segment ends.
        """
        bytes_there = self._bytes
        for index in self._cut:
            target, partition, piece = self.targets[index], self.partitions[index], self._slices[index]
            if partition is None or piece is None:
                continue
            try:
                visible = partition.visible_bytes(target.fetch_offset, self._committed_only)
            except OSError:
                return True  # the read for the answer returns the error
            if visible >= ANY_BYTES:
                return True
            bytes_there += max(min(visible, target.max_bytes) - piece.length, 0)
        return bytes_there >= self._min_bytes

    def answer(self, pending: Pending[FetchResponse] | None) -> FetchResponse | Pending[FetchResponse]:
        """The response to what has been read. If bytes must be read or converted in a thread first, a pending one
        (`pending`, if given), which is completed then.
        """
        if self._quota is not None and not self._quota.may_fetch(self._bytes):
            return self._nothing()
        if self.is_ready():
            if self._copied_bytes:
                self._services.answer_memory.note_copied(self._copied_bytes)
            return self.response()
        reply = pending or Pending(parks=True, is_cold=True)
        AsideRead(self, self._services, self._peer, reply, CONVERTED_WEIGHT if self._converts else 1).begin()
        return reply

    # -- what a worker reads (`fetch_aside.Aside`) ------------------------------------------------------------------

    def is_ready(self) -> bool:
        """Whether nothing is left to be read or converted by a worker."""
        return not any(piece is not None and piece.length and piece.view is None for piece in self._slices)

    def shorten(self, most_bytes: int) -> int:
        """Limit the bytes that a worker reads or that are copied already, but for the first batch. Return how many."""
        taken_bytes = 0
        for index, piece in enumerate(self._slices):
            left_bytes = most_bytes - taken_bytes
            if piece is not None and piece.view is None and piece.length > left_bytes:
                self._read_one(index, max(left_bytes, 0), at_least_one=not taken_bytes)
            taken_bytes += _memory_of(self._slices[index])
        return taken_bytes

    def put_back(self) -> list[int]:
        """Release everything that was read. Return the partitions that had something."""
        held = [index for index, piece in enumerate(self._slices) if piece is not None and piece.length]
        for index in held:
            self._drop(index)
        return held

    def read_anew(self, indexes: Sequence[int], most_bytes: int) -> None:
        """Read these partitions once more, at most so many bytes in all, except for the first batch."""
        self._max_bytes = min(self._max_bytes, most_bytes)
        self.look_again(indexes)

    def run_aside(self, done: Callable[[BaseException | None], None], is_given_up: Callable[[], bool]) -> None:
        """Read and convert in a worker; `done` on the broker's thread, with an error only if there is a bug."""
        if self._converts:
            self._convert(done, is_given_up)
            return
        cold = [
            (index, piece)
            for index, piece in enumerate(self._slices)
            if piece is not None and piece.length and piece.view is None
        ]

        def read() -> list[bytes | KafkaError | OSError]:
            return [_read_blocking(piece, is_given_up) for _, piece in cold]

        def came(pieces: Sequence[bytes | KafkaError | OSError] | None, error: BaseException | None) -> None:
            try:
                if pieces is not None:
                    for (index, _), piece in zip(cold, pieces, strict=True):
                        self._slices[index] = None
                        if isinstance(piece, (KafkaError, OSError)):
                            self._refuse(index, piece)
                        else:
                            self._results[index].records = piece
            except Exception as failed:  # the client waits, and memory is reserved for it
                error = failed
            done(error)

        self._services.workers.run(read, came)

    def size_bytes(self) -> int:
        """Bytes of memory in what has been read."""
        read_bytes = sum(len(data.records) for data in self._results if isinstance(data.records, (bytes, bytearray)))
        return read_bytes + sum(map(_memory_of, self._slices))

    def _find(self, target: FetchTarget) -> tuple[Partition | None, ErrorCode]:
        if self._is_of_replica and self._may_read is not None and not self._may_read(""):
            return None, ErrorCode.TOPIC_AUTHORIZATION_FAILED  # for all topics
        catalog = self._services.catalog
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic = catalog.find_topic(target.topic)
        if not isinstance(target.topic, str):
            if topic is not None:
                target.topic_name = topic.name
            elif target.topic_name is None:
                missing = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                another = catalog.topics.get(target.topic_name)
                if another is not None and 0 <= target.partition < len(another.partitions):
                    missing = ErrorCode.INCONSISTENT_TOPIC_ID
        if self._may_read is not None:
            name = target.topic if isinstance(target.topic, str) else target.topic_name
            if name is not None and not self._may_read(name):
                return None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        try:
            return find_partition(topic, target.partition, missing=missing), ErrorCode.NONE
        except KafkaError as error:
            return None, error.code

    def _read(self, index: int, target: FetchTarget, partition: Partition) -> PartitionData:
        """Fill in `_slices[index]` again. Return the partition's data for the answer."""
        if self._slices[index] is not None:
            self._drop(index)
        try:
            self._check_epoch(target, partition)
            if self._is_of_replica:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # this broker is the only replica
            if self._api_version < FIRST_VERSION_WITH_ZSTD and partition.log.config.compression_type == "zstd":
                raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            data = self._describe(target, partition)
            diverging = self._diverging_epoch(target, partition)
            if diverging is not None:
                data.diverging_epoch = diverging
                self._is_due = True
            else:
                room = min(target.max_bytes, self._max_bytes - self._bytes)
                if self._copied_bytes >= self._copies_at_most:
                    room = 0
                is_first = self._bytes == 0 or (self._gives_each and self._bytes < self._max_bytes)
                self._slices[index] = piece = self._piece(target, partition, max(room, 0), at_least_one=is_first)
                self._bytes += piece.length
                if self._min_bytes > 1 and partition.has_more(target.fetch_offset, piece.length, self._committed_only):
                    self._cut.add(index)
        except (KafkaError, OSError) as error:
            self._is_due = True
            data = self._refused(target, partition, error)
        return data

    def _piece(self, target: FetchTarget, partition: Partition, most_bytes: int, *, at_least_one: bool) -> LogSlice:
        """The available batches of a partition within the limit. Raises KafkaError, OSError."""
        piece = partition.read(
            target.fetch_offset,
            most_bytes,
            at_least_one=at_least_one,
            committed_only=self._committed_only,
            allow_map=self._allow_map,
            most_copied_bytes=self._most_copied_bytes,
        )
        if piece.view is not None and 0 < piece.length <= SMALLEST_MAP_BYTES:
            self._copied_bytes += piece.length
        return piece

    def _drop(self, index: int) -> None:
        """Release what was read of a partition: it counts no longer."""
        piece = self._slices[index]
        if piece is None:
            return
        self._slices[index] = None
        self._bytes -= piece.length
        if piece.view is not None and 0 < piece.length <= SMALLEST_MAP_BYTES:
            self._copied_bytes -= piece.length
        self._cut.discard(index)

    def _read_one(self, index: int, most_bytes: int, *, at_least_one: bool) -> None:
        """Read a partition that has been described once more, within another limit."""
        partition = self.partitions[index]
        assert partition is not None
        self._drop(index)
        try:
            piece = self._piece(self.targets[index], partition, most_bytes, at_least_one=at_least_one)
        except (KafkaError, OSError) as error:
            self._refuse(index, error)
        else:
            self._slices[index] = piece
            self._bytes += piece.length

    def _refuse(self, index: int, error: KafkaError | OSError) -> None:
        partition = self.partitions[index]
        assert partition is not None
        self._results[index] = self._refused(self.targets[index], partition, error)

    def _refused(self, target: FetchTarget, partition: Partition, error: KafkaError | OSError) -> PartitionData:
        """The error of a partition that could not be read, here or in a worker; other partitions are unaffected."""
        if isinstance(error, OSError):
            note_read_error(partition, error)
            return _failed(target, ErrorCode.KAFKA_STORAGE_ERROR)
        data = _failed(target, error.code)
        if error.code is ErrorCode.CORRUPT_MESSAGE:
            note_damage(
                self._services.metrics,
                self._services.clock.monotonic_ms(),
                partition,
                f"offset {target.fetch_offset}",
                error,
            )
        data.log_start_offset = partition.log_start_offset
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            data.high_watermark = partition.high_watermark
        return data

    def _check_epoch(self, target: FetchTarget, partition: Partition) -> None:
        epoch = target.current_leader_epoch
        if epoch not in (NO_EPOCH, partition.leader_epoch):
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH if epoch < partition.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
            )

    def _describe(self, target: FetchTarget, partition: Partition) -> PartitionData:
        partition.settle()
        return PartitionData(
            partition_index=target.partition,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log_start_offset,
            aborted_transactions=[] if self._committed_only else None,
            records=b"",
        )

    def _diverging_epoch(self, target: FetchTarget, partition: Partition) -> FetchResponse.EpochEndOffset | None:
        """Where the client's log diverges from Ottla's (KIP-595): it has records of an epoch that ended before them."""
        if target.last_fetched_epoch < 0:
            return None
        epoch, end_offset = partition.end_offset_for_epoch(target.last_fetched_epoch)
        if end_offset < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "the epoch that was fetched last is not known")
        if epoch < target.last_fetched_epoch or end_offset < target.fetch_offset:
            return FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return None

    def _convert(self, done: Callable[[BaseException | None], None], is_given_up: Callable[[], bool]) -> None:
        """Convert what was read to messages for an old client."""
        parts: list[ConvertedPart] = []
        for index, piece in enumerate(self._slices):
            partition = self.partitions[index]
            if partition is not None and piece is not None and piece.length:
                target = self.targets[index]
                most_bytes = min(piece.length, target.max_bytes)
                parts.append(
                    ConvertedPart(
                        self._results[index], partition, piece, target.fetch_offset, target.max_bytes, most_bytes
                    )
                )
                self._slices[index] = None
        convert_parts(self._services, self._api_version, parts, done, is_given_up)

    def _nothing(self) -> FetchResponse:
        """The answer to a Fetch that is over a quota (KIP-219): empty, and a session that it continues is unchanged.

        A session that this request has opened is closed: to the Java client an empty first answer means that there is
        none.
        """
        self.put_back()
        if self._is_incremental and self._session is not None:
            return FetchResponse(session_id=self._session.id, responses=[])
        if self._session is not None and self._on_throttled is not None:
            self._on_throttled()
        return FetchResponse(session_id=0, responses=[])

    def response(self) -> FetchResponse:
        """The response with what has been read."""
        session = self._session
        topics: list[FetchResponse.FetchableTopicResponse] = []
        topic: FetchResponse.FetchableTopicResponse | None = None
        last_key: str | UUID | None = None
        knows_no_storage_error = self._api_version < FIRST_WITH_STORAGE_ERROR
        for index, target in enumerate(self.targets):
            data = self._results[index]
            if data.error_code == ErrorCode.KAFKA_STORAGE_ERROR and knows_no_storage_error:
                data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # older clients neither know nor retry the other one
            piece = self._slices[index]
            partition = self.partitions[index]
            if piece is not None and piece.view is not None:
                data.records = piece.view
            if self._committed_only and partition is not None and data.records:
                data = self._with_aborted(target, partition, piece, data)
            if session is not None:
                has_news = target.note_sent(data)
                if self._is_incremental and not has_news:
                    continue
                if data.records:
                    session.read_last(target)
            if partition is not None:
                counters = partition.counters
                counters.total_fetch_requests += 1
                if data.records:
                    counters.bytes_out += len(data.records)
                elif data.error_code:
                    counters.failed_fetch_requests += 1
            if topic is None or last_key != target.topic:
                last_key = target.topic
                topic = FetchResponse.FetchableTopicResponse(partitions=[])
                if isinstance(last_key, str):
                    topic.topic = last_key
                else:
                    topic.topic_id = last_key
                topics.append(topic)
            topic.partitions.append(data)
        return FetchResponse(session_id=0 if session is None else session.id, responses=topics)

    def _with_aborted(
        self, target: FetchTarget, partition: Partition, piece: LogSlice | None, data: PartitionData
    ) -> PartitionData:
        """The records of a partition with the list of aborted transactions among them."""
        offset = target.fetch_offset
        if offset < partition.log_start_offset:
            # Deleted while a worker read them: the list of their aborted transactions is lost.
            return self._refused(target, partition, KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE))
        # If they are mapped, nothing in them was aborted when they were read.
        if data.records and partition.must_list_aborted(offset) and (piece is None or _memory_of(piece)):
            data.aborted_transactions = [
                FetchResponse.AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                for producer_id, first_offset in partition.aborted_transactions(offset, data.records)
            ]
        return data


def _memory_of(piece: LogSlice | None) -> int:
    """The memory in bytes that a piece takes, or will after a worker has read it; none if it is sent from a map."""
    if piece is None or (piece.view is not None and isinstance(piece.view.obj, mmap.mmap)):
        return 0
    return piece.length


def _read_blocking(piece: LogSlice, is_given_up: Callable[[], bool]) -> bytes | KafkaError | OSError:
    """In a worker thread: the bytes, or the error of the data (there is no batch) or of the disk."""
    try:
        return b"" if is_given_up() else piece.read_blocking()
    except (KafkaError, OSError) as error:
        return error
    except ValueError as error:  # the file was closed meanwhile: its topic was deleted
        return OSError(str(error))


def _failed(target: FetchTarget, code: ErrorCode) -> PartitionData:
    return PartitionData(partition_index=target.partition, error_code=code, high_watermark=-1, records=b"")
