"""A share group on a `FakeCluster`, with one member, that does what the script says: for what real brokers rarely do.

It is strict: epochs of sessions must be right, the first request of a session acknowledges nothing, and
acknowledgements must be of acquired records. `refuse` lets the next requests of a kind be refused as a whole,
`refuse_acknowledgements` those of a partition, `refuse_fetching` a partition that is fetched.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any
from uuid import UUID

from kit.fake_broker import FakeCluster

from ottla.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.api.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from ottla.protocol.api.share_fetch import AcknowledgeType, ShareFetchRequest, ShareFetchResponse
from ottla.protocol.api.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request
from ottla.protocol.records.batch import parse_header

LOCK_MS = 30_000
PAUSE_MS = 1
"""What an answer without records asks its client to wait, which then need not wait at the broker."""

Place = tuple[UUID, int]


class FakeShareGroup:
    """See the module. `target` is the assignment: partition numbers by topic."""

    def __init__(self, cluster: FakeCluster, target: dict[str, list[int]]) -> None:
        self.cluster = cluster
        self.target = target
        self.epoch = 0
        self.codes: dict[type[Request], deque[ErrorCode]] = defaultdict(deque)
        self.acknowledge_codes: dict[Place, deque[ErrorCode]] = defaultdict(deque)
        self.fetch_codes: dict[Place, deque[ErrorCode]] = defaultdict(deque)
        self.sessions: dict[int, int] = {}
        """The epoch of the next request, by node."""
        self.places: dict[int, set[Place]] = defaultdict(set)
        self.acquired: dict[Place, set[int]] = defaultdict(set)
        self.done: dict[Place, dict[int, AcknowledgeType]] = defaultdict(dict)
        """What became of offsets that are not delivered any more."""
        self.deliveries: dict[tuple[Place, int], int] = defaultdict(int)
        self.renewed: list[int] = []
        self.holes: set[int] = set()
        """Offsets that no member may acquire."""
        self._sent_target: object = None
        handlers: dict[type[Request], Any] = {
            FindCoordinatorRequest: self._find,
            ShareGroupHeartbeatRequest: self._beat,
            ShareFetchRequest: self._fetch,
            ShareAcknowledgeRequest: self._acknowledge,
        }
        cluster.handlers.update(handlers)

    def place(self, topic: str, index: int) -> Place:
        return self.cluster.id_of(topic), index

    def refuse(self, kind: type[Request], *codes: ErrorCode) -> None:
        self.codes[kind].extend(codes)

    def refuse_acknowledgements(self, topic: str, index: int, *codes: ErrorCode) -> None:
        self.acknowledge_codes[self.place(topic, index)].extend(codes)

    def refuse_fetching(self, topic: str, index: int, *codes: ErrorCode) -> None:
        self.fetch_codes[self.place(topic, index)].extend(codes)

    def lose_sessions(self) -> None:
        """Forget the sessions, and release what the member has."""
        self.sessions.clear()
        self.acquired.clear()

    def accepted(self, topic: str, index: int) -> list[int]:
        kinds = self.done[self.place(topic, index)]
        return sorted(offset for offset, kind in kinds.items() if kind is AcknowledgeType.ACCEPT)

    # Members ----------------------------------------------------------------------------------------------------

    def _find(self, request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
        (key,) = request.coordinator_keys
        found = FindCoordinatorResponse.Coordinator(
            key=key, node_id=0, host="127.0.0.1", port=self.cluster.ports[0], error_code=0, error_message=None
        )
        return FindCoordinatorResponse(coordinators=[found])

    def _beat(self, request: ShareGroupHeartbeatRequest, version: int) -> ShareGroupHeartbeatResponse:
        code = self._code(request)
        if code:
            return ShareGroupHeartbeatResponse(error_code=code, member_epoch=0, heartbeat_interval_ms=0)
        if request.member_epoch < 0:
            return ShareGroupHeartbeatResponse(member_epoch=-1, heartbeat_interval_ms=5)
        assignment = None
        if request.member_epoch == 0 or self.target != self._sent_target:
            self._sent_target = dict(self.target)
            self.epoch += 1
            assignment = ShareGroupHeartbeatResponse.Assignment(
                topic_partitions=[
                    ShareGroupHeartbeatResponse.TopicPartitions(
                        topic_id=self.cluster.id_of(topic), partitions=list(indexes)
                    )
                    for topic, indexes in self.target.items()
                ]
            )
        return ShareGroupHeartbeatResponse(member_epoch=self.epoch, heartbeat_interval_ms=5, assignment=assignment)

    def _code(self, request: Request) -> ErrorCode:
        codes = self.codes[type(request)]
        return codes.popleft() if codes else ErrorCode.NONE

    # Sessions ---------------------------------------------------------------------------------------------------

    def _node(self) -> int:
        return self.cluster.requests[-1][0]

    def _session_code(self, request: ShareFetchRequest | ShareAcknowledgeRequest) -> ErrorCode:
        node, epoch = self._node(), request.share_session_epoch
        code = self._code(request)
        if code:
            return code
        if epoch == 0:
            assert isinstance(request, ShareFetchRequest)
            assert not any(one.acknowledgement_batches for topic in request.topics for one in topic.partitions)
            self.sessions[node] = 1
            self.places[node] = set()
        elif node not in self.sessions:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        elif epoch == -1:
            del self.sessions[node]
        elif epoch != self.sessions[node]:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        else:
            self.sessions[node] += 1
        return ErrorCode.NONE

    def _take(self, place: Place, batches: Any, *, is_renew_ack: bool) -> ErrorCode:
        codes = self.acknowledge_codes[place]
        if codes:
            code = codes.popleft()
            if code:
                return code
        said: list[tuple[int, AcknowledgeType]] = []
        for batch in batches:
            count = batch.last_offset - batch.first_offset + 1
            types = batch.acknowledge_types
            assert len(types) in (1, count), batch
            for number in range(count):
                said.append((batch.first_offset + number, AcknowledgeType(types[number if len(types) > 1 else 0])))
        assert [offset for offset, _ in said] == sorted({offset for offset, _ in said}), said
        if any(offset not in self.acquired[place] for offset, _ in said):
            return ErrorCode.INVALID_RECORD_STATE
        for offset, kind in said:
            if kind is AcknowledgeType.RENEW:
                assert is_renew_ack
                self.renewed.append(offset)
                continue
            self.acquired[place].discard(offset)
            if kind is not AcknowledgeType.RELEASE:
                self.done[place][offset] = kind
        return ErrorCode.NONE

    def _acknowledge(self, request: ShareAcknowledgeRequest, version: int) -> ShareAcknowledgeResponse:
        code = self._session_code(request)
        response = ShareAcknowledgeResponse(
            error_code=code, responses=[], node_endpoints=[], acquisition_lock_timeout_ms=LOCK_MS
        )
        for topic in () if code else request.topics:
            answered = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse(topic_id=topic.topic_id, partitions=[])
            response.responses.append(answered)
            for one in topic.partitions:
                result = self._take(
                    (topic.topic_id, one.partition_index),
                    one.acknowledgement_batches,
                    is_renew_ack=request.is_renew_ack,
                )
                answered.partitions.append(
                    ShareAcknowledgeResponse.PartitionData(
                        partition_index=one.partition_index,
                        error_code=result,
                        current_leader=ShareAcknowledgeResponse.LeaderIdAndEpoch(),
                    )
                )
        if request.share_session_epoch == -1:
            self.acquired.clear()
        return response

    def _fetch(self, request: ShareFetchRequest, version: int) -> ShareFetchResponse:
        code, node = self._session_code(request), self._node()
        response = ShareFetchResponse(
            error_code=code, responses=[], node_endpoints=[], acquisition_lock_timeout_ms=LOCK_MS
        )
        if code:
            return response
        results: dict[Place, ErrorCode] = {}
        for topic in request.topics:
            for one in topic.partitions:
                place = (topic.topic_id, one.partition_index)
                self.places[node].add(place)
                if one.acknowledgement_batches:
                    results[place] = self._take(place, one.acknowledgement_batches, is_renew_ack=False)
        for forgotten in request.forgotten_topics_data:
            self.places[node] -= {(forgotten.topic_id, index) for index in forgotten.partitions}
        for place in sorted(self.places[node] | results.keys()):
            data = _nothing(place[1])
            if place in self.places[node]:
                codes = self.fetch_codes[place]
                if codes:
                    data.error_code = codes.popleft()
                else:
                    data = self._acquire(place, request.max_records)
            data.acknowledge_error_code = results.get(place, ErrorCode.NONE)
            if data.acquired_records or data.error_code or place in results:
                response.responses.append(
                    ShareFetchResponse.ShareFetchableTopicResponse(topic_id=place[0], partitions=[data])
                )
        response.throttle_time_ms = 0 if response.responses else PAUSE_MS
        return response

    def _acquire(self, place: Place, limit: int) -> ShareFetchResponse.PartitionData:
        """Let the member have the whole batches of which something is available."""
        data = _nothing(place[1])
        name = next(name for name in self.cluster.topics if self.cluster.id_of(name) == place[0])
        records = b""
        for batch in self.cluster.topics[name][place[1]].batches:
            header = parse_header(batch)
            free = [
                offset
                for offset in range(header.base_offset, header.last_offset + 1)
                if offset not in self.acquired[place] and offset not in self.done[place] and offset not in self.holes
            ]
            if not free or limit <= 0:
                continue
            limit -= len(free)
            records += batch
            for offset in free:
                self.acquired[place].add(offset)
                self.deliveries[place, offset] += 1
                data.acquired_records.append(
                    ShareFetchResponse.AcquiredRecords(
                        first_offset=offset, last_offset=offset, delivery_count=self.deliveries[place, offset]
                    )
                )
        data.records = records
        return data


def _nothing(index: int) -> ShareFetchResponse.PartitionData:
    return ShareFetchResponse.PartitionData(
        partition_index=index, current_leader=ShareFetchResponse.LeaderIdAndEpoch(), records=b"", acquired_records=[]
    )
