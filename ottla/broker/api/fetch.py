"""Fetch, versions 0-18: read record batches, with sessions and long polls.

Record bytes go from the segment to the socket as they are: `Log.read` gives a view (of a map, where the transport can
send one without our reading it) or says that the bytes may be cold, which a worker thread then reads. Batches are
whole: the first may begin before the offset that was asked for, and is given even where it is larger than every limit
(KIP-74); max_bytes and partition_max_bytes bound what follows.

Too few bytes (`min_bytes`): the request parks until enough of what it wants may be seen, until anything about a
partition is wrong, or until `max_wait_ms`. While it is parked only partitions that woke it are read again. A request
for many partitions reads them in steps, and is parked from the first on.

Versions: 7 adds sessions (`fetch_sessions.py`), 9 leader epochs (FENCED_ and UNKNOWN_LEADER_EPOCH), 12 the diverging
epoch, 13 topic ids (UNKNOWN_TOPIC_ID). Empty partitions carry zero bytes, not null: librdkafka refuses null from
version 12 on. Below version 10 a client cannot read zstd, so a topic with `compression.type=zstd` is refused.

Below version 4 a worker makes messages of format v1 or v0 of what was read (`fetch_conversion.py`). Below version 3
there is no `max_bytes`, and every partition gives at least one message. Old messages in a segment are given to newer
clients as they are. Below version 6 a failing disk is NOT_LEADER_OR_FOLLOWER, as in Kafka.

Differences from Apache Kafka: OFFSET_OUT_OF_RANGE comes with the log start offset and the high watermark, which Kafka
leaves at -1; there are no followers, so a request with a replica id is served as a consumer's; versions 0-2 give whole
messages only, the first one whatever its size, where Kafka 3 cut it and the client had to ask for more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.broker.conversion import FIRST_FETCH_VERSION_WITH_BATCHES, MAX_FETCH_BYTES
from ottla.broker.fetch_conversion import ConvertedPart, convert_parts
from ottla.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchTarget
from ottla.broker.pending import Pending
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.broker.context import Context
    from ottla.broker.fetch_sessions import FetchSession, PartitionKey, TopicKey
    from ottla.broker.partition import Partition
    from ottla.broker.timers import Timer
    from ottla.storage.slice import LogSlice

PartitionData = FetchResponse.PartitionData

READ_COMMITTED = 1
FIRST_VERSION_WITH_MAX_BYTES = 3
FIRST_WITH_STORAGE_ERROR = 6
FIRST_VERSION_WITH_ZSTD = 10
PARTITIONS_PER_STEP = 200
"""Partitions that are read in one go, 30 us each."""


def handle(request: FetchRequest, context: Context) -> FetchResponse | Pending[FetchResponse]:
    """Read what may be seen; park when that is too little."""
    session, targets = _targets(request, context)
    fetch = _Fetch(request, context, session, targets)
    return fetch.start()


def _targets(request: FetchRequest, context: Context) -> tuple[FetchSession | None, list[FetchTarget]]:
    """The session (None without one), and what to read, in order. Raises KafkaError for a session that is not so."""
    version = context.api_version
    sessions = context.node.fetch_sessions
    uses_topic_ids = version >= 13
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if request.session_id:
            sessions.close(request.session_id)
        wanted = list(_wanted(request, uses_topic_ids))
        session = None
        if request.session_epoch == INITIAL_EPOCH and version >= 7:
            session = sessions.open(wanted, uses_topic_ids=uses_topic_ids)
        if session is None:
            return None, [FetchTarget(topic, asked) for topic, asked in wanted]
        return session, list(session.targets.values())
    session = sessions.resume(request.session_id, request.session_epoch, uses_topic_ids=uses_topic_ids)
    session.update(_wanted(request, uses_topic_ids), _forgotten(request, uses_topic_ids))
    if not session.targets:
        sessions.close(session.id)
        return None, []
    return session, list(session.targets.values())


def _wanted(request: FetchRequest, uses_topic_ids: bool) -> Iterable[tuple[TopicKey, FetchRequest.FetchPartition]]:
    for topic in request.topics:
        key = topic.topic_id if uses_topic_ids else topic.topic
        for asked in topic.partitions:
            yield key, asked


def _forgotten(request: FetchRequest, uses_topic_ids: bool) -> Iterable[PartitionKey]:
    for topic in request.forgotten_topics_data:
        key = topic.topic_id if uses_topic_ids else topic.topic
        for index in topic.partitions:
            yield key, index


class _Watch:
    """Wakes a parked fetch for one of its partitions."""

    __slots__ = ("_fetch", "_index", "partition")

    def __init__(self, fetch: _Fetch, index: int, partition: Partition) -> None:
        self._fetch = fetch
        self._index = index
        self.partition = partition

    def wake(self) -> None:
        """Something changed: look at the partition again, after this turn's appends."""
        self._fetch.woken(self._index)


