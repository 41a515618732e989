"""The fast path of a connection: requests that look like earlier ones are answered from templates.

A *template* is learnt from a request that took the slow path (the dispatcher calls `learn` for each request): which of
its bytes are fixed, which fields vary, and how its answer is encoded. There are seven kinds: Produce of one partition
(`produce_templates.py`), of several (`several_template.py`), with a transactional id (`transactional_templates.py`),
EndTxn (`end_template.py`), Fetch of one partition (`fetch_templates.py`), Fetch in a session (`session_template.py`),
and Fetch of several partitions without one (`sessionless_template.py`).
All of them are learnt only where the slow path would give the same answer for any value of the fields that vary.

The templates of a client under a quota charge it (`ChargedHotPath`).

Templates are valid as long as nothing has changed that they depend on. That is one comparison with the broker's stamp
(`broker/runtime/validity.py`) per request. At another stamp everything is forgotten, and learnt again from the next
requests. So a template checks neither whether its topic exists nor what is configured.

The connection does not know the kinds: it passes bytes and gets answers.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, cast

from ottla.broker.fast.produce_templates import ProduceTemplates
from ottla.broker.runtime.pending import Pending
from ottla.protocol.api import ApiKey
from ottla.protocol.records.batch import has_transactional_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.broker.context import ApiServices, Context
    from ottla.broker.fast.end_template import EndTemplate
    from ottla.broker.fast.fetch_templates import FetchTemplates
    from ottla.broker.fast.parked_templates import GoOn, ParkedPlainFetch, SlowPath
    from ottla.broker.fast.partitions_template import PartitionsTemplate
    from ottla.broker.fast.several_template import SeveralTemplate
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.peer import Peer
    from ottla.broker.runtime.in_flight_request import InFlightRequest
    from ottla.broker.runtime.metrics import MeterOf
    from ottla.broker.security.quotas.template_quota import TemplateQuota
    from ottla.protocol.api.end_txn import EndTxnRequest
    from ottla.protocol.api.fetch import FetchRequest
    from ottla.protocol.api.produce import ProduceRequest
    from ottla.protocol.message import Request
    from ottla.protocol.types import Buffer

ACKS_ALL = -1
FIRST_VERSION_WITH_LOG_START = 5
"""The first version of Produce with a fast path: that of Kafka 1.0 (2017)."""
FIRST_VERSION_WITH_TOPIC_IDS = 13


_KEY_AND_VERSION = struct.Struct(">hh")
_KEY_AT = 4  # after the length


class HotPath:
    """The templates of one connection, created with the first one. The connection calls `try_answer` and `start`."""

    __slots__ = (
        *("_go_on", "_parked", "_peer", "_sends_maps", "_services", "_slow_path", "_stamp", "_validity"),
        *("_waits_again", "end_transaction", "fetch", "produce", "quota", "several"),
    )

    def __init__(self, services: ApiServices, peer: Peer, go_on: GoOn, quota: TemplateQuota | None = None) -> None:
        self._go_on = go_on
        self.quota = quota
        """What all its answers are charged to; None where the client is under no quota."""
        self._slow_path: SlowPath | None = None
        """Created for the first Fetch that waits."""
        self._parked: Any = None
        """The Fetch that waits, or the one that did (`ParkedFetch`). The next one reuses it, since no request starts
        after a waiting one. Its kind is that of `fetch`. It is here and not there, since it refers to `fetch`."""
        self._waits_again: ParkedPlainFetch | None = None
        """`_parked`, where `try_park` parked it and it can decide by itself whether the next request waits too."""
        self._services = services
        self._peer = peer
        self._validity = services.validity
        self._stamp = services.validity.stamp
        self._sends_maps = peer.endpoint.sends_maps
        """A copy: so each request reads one object less, the peer."""
        self.produce: ProduceTemplates | None = None
        self.several: SeveralTemplate | None = None
        """Beside `produce`: a client that writes to several partitions sometimes writes to only one."""
        self.fetch: FetchTemplates | PartitionsTemplate | None = None
        self.end_transaction: EndTemplate | None = None

    def try_park(self, view: memoryview, end: int) -> InFlightRequest | None:
        """Let the request of `view[:end]` wait, if it is a single Fetch like the one before it, and there are too few
        records for it; else None, with nothing done.
        """
        again = self._waits_again
        if again is not None:
            if self._stamp == self._validity.stamp and again.wait_again(view, end):
                return again
            self._waits_again = None
        fetch = self.fetch
        if fetch is None or not fetch.is_at_end or end != fetch.frame_bytes or self._stamp != self._validity.stamp:
            return None
        slow_path = self._slow_path or self._make_slow_path()
        self._parked = parked = fetch.park(view, 0, end, slow_path, self._stamp, self._parked)
        if parked is not None and parked.waits_again:
            self._waits_again = cast("ParkedPlainFetch", parked)
        return parked

    def try_answer(self, view: memoryview, end: int, most: int) -> tuple[Sequence[Buffer], int] | None:
        """Answer the requests of `view[:end]`, at most `most`, immediately: the answers, and where the next frame
        begins.

        For a read with no request before it: neither turn nor queue is involved. None, with nothing done, where the
        slow path must answer the first request, or its answer has to wait.
        """
        if self._stamp != self._validity.stamp:
            self._forget()
            return None
        fetch = self.fetch
        if fetch is not None and end >= fetch.least_bytes and not fetch.is_at_end:
            answer = fetch.answer(view, 0, end, self._sends_maps)
            if answer is not None:
                return answer, fetch.frame_bytes
        produce = self.produce
        return None if produce is None else produce.answer(view, end, most)

    def try_sync(self, view: memoryview, end: int) -> list[Buffer] | InFlightRequest | None:
        """As `try_answer`, after that has done nothing, for a single Produce whose batch the broker's thread may sync:
        its answer, or the request in flight where it has to wait.
        """
        produce = self.produce
        return None if produce is None else produce.sync(view, end)

    def start(
        self, view: memoryview, start: int, end: int, most: int, newest: InFlightRequest | None
    ) -> tuple[list[Buffer] | InFlightRequest, int, int] | None:
        """Start the requests with which `view[start:end]` begins, at most `most`. Return the answer or the requests in
        flight, where the next frame begins, and how many requests were started.

        The requests in flight may be `newest`, the newest of the connection, which these then join. None where the slow
        path must start the first of them.
        """
        if self._stamp != self._validity.stamp:
            self._forget()
            return None
        produce, fetch = self.produce, self.fetch
        if produce is not None:
            run = produce.start(view, start, end, most, newest)
            if run is not None:
                return run, run.end, run.added
        if fetch is not None and end - start >= fetch.least_bytes:
            was_at_end = fetch.is_at_end
            if not was_at_end:
                answer = fetch.answer(view, start, end, self._sends_maps)
                if answer is not None:
                    return answer, start + fetch.frame_bytes, 1
            slow_path = self._slow_path or self._make_slow_path()
            self._parked = parked = fetch.park(view, start, end, slow_path, self._stamp, self._parked)
            if parked is not None:
                return parked, start + fetch.frame_bytes, 1
            if was_at_end:
                answer = fetch.answer(view, start, end, self._sends_maps)
                if answer is not None:
                    return answer, start + fetch.frame_bytes, 1
        ends = self.end_transaction
        if ends is not None and end - start >= ends.frame_bytes:
            ending = ends.start(view, start)
            if ending is not None:
                begun = ending if ending.buffers is None else ending.buffers
                return begun, start + ends.frame_bytes, 1
        several = self.several
        if several is not None:
            of_several = several.start(view, start, end)
            if of_several is not None:
                request, following = of_several
                return request, following, 1
        return None

    def learn_produce(self, frame: memoryview, request: ProduceRequest, version: int, meter_of: MeterOf) -> None:
        """Remember a Produce request that has taken the slow path, if that is possible."""
        partition = _learnable_partition(request, version, self._services)
        if partition is None:
            if _may_name_several(request, version) and self.quota is None:
                self._learn_several(frame, request, version, meter_of)
            return
        produce = self.produce
        if request.transactional_id is None:
            if produce is None or produce.is_transactional:
                self.produce = produce = self._make_produce()
        elif not _is_transactional(request):
            return
        elif produce is None or not produce.is_transactional:
            self.produce = produce = self._make_transactional()
        produce.learn(frame, request, version, partition, self._services, meter_of)

    def _learn_several(self, frame: memoryview, request: ProduceRequest, version: int, meter_of: MeterOf) -> None:
        # Imported here, since most clients send to one partition at a time, or to none.
        from ottla.broker.fast.several_template import SeveralTemplate, front_of

        front, several = front_of(frame, request, version), self.several
        if front is None:
            return
        if several is None or several.front != front or several.version != version:
            self.several = several = SeveralTemplate(front, request, version, self._services, meter_of)
        several.learn(request, self._services)

    def learn_end(self, frame: memoryview, request: EndTxnRequest, context: Context, meter_of: MeterOf) -> None:
        """Remember an EndTxn request that has taken the slow path, if that is possible."""
        from ottla.broker.fast.end_template import EndTemplate, is_learnable

        if is_learnable(frame, request, context):
            self.end_transaction = EndTemplate(frame, request, context.services, meter_of, self.quota)

    def learn_fetch(
        self, frame: memoryview, request: FetchRequest, context: Context, answer: object, meter_of: MeterOf
    ) -> None:
        """Remember a Fetch request that has taken the slow path, or its session, if that is possible."""
        # Imported here, since a broker that starts has no Fetch to answer yet.
        from ottla.broker.fast.fetch_templates import FetchTemplates, learnable_fetch, most_bytes
        from ottla.broker.fast.session_template import SessionTemplate, learnable_session
        from ottla.broker.fast.sessionless_template import SessionlessTemplate, learnable_partitions
        from ottla.broker.fetch.fetch_rights import is_of_replica

        if is_of_replica(request):
            return  # it is refused
        services, version, fetch = self._services, context.api_version, self.fetch
        is_cold = isinstance(answer, Pending) and answer.is_cold
        self._parked = self._waits_again = None
        session = learnable_session(request, version, services)
        if session is not None:
            if isinstance(fetch, SessionTemplate):
                fetch.expect(request, context, session, meter_of)
            else:
                self.fetch = fetch = SessionTemplate(services, request, context, session, meter_of, self.quota)
            if is_cold:
                fetch.note_cold(request.session_epoch)
        elif isinstance(fetch, SessionTemplate):
            pass  # a request without a session among those of a session changes nothing
        elif isinstance(fetch, SessionlessTemplate) or _names_several(request):
            wanted = learnable_partitions(request, version, services)
            if wanted is None:
                return
            if isinstance(fetch, SessionlessTemplate):
                fetch.expect(request, context, wanted, meter_of, is_cold=is_cold)
            else:
                self.fetch = SessionlessTemplate(services, request, context, wanted, meter_of, self.quota)
        else:
            partition = learnable_fetch(request, version, services)
            if partition is not None:
                if not isinstance(fetch, FetchTemplates):
                    self.fetch = fetch = FetchTemplates()
                max_bytes = most_bytes(self._peer, services, self.quota)
                parked_fetches = services.parked_fetches
                fetch.learn(frame, request, version, partition, max_bytes, meter_of, parked_fetches, self.quota)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is remembered."""
        return self.produce is None and self.several is None and self.fetch is None and self.end_transaction is None

    def refresh(self) -> None:
        """Forget what was learnt at another stamp."""
        if self._stamp != self._validity.stamp:
            self._forget()

    def is_for(self, quota: TemplateQuota | None) -> bool:
        """Whether its answers are charged to this quota."""
        return self.quota is None if quota is None else self.quota is not None and self.quota.is_same(quota)

    def _make_produce(self) -> ProduceTemplates:
        return ProduceTemplates(self._services.config.socket_request_max_bytes)

    def _make_transactional(self) -> ProduceTemplates:
        from ottla.broker.fast.transactional_templates import TransactionalRun, TransactionalTemplates

        return TransactionalTemplates(self._services.config.socket_request_max_bytes, TransactionalRun)

    def _make_slow_path(self) -> SlowPath:
        from ottla.broker.fast.parked_templates import SlowPath

        self._slow_path = SlowPath(self._services, self._peer, self._go_on)
        return self._slow_path

    def _forget(self) -> None:
        self._stamp = self._validity.stamp
        self.produce = self.several = self.fetch = self.end_transaction = self._parked = self._waits_again = None


