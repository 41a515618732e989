"""The driver of share sessions: acquires records from the leaders of the assigned partitions, and acknowledges them.

There is one session, with one request in flight, for each leader. Records are requested only while a poll waits, since
their lock begins at once. Acknowledgements travel with the next ShareFetch of their session, which waits for records
only briefly then; a `flush`, a renewal, and those of partitions that are not fetched any more get a ShareAcknowledge.
`requests.py` sends them, and handles their answers.

Kafka's class is `ShareConsumeRequestManager`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from uuid import UUID

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientFailed, ConnectionLost, KafkaError, is_worth_retrying
from ottla.client.metrics import ConsumerMetrics
from ottla.client.share.acknowledgements import Run
from ottla.client.share.acquired_records import AcquiredRecords
from ottla.client.share.ready_records import ReadyRecords
from ottla.client.share.requests import MAY_HEAL, Answered, ShareRequests
from ottla.client.share.results import AcknowledgementResults
from ottla.client.share.session import FetchLimits, Place, ShareSession
from ottla.client.share_consumer_options import ACQUIRE_MODES, ShareConsumerOptions
from ottla.client.structs import TopicPartition
from ottla.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

SHARE_LANE = 1
"""The connection of share sessions to a leader."""
WAIT_WITH_ACKNOWLEDGEMENTS_MS = 100
"""The longest wait of a ShareFetch that brings acknowledgements: their results come with its answer."""
_OPENS_NOTHING = FetchLimits(0, 0, 0, 0, 0)


class ShareFetcher:
    """See the module. `on_change` is called when there are records, errors or results.

    `on_renewed` is called with a partition whose renewals were accepted, and the new end of the locks.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: ShareConsumerOptions,
        member_id: str,
        metrics: ConsumerMetrics,
        *,
        on_change: Callable[[], None],
        on_renewed: Callable[[TopicPartition, float], None],
    ) -> None:
        assert options.group_id is not None
        self._cluster = cluster
        self._options = options
        self._group_id = options.group_id
        self._member_id = member_id
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._ready = ReadyRecords(self._loop)
        self.results = AcknowledgementResults(cluster)
        self._requests = ShareRequests(
            cluster,
            options,
            metrics,
            self._ready,
            self.results,
            is_assigned=lambda partition, topic_id: self.assigned.get(partition) == topic_id and not self._is_closed,
            on_renewed=on_renewed,
        )
        self.assigned: dict[TopicPartition, UUID] = {}
        """The assigned partitions, each with the id of its topic."""
        self._sessions: dict[int, ShareSession] = {}
        self._tasks: dict[ShareSession, asyncio.Task[None]] = {}
        self._failures: dict[int, int] = {}
        self._not_before: dict[int, float] = {}
        self._polls: list[float] = []
        """The times until which polls wait for records."""
        self._flushes = 0
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._is_closed = False

    @property
    def ready(self) -> deque[AcquiredRecords | KafkaError]:
        """The records that the program has not taken, and errors in their places among them."""
        return self._ready.queue

    # Interface --------------------------------------------------------------------------------------------------

    @contextmanager
    def polling(self, until: float) -> Iterator[None]:
        """Acquire records while a poll waits for some."""
        self._polls.append(until)
        self.wake()
        try:
            yield
        finally:
            self._polls.remove(until)

    @contextmanager
    def flushing(self) -> Iterator[None]:
        """Send acknowledgements without waiting for the next poll."""
        self._flushes += 1
        self.wake()
        try:
            yield
        finally:
            self._flushes -= 1

    @property
    def has_acknowledgements(self) -> bool:
        """Whether there are acknowledgements without a result."""
        return any(session.has_acknowledgements for session in self._sessions.values())

    def assign(self, assigned: Mapping[TopicPartition, UUID]) -> None:
        """Fetch these partitions and no others; release records of others that the program has not taken."""
        self.assigned = dict(assigned)
        kept: deque[AcquiredRecords | KafkaError] = deque()
        for one in self.ready:
            if isinstance(one, KafkaError) or self.assigned.get(one.partition) == one.place[0]:
                kept.append(one)
            else:
                self.acknowledge(one, one.release_left())
        self._ready.queue = kept
        self.wake()
        self._on_change()

    def acknowledge(self, records: AcquiredRecords, runs: list[Run]) -> None:
        """Send acknowledgements of acquired records, or note that they were lost with their session."""
        loss = records.session.loss
        if loss is None:
            records.session.add(records.place, records.partition, runs)
        elif runs:
            self.results.note(records.partition, loss)

    def renew(self, records: AcquiredRecords, offsets: set[int]) -> None:
        """Renew the locks of some acquired records."""
        loss = records.session.loss
        if loss is None:
            records.session.renew(records.place, records.partition, offsets, records.lock_until)
            self.wake()
        elif offsets:
            self.results.note(records.partition, loss)

    def wake(self) -> None:
        """Send what is to be sent as soon as the loop is free."""
        if not self._is_scheduled and not self._is_closed:
            self._is_scheduled = True
            self._loop.call_soon(self._pump)

    async def end_sessions(self) -> None:
        """Send all acknowledgements and end every session; other acquired records are released by that.

        A request in flight is answered before. What fails is logged.
        """
        if self._is_closed:
            return
        self._stop()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))
        await asyncio.gather(*(self._end(session) for session in list(self._sessions.values()) if session.is_open))

    async def _end(self, session: ShareSession) -> None:
        connection = session.connection
        if connection is None or not connection.is_open:
            return
        self.results.note_expired(session, self._loop.time())
        try:
            await self._requests.end(session, connection)
        except KafkaError as failed:
            logger.info("share session with %s: its end failed: %s", _name(session), failed)
            self._lose(session, failed)

    async def close(self) -> None:
        """Stop immediately."""
        self._stop()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _stop(self) -> None:
        self._is_closed = True
        self._ready.close()
        if self._timer is not None:
            self._timer.cancel()

    # Requests ---------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Begin a request of every session that has something to send."""
        self._is_scheduled = False
        if self._is_closed:
            return
        now = self._loop.time()
        until = None if self.ready else max(self._polls, default=None)  # a poll whose records are there does not wait
        if until is not None:
            for leader_id in self._leaders():
                if leader_id not in self._sessions:
                    self._sessions[leader_id] = ShareSession(leader_id, self._group_id, self._member_id)
        for session in list(self._sessions.values()):
            if session in self._tasks:
                continue
            if session.is_open and session.connection is not None and not session.connection.is_open:
                self._lose(session, ConnectionLost(f"the connection of the share session with {_name(session)} ended"))
                self.wake()
                continue
            wanted = self._wanted(session.leader_id)
            is_flushed = session.has_acknowledgements and (
                self._flushes > 0 or session.has_renewals or session.pending_outside(wanted)
            )
            if not is_flushed and (until is None or not wanted):
                continue
            not_before = self._not_before.get(session.leader_id, 0.0)
            if now < not_before:
                self._wake_at(not_before)
                continue
            task = asyncio.create_task(self._serve(session, until), name=f"ottla-share-{session.leader_id}")
            self._tasks[session] = task

    def _leaders(self) -> set[int]:
        leaders = {self._cluster.leader_of(*partition) for partition in self.assigned}
        if -1 in leaders:
            self._cluster.mark_stale()
            leaders.discard(-1)
        return leaders

    def _wanted(self, leader_id: int) -> dict[Place, TopicPartition]:
        return {
            (topic_id, partition.partition): partition
            for partition, topic_id in self.assigned.items()
            if self._cluster.leader_of(*partition) == leader_id
        }

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            if self._timer_at <= when:
                return
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.wake()

    async def _serve(self, session: ShareSession, until: float | None) -> None:
        """Send one request of a session, and process its answer. `until`: how long a poll waits, None without one."""
        try:
            await self._request(session, until)
        except KafkaError as failed:
            self._on_failed(session, failed)
        except Exception as bug:  # a program that polls must get it, and not wait forever
            logger.exception("the share consumer failed")
            self._lose(session, ClientFailed(bug))
            self.ready.append(ClientFailed(bug))
        finally:
            del self._tasks[session]
            self.wake()
            self._on_change()

    async def _request(self, session: ShareSession, until: float | None) -> None:
        connection = session.connection
        if connection is None or not connection.is_open:
            if session.is_open:
                raise ConnectionLost(f"the connection of the share session with {_name(session)} ended")
            connection = session.connection = await self._cluster.connection(session.leader_id, SHARE_LANE)
        self.results.note_expired(session, self._loop.time())
        wanted = self._wanted(session.leader_id)
        is_polled = until is not None and bool(wanted)
        is_flushed = not is_polled or self._flushes > 0 or session.pending_outside(wanted)
        limits = _OPENS_NOTHING
        if until is not None and wanted:
            limits = self._limits(until, is_brief=session.is_open and session.has_acknowledgements)
        if session.is_open and session.has_renewals:
            answered = await self._requests.acknowledge(session, connection, session.renewal())
        elif session.is_open and session.has_acknowledgements and is_flushed:
            answered = await self._requests.acknowledge(session, connection, session.acknowledge())
        elif is_polled or session.has_acknowledgements:
            answered = await self._requests.fetch(session, connection, wanted, limits)
        else:
            return
        if answered is not None:
            self._rest(session, answered)

    def _limits(self, until: float, *, is_brief: bool) -> FetchLimits:
        options = self._options
        left_ms = max(0.0, until - self._loop.time()) * 1000
        wait_ms = WAIT_WITH_ACKNOWLEDGEMENTS_MS if is_brief else math.inf
        return FetchLimits(
            math.ceil(min(options.fetch_max_wait_ms, left_ms, wait_ms)),
            options.fetch_min_bytes,
            options.fetch_max_bytes,
            options.max_poll_records,
            ACQUIRE_MODES[options.share_acquire_mode],
        )

    # After an answer -------------------------------------------------------------------------------------------

    def _rest(self, session: ShareSession, answered: Answered) -> None:
        """Let the session's next request wait after problems, and as long as the broker's quota wants."""
        leader_id = session.leader_id
        pause_s = answered.throttle_ms / 1000
        if answered.has_problem:
            self._failures[leader_id] = self._failures.get(leader_id, 0) + 1
            pause_s = max(pause_s, self._options.retry_pause_s(self._failures[leader_id]))
        else:
            self._failures.pop(leader_id, None)
        self._not_before[leader_id] = self._loop.time() + pause_s

    def _on_failed(self, session: ShareSession, failed: KafkaError) -> None:
        """Handle a request without an answer, or one that was refused as a whole."""
        if failed.code is ErrorCode.INVALID_SHARE_SESSION_EPOCH and session.is_open:
            logger.info("share session with %s: %s; opened again", _name(session), failed.message)
            session.reopen()
            return
        self._lose(session, failed)
        if failed.code is ErrorCode.SHARE_SESSION_NOT_FOUND:
            return
        self._rest(session, Answered(has_problem=True, throttle_ms=0))
        if is_worth_retrying(failed) or failed.code in MAY_HEAL:
            self._cluster.mark_stale()
        else:
            self.ready.append(failed)

    def _lose(self, session: ShareSession, error: KafkaError) -> None:
        if self._sessions.get(session.leader_id) is session:
            del self._sessions[session.leader_id]
        logger.info("share session with %s is lost: %s", _name(session), error.message)
        for partition in session.lose(error):
            self.results.note(partition, error)
        self._ready.drop_lost()
        self._on_change()


def _name(session: ShareSession) -> str:
    return f"broker {session.leader_id}"
