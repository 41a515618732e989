"""A Fetch that waits and is answered from its template: a request for one partition without a session, or any other.

Requests that wait for the same records share one read. Without a session, and where their clients use the same
version, they share the whole answer but its correlation id. What a template may not answer continues on the slow path,
from where it is (`SlowPath`): the time that is left is the same, and a session has already moved to its next epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final, Protocol

from ottla.broker.fast.fetch_template import CORRELATION_ID_BYTES, MOST_JOINED_BYTES
from ottla.broker.fetch.delayed_fetch import answer_or_park
from ottla.broker.fetch.fetch_read import FetchRead
from ottla.broker.fetch.fetch_rights import reading_rights
from ottla.broker.fetch.fetch_sessions import FetchTarget
from ottla.broker.fetch.parked_fetches import ParkedFetch, SharedReads, fail
from ottla.protocol.errors import KafkaError

if TYPE_CHECKING:
    from ottla.broker.context import ApiServices, Context
    from ottla.broker.fast.fetch_template import FetchTemplate
    from ottla.broker.fast.partitions_answer import Found, News
    from ottla.broker.fetch.fetch_sessions import FetchSession
    from ottla.broker.fetch.parked_fetches import Deadlines, Tail
    from ottla.broker.peer import Peer
    from ottla.broker.runtime.in_flight_request import InFlightRequest
    from ottla.broker.runtime.pending import Pending
    from ottla.broker.security.quotas.template_quota import TemplateQuota
    from ottla.protocol.api.fetch import FetchRequest, FetchResponse
    from ottla.protocol.types import Buffer

    Handle = Callable[[FetchRequest, Context], FetchResponse | Pending[FetchResponse]]
    GoOn = Callable[[InFlightRequest, bytes, Peer, Handle, int], None]

FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
_NO_ID: Final = bytes(CORRELATION_ID_BYTES)
_ID_END: Final = 8  # of a frame with its length


class SlowPath:
    """The slow path of one connection, for a Fetch that has waited; `go_on` is the dispatcher's."""

    __slots__ = ("_go_on", "parked_fetches", "peer", "sends_maps", "services")

    def __init__(self, services: ApiServices, peer: Peer, go_on: GoOn) -> None:
        self.services = services
        self.parked_fetches = services.parked_fetches
        self.peer = peer
        self.sends_maps = peer.endpoint.sends_maps
        self._go_on = go_on

    def go_on(
        self,
        fetch: ParkedFetch,
        frame: bytes,
        started_ns: int,
        deadline_ms: int,
        targets_of: Callable[[FetchRequest, int], list[FetchTarget]],
        session: FetchSession | None = None,
    ) -> None:
        """Read what the request of `frame` (without its length) asks for; wait until `deadline_ms` if there is too
        little. `targets_of` is called with the request and its version.
        """
        services, wait_ms = self.services, self.parked_fetches.wait_ms(deadline_ms)

        def handle(request: FetchRequest, context: Context) -> FetchResponse | Pending[FetchResponse]:
            targets = targets_of(request, context.api_version)
            may_read = reading_rights(request, context.has, services.authorizer)
            read = FetchRead(request, context, services, session, targets, may_read=may_read)
            return answer_or_park(read, services, wait_ms)

        self._go_on(fetch, frame, self.peer, handle, started_ns)


