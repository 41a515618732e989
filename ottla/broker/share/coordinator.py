"""The share coordinator of this broker: share sessions, the share partitions in use, and their states.

    handler -> ShareCoordinator -> session, share partitions -> shard of `__share_group_state` -> reply

What members fetch and acknowledge comes here; that they are members is the group coordinator's affair, and is not asked
(as in Kafka, where the two are on different brokers). All calls on the broker's one thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.broker.coordination.runtime import CoordinatorRuntime
from ottla.broker.coordination.writes import JointAnswer
from ottla.broker.groups.share_state import MEMBER_ID_CHARACTERS
from ottla.broker.runtime.pending import Pending
from ottla.broker.share.acknowledging import acknowledgements_of, batches_by_place
from ottla.broker.share.delayed_share_fetch import DelayedShareFetch
from ottla.broker.share.in_flight import InFlightRecords
from ottla.broker.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, ShareSessions
from ottla.broker.share.shard import ShareStateShard
from ottla.broker.share.share_fetch import ShareFetchRead
from ottla.broker.share.share_partition import SharePartition, lag_of
from ottla.broker.share.state_topic import share_state_definition
from ottla.broker.share.stored_state import SharePartitionKey
from ottla.broker.share.used_partitions import MayRead, UsedPartitions
from ottla.protocol.api.share_acknowledge import ShareAcknowledgeResponse
from ottla.protocol.api.share_fetch import AcquireMode, ShareFetchResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.formats.layout import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.broker.coordination.shard import ShardContext
    from ottla.broker.peer import Peer, RequestContext
    from ottla.broker.runtime.timers import Timer
    from ottla.broker.services import Services
    from ottla.broker.share.acknowledging import AcknowledgementBatch
    from ottla.broker.share.sessions import Place, ShareSession
    from ottla.protocol.api.share_acknowledge import ShareAcknowledgeRequest
    from ottla.protocol.api.share_fetch import ShareFetchRequest

logger = logging.getLogger(__name__)

R = TypeVar("R")
_ACQUIRE_MODES: Final = frozenset(int(mode) for mode in AcquireMode)
Batches = Mapping["Place", "Iterable[AcknowledgementBatch]"]


class ShareCoordinator:
    """See the module's text."""

    def __init__(self, services: Services) -> None:
        config = services.config
        self.sessions = ShareSessions(config.group_share_max_share_sessions)
        self._services = services
        self._runtime = CoordinatorRuntime(
            services, share_state_definition(config, self._make_shard, services.metrics.share_groups)
        )
        self.shards = self._runtime.shards
        """The states themselves, by the partitions of `__share_group_state`."""
        self.used = UsedPartitions(services, self.shards)
        """The share partitions that members use at the moment."""
        self._prune_timer: Timer | None = None
        self._is_closed = False

    def _make_shard(self, context: ShardContext) -> ShareStateShard:
        return ShareStateShard(
            context,
            most_updates=self._services.config.share_coordinator_snapshot_update_records_per_snapshot,
            has_topic=lambda topic_id: self._services.catalog.find_topic(topic_id) is not None,
            on_forgotten=self.used.close,
            on_archiving=self.used.resume_letters,
        )

    def open(self) -> None:
        """As `CoordinatorRuntime.open`; what is not needed any more is removed from now on."""
        self._runtime.open()
        self._plan_prune()

    def close(self) -> None:
        """As `CoordinatorRuntime.close`."""
        self._is_closed = True
        if self._prune_timer is not None:
            self._prune_timer.cancel()
            self._prune_timer = None
        self.used.dead_letters.close()
        self._runtime.close()

    def prepare(self, key: str, done: Callable[[KafkaError | None], None]) -> None:
        """As `CoordinatorRuntime.prepare`: for FindCoordinator."""
        self._runtime.prepare(key, done)

    # --- members -----------------------------------------------------------------------------------------------------

    def fetch(
        self, request: ShareFetchRequest, context: RequestContext, may_read: MayRead
    ) -> Pending[ShareFetchResponse]:
        """Acknowledge what the request says, then let the member have records, or wait for some."""
        pending: Pending[ShareFetchResponse] = Pending(parks=True)
        return self._when_made(pending, lambda: self._fetch(request, context, may_read, pending))

    def acknowledge(
        self, request: ShareAcknowledgeRequest, context: RequestContext, may_read: MayRead
    ) -> Pending[ShareAcknowledgeResponse]:
        """Write what a member has done with its records; the answer says that it is durable."""
        pending: Pending[ShareAcknowledgeResponse] = Pending()
        return self._when_made(pending, lambda: self._acknowledge(request, context, may_read, pending))

    def _fetch(
        self,
        request: ShareFetchRequest,
        context: RequestContext,
        may_read: MayRead,
        pending: Pending[ShareFetchResponse],
    ) -> None:
        group_id, member_id = _names(request.group_id, request.member_id)
        epoch = request.share_session_epoch
        batches = batches_by_place(request.topics)
        acknowledged = {place: given for place, given in batches.items() if given}
        if request.share_acquire_mode not in _ACQUIRE_MODES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{request.share_acquire_mode} is no acquire mode")
        if epoch == INITIAL_EPOCH and acknowledged:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a new share session has nothing to acknowledge")
        if request.is_renew_ack and (
            request.max_records or request.max_bytes or request.min_bytes or request.max_wait_ms
        ):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a request that renews acquires nothing: all limits must be 0")
        session = self._session_of(group_id, member_id, epoch, context.connection)
        forgotten = [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions]
        if epoch != FINAL_EPOCH:
            try:
                removed = self.sessions.update(session, batches, forgotten)
            except KafkaError:
                self._end_session(session)
                raise
            for place in removed:
                self._leave(session, place)
        results, touched = self._acknowledge_all(session, acknowledged, may_read, may_renew=request.is_renew_ack)

        def send(response: ShareFetchResponse) -> None:
            response.acquisition_lock_timeout_ms = self.used.settings_of(group_id).lock_duration_ms
            self._answer(pending, response, [*touched, *read.share_partitions])

        find = partial(self.used.find, session, may_read)
        read = ShareFetchRead(request, context, self._services, session, find, results)
        if epoch == FINAL_EPOCH:
            self._end_session(session)
            send(read.response())
            return
        DelayedShareFetch(read, context, self._services, send, pending).begin(request.max_wait_ms)

    def _acknowledge(
        self,
        request: ShareAcknowledgeRequest,
        context: RequestContext,
        may_read: MayRead,
        pending: Pending[ShareAcknowledgeResponse],
    ) -> None:
        group_id, member_id = _names(request.group_id, request.member_id)
        if request.share_session_epoch == INITIAL_EPOCH:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "an acknowledgement opens no share session")
        session = self._session_of(group_id, member_id, request.share_session_epoch, context.connection)
        batches = {place: given for place, given in batches_by_place(request.topics).items() if given}
        results, touched = self._acknowledge_all(session, batches, may_read, may_renew=request.is_renew_ack)
        if request.share_session_epoch == FINAL_EPOCH:
            self._end_session(session)
        lock_ms = self.used.settings_of(group_id).lock_duration_ms
        response = ShareAcknowledgeResponse(acquisition_lock_timeout_ms=lock_ms, responses=[], node_endpoints=[])
        by_topic: dict[UUID, ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse] = {}
        for (topic_id, index), error in results.items():
            topic_results = by_topic.get(topic_id)
            if topic_results is None:
                topic_results = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=[])
                by_topic[topic_id] = topic_results
                response.responses.append(topic_results)
            topic_results.partitions.append(
                ShareAcknowledgeResponse.PartitionData(
                    partition_index=index,
                    error_code=ErrorCode.NONE if error is None else error.code,
                    error_message=None if error is None else error.message,
                    current_leader=ShareAcknowledgeResponse.LeaderIdAndEpoch(),
                )
            )
        self._answer(pending, response, touched)

    def _acknowledge_all(
        self, session: ShareSession, batches: Batches, may_read: MayRead, *, may_renew: bool
    ) -> tuple[dict[Place, KafkaError | None], list[SharePartition]]:
        """What came of the acknowledgements, by partition, and the share partitions whose records the answer awaits."""
        results: dict[Place, KafkaError | None] = {}
        touched: list[SharePartition] = []
        settings = self.used.settings_of(session.group_id)
        renewed_until_ms = self._services.clock.monotonic_ms() + settings.lock_duration_ms
        for place, given in batches.items():
            try:
                acknowledgements = acknowledgements_of(given, may_renew=may_renew, group_renews=settings.may_renew)
                self.used.partition_at(place, may_read)
                share_partition = self.used.get(SharePartitionKey(session.group_id, *place))
                if share_partition is None:
                    raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "no record of the partition is acquired")
                share_partition.acknowledge(session.member_id, acknowledgements, renewed_until_ms)
            except KafkaError as error:
                results[place] = error
            else:
                results[place] = None
                touched.append(share_partition)
        return results, touched

    # --- sessions ----------------------------------------------------------------------------------------------------

    def _session_of(self, group_id: str, member_id: str, epoch: int, peer: Peer) -> ShareSession:
        """The session of a request. Raises KafkaError."""
        if epoch == INITIAL_EPOCH:
            before = self.sessions.get(group_id, member_id)
            if before is not None:
                self._end_session(before, is_replaced=True)
            session = self.sessions.open(group_id, member_id, peer)
            if before is not None:
                session.left |= before.left
        else:
            session = self.sessions.resume(group_id, member_id, epoch, peer)
        peer.when_ended(self, partial(self._disconnected, peer))
        return session

    def _disconnected(self, peer: Peer) -> None:
        for session in self.sessions.of_peer(peer):
            self._end_session(session)

    def _end_session(self, session: ShareSession, *, is_replaced: bool = False) -> None:
        """The member has nothing any more: what it had is available to others. Where it opens another session, it
        keeps what it has, as in Kafka: it may be working on it.
        """
        self.sessions.close(session)
        for place in [*session.places, *sorted(session.left)]:
            self._leave(session, place, releases=not is_replaced)

    def _leave(self, session: ShareSession, place: Place, *, releases: bool = False) -> None:
        """A session has a partition no more. What its member has acquired stays its own, unless it is released."""
        share_partition = self.used.get(SharePartitionKey(session.group_id, *place))
        if share_partition is None:
            return
        share_partition.sessions.discard(session)
        if releases:
            share_partition.release(session.member_id)
        elif share_partition.records.has_acquired:
            session.left.add(place)
        self.used.forget_if_idle(share_partition)

    # --- administration ----------------------------------------------------------------------------------------------

    def offsets_of(self, key: SharePartitionKey) -> tuple[int, int]:
        """The start offset and the lag of a share partition, -1 where they are not known.

        The start offset is the written one, which never goes back. Records without a delivery (aborted, compacted) may
        have moved that of the records in flight, which only the lag says. Raises KafkaError.
        """
        if not self.shards.is_adopted:
            return -1, -1
        state = self.shards.ready(key.text).states.get(key)
        partition = self.used.partition_of(key)
        if state is None or state.start_offset < 0 or partition is None:
            return -1, -1
        share_partition = self.used.get(key)
        if share_partition is not None:
            share_partition.records.begin_at(partition.log_start_offset)
            return max(state.start_offset, partition.log_start_offset), share_partition.lag
        start_offset, complete_count = state.start_offset, state.complete_count
        if partition.log_start_offset > start_offset and complete_count >= 0:
            records = InFlightRecords(start_offset, state.batches)
            records.begin_at(partition.log_start_offset)
            start_offset, complete_count = records.start_offset, records.complete_count
        return start_offset, lag_of(start_offset, complete_count, partition.high_watermark)

    def rest_on(self, key: SharePartitionKey, answer: JointAnswer[R]) -> None:
        """Let an answer wait for the records of a share partition. Raises KafkaError."""
        if self.shards.is_adopted:
            answer.rest_on(self.shards.ready(key.text), key.text)

    def keys_of(self, group_id: str) -> list[SharePartitionKey]:
        """The share partitions of a group that have a state."""
        return [key for shard in self.shards.active() for key in shard.states if key.group_id == group_id]

    def when_made(self, pending: Pending[R], step: Callable[[], None]) -> Pending[R]:
        """Run a step once `__share_group_state` is there; what it raises as KafkaError is the answer."""
        return self._when_made(pending, step)

    def set_offset(self, key: SharePartitionKey, start_offset: int, answer: JointAnswer[R]) -> None:
        """Let a share partition begin again at an offset. Raises KafkaError."""
        shard = self.shards.ready(key.text)
        partition = self.used.partition_of(key)
        shard.begin(key, start_offset, 0 if partition is None else partition.leader_epoch)
        self.used.close([key])
        answer.rest_on(shard, key.text)

    def forget(self, keys: Collection[SharePartitionKey], answer: JointAnswer[R]) -> None:
        """Remove states, and end the sessions of their groups: a request that waits in one would make a state again.

        Raises KafkaError.
        """
        for session in self.sessions.of_groups({key.group_id for key in keys}):
            self._end_session(session)
        for key in keys:
            shard = self.shards.ready(key.text)
            shard.forget([key])
            answer.rest_on(shard, key.text)

    # --- what happens by itself --------------------------------------------------------------------------------------

    def on_topics_changed(self, deleted: Collection[str]) -> Iterator[None]:
        """The catalog's topics are other ones now; `deleted` are gone. Gives the steps of what takes long."""
        return self._runtime.on_topics_changed(deleted)

    @property
    def session_count(self) -> int:
        """How many share sessions there are."""
        return len(self.sessions)

    @property
    def state_count(self) -> int:
        """How many share partitions have a state."""
        return sum(len(shard.states) for shard in self.shards.active())

    def _plan_prune(self) -> None:
        if self._is_closed or self._prune_timer is not None or not self.shards.is_adopted:
            return
        interval_ms = self._services.config.share_coordinator_state_topic_prune_interval_ms
        at_ms = self._services.clock.monotonic_ms() + interval_ms
        self._prune_timer = self._services.timers.surely_at(at_ms, self._prune)

    def _prune(self) -> None:
        for share_partition in self.used:
            self.used.forget_if_idle(share_partition)
        for shard in self.shards.active():
            shard.prune(partial(self._remove_before, shard))
        self._prune_timer = None
        self._plan_prune()

    def _remove_before(self, shard: ShareStateShard, offset: int) -> None:
        """Remove records that newer ones have superseded, once those are synced: in `page-cache` a power cut might
        take the newer ones, and neither would be left.
        """
        log = shard.partition.log
        if log.synced_offset >= log.log_end_offset:
            self._remove(shard, offset)
            return

        def synced(error: BaseException | None) -> None:
            if error is None and not shard.is_dead:
                self._remove(shard, offset)

        self._services.syncer.request(log, synced)

    def _remove(self, shard: ShareStateShard, offset: int) -> None:
        partition = shard.partition
        try:
            partition.log.delete_records(offset)
        except (KafkaError, OSError) as error:
            logger.warning("%s: records before offset %d cannot be removed: %s", partition.log.name, offset, error)
            return
        place = TopicPartition(partition.topic, partition.index)
        checkpoints = self._services.log_manager.checkpoints
        self._services.workers.run(lambda: checkpoints.write_log_start_offsets_of({place}), lambda failed, error: None)

    # --- below -------------------------------------------------------------------------------------------------------

    def _when_made(self, pending: Pending[R], step: Callable[[], None]) -> Pending[R]:
        def made(error: KafkaError | None) -> None:
            if pending.done:
                return  # the client went away while the topic was made
            self._plan_prune()
            try:
                if error is not None:
                    raise error
                step()
            except KafkaError as refusal:
                pending.fail(refusal)

        self._runtime.make(made)
        return pending

    def _answer(self, pending: Pending[R], response: R, share_partitions: Iterable[SharePartition]) -> None:
        """Give an answer once what was written of these share partitions is durable."""
        answer = JointAnswer(pending, response)
        for share_partition in dict.fromkeys(share_partitions):
            answer.rest_on(share_partition.shard, share_partition.key.text)
        answer.seal()


def _names(group_id: str | None, member_id: str | None) -> tuple[str, str]:
    if not group_id or not member_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a group id and a member id are needed")
    if len(member_id) > MEMBER_ID_CHARACTERS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a member id has at most {MEMBER_ID_CHARACTERS} characters")
    return group_id, member_id