class ChargedHotPath(HotPath):
    """The templates of a client under a quota; all their answers are charged.

    The templates charge the bytes before they answer: what would exceed a quota is left to the slow path. Time is
    charged here. For a Produce or an EndTxn it is known when the answer is ready; where it exceeds the quota, the
    answer reports how long the connection is muted. A Fetch is charged its time before it is answered, since it would
    be answered empty; the time from then to its answer is charged with the client's next request.

    All templates belong to one client: requests with another client id on this connection begin another hot path.
    """

    __slots__ = ()

    quota: TemplateQuota

    def __init__(self, services: ApiServices, peer: Peer, go_on: GoOn, quota: TemplateQuota) -> None:
        super().__init__(services, peer, go_on, quota)

    def try_park(self, view: memoryview, end: int) -> InFlightRequest | None:
        """As `HotPath.try_park`."""
        quota = self.quota
        if not self._begin():
            return None
        parked = super().try_park(view, end)
        quota.owe()
        return parked

    def try_answer(self, view: memoryview, end: int, most: int) -> tuple[Sequence[Buffer], int] | None:
        """As `HotPath.try_answer`."""
        quota = self.quota
        if not self._begin():
            return None
        answered = super().try_answer(view, end, most)
        if answered is None:
            quota.take_back()
            quota.owe()
            return None
        key, version = _KEY_AND_VERSION.unpack_from(view, _KEY_AT)
        if key:
            quota.owe()
            return answered
        throttle_ms = quota.end()
        if not throttle_ms:
            return answered
        from ottla.broker.fast.charged_run import with_throttle_time

        answers, following = answered
        return with_throttle_time(answers, version, throttle_ms), following

    def try_sync(self, view: memoryview, end: int) -> list[Buffer] | InFlightRequest | None:
        """Always None: `start` charges such a request."""
        return None

    def start(
        self, view: memoryview, start: int, end: int, most: int, newest: InFlightRequest | None
    ) -> tuple[list[Buffer] | InFlightRequest, int, int] | None:
        """As `HotPath.start`."""
        if not self._begin():
            return None
        begun = super().start(view, start, end, most, newest)
        self.quota.owe()
        return begun

    def _begin(self) -> bool:
        if self.quota.begin():
            return True
        self._forget()
        return False

    def _make_produce(self) -> ProduceTemplates:
        from ottla.broker.fast.charged_produce_templates import ChargedProduceTemplates

        return ChargedProduceTemplates(self._services.config.socket_request_max_bytes, self.quota)

    def _make_transactional(self) -> ProduceTemplates:
        from ottla.broker.fast.charged_transactional_templates import ChargedTransactionalTemplates

        return ChargedTransactionalTemplates(self._services.config.socket_request_max_bytes, self.quota)


