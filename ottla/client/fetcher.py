"""The fetcher: requests batches of the assigned partitions from their leaders.

`_pump` never waits: it writes a Fetch to every leader with a free connection and a partition that has room in its
buffer. `fetch_answers.py` has the effect of the answers, `position_resets.py` looks up where a partition without a
position begins. An unexpected exception becomes the failure of the partitions that were processed: their reader raises
it, and they are fetched again after that.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple
from uuid import UUID

from ottla.client.assigned import AssignedPartition
from ottla.client.cluster import Cluster
from ottla.client.connection import Connection
from ottla.client.consumer_options import ISOLATION_LEVELS, ConsumerOptions
from ottla.client.errors import (
    AuthenticationFailed,
    ClientFailed,
    KafkaError,
    PartitionFailure,
)
from ottla.client.fetch_answers import FetchAnswers
from ottla.client.metrics import ConsumerMetrics
from ottla.client.outages import of_broker
from ottla.client.position_resets import PositionResets
from ottla.client.sent_fetch import SentFetch
from ottla.client.structs import TopicPartition
from ottla.client_core.fetch_template import FIRST_VERSION, Fetched, FetchTemplate
from ottla.client_core.fetch_template import place as place_of
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import ZERO_UUID

logger = logging.getLogger(__name__)

_LAST_VERSION_WITH_TOPIC_NAMES = 12
_IMPATIENT_WAIT_MS = 20
"""The longest wait of a Fetch at the broker while another partition of that leader may soon have room again."""
_NO_SESSION_EPOCH = -1
_LANES = (1, 2)
"""The connections to a leader for Fetch only. While one Fetch waits for records at the broker, a partition that is not
part of it (its buffer was full, or the program has just called `seek`) is requested on the other."""


class _KnownFetch(NamedTuple):
    """The last Fetch for a single partition: the next one differs only in its offset, while all of this is the same."""

    template: FetchTemplate
    place: tuple[int, int]
    connection: Connection
    view_version: int
    wait_ms: int
    names_by_id: dict[UUID, str] | None


class Fetcher:
    """See the module. `partitions` is the consumer's dict; `on_data` is called when a reader should check again."""

    def __init__(
        self,
        cluster: Cluster,
        partitions: dict[TopicPartition, AssignedPartition],
        options: ConsumerOptions,
        metrics: ConsumerMetrics,
        *,
        on_data: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._fetch_min_bytes = options.fetch_min_bytes
        self._fetch_max_wait_ms = options.fetch_max_wait_ms
        self._fetch_max_bytes = options.fetch_max_bytes
        self._max_partition_fetch_bytes = options.max_partition_fetch_bytes
        self._isolation_level = ISOLATION_LEVELS[options.isolation_level]
        self._timeout_ms = options.default_api_timeout_ms
        self._resets = PositionResets(cluster, options, on_data=on_data, on_move=self.wake)
        self._answers = FetchAnswers(cluster, options, metrics, on_data=on_data, wake_at=self._wake_at)
        self._on_data = on_data
        self.loop = asyncio.get_running_loop()
        self._busy: set[tuple[int, int]] = set()
        self._known: dict[TopicPartition, _KnownFetch] = {}
        self._connecting: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._is_closed = False

    async def close(self) -> None:
        """Stop immediately; later answers are dropped with their connections."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._connecting.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._resets.end(), return_exceptions=True)

    def wake(self) -> None:
        """Pump as soon as the loop is free."""
        if not self._is_scheduled and not self._is_closed:
            self._is_scheduled = True
            self.loop.call_soon(self._pump)

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            if self._timer_at <= when:
                return
            self._timer.cancel()
        self._timer_at = when  # stored here, since uvloop's handle does not know a time that has passed
        self._timer = self.loop.call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.wake()

    # Asking -----------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Look up positions and write a Fetch to every leader that can take one."""
        self._is_scheduled = False
        if self._is_closed:
            return
        try:
            self._ask()
        except Exception as bug:  # a program that reads must get it, and not wait forever
            self._on_bug(self._partitions.values(), bug)

    def _pump_again(self) -> None:
        """As `_pump`, after the usual answer. Where a consumer has one partition, nothing has to be looked for."""
        try:
            if len(self._partitions) == 1 and not self._is_closed:
                (assigned,) = self._partitions.values()
                known = self._known.get(assigned.partition)
                if (
                    known is not None
                    and known.place not in self._busy
                    and not (assigned.is_fetching or assigned.is_paused or assigned.not_before)
                    and assigned.fetch_offset >= 0
                    and assigned.failure is None
                    and assigned.buffered_bytes < self._max_partition_fetch_bytes
                    and self._fetch_as_known(known.place, known.connection, assigned, self._fetch_max_wait_ms)
                ):
                    self._is_scheduled = False
                    return
        except Exception as bug:  # a program that reads must get it, and not wait forever
            self._on_bug(self._partitions.values(), bug)
        self._pump()

    def _ask(self) -> None:
        now = self.loop.time()
        unresolved = [
            assigned
            for assigned in self._partitions.values()
            if assigned.reset_to is not None and not assigned.is_resolving and assigned.failure is None
        ]
        if unresolved:
            self._resets.look_up(unresolved)
        by_leader: dict[int, list[AssignedPartition]] = defaultdict(list)
        full: set[int] = set()
        for assigned in self._partitions.values():
            if assigned.is_paused:
                assigned.leaderless_since = None
                continue
            if assigned.fetch_offset < 0 or assigned.is_fetching or assigned.failure is not None:
                continue
            if now < assigned.not_before:
                self._wake_at(assigned.not_before)
                continue
            leader_id = self._cluster.leader_of(*assigned.partition)
            if leader_id < 0:
                self._await_leader(assigned, now)
                continue
            assigned.leaderless_since = None
            if assigned.buffered_bytes >= self._max_partition_fetch_bytes:
                full.add(leader_id)
            else:
                by_leader[leader_id].append(assigned)
        for leader_id, wanted in by_leader.items():
            lane = next((lane for lane in _LANES if (leader_id, lane) not in self._busy), None)
            if lane is None:
                continue
            connection = self._cluster.open_connection(leader_id, lane)
            if connection is None:
                self._connect(leader_id, lane)
            else:
                self._fetch((leader_id, lane), connection, wanted, is_impatient=leader_id in full)

    def _await_leader(self, assigned: AssignedPartition, now: float) -> None:
        self._cluster.mark_stale()
        if assigned.leaderless_since is None:
            assigned.leaderless_since = now
        elif now - assigned.leaderless_since > self._timeout_ms / 1000:
            known = self._cluster.topics.get(assigned.partition.topic)
            is_unknown = known is None or assigned.partition.partition not in known.partitions
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_unknown else ErrorCode.LEADER_NOT_AVAILABLE
            assigned.leaderless_since = None
            self._answers.fail(assigned, PartitionFailure(code, assigned.partition, assigned.position, code.message))

    def _connect(self, leader_id: int, lane: int) -> None:
        if (leader_id, lane) not in self._connecting:
            task = asyncio.create_task(self._dial(leader_id, lane), name=f"ottla-dial-{leader_id}")
            self._connecting[leader_id, lane] = task

    async def _dial(self, leader_id: int, lane: int) -> None:
        try:
            await self._cluster.connection(leader_id, lane)
        except KafkaError as failed:
            self._cluster.outages.failed(logger, of_broker(leader_id), failed.message)
            if isinstance(failed, AuthenticationFailed):  # the program must get this error
                for assigned in self._led_by(leader_id):
                    if assigned.failure is None:
                        self._answers.fail(assigned, failed)
            self._cluster.mark_stale()
            await asyncio.sleep(self._cluster.options.reconnect_pause_s(1))
        except Exception as bug:  # a program that reads must get it, and not wait forever
            self._on_bug(self._led_by(leader_id), bug)
        finally:
            del self._connecting[leader_id, lane]
        self.wake()

    def _led_by(self, leader_id: int) -> list[AssignedPartition]:
        return [one for one in self._partitions.values() if self._cluster.leader_of(*one.partition) == leader_id]

    def _fetch(
        self, place: tuple[int, int], connection: Connection, wanted: list[AssignedPartition], *, is_impatient: bool
    ) -> None:
        wait_ms = min(self._fetch_max_wait_ms, _IMPATIENT_WAIT_MS) if is_impatient else self._fetch_max_wait_ms
        if len(wanted) == 1 and self._fetch_as_known(place, connection, wanted[0], wait_ms):
            return
        by_topic: dict[str, list[FetchRequest.FetchPartition]] = defaultdict(list)
        for assigned in wanted:
            topic, index = assigned.partition
            by_topic[topic].append(
                FetchRequest.FetchPartition(
                    partition=index,
                    current_leader_epoch=self._cluster.epoch_of(topic, index),
                    fetch_offset=assigned.fetch_offset,
                    last_fetched_epoch=assigned.last_epoch,
                    partition_max_bytes=self._max_partition_fetch_bytes,
                )
            )
        ids = {topic: self._cluster.topic_id(topic) for topic in by_topic}
        has_ids = all(topic_id != ZERO_UUID for topic_id in ids.values())
        try:
            version = connection.version_for(FetchRequest, 2**15 - 1 if has_ids else _LAST_VERSION_WITH_TOPIC_NAMES)
            if version < _LAST_VERSION_WITH_TOPIC_NAMES:
                for partitions in by_topic.values():
                    for asked in partitions:
                        asked.last_fetched_epoch = -1
            request = FetchRequest(
                replica_id=-1,
                max_wait_ms=wait_ms,
                min_bytes=self._fetch_min_bytes,
                max_bytes=self._fetch_max_bytes,
                isolation_level=self._isolation_level,
                session_epoch=_NO_SESSION_EPOCH,
                topics=[
                    FetchRequest.FetchTopic(topic=topic, topic_id=ids[topic], partitions=partitions)
                    for topic, partitions in by_topic.items()
                ],
            )
            uses_ids = version > _LAST_VERSION_WITH_TOPIC_NAMES
            names = {topic_id: topic for topic, topic_id in ids.items()} if uses_ids else None
            timeout_ms = self._cluster.options.request_timeout_ms + wait_ms
            connection.send_for(SentFetch(self, place, wanted, names, timeout_ms), request, version)
        except KafkaError as failed:
            self._answers.back_off_or_fail(wanted, failed)
            return
        self._busy.add(place)
        for assigned in wanted:
            assigned.is_fetching = True
        if len(wanted) == 1 and version >= FIRST_VERSION:
            template = FetchTemplate(version, self._cluster.options.client_id, request)
            known = _KnownFetch(template, place, connection, self._cluster.version, wait_ms, names)
            self._known[wanted[0].partition] = known
            if len(self._known) > len(self._partitions):
                self._known = {name: one for name, one in self._known.items() if name in self._partitions}

    def _fetch_as_known(
        self, place: tuple[int, int], connection: Connection, assigned: AssignedPartition, wait_ms: int
    ) -> bool:
        """Repeat the last Fetch of one partition with another offset; return False if more may have changed."""
        known = self._known.get(assigned.partition)
        if known is None or known.connection is not connection or known.wait_ms != wait_ms:
            return False
        if known.view_version != self._cluster.version or not connection.is_open:
            return False
        timeout_ms = self._cluster.options.request_timeout_ms + wait_ms
        template = known.template
        sent = SentFetch(self, place, [assigned], known.names_by_id, timeout_ms).as_request(template)
        varying = place_of(assigned.fetch_offset, assigned.last_epoch)
        if connection.is_clear():
            sent.correlation_id = connection.take_correlation_id()
            connection.write_now(template.frame(sent.correlation_id, varying), sent.sent_at)
            connection.expect(sent)
        else:
            connection.send_template(sent, template, varying)
        self._busy.add(place)
        assigned.is_fetching = True
        return True

    # Answers ----------------------------------------------------------------------------------------------------

    def on_answer(self, sent: SentFetch, answer: FetchResponse) -> None:
        """Process the answer to a Fetch."""
        try:
            self._on_answer(sent, answer)
        except Exception as bug:  # a program that reads must get it, and not wait forever
            self._on_bug_in(sent, bug)

    def _on_answer(self, sent: SentFetch, answer: FetchResponse) -> None:
        if answer.error_code:
            code = ErrorCode.of(answer.error_code)
            self._on_lost(sent, KafkaError(code, f"fetch: {code.message}"))
            return
        asked = self._end_of(sent)
        if self._is_closed:
            return
        self._answers.take(asked, sent, answer)
        self.wake()

    def on_fetched(self, sent: SentFetch, fetched: Fetched) -> None:
        """Process the usual answer to a Fetch of one partition."""
        try:
            self._busy.discard(sent.place)
            ((assigned, generation),) = sent.asked.values()
            has_moved = assigned.generation != generation
            if not has_moved:
                assigned.is_fetching = False
            if self._is_closed:
                return
            self._answers.take_fetched(None if has_moved else assigned, sent, fetched)
            if not self._is_scheduled:
                self._is_scheduled = True
                self.loop.call_soon(self._pump_again)
        except Exception as bug:  # a program that reads must get it, and not wait forever
            self._on_bug_in(sent, bug)

    def on_lost(self, sent: SentFetch, error: KafkaError) -> None:
        """Note that a Fetch was refused, or gets no answer."""
        try:
            self._on_lost(sent, error)
        except Exception as bug:  # a program that reads must get it, and not wait forever
            self._on_bug_in(sent, bug)

    def _on_lost(self, sent: SentFetch, error: KafkaError) -> None:
        asked = self._end_of(sent)
        if self._is_closed:
            return
        self._cluster.mark_stale()
        self._answers.back_off_or_fail(list(asked.values()), error)
        self.wake()

    def _end_of(self, sent: SentFetch) -> dict[TopicPartition, AssignedPartition]:
        """Free the connection for the next Fetch; return the partitions that have not moved since this one was sent."""
        self._busy.discard(sent.place)
        asked = {
            partition: assigned
            for partition, (assigned, generation) in sent.asked.items()
            if assigned.generation == generation
        }
        for assigned in asked.values():
            assigned.is_fetching = False
        return asked

    def _on_bug_in(self, sent: SentFetch, bug: Exception) -> None:
        self._busy.discard(sent.place)
        asked = [assigned for assigned, generation in sent.asked.values() if assigned.generation == generation]
        for assigned in asked:
            assigned.is_fetching = False
        self._on_bug(asked, bug)

    def _on_bug(self, partitions: Iterable[AssignedPartition], bug: Exception) -> None:
        """Let the reader of partitions raise an unexpected exception."""
        logger.error("the consumer failed", exc_info=bug)
        failure = ClientFailed(bug)
        for assigned in partitions:
            assigned.failure = assigned.failure or failure
        self._on_data()