class _Fetch:
    """One request under way. `_results[i]`, `_slices[i]` belong to `_targets[i]`."""

    def __init__(
        self, request: FetchRequest, context: Context, session: FetchSession | None, targets: list[FetchTarget]
    ) -> None:
        node = context.node
        self._context = context
        self._node = node
        self._session = session
        self._is_incremental = session is not None and request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH)
        self._targets = targets
        self._max_bytes = min(request.max_bytes, node.config.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._max_wait_ms = request.max_wait_ms
        self._committed_only = request.isolation_level == READ_COMMITTED
        self._allow_map = context.connection.sends_maps
        self._gives_each = context.api_version < FIRST_VERSION_WITH_MAX_BYTES
        self._converts = context.api_version < FIRST_FETCH_VERSION_WITH_BATCHES
        if self._converts:
            self._allow_map = False
            self._max_bytes = min(self._max_bytes, MAX_FETCH_BYTES)
        self._partitions: list[Partition | None] = []
        self._results: list[PartitionData] = []
        self._slices: list[LogSlice | None] = []
        self._bytes = 0
        self._is_due = False
        self._is_reading = False
        """Whether partitions are left that were not read once."""
        self._pending: Pending[FetchResponse] | None = None
        self._watches: list[_Watch] = []
        self._woken: set[int] = set()
        self._timer: Timer | None = None

    def start(self) -> FetchResponse | Pending[FetchResponse]:
        """Read everything once; answer, or park. Much is read in steps, between which others have their turns."""
        self._look(0, PARTITIONS_PER_STEP)
        if len(self._targets) > PARTITIONS_PER_STEP:
            self._pending = Pending(parks=True)
            self._pending.on_cancel(self._stop_watching)
            self._watch(0)
            self._plan_step()
            return self._pending
        if self._is_answerable() or self._max_wait_ms <= 0:
            return self._answer()
        return self._park()

    def _plan_step(self) -> None:
        self._timer = self._node.timers.at(self._node.clock.monotonic_ms(), self._step)

    def _step(self) -> None:
        """Read some more; at last what has changed meanwhile."""
        pending, first = self._pending, len(self._results)
        if pending is None or pending.done:
            return
        try:
            self._look(first, first + PARTITIONS_PER_STEP)
        except Exception as error:  # a bug: the dispatcher says so
            self._stop_watching()
            pending.fail(error)
            return
        self._watch(first)
        if self._is_reading:
            self._plan_step()
            return
        self._timer = self._node.timers.at(self._node.clock.monotonic_ms() + self._max_wait_ms, self._complete)
        if self._is_answerable() or self._max_wait_ms <= 0:
            self._complete()
        elif self._woken:
            self._look_again()

    def _look(self, first: int, end: int) -> None:
        """Read the partitions `first` to `end` for the first time."""
        self._is_reading = end < len(self._targets)
        for index, target in enumerate(self._targets[first:end], first):
            partition, code = self._find(target)
            self._partitions.append(partition)
            self._results.append(_failed(target, code))
            self._slices.append(None)
            if partition is None:
                self._is_due = True
            else:
                self._read(index, target, partition)

    def woken(self, index: int) -> None:
        """A watched partition changed; many may in one turn, and they are looked at once."""
        if not self._is_reading and not self._woken and self._pending is not None:
            self._node.turn.after_append(self._look_again)
        self._woken.add(index)

    def _find(self, target: FetchTarget) -> tuple[Partition | None, ErrorCode]:
        catalog = self._node.catalog
        if isinstance(target.topic, str):
            topic, missing = catalog.topics.get(target.topic), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            topic, missing = catalog.topics_by_id.get(target.topic), ErrorCode.UNKNOWN_TOPIC_ID
        try:
            return self._node.find_partition(topic, target.partition, missing=missing), ErrorCode.NONE
        except KafkaError as error:
            return None, error.code

    def _read(self, index: int, target: FetchTarget, partition: Partition) -> None:
        """Fill in `_results[index]` and `_slices[index]` anew."""
        before = self._slices[index]
        if before is not None:
            self._bytes -= before.length
            self._slices[index] = None
        try:
            self._check_epoch(target, partition)
            if self._context.api_version < FIRST_VERSION_WITH_ZSTD and partition.log.config.compression_type == "zstd":
                raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            data = self._describe(target, partition)
            diverging = self._diverging_epoch(target, partition)
            if diverging is not None:
                data.diverging_epoch = diverging
                self._is_due = True
            else:
                room = min(target.max_bytes, self._max_bytes - self._bytes)
                piece = partition.read(
                    target.fetch_offset,
                    max(room, 0),
                    at_least_one=self._bytes == 0 or (self._gives_each and self._bytes < self._max_bytes),
                    committed_only=self._committed_only,
                    allow_map=self._allow_map,
                )
                self._slices[index] = piece
                self._bytes += piece.length
        except KafkaError as error:
            self._is_due = True
            data = _failed(target, error.code)
            data.log_start_offset = partition.log_start_offset
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                data.high_watermark = partition.high_watermark
        except OSError as error:
            self._is_due = True
            data = _failed(target, ErrorCode.KAFKA_STORAGE_ERROR)
            self._node.note_read_error(partition, error)
        self._results[index] = data

    def _check_epoch(self, target: FetchTarget, partition: Partition) -> None:
        epoch = target.current_leader_epoch
        if epoch >= 0 and epoch != partition.leader_epoch:
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
        """Where the client's log parts from ours (KIP-595): it holds records of an epoch that ended before them."""
        if target.last_fetched_epoch < 0:
            return None
        epoch, end_offset = partition.end_offset_for_epoch(target.last_fetched_epoch)
        if end_offset < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "the epoch that was fetched last is not known")
        if epoch < target.last_fetched_epoch or end_offset < target.fetch_offset:
            return FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return None

    def _is_answerable(self) -> bool:
        return self._is_due or not self._targets or self._bytes >= self._min_bytes

    # -- parked -----------------------------------------------------------------------------------------------------

    def _park(self) -> Pending[FetchResponse]:
        pending: Pending[FetchResponse] = Pending(parks=True)
        self._pending = pending
        pending.on_cancel(self._stop_watching)
        self._watch(0)
        deadline_ms = self._node.clock.monotonic_ms() + self._max_wait_ms
        self._timer = self._node.timers.at(deadline_ms, self._complete)
        return pending

    def _watch(self, first: int) -> None:
        for index, partition in enumerate(self._partitions[first:], first):
            if partition is not None:
                watch = _Watch(self, index, partition)
                self._watches.append(watch)
                partition.watch(watch)

    def _look_again(self) -> None:
        """Read the partitions that changed; answer if that is enough now."""
        pending = self._pending
        woken, self._woken = self._woken, set()
        if pending is None or pending.done or self._timer is None:
            return
        for index in sorted(woken):
            target = self._targets[index]
            partition, code = self._find(target)
            if partition is None:
                self._is_due = True
                self._results[index] = _failed(target, code)
                before, self._slices[index] = self._slices[index], None
                self._bytes -= before.length if before is not None else 0
            else:
                self._read(index, target, partition)
        if self._is_answerable():
            self._complete()

    def _complete(self) -> None:
        """Answer with what is there: enough, or the deadline."""
        self._stop_watching()
        answer = self._answer()
        pending = self._pending
        assert pending is not None
        if isinstance(answer, FetchResponse):
            pending.complete(answer)

    def _stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for watch in self._watches:
            watch.partition.unwatch(watch)
        self._watches.clear()

    # -- the answer ---------------------------------------------------------------------------------------------------

    def _answer(self) -> FetchResponse | Pending[FetchResponse]:
        """The response; a pending one when bytes must be read or converted in a thread first."""
        if self._converts:
            return self._as_messages()
        cold = [
            index
            for index, piece in enumerate(self._slices)
            if piece is not None and piece.length and piece.view is None
        ]
        if not cold:
            return self._response()
        if self._pending is None:
            self._pending = Pending(parks=True)
        pending = self._pending

        def read() -> list[bytes | OSError]:
            return [_read_blocking(self._slices[index]) for index in cold]

        def done(pieces: Sequence[bytes | OSError] | None, error: BaseException | None) -> None:
            if pieces is None:
                assert error is not None
                pending.fail(error)
                return
            for index, piece in zip(cold, pieces, strict=True):
                self._slices[index] = None
                if isinstance(piece, OSError):
                    self._results[index] = _failed(self._targets[index], ErrorCode.KAFKA_STORAGE_ERROR)
                    partition = self._partitions[index]
                    assert partition is not None
                    self._node.note_read_error(partition, piece)
                else:
                    self._results[index].records = piece
            pending.complete(self._response())

        self._node.workers.run(read, done)
        return pending

    def _as_messages(self) -> FetchResponse | Pending[FetchResponse]:
        """The response of an old client, once what was read has been converted."""
        parts: list[ConvertedPart] = []
        for index, piece in enumerate(self._slices):
            partition = self._partitions[index]
            if partition is not None and piece is not None and piece.length:
                target = self._targets[index]
                parts.append(
                    ConvertedPart(self._results[index], partition, piece, target.fetch_offset, target.max_bytes)
                )
                self._slices[index] = None
        if not parts:
            return self._response()
        pending = self._pending = self._pending or Pending(parks=True)

        def done(error: BaseException | None) -> None:
            if error is None:
                pending.complete(self._response())
            else:
                pending.fail(error)

        convert_parts(self._node, self._context.api_version, parts, done)
        return pending

    def _response(self) -> FetchResponse:
        session = self._session
        topics: list[FetchResponse.FetchableTopicResponse] = []
        topic: FetchResponse.FetchableTopicResponse | None = None
        last_key: str | UUID | None = None
        knows_no_storage_error = self._context.api_version < FIRST_WITH_STORAGE_ERROR
        for index, target in enumerate(self._targets):
            data = self._results[index]
            if data.error_code == ErrorCode.KAFKA_STORAGE_ERROR and knows_no_storage_error:
                data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # older clients do not know the other, nor try again
            piece = self._slices[index]
            if piece is not None and piece.view is not None:
                data.records = piece.view
            if session is not None:
                has_news = target.note_told(data)
                if self._is_incremental and not has_news:
                    continue
                if data.records:
                    session.read_last(target)
            partition = self._partitions[index]
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


def _read_blocking(piece: LogSlice | None) -> bytes | OSError:
    """In a worker thread: the bytes, or what the disk said."""
    assert piece is not None
    try:
        return piece.read_blocking()
    except OSError as error:
        return error
    except ValueError as error:  # the file was closed meanwhile: its topic is gone
        return OSError(str(error))


def _failed(target: FetchTarget, code: ErrorCode) -> PartitionData:
    return PartitionData(partition_index=target.partition, error_code=code, high_watermark=-1, records=b"")