class _Found:
    """The result for all requests that ask for the same: the records (empty if they do not suffice, None if the slow
    path must answer), and the encoded answers around them, by the templates' shape: the size, and what follows the
    correlation id.
    """

    __slots__ = ("answers", "high_watermark", "last_stable_offset", "log_start_offset", "records")

    def __init__(self, template: FetchTemplate, records: memoryview | None) -> None:
        partition, log = template.partition, template.log
        self.records = records
        self.high_watermark = self.last_stable_offset = partition.high_watermark
        if self.high_watermark > log.transactions.first_open_offset:
            self.last_stable_offset = partition.last_stable_offset
        self.log_start_offset = log.log_start_offset
        self.answers: dict[bytes, tuple[bytes, list[Buffer]]] = {}

    def encode(self, template: FetchTemplate) -> tuple[bytes, list[Buffer]]:
        """The answer of the templates of this shape."""
        records = self.records
        assert records is not None
        length = len(records)
        head = template.encode_head(_NO_ID, self.high_watermark, self.last_stable_offset, self.log_start_offset, length)
        pieces: list[Buffer] = [head[_ID_END:], records, template.after]
        if length <= MOST_JOINED_BYTES:
            pieces = [b"".join(pieces)]
        answer = self.answers[template.shape] = head[: _ID_END - CORRELATION_ID_BYTES], pieces
        return answer