def learn(
    frame: memoryview, request: Request, context: Context, answer: object, meter_of: MeterOf, go_on: GoOn
) -> None:
    """Remember a request that has just taken the slow path and was not refused as a whole, if its kind has templates.

    `answer` is what its handler returned, `meter_of` the gate's meters for such requests. `go_on` takes the slow path
    with a request that has waited.
    """
    api_key = context.api_key
    peer = context.connection
    hot_path = peer.hot_path
    quota = None if context.quota is None else context.quota.for_templates()
    if isinstance(hot_path, HotPath) and hot_path.is_for(quota):
        hot_path.refresh()
    elif quota is None:
        hot_path = HotPath(context.services, peer, go_on)
    else:
        hot_path = ChargedHotPath(context.services, peer, go_on, quota)
    if api_key == ApiKey.PRODUCE:
        hot_path.learn_produce(frame, cast("ProduceRequest", request), context.api_version, meter_of)
    elif api_key == ApiKey.FETCH:
        hot_path.learn_fetch(frame, cast("FetchRequest", request), context, answer, meter_of)
    else:
        hot_path.learn_end(frame, cast("EndTxnRequest", request), context, meter_of)
    if peer.hot_path is not hot_path and not hot_path.is_empty:
        peer.hot_path = hot_path


def _names_several(request: FetchRequest) -> bool:
    return len(request.topics) > 1 or (bool(request.topics) and len(request.topics[0].partitions) > 1)


