"""ShareConsumer: a member of a share group, which reads topics as a queue (KIP-932).

`subscribe` to topics, then iterate (`async for record in consumer`) or take the acquired records (`getmany`). Several
members get records of the same partition, each record goes to one of them, and a record that is not acknowledged in
time is delivered again. Kafka's class is `KafkaShareConsumer`; docs/share-groups.md describes share groups.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Self, Unpack
from uuid import UUID, uuid4

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientClosed, ClientTimeout, KafkaError, not_started
from ottla.client.groups.subscription import Subscription
from ottla.client.metrics import ConsumerMetrics, GroupMetrics
from ottla.client.missing_topics import MissingTopics
from ottla.client.options import Servers, read_options
from ottla.client.record_limits import check_max_records
from ottla.client.share.acquired_records import AcquiredRecords
from ottla.client.share.fetcher import ShareFetcher
from ottla.client.share.given_records import GivenRecords
from ottla.client.share.membership import ShareMembership
from ottla.client.share_consumer_options import ShareConsumerKeywords, ShareConsumerOptions
from ottla.client.structs import K, ShareRecord, TopicPartition, V
from ottla.protocol.api.share_fetch import AcknowledgeType
from ottla.protocol.errors import ErrorCode, MalformedMessage

logger = logging.getLogger(__name__)

CLOSE_LIMIT_MS = 5_000
"""How long `close` may take for the share sessions, and again for leaving the group (Kafka's client: 30 s together)."""
_NOTHING: Iterator[Any] = iter(())


class ShareConsumer(Generic[K, V]):
    """See the module. Use it as a context manager, or call `start` and `close`.

    `bootstrap_servers` is `host:port`, with commas or as a list; or a mapping of options under Kafka's dotted names,
    including `bootstrap.servers`. Options as keywords have underscores: `ShareConsumerOptions` and `ClientOptions`
    describe them. The deserializers convert bytes to keys and values, and determine the type of the records. Raises
    ValueError for an option that does not exist or is invalid, and without a `group_id`.
    """

    def __init__(
        self,
        bootstrap_servers: Servers | Mapping[str, object] | None = None,
        *,
        key_deserializer: Callable[[bytes], K] | None = None,
        value_deserializer: Callable[[bytes], V] | None = None,
        **options: Unpack[ShareConsumerKeywords],
    ) -> None:
        given: dict[str, object] = {**options}
        if key_deserializer is not None:
            given["key_deserializer"] = key_deserializer
        if value_deserializer is not None:
            given["value_deserializer"] = value_deserializer
        self._servers, self._options = read_options(ShareConsumerOptions, bootstrap_servers, given)
        self._is_explicit = self._options.share_acknowledgement_mode == "explicit"
        self._member_id = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        self._records: Iterator[ShareRecord[K, V]] = _NOTHING
        """The iterator over acquired records; it has ended if the next record must come from a poll."""
        self._given = GivenRecords(is_explicit=self._is_explicit)
        self._waiters: set[asyncio.Future[None]] = set()
        self._waiting_polls = 0
        self._will_settle = False
        """Whether acknowledgements that came while a poll waits are about to be handed over."""
        self._has_several_readers = False
        self._topics: frozenset[str] = frozenset()
        self._missing = MissingTopics(f"share group {self._options.group_id}")
        self._member: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._cluster: Cluster | None = None
        self._fetcher: ShareFetcher | None = None
        self._membership: ShareMembership | None = None
        self._is_closing = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Find the cluster; raises NoBrokersAvailable, ClientClosed after `close`. A second call does nothing."""
        if self._is_closing:
            raise ClientClosed("the share consumer is closed")
        if self._cluster is not None:
            return
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._metrics, self._group_metrics = ConsumerMetrics(now), GroupMetrics(now)
        cluster = Cluster(self._servers, self._options)
        try:
            await cluster.start()
        except BaseException:
            await cluster.close()
            raise
        self._cluster = cluster
        self._new_parts(cluster)

    async def close(self) -> None:
        """Send what is acknowledged, end the share sessions, leave the group and end. Waiting polls raise ClientClosed.

        Other records are released: other members get them at once. In implicit mode these are the records that no later
        poll and no `commit` has accepted. An acknowledgement that the broker refuses is logged. It takes a few seconds
        at most, even if no broker answers.
        """
        if self._is_closing:
            return
        self._is_closing = True
        self._records = _NOTHING
        self._wake_waiters()
        try:
            await self._end_membership()
        finally:
            try:
                if self._fetcher is not None:
                    await self._fetcher.close()
            finally:
                if self._cluster is not None:
                    await self._cluster.close()

    # Subscription -----------------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read these topics, and no others. The following polls (`getone`, `getmany`, iteration) join the group.

        A topic that does not exist is read as soon as it does. Raises ValueError for an invalid name, and without one.
        """
        cluster, _, membership = self._started()
        wanted = Subscription.of(topics, None, on_server=False, internal=False).topics
        for topic in self._topics - wanted:
            cluster.forget(topic)
        self._topics = wanted
        cluster.want(wanted)
        membership.subscribe(wanted)

    async def unsubscribe(self) -> None:
        """End the subscription as `close` does, and leave the group; the consumer can subscribe again."""
        cluster, fetcher, _ = self._started()
        await self._end_membership()
        await fetcher.close()
        for topic in self._topics:
            cluster.forget(topic)
        self._topics = frozenset()
        self._new_parts(cluster)
        self._wake_waiters()

    def subscription(self) -> list[str]:
        """Return the subscribed topics, sorted."""
        return sorted(self._topics)

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that the group has assigned, sorted. Other members may have the same ones."""
        return sorted(self._started()[1].assigned)

    # Records ----------------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ShareRecord[K, V]:
        for record in self._records:
            return record
        return await self.getone()

    async def getone(self) -> ShareRecord[K, V]:
        """Return the next record; waits for it. Acquired records that are left need no poll. Raises as `getmany`."""
        for record in self._records:
            return record
        while True:
            found = await self._poll(math.inf)
            if found is not None:
                self._given.add(found)
                self._records = found.records
                for record in self._records:
                    return record

    async def getmany(
        self, *, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, Sequence[ShareRecord[K, V]]]:
        """Return the acquired records, by partition; waits up to `timeout_ms` for the first ones.

        The result has the records of as many answers as are needed for `max_poll_records`, so it may have more than
        that; `max_records` is a strict limit. It is empty after the timeout. In implicit mode this accepts the records
        of the polls before.

        Raises RuntimeError without a subscription, and in explicit mode while a record of an earlier poll is not
        acknowledged; CorruptRecords for a batch that is damaged (it is rejected), UndecodableRecord for a record that a
        deserializer refuses (it is released), both after all records before them, and the next poll continues after
        them; KafkaError when the group or a broker refuses this consumer; ValueError for a `max_records` below 1.
        """
        check_max_records(max_records)
        first = await self._poll(self._started_loop().time() + timeout_ms / 1000)
        taken: dict[TopicPartition, list[ShareRecord[K, V]]] = {}
        if first is None:
            return {}
        self._records = _NOTHING
        ready = self._started()[1].ready
        soft = self._options.max_poll_records
        count = 0
        while ready and count < (soft if max_records is None else max_records):
            found = ready[0]
            if isinstance(found, KafkaError):
                break
            some = found.take(found.left_count if max_records is None else max_records - count)
            count += len(some)
            if some:
                self._given.add(found)
                taken.setdefault(found.partition, []).extend(some)
            if not found.left_count:
                ready.popleft()
        return {**taken}

    # Acknowledgements -------------------------------------------------------------------------------------------

    def acknowledge(self, record: ShareRecord[Any, Any], kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Say what has become of a record; explicit mode only. The next poll, or one that waits, `commit` or `close`
        sends it.

        ACCEPT: it was processed. RELEASE: deliver it again, to any member. REJECT: never deliver it again. RENEW: let
        this consumer have it for the full lock time again (KIP-1222); the record stays with the program, which
        acknowledges it once more later.

        Raises KafkaError INVALID_RECORD_STATE for a record that was acknowledged before, or whose lock has ended;
        RuntimeError in implicit mode, ValueError for another `kind`, TypeError for what is no record.
        """
        if not self._is_explicit:
            raise RuntimeError("acknowledge needs share_acknowledgement_mode explicit")
        if kind.__class__ is not AcknowledgeType:
            kind = AcknowledgeType(kind)
        if kind is AcknowledgeType.GAP:
            raise ValueError("a record is acknowledged with ACCEPT, RELEASE, REJECT or RENEW")
        try:
            has_it = self._given.acknowledge(record, kind)
        except AttributeError:
            if isinstance(record, ShareRecord):
                raise
            raise TypeError(f"acknowledge needs a record that this consumer has returned, not {record!r:.60}") from None
        if has_it:
            if self._waiting_polls and not self._will_settle:
                self._will_settle = True
                self._loop.call_soon_threadsafe(self._settle_beside_poll)
            return
        place = f"{record.topic}-{record.partition} at offset {record.offset}"
        raise KafkaError(
            ErrorCode.INVALID_RECORD_STATE,
            f"{place}: this consumer does not have the record: it was acknowledged, or its lock has ended",
        )

    async def commit(self, *, timeout_ms: int | None = None) -> dict[TopicPartition, KafkaError | None]:
        """Send all acknowledgements, and return the results by partition since the last `commit`: an error, or None.

        In implicit mode this accepts all records that the program has taken. Waits for the brokers' answers, at most
        `timeout_ms` (None: `default_api_timeout_ms`), and raises ClientTimeout after that. Acknowledgements that
        traveled with fetches are part of the results, too; each error is also logged. The usual errors:
        INVALID_RECORD_STATE if the lock of a record has ended, after which other members get it;
        SHARE_SESSION_NOT_FOUND, NETWORK_EXCEPTION and NOT_LEADER_OR_FOLLOWER if the broker has failed meanwhile.
        Records that were not acknowledged are delivered again.
        """
        _, fetcher, _ = self._started()
        limit_ms = self._options.default_api_timeout_ms if timeout_ms is None else timeout_ms
        self._given.settle(fetcher, self._loop.time())
        try:
            async with asyncio.timeout(limit_ms / 1000):
                with fetcher.flushing():
                    while fetcher.has_acknowledgements:
                        await self._await_change()
        except TimeoutError:
            raise ClientTimeout(f"the acknowledgements were not answered within {limit_ms} ms") from None
        return fetcher.results.take()

    def metrics(self) -> dict[str, float]:
        """Return the consumer's metrics, by Kafka's metric names; NaN for those without any value yet.

        Times are in ms, sizes in bytes; rates, averages and maxima cover the last half to whole minute.
        """
        cluster, fetcher, _ = self._started()
        now = self._loop.time()
        found = {
            **cluster.metrics.snapshot(now),
            **self._metrics.snapshot(now, {}),
            "assigned-partitions": len(fetcher.assigned),
            "metadata-age": now - cluster.asked_at,
        }
        group = self._group_metrics.snapshot(now)
        found |= {name: value for name, value in group.items() if name.startswith("heartbeat-")}
        del found["records-lag-max"]
        return found

    # Inside -----------------------------------------------------------------------------------------------------

    async def _poll(self, until: float) -> AcquiredRecords | None:
        """Return acquired records that the program has not taken, the first ones in `ready`; None at the time `until`.

        Settles the polls before. Raises an error that comes before any record.
        """
        _, fetcher, membership = self._started()
        if not self._topics:
            raise RuntimeError("there is nothing to read: call subscribe first")
        self._given.settle(fetcher, self._loop.time())
        if not self._has_several_readers:
            self._given.check_acknowledged()
        self._join(membership)
        membership.begin_poll()
        self._waiting_polls += 1
        try:
            with fetcher.polling(until):
                while fetcher is self._fetcher:
                    self._raise_failure()
                    while fetcher.ready:
                        found = fetcher.ready[0]
                        if isinstance(found, KafkaError):
                            fetcher.ready.popleft()
                            raise found
                        if found.left_count:
                            return found
                        fetcher.ready.popleft()
                    if not self._loop.time() < until:  # also for NaN, with which the loop's timers would never end
                        await asyncio.sleep(0)  # even without a wait, request records for the next poll
                        return None
                    try:
                        async with asyncio.timeout_at(None if until == math.inf else until):
                            await self._await_change()
                    except TimeoutError:
                        pass
                raise RuntimeError("the subscription has ended")
        finally:
            self._waiting_polls -= 1
            membership.end_poll()

    def _settle_beside_poll(self) -> None:
        """Hand over what another thread or task has acknowledged while a poll waits, which may take long."""
        self._will_settle = False
        if self._fetcher is not None and not self._is_closing:
            self._given.settle(self._fetcher, self._loop.time())

    def _hand_back(self, taken: Mapping[TopicPartition, Sequence[ShareRecord[Any, Any]]]) -> None:
        """Deliver records again that the program did not get, because it was interrupted."""
        if self._is_closing:
            return
        _, fetcher, _ = self._started()
        self._records = _NOTHING
        self._given.hand_back(fetcher, taken)

    def _new_parts(self, cluster: Cluster) -> None:
        self._fetcher = ShareFetcher(
            cluster,
            self._options,
            self._member_id,
            self._metrics,
            on_change=self._wake_waiters,
            on_renewed=self._given.on_renewed,
        )
        cluster.on_update = self._on_metadata
        self._membership = self._new_membership(cluster)

    def _on_metadata(self) -> None:
        if self._fetcher is not None and self._cluster is not None:
            self._fetcher.wake()
            self._missing.look(self._topics, self._cluster.topics)

    def _new_membership(self, cluster: Cluster) -> ShareMembership:
        return ShareMembership(
            cluster,
            self._options,
            self._member_id,
            self._group_metrics,
            on_assignment=self._on_assignment,
            now=self._loop.time,
        )

    def _on_assignment(self, assigned: Mapping[TopicPartition, UUID]) -> None:
        self._started()[1].assign(assigned)

    def _join(self, membership: ShareMembership) -> None:
        """Be a member of the group from now on; after a failure that a poll has raised, try again."""
        if self._member is None and self._failure is None:
            membership.subscribe(self._topics)
            self._member = asyncio.create_task(self._be_a_member(membership), name="ottla-share-member")

    async def _be_a_member(self, membership: ShareMembership) -> None:
        try:
            await membership.run()
        except Exception as failed:  # a refusal or a bug: a poll raises it
            is_refusal = isinstance(failed, (KafkaError, MalformedMessage))
            if is_refusal:  # the program gets it from the poll, with the same words
                logger.info("share group %s: %s", self._options.group_id, failed)
            else:
                logger.warning("share group %s: %s", self._options.group_id, failed, exc_info=True)
            self._failure = failed
            if isinstance(failed, MalformedMessage):
                self._failure = KafkaError(ErrorCode.CORRUPT_MESSAGE, str(failed))
            cluster, fetcher, _ = self._started()
            fetcher.assign({})
            self._membership = self._new_membership(cluster)
            self._member = None
            self._wake_waiters()

    async def _end_membership(self) -> None:
        """Send what is acknowledged, end the share sessions, and leave the group; each within its time limit."""
        fetcher, membership = self._fetcher, self._membership
        if fetcher is None or membership is None:
            return
        self._given.end(fetcher)
        self._records = _NOTHING
        member, self._member = self._member, None
        if member is not None:
            member.cancel()
            await asyncio.gather(member, return_exceptions=True)
        try:
            async with asyncio.timeout(CLOSE_LIMIT_MS / 1000):
                await fetcher.end_sessions()
        except TimeoutError:
            logger.info("share group %s: ending the share sessions took too long", self._options.group_id)
        try:
            async with asyncio.timeout(CLOSE_LIMIT_MS / 1000):
                await membership.leave()
        except TimeoutError:
            logger.info("share group %s: leaving took too long", self._options.group_id)

    def _started_loop(self) -> asyncio.AbstractEventLoop:
        self._started()
        return self._loop

    def _started(self) -> tuple[Cluster, ShareFetcher, ShareMembership]:
        if self._is_closing or self._cluster is None or self._fetcher is None or self._membership is None:
            raise (
                ClientClosed("the share consumer is closed") if self._is_closing else not_started("the share consumer")
            )
        return self._cluster, self._fetcher, self._membership

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _wake_waiters(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _await_change(self) -> None:
        """Wait for records, errors or results; raises ClientClosed when the consumer is closed."""
        self._started()
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
        self._started()
