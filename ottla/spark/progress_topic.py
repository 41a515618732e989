"""The progress topic of an exactly-once sink: made on first use, checked, and read backwards for the marks of a batch.

It has one partition (of a topic with more, only the first is used), and it is compacted: a mark that retention deleted
would let a task write its rows twice. Its segments are small, so that the newest records are compacted soon, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.protocol.api.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.errors import CorruptBatch
from ottla.spark.cluster import Retriable, check
from ottla.spark.errors import ProtocolFailure, WriteFailed
from ottla.spark.planner import EARLIEST_TIMESTAMP
from ottla.spark.progress import Marks

if TYPE_CHECKING:
    from ottla.protocol.message import Request
    from ottla.spark.client_options import ClientSettings
    from ottla.spark.cluster import Cluster
    from ottla.spark.option_values import Address
    from ottla.spark.patience import Patience
    from ottla.spark.progress import Attempt, Committed

PARTITION = 0
CONFIGURATION = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(4 * 1024 * 1024),
    "segment.ms": str(24 * 60 * 60 * 1000),
}
_FIRST_WINDOW = 512
"""How many offsets before the end are read first: those of the marks of 250 tasks and of their COMMIT markers."""
_GROWTH = 8
_TOPIC_NAMES_UNTIL = 12  # of Fetch
_CREATE_SINCE_DEFAULTS = 4  # of CreateTopics, before which the number of replicas has to be named


class ProgressTopic:
    """See the module. For one task; the caller closes `cluster`."""

    def __init__(self, topic: str, cluster: Cluster, settings: ClientSettings, patience: Patience) -> None:
        self._topic = topic
        self._cluster = cluster
        self._settings = settings
        self._patience = patience

    def marks(self, attempt: Attempt) -> list[Committed]:
        """Return the committed marks of the sink, by offset: all that may be about the attempt's batch, and the newest.

        Raises WriteFailed, BrokerUnavailable or ProtocolFailure.
        """
        try:
            found = self._patience.answer(lambda: self._read(attempt))
        except CorruptBatch as broken:
            raise WriteFailed(f"progress topic {self._topic}: {broken}") from None
        if not any(mark.query == attempt.query for _, mark in found):
            self._check_policy()
        return found

    def _read(self, attempt: Attempt) -> list[Committed]:
        leader = self._leader()
        place = (self._topic, PARTITION)
        end = self._cluster.high_watermarks([place])[place]
        marks = Marks(attempt.name)
        window = _FIRST_WINDOW
        start = end
        while True:
            before, start = start, max(0, start - window)
            start = self._read_part(marks, leader, start, before)
            found = marks.committed(attempt.task)
            if found is None:
                raise Retriable(f"{self._topic}: the end of an earlier transaction is not visible yet")
            if start <= 0 or not attempt.needs_earlier(found):
                return found
            window *= _GROWTH

    def _read_part(self, marks: Marks, leader: Address, start: int, end: int) -> int:
        """Read the records from `start` to before `end`; return `start`, or 0 if the log begins after it."""
        position = start
        while position < end:
            answer = self._fetch(leader, position)
            code = ErrorCode.of(answer.error_code)
            if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                place = (self._topic, PARTITION)
                first = self._cluster.list_offsets({place: EARLIEST_TIMESTAMP})[place] or 0
                if first <= position:
                    raise Retriable(f"{self._topic}: offset {position} is out of the leader's range at the moment")
                start, position = 0, first
                continue
            check(code, f"progress topic {self._topic}")
            after = marks.add(answer.records or b"")
            if after <= position:
                if answer.high_watermark < end:
                    raise Retriable(f"{self._topic}: the log ends at {answer.high_watermark}, not at {end}")
                break  # the rest was compacted away
            position = after
        return start

    def _fetch(self, leader: Address, offset: int) -> FetchResponse.PartitionData:
        most = self._settings.fetch_max_bytes
        partition = FetchRequest.FetchPartition(partition=PARTITION, fetch_offset=offset, partition_max_bytes=most)
        topic = FetchRequest.FetchTopic(topic=self._topic, partitions=[partition])
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=most, isolation_level=0, topics=[topic])
        response = self._cluster.ask(leader, request, FetchResponse, at_most=_TOPIC_NAMES_UNTIL)
        check(ErrorCode.of(response.error_code), f"progress topic {self._topic}")
        for answered in response.responses:
            for part in answered.partitions:
                return part
        if response.throttle_time_ms > 0:
            raise Retriable(f"{self._topic}: the broker throttles this client by a quota, and sends nothing")
        raise ProtocolFailure(f"{self._topic}: the broker left the partition out of its answer")

    def _leader(self) -> Address:
        try:
            leaders = self._cluster.partition_leaders([self._topic], may_create=False)
        except ProtocolFailure as problem:
            raise WriteFailed(f"progress of the sink: {problem}") from None
        if self._topic in leaders:
            return leaders[self._topic][PARTITION]
        self._create()
        self._patience.pause(self._settings.retry_backoff_ms / 1000)  # else it would be a warning
        leaders = self._cluster.partition_leaders([self._topic], may_create=False)
        if self._topic not in leaders:
            raise Retriable(f"topic {self._topic} is being created")
        return leaders[self._topic][PARTITION]

    def _create(self) -> None:
        configs = [
            CreateTopicsRequest.CreatableTopicConfig(name=name, value=value) for name, value in CONFIGURATION.items()
        ]
        topic = CreateTopicsRequest.CreatableTopic(
            name=self._topic, num_partitions=1, replication_factor=-1, assignments=[], configs=configs
        )

        def request(version: int) -> Request:
            if version < _CREATE_SINCE_DEFAULTS:
                raise WriteFailed(f"topic {self._topic} does not exist, and this broker wants it {self._by_hand}")
            return CreateTopicsRequest(topics=[topic])

        response = self._cluster.ask_anyone(request, CreateTopicsResponse)
        for result in response.topics:
            code = ErrorCode.of(result.error_code)
            if code and code is not ErrorCode.TOPIC_ALREADY_EXISTS and not code.retriable:
                said = f"the broker answered {code.name} ({result.error_message or code.message})"
                raise WriteFailed(f"progress topic {self._topic} cannot be created: {said}; it may be {self._by_hand}")

    @property
    def _by_hand(self) -> str:
        return "created beforehand, with one partition and cleanup.policy=compact"

    def _check_policy(self) -> None:
        policy = self._cluster.topic_config(self._topic, "cleanup.policy")
        if policy is not None and policy != "compact":
            raise WriteFailed(
                f"progress topic {self._topic} has cleanup.policy={policy}, and old progress would be deleted: set it"
                " to compact, or name another topic in option progressTopic"
            )