def _is_transactional(request: ProduceRequest) -> bool:
    """Whether its only batch is part of a transaction: then the right to the transactional id was checked."""
    records = request.topic_data[0].partition_data[0].records
    return isinstance(records, memoryview) and has_transactional_header(records)


def _may_name_several(request: ProduceRequest, version: int) -> bool:
    """Whether a Produce that took the slow path has several partitions, and may be learnt."""
    return (
        version >= FIRST_VERSION_WITH_LOG_START
        and request.acks in (ACKS_ALL, 1)
        and request.transactional_id is None
        and sum(len(topic.partition_data) for topic in request.topic_data) > 1
    )


def _learnable_partition(request: ProduceRequest, version: int, services: ApiServices) -> Partition | None:
    """The partition of a request that took the slow path, where the fast path would do the same; else None."""
    if version < FIRST_VERSION_WITH_LOG_START or request.acks not in (ACKS_ALL, 1):
        return None
    if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
        return None
    topic_data = request.topic_data[0]
    data = topic_data.partition_data[0]
    topic = services.catalog.find_topic(
        topic_data.topic_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else topic_data.name
    )
    if topic is None or topic.is_internal or not 0 <= data.index < len(topic.partitions) or not data.records:
        return None
    partition = topic.partitions[data.index]
    return None if partition is None or partition.is_closed else partition
