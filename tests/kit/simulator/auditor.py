"""Reads everything that a started broker shows, through the wire, and holds it against the model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from kit.simulator.admin import ALTERED_KEY, KINDS
from kit.simulator.members import ask_for_offset
from kit.simulator.model import Loss, Model, Shown, TopicModel, Violation
from kit.simulator.readers import FETCH_VERSION, fetch_request, stored_records

from ottla.protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.protocol.api.fetch import FetchResponse
from ottla.protocol.api.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response
from ottla.protocol.records.batch import CorruptBatch

if TYPE_CHECKING:
    from kit.simulator.clients import Line

    from ottla.broker.node import Node

DYNAMIC_TOPIC_CONFIG = 1
TOPIC_RESOURCE = 2
SET_KEYS = sorted({ALTERED_KEY}.union(*KINDS))
R = TypeVar("R", bound=Response)


class Auditor:
    """One look at everything; raises Violation."""

    def __init__(self, node: Node, model: Model, line: Line) -> None:
        self._node = node
        self._model = model
        self._line = line

    def audit(self, loss: Loss) -> None:
        """After a start: topics, settings, every record of every partition, committed offsets."""
        found = self._topics()
        settings = self._settings(found)
        self._model.audit_topics({name: (topic_id, count, settings[name]) for name, (topic_id, count) in found.items()})
        for topic in self._model.topics.values():
            for index in range(len(topic.partitions)):
                self._model.audit_partition(topic, index, self._shown(topic, index), loss)
        for place in self._model.commits:
            ask_for_offset(self._line, self._model, place)
            self._node.settle()
            self._line.take()

    def _ask(self, request: Request, version: int, kind: type[R]) -> R:
        got: list[Response] = []
        self._line.send(request, version, got.append)
        self._node.settle()
        self._line.take()
        if len(got) != 1 or not isinstance(got[0], kind):
            raise Violation(f"{type(request).__name__} was not answered after a start")
        return got[0]

    def _topics(self) -> dict[str, tuple[UUID, int]]:
        answer = self._ask(MetadataRequest(topics=None), 12, MetadataResponse)
        self._epochs = {
            (topic.name or "", partition.partition_index): partition.leader_epoch
            for topic in answer.topics
            for partition in topic.partitions
        }
        return {
            topic.name or "": (topic.topic_id, len(topic.partitions))
            for topic in answer.topics
            if not topic.is_internal
        }

    def _settings(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """What each topic sets itself."""
        wanted = DescribeConfigsRequest.DescribeConfigsResource
        resources = [
            wanted(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=SET_KEYS) for name in names
        ]
        if not resources:
            return {}
        found = {}
        for answer in self._ask(DescribeConfigsRequest(resources=resources), 4, DescribeConfigsResponse).results:
            if answer.error_code != ErrorCode.NONE:
                raise Violation(f"the settings of {answer.resource_name} cannot be told: {answer.error_message}")
            found[answer.resource_name] = {
                config.name: config.value or ""
                for config in answer.configs
                if config.config_source == DYNAMIC_TOPIC_CONFIG
            }
        return found

    def _shown(self, topic: TopicModel, index: int) -> Shown:
        place = f"{topic.name}-{index}"
        first = self._fetch(topic.name, index, 0)
        if first.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            first = self._fetch(topic.name, index, first.log_start_offset)
        start, end = first.log_start_offset, first.high_watermark
        records = {}
        offset = start
        while offset < end:
            answer = self._fetch(topic.name, index, offset)
            if answer.error_code != ErrorCode.NONE or not answer.records:
                if topic.is_compacted and answer.error_code == ErrorCode.NONE:
                    break  # nothing is left up to the end
                raise Violation(
                    f"{place}: nothing at {offset}, below the high watermark {end} (error {answer.error_code})"
                )
            try:
                got = stored_records(bytes(answer.records))
            except CorruptBatch as error:
                raise Violation(f"{place} at {offset}: {error}") from error
            following = _end_of(bytes(answer.records))
            records |= {o: record for o, record in got.items() if start <= o < end}
            if following <= offset:
                raise Violation(f"{place}: a fetch at {offset} answers what ends at {following}")
            offset = following
        return Shown(start, end, records, self._epochs.get((topic.name, index), 0))

    def _fetch(self, topic: str, index: int, offset: int) -> FetchResponse.PartitionData:
        answer = self._ask(fetch_request(topic, index, offset), FETCH_VERSION, FetchResponse)
        return answer.responses[0].partitions[0]


def _end_of(content: bytes) -> int:
    """The offset after the last whole batch."""
    from ottla.protocol.records.batch import iter_batches

    return max((header.next_offset for _, header in iter_batches(content)), default=-1)
