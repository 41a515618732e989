"""The blocking ShareConsumer: acquired records are taken, and acknowledged, without the loop thread and without a lock.

The iterator over acquired records returns each to one thread only, and an acknowledgement is noted in one step. There
is one poll at a time. In implicit mode a poll of any thread accepts the records that all threads have taken: with
several threads use the explicit mode. A poll does not insist then that all records are acknowledged, since another
thread may be working on them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self, Unpack

from ottla.client.blocking.loop_thread import LoopThread
from ottla.client.blocking.twins import ShareConsumerMethods
from ottla.client.options import Servers
from ottla.client.record_limits import check_max_records
from ottla.client.share_consumer_options import ShareConsumerKeywords
from ottla.client.structs import K, ShareRecord, TopicPartition, V
from ottla.protocol.api.share_fetch import AcknowledgeType

_Taken = dict[TopicPartition, Sequence[ShareRecord[Any, Any]]]


class ShareConsumer(ShareConsumerMethods[K, V]):
    """The blocking twin of `ottla.client.ShareConsumer`: the same options and methods, which wait. A context manager.

    Iterate over it for its records.
    """

    def __init__(
        self,
        bootstrap_servers: Servers | Mapping[str, object] | None = None,
        *,
        key_deserializer: Callable[[bytes], K] | None = None,
        value_deserializer: Callable[[bytes], V] | None = None,
        **options: Unpack[ShareConsumerKeywords],
    ) -> None:
        super().__init__(
            bootstrap_servers, key_deserializer=key_deserializer, value_deserializer=value_deserializer, **options
        )
        self._reading = threading.Lock()
        self._reader: int | None = None

    def __iter__(self) -> Self:
        self._note_reader()
        return self

    def _note_reader(self) -> None:
        """Note the thread that reads; from the second one on there are several."""
        thread = threading.get_ident()
        if self._reader is None:
            self._reader = thread
        elif self._reader != thread:
            self._inner._has_several_readers = True

    def __next__(self) -> ShareRecord[K, V]:
        if self._thread is LoopThread.current:
            for record in self._inner._records:  # no interrupt can come between taking and returning it
                return record
        return self.getone()

    def getone(self) -> ShareRecord[K, V]:
        """Return the next record; waits for it. Acquired records that are left need no poll. Raises as `getmany`."""
        self._note_reader()
        if self._thread is LoopThread.current:
            for record in self._inner._records:
                return record
        self._running()
        with self._reading:
            taken: _Taken = {}

            async def take() -> ShareRecord[K, V]:
                record = await self._inner.getone()
                taken[TopicPartition(record.topic, record.partition)] = [record]
                return record

            with self._handing_back(taken):
                return self._await(take())

    def getmany(
        self, *, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, Sequence[ShareRecord[K, V]]]:
        """Return the acquired records, by partition; waits up to `timeout_ms` for the first ones.

        The result has the records of as many answers as are needed for `max_poll_records`, so it may have more than
        that; `max_records` is a strict limit. It is empty after the timeout, also if another thread was reading all the
        time. In implicit mode this accepts the records of the polls before.

        Raises RuntimeError without a subscription, and in explicit mode while a record of an earlier poll is not
        acknowledged; CorruptRecords for a batch that is damaged (it is rejected), UndecodableRecord for a record that a
        deserializer refuses (it is released), both after all records before them, and the next poll continues after
        them; KafkaError when the group or a broker refuses this consumer; ValueError for a `max_records` below 1.
        """
        check_max_records(max_records)
        self._note_reader()
        self._running()
        if not self._reading.acquire(timeout=max(0.0, timeout_ms / 1000)):  # -1 would be forever
            return {}
        try:
            taken: _Taken = {}

            async def take() -> dict[TopicPartition, Sequence[ShareRecord[K, V]]]:
                found = await self._inner.getmany(timeout_ms=timeout_ms, max_records=max_records)
                taken.update(found)
                return found

            with self._handing_back(taken):
                return self._await(take())
        finally:
            self._reading.release()

    def acknowledge(self, record: ShareRecord[Any, Any], kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Say what has become of a record; explicit mode only. The next poll, or one that waits, `commit` or `close`
        sends it.

        ACCEPT: it was processed. RELEASE: deliver it again, to any member. REJECT: never deliver it again. RENEW: let
        this consumer have it for the full lock time again (KIP-1222); the record stays with the program, which
        acknowledges it once more later.

        Raises KafkaError INVALID_RECORD_STATE for a record that was acknowledged before, or whose lock has ended;
        RuntimeError in implicit mode, ValueError for another `kind`, TypeError for what is no record.
        """
        self._running()
        self._inner.acknowledge(record, kind)

    @contextmanager
    def _handing_back(self, taken: _Taken) -> Iterator[None]:
        """Deliver taken records again after an interrupt: the program did not get them."""
        try:
            yield
        except Exception:  # an error of the poll itself, which has taken nothing
            raise
        except BaseException:  # an interrupt, which may come after records were taken
            self._call(self._inner._hand_back, taken)  # it runs after the cancellation, when `taken` is final
            raise
