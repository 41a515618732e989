"""Requests about topics, leaders, and offsets by time, for the driver and the tasks.

Topics are described anew for each question about them. Offsets are asked from the leaders of the last description; if
one of these brokers refuses or cannot be reached, the leaders are looked up first.

Connections are opened on first use, one per address, and dropped when they fail. A bootstrap address only answers the
first request. Requests about a partition go to its leader, at the address that the brokers advertise.

The driver repeats a request after retriable errors, `fetchOffset.numRetries` times with `fetchOffset.retryIntervalMs`
in between. A task sends it once (`persistent=False`): it counts the time without progress itself, which retries in here
would shorten or prolong.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.client_core.cluster_view import ClusterView
from ottla.client_core.retries import Attempts, Backoff
from ottla.client_core.versions import ANY_VERSION
from ottla.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.api.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.api.metadata import MetadataResponse
from ottla.protocol.errors import ErrorCode
from ottla.spark.connection import OLDEST_METADATA, Connection
from ottla.spark.errors import BrokerUnavailable, ProtocolFailure
from ottla.spark.option_values import Address
from ottla.spark.planner import LATEST_TIMESTAMP, TopicInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from ottla.protocol.message import Request, Response
    from ottla.spark.client_options import ClientSettings
    from ottla.spark.options import TopicPartition

T = TypeVar("T")

logger = logging.getLogger(__name__)

_NO_TRANSACTION_MS = 2**31 - 1  # what Java's client says without a transactional id
_TOPIC_RESOURCE = 2  # of DescribeConfigs
_VALID_PORTS = range(1, 2**16)


class Leader(NamedTuple):
    """The address of a partition's leader, and the topic's id from the same metadata (zero before Kafka 2.8)."""

    address: Address
    topic_id: UUID


class Retriable(Exception):
    """A response after which another attempt may succeed, with the message to show if none does."""


class Cluster:
    """The driver's or a task's connections. Not for several threads; `close` it when done.

    Unless it is `persistent`, the first failed attempt raises Retriable or BrokerUnavailable.
    """

    def __init__(
        self, settings: ClientSettings, *, persistent: bool = True, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._settings = settings
        self._is_persistent = persistent
        self._sleep = sleep
        self._connections: dict[Address, Connection] = {}
        self._last_view: ClusterView | None = None
        """The last description, until a leader in it is in doubt."""

    def close(self) -> None:
        """Close every connection."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def connection(self, address: Address, spare: Cluster | None = None) -> Connection:
        """Return the connection to this address. If there is none, take that of `spare`, or open one.

        `spare` must not have a request in flight. Raises as the constructor of Connection.
        """
        found = self._connections.get(address)
        if found is None and spare is not None and address in spare._connections:
            found = self._connections[address] = spare._connections.pop(address)
        if found is None:
            found = self._connections[address] = self._opened(address)
        return found

    def _opened(self, address: Address) -> Connection:
        try:
            return Connection(address, self._settings)
        except BrokerUnavailable as problem:
            if address in self._settings.bootstrap_servers:
                raise
            raise BrokerUnavailable(f"{problem}; brokers give clients that address (advertised.listeners)") from None

    def drop(self, address: Address) -> None:
        """Close a connection that has failed, or whose responses are no longer wanted."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    def describe(self, topics: Sequence[str] | None) -> dict[str, TopicInfo]:
        """Return the named topics that exist, or all; internal ones too.

        Raises BrokerUnavailable, or ProtocolFailure when a topic may not be described.
        """
        return self._persistently(lambda: self._describe(topics))

    def list_offsets(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the first offset at or after each time, None where there is none; -2 and -1 are the ends of the log.

        Raises BrokerUnavailable or ProtocolFailure.
        """
        committed = self._settings.read_committed
        return self._persistently(lambda: self._list_offsets(times, read_committed=committed)) if times else {}

    def high_watermarks(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends of the logs, also with read_committed, where `list_offsets` returns the last stable ones.

        Raises BrokerUnavailable or ProtocolFailure.
        """
        times = dict.fromkeys(places, LATEST_TIMESTAMP)
        found = self._persistently(lambda: self._list_offsets(times, read_committed=False))
        return {place: offset or 0 for place, offset in found.items()}

    def leader(self, topic: str, partition: int) -> Leader | None:
        """Return the leader of a partition, None when topic or partition does not exist.

        Raises Retriable while it has no leader, BrokerUnavailable when no broker answers.
        """
        view = self._view([topic])
        known = view.topics.get(topic)
        if known is None or known.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        check(known.error, topic)
        return (
            Leader(_leader_address(view, topic, partition), known.topic_id) if partition in known.partitions else None
        )

    def partition_leaders(self, topics: Sequence[str], *, may_create: bool) -> dict[str, dict[int, Address]]:
        """Return the leader of every partition of the topics, without those that do not exist.

        With `may_create` the broker may create these, a moment later, if its `auto.create.topics.enable` says so.
        Raises BrokerUnavailable, or ProtocolFailure, which names the topic, when a partition stays without a leader.
        """
        return self._persistently(lambda: self._partition_leaders(topics, may_create))

    def init_producer_id(self) -> tuple[int, int]:
        """Return a producer id and epoch for idempotent writing. Raises BrokerUnavailable or ProtocolFailure."""
        return self._persistently(self._init_producer_id)

    def topic_config(self, topic: str, key: str) -> str | None:
        """Return the value of a topic's configuration; None if no broker returns it, for example without the right.

        It only improves an error message, so failures are not raised.
        """
        from ottla.protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse

        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=[key]
        )
        try:
            response = self.ask_anyone(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
        except (OSError, ProtocolFailure):
            return None
        values = [config.value for result in response.results for config in result.configs if config.name == key]
        return values[0] if values else None

    def _persistently(self, question: Callable[[], T]) -> T:
        if not self._is_persistent:
            return question()
        pause_ms = self._settings.offset_retry_interval_ms
        attempts = Attempts(Backoff(pause_ms, pause_ms), most_retries=self._settings.offset_retries)
        while True:
            try:
                return question()
            except (Retriable, BrokerUnavailable) as problem:
                pause_s = attempts.failed(0.0)  # whatever the time is
                if pause_s is None:
                    raise problem if isinstance(problem, BrokerUnavailable) else ProtocolFailure(str(problem)) from None
            self._sleep(pause_s)

    def _partition_leaders(self, topics: Sequence[str], may_create: bool) -> dict[str, dict[int, Address]]:
        view = self._view(topics, may_create=may_create)
        leaders = {}
        for topic in topics:
            known = view.topics.get(topic)
            if known is None:
                raise ProtocolFailure(f"the broker left topic {topic} out of its answer")
            if known.error != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                check(known.error, f"topic {topic}")
                leaders[topic] = {index: _leader_address(view, topic, index) for index in known.partitions}
        return leaders

    def _init_producer_id(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_MS)
        response = self.ask_anyone(request, InitProducerIdResponse)
        check(ErrorCode.of(response.error_code), "a producer id")
        return response.producer_id, response.producer_epoch

    def _describe(self, topics: Sequence[str] | None) -> dict[str, TopicInfo]:
        found = {}
        view = self._view(topics)
        for name, topic in view.topics.items():
            if topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if topics is None and topic.error:
                continue  # a topic that is being created or deleted does not fail a pattern
            check(topic.error, name)
            partitions = tuple(sorted(topic.partitions))
            addresses = ((partition, _address_of_leader(view, name, partition)) for partition in partitions)
            leaders = {partition: address for partition, address in addresses if address is not None}
            found[name] = TopicInfo(name, topic.topic_id, partitions, topic.is_internal, leaders)
        return found

    def _list_offsets(
        self, times: Mapping[TopicPartition, int], *, read_committed: bool
    ) -> dict[TopicPartition, int | None]:
        known = self._last_view
        if known is not None and all(_address_of_leader(known, *place) is not None for place in times):
            try:
                return self._list_offsets_at(known, times, read_committed=read_committed)
            except (Retriable, BrokerUnavailable) as problem:
                logger.info("%s; looking for the leaders", problem)
                self._last_view = None
        view = self._view(sorted({topic for topic, _ in times}))
        return self._list_offsets_at(view, times, read_committed=read_committed)

    def _list_offsets_at(
        self, view: ClusterView, times: Mapping[TopicPartition, int], *, read_committed: bool
    ) -> dict[TopicPartition, int | None]:
        by_leader: dict[Address, list[TopicPartition]] = defaultdict(list)
        for place in times:
            if view.partition(*place) is None:
                raise Retriable(f"{place[0]}-{place[1]} does not exist")
            by_leader[_leader_address(view, *place)].append(place)
        offsets: dict[TopicPartition, int | None] = {}
        for address, places in by_leader.items():
            request = _list_offsets_request(places, times, read_committed, self._settings.request_timeout_ms)
            response = self.ask(address, request, ListOffsetsResponse)
            for answered in response.topics:
                for item in answered.partitions:
                    check(ErrorCode.of(item.error_code), f"{answered.name}-{item.partition_index}")
                    offsets[answered.name, item.partition_index] = item.offset if item.offset >= 0 else None
        if offsets.keys() != times.keys():
            raise ProtocolFailure("a broker left out partitions that it was asked about")
        return offsets

    def _view(self, topics: Sequence[str] | None, *, may_create: bool = False) -> ClusterView:
        """Return the cluster as a broker describes it now, with the named topics or all."""
        view = ClusterView()
        if topics is None:
            view.use_all(True)
        else:
            view.use(topics)
        request = view.metadata_request(OLDEST_METADATA, may_create=may_create)
        response = self.ask_anyone(request, MetadataResponse)
        check(ErrorCode.of(response.error_code), "metadata")
        view.take(request, OLDEST_METADATA, response)
        self._last_view = view
        return view

    def ask_anyone(self, request: Request | Callable[[int], Request], response: type[R]) -> R:
        """Send the request to connected brokers, then to the bootstrap servers, until one answers."""
        addresses = list(dict.fromkeys([*self._connections, *self._settings.bootstrap_servers]))
        problems = []
        for address in addresses:
            try:
                return self.ask(address, request, response)
            except BrokerUnavailable as problem:
                problems.append(str(problem))
        raise BrokerUnavailable("; ".join(problems))

    def ask(
        self,
        address: Address,
        request: Request | Callable[[int], Request],
        response: type[R],
        at_most: int = ANY_VERSION,
    ) -> R:
        """Send a request, or the one that a function makes for the version, and wait for its response.

        A connection that was open before may be closed by now: brokers close those that were idle for ten minutes, and
        a stream's triggers may be rarer. Then another one is opened at once, as Kafka's client does.
        """
        was_open = address in self._connections
        try:
            return self.connection(address).call(request, response, at_most)[0]
        except (OSError, ProtocolFailure) as problem:
            self.drop(address)
            if was_open and isinstance(problem, ConnectionError):
                return self.ask(address, request, response, at_most)
            if isinstance(problem, ProtocolFailure | BrokerUnavailable):
                raise
            raise BrokerUnavailable(f"cannot reach {address}: {problem}") from None


R = TypeVar("R", bound="Response")


def _list_offsets_request(
    places: Sequence[TopicPartition], times: Mapping[TopicPartition, int], read_committed: bool, timeout_ms: int
) -> ListOffsetsRequest:
    by_topic: dict[str, list[ListOffsetsRequest.ListOffsetsPartition]] = defaultdict(list)
    for topic, partition in places:
        by_topic[topic].append(
            ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=times[topic, partition])
        )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(read_committed),
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=items) for name, items in by_topic.items()],
        timeout_ms=timeout_ms,
    )


def _leader_address(view: ClusterView, topic: str, partition: int) -> Address:
    address = _address_of_leader(view, topic, partition)
    if address is None:
        raise Retriable(f"{topic}-{partition} has no leader at the moment")
    return address


def _address_of_leader(view: ClusterView, topic: str, partition: int) -> Address | None:
    broker = view.brokers.get(view.leader_of(topic, partition))
    return None if broker is None or broker.port not in _VALID_PORTS else Address(broker.host, broker.port)


def check(error: ErrorCode, what: str) -> None:
    """Raise Retriable for an error of a broker that may pass, else ProtocolFailure with Kafka's name for it."""
    if not error:
        return
    problem = f"{what}: the broker answered {error.name} ({error.message})"
    if error.retriable:
        raise Retriable(problem)
    raise ProtocolFailure(problem)