class ParkedPlainFetch(ParkedFetch):
    """See the module. One object is used for all requests of its connection that wait one after the other (`wait`), as
    long as each is answered from its template. As long as it is used, it never `is_done`.
    """

    __slots__ = ("_correlation_id", "_offset", "_since_ns", "_slow_path", "_template")

    waits_again = True
    _correlation_id: bytes
    _offset: int
    _since_ns: int
    """When the wait began, by the clock of its deadline, so that only one clock is read."""

    def __init__(self, template: FetchTemplate, slow_path: SlowPath, stamp: int) -> None:
        super().__init__(template.deadlines, stamp)
        self._template = template
        self._slow_path = slow_path

    def wait(self, template: FetchTemplate, correlation_id: bytes, offset: int) -> None:
        """Wait for what is at `offset`."""
        self._template = template
        self._correlation_id, self._offset = correlation_id, offset
        self.is_waiting = True
        tail = template.tail
        tail.waiting[self] = None
        if not tail.is_watching:
            tail.watch()
        self.deadlines = deadlines = template.deadlines
        self._since_ns = since_ns = deadlines.waiting[self] = deadlines.now_ns()
        if not deadlines.has_timer:
            deadlines.begin(since_ns)

    def wait_again(self, view: memoryview, end: int) -> bool:
        """Wait once more, if the frame `view[:end]` asks for the next records just as the last one did; else False,
        with nothing done.
        """
        template = self._template
        if end != template.frame_bytes or self.is_done:
            return False
        unpack = template.unpack
        front, correlation_id, key, offset, suffix = unpack(view, 0)
        # At the log's end it also waits for gathered batches: the turn's end appends them, and then checks what waits.
        if (
            offset != template.partition.high_watermark
            or key != template.key
            or front != template.front
            or suffix != template.suffix
        ):
            return False
        # `wait`, without the call.
        self._correlation_id, self._offset = correlation_id, offset
        self.is_waiting = True
        tail, deadlines = template.tail, template.deadlines
        tail.waiting[self] = None
        if not tail.is_watching:
            tail.watch()
        read_clock = deadlines.now_ns  # CPython is slow at looking up a slot and calling it in one expression
        self._since_ns = since_ns = deadlines.waiting[self] = read_clock()
        if not deadlines.has_timer:
            deadlines.begin(since_ns)
        return True

    def look_alone(self) -> None:
        """Continue to read. If there is enough, answer as for a request that has not waited."""
        try:
            template = self._template
            quota = template.quota
            if quota is not None and not quota.begin():
                self.fall_back()
                return
            answer = template.answer(
                self._correlation_id,
                self._offset,
                self._since_ns,
                self._slow_path.sends_maps,
                template.min_bytes,
                template.reader.read_newest,
                template.deadlines.now_ns,
            )
            if answer:
                # `_give`, without the call.
                self.is_waiting = False
                del template.tail.waiting[self]
                del template.deadlines.waiting[self]
                owner = self.owner
                if owner is not None:
                    owner.parked_answered(self, answer)
            elif answer is None:
                if quota is not None:
                    quota.owe()  # before the slow path, which charges its own time
                self.fall_back()
            if quota is not None:
                quota.owe()
        except Exception:  # a bug, which `fail` logs: other requests of this turn continue
            fail(self)

    def look(self, reads: SharedReads) -> None:
        """Continue to read; answer if there is enough."""
        template = self._template
        self.woken.clear()
        asked = template.asked, self._offset, self._slow_path.sends_maps
        found = reads.answers.get(asked)
        if found is None:
            found = reads.answers[asked] = self._find(reads, template.min_bytes)
        records = found.records
        if records:
            self._answer(found, len(records))
        elif records is None:
            self.fall_back()

    def expire(self) -> None:
        """Answer with the records that there are."""
        found = self._find(SharedReads(), 0)
        if found.records is None:
            self.fall_back()
        else:
            self._answer(found, len(found.records))

    def stop_waiting(self) -> None:
        """Leave the partition's tail."""
        self._template.tail.remove(self)

    def fall_back(self) -> None:
        """Let the slow path read and wait."""
        deadline_ms = self.end_wait()
        template = self._template
        started_ns = perf_counter_ns() - (template.deadlines.now_ns() - self._since_ns)

        def targets_of(request: FetchRequest, version: int) -> list[FetchTarget]:
            topic = request.topics[0]
            key = topic.topic_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else topic.topic
            target = FetchTarget(key, topic.partitions[0])
            target.topic_name = template.partition.topic  # it was found once
            return [target]

        frame = template.frame(self._correlation_id, self._offset)
        self._slow_path.go_on(self, frame, started_ns, deadline_ms, targets_of)

    def _find(self, reads: SharedReads, min_bytes: int) -> _Found:
        """The result for this request and all that ask for the same."""
        template, offset, slow_path = self._template, self._offset, self._slow_path
        partition, committed_only = template.partition, template.committed_only
        records: memoryview | None = None
        if not (committed_only and partition.must_list_aborted(offset)):
            try:
                read = slow_path.parked_fetches.read
                records = read(partition, offset, template.max_bytes, True, committed_only, slow_path.sends_maps, reads)
                if records and len(records) < min_bytes and not template.is_enough(offset):
                    records = memoryview(b"")
            except (KafkaError, OSError):
                records = None  # the slow path meets the error again and returns it
        return _Found(template, records)

    def _answer(self, found: _Found, length: int) -> None:
        template = self._template
        quota = template.quota
        if quota is not None and not quota.may_answer_now(length):
            quota.owe()
            self.fall_back()
            return
        answer = found.answers.get(template.shape)
        size, pieces = found.encode(template) if answer is None else answer
        counters = template.partition.counters
        counters.total_fetch_requests += 1
        counters.bytes_out += length
        template.meter.note((template.deadlines.now_ns() - self._since_ns) // 1000, 1)
        self._give([size, self._correlation_id, *pieces])
        if quota is not None:
            quota.owe()

    def _give(self, answer: list[Buffer]) -> None:
        # `end_wait`, without its calls.
        self.is_waiting = False
        template = self._template
        del template.tail.waiting[self]
        del template.deadlines.waiting[self]
        owner = self.owner
        if owner is not None:
            owner.parked_answered(self, answer)


class WaitingPartitions(Protocol):
    """A template of several partitions (`partitions_template.py`), as a Fetch that waits needs it."""

    session: FetchSession | None
    quota: TemplateQuota | None
    min_bytes: int
    deadlines: Deadlines
    tails: dict[FetchTarget, Tail]

    def look(self, targets: Iterable[FetchTarget], sends_maps: bool, reads: SharedReads | None) -> Found | None:
        """What is new in these partitions; None where the slow path must answer."""

    def encode(self, news: list[News], correlation_id: bytes, started_ns: int) -> list[Buffer]:
        """The frame that reports it; a session counts it as sent from now on."""


class ParkedPartitionsFetch(ParkedFetch):
    """A Fetch that may name several partitions. When it was parked, its session moved to the next epoch. The object is
    reused like `ParkedPlainFetch`.

    `targets` are the partitions that it asked for (of a session, those at that time); `changed` are those with
    something to report already.
    """

    __slots__ = (
        *("_changed", "_changes", "_correlation_id", "_epoch", "_frame", "_session", "_slow_path", "_started_ns"),
        *("_tails", "_targets", "_template"),
    )

    _changed: dict[object, None]
    _changes: int
    _correlation_id: bytes
    _epoch: int
    _frame: bytes
    _started_ns: int
    _tails: dict[FetchTarget, Tail]
    _targets: list[FetchTarget]

    def __init__(self, template: WaitingPartitions, slow_path: SlowPath, stamp: int) -> None:
        super().__init__(template.deadlines, stamp)
        self._template = template
        self._slow_path = slow_path
        self._session = template.session

    def wait(
        self, frame: bytes, correlation_id: bytes, targets: list[FetchTarget], news: list[News], started_ns: int
    ) -> None:
        """Wait for more in these partitions than `news` has."""
        self._frame, self._correlation_id, self._started_ns = frame, correlation_id, started_ns
        session, template = self._session, self._template
        if session is not None:
            self._epoch, self._changes = session.epoch, session.changes
        self._targets = targets
        self._tails = tails = template.tails
        self._changed = dict.fromkeys([one[0] for one in news]) if news else {}
        self.is_waiting = True
        for target in targets:
            tail = tails[target]
            tail.waiting[self] = target
            if not tail.is_watching:
                tail.watch()
        deadlines = template.deadlines
        read_clock = deadlines.now_ns  # CPython is slow at looking up a slot and calling it in one expression
        since_ns = deadlines.waiting[self] = read_clock()
        if not deadlines.has_timer:
            deadlines.begin(since_ns)

    def look_alone(self) -> None:
        """As `look`, without shared reads."""
        try:
            for target in self.woken:
                self._changed[target] = None
            self.woken.clear()
            self._answer(None, is_due=False)
        except Exception:  # a bug, which `fail` logs: other requests of this turn continue
            fail(self)

    def look(self, reads: SharedReads) -> None:
        """Continue to read the partitions that have changed; answer if there is enough."""
        for target in self.woken:
            self._changed[target] = None
        self.woken.clear()
        self._answer(reads, is_due=False)

    def expire(self) -> None:
        """Answer with the records that there are."""
        self._answer(SharedReads(), is_due=True)

    def stop_waiting(self) -> None:
        """Leave the tails of its partitions."""
        tails = self._tails
        for target in self._targets:
            tails[target].remove(self)

    def fall_back(self) -> None:
        """Let the slow path read and wait."""
        deadline_ms = self.end_wait()
        targets, session = self._targets, self._session
        self._slow_path.go_on(
            self, self._frame, self._started_ns, deadline_ms, lambda request, version: targets, session
        )

    def _answer(self, reads: SharedReads | None, *, is_due: bool) -> None:
        template, changed = self._template, self._changed
        session = self._session
        if session is not None and (session.epoch != self._epoch or session.changes != self._changes):
            self.fall_back()  # another request has continued the session
            return
        targets = self._targets if len(changed) == len(self._targets) else [t for t in self._targets if t in changed]
        found = template.look(targets, self._slow_path.peer.endpoint.sends_maps, reads)
        if found is None:
            self.fall_back()
            return
        news, size_bytes = found
        if is_due or size_bytes >= template.min_bytes:
            quota = template.quota
            if quota is not None and not quota.may_answer_now(size_bytes):
                quota.owe()
                self.fall_back()
                return
            # `end_wait`, without its calls.
            self.is_waiting = False
            tails = self._tails
            for target in self._targets:
                tails[target].waiting.pop(self, None)
            del self.deadlines.waiting[self]
            answer = template.encode(news, self._correlation_id, self._started_ns)
            owner = self.owner
            if owner is not None:
                owner.parked_answered(self, answer)
            if quota is not None:
                quota.owe()
