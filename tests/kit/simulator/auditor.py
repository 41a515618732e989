"""Reads everything that a started broker shows, through the wire, and holds it against the model."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from kit.simulator.admin import ALTERED_KEY, KINDS
from kit.simulator.epoch_audit import EPOCH_VERSION, EpochBatch, EpochLog, audit_epochs, epoch_batches
from kit.simulator.look_up_audit import LOOK_UP_VERSION, TimedLog, audit_look_ups, stamps_of
from kit.simulator.members import ask_for_offsets
from kit.simulator.model import Loss, Model, Shown, Stored, Violation
from kit.simulator.producer_audit import ProducersOfLog, audit_producers, describe
from kit.simulator.readers import FETCH_VERSION, end_of, fetch_request, stored_records
from kit.simulator.settings_changes import CHANGES
from kit.simulator.share_letters import TOPIC as DEAD_LETTERS
from kit.simulator.streams_requests import INTERNAL
from kit.simulator.transaction_audit import LogContent, audit_committed

from ottla.broker.metadata.acls import Acl
from ottla.protocol.api.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.protocol.api.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from ottla.protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.protocol.api.describe_producers import DescribeProducersResponse
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.api.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.api.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.api.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response
from ottla.protocol.records.batch import CorruptBatch, iter_batches
from ottla.storage.formats.layout import PARTITION_METADATA_FILE, STRAY_DIRECTORY_SUFFIX

if TYPE_CHECKING:
    from kit.simulator.clients import Line
    from kit.simulator.quota_administrator import QuotaAdministrator
    from kit.simulator.rights_clients import RightsClients
    from kit.simulator.transactions import Transactions

    from ottla.broker.node import Node

ANY = 1
"""In a filter, of any number."""
DYNAMIC_TOPIC_CONFIG = 1
TOPIC_RESOURCE = 2
SET_KEYS = sorted({ALTERED_KEY}.union(*KINDS, CHANGES))
R = TypeVar("R", bound=Response)


class Auditor:
    """One look at everything; raises Violation."""

    def __init__(
        self,
        node: Node,
        model: Model,
        line: Line,
        transactions: Transactions | None = None,
        secured: RightsClients | None = None,
        quotas: Sequence[QuotaAdministrator] = (),
        *,
        chance: random.Random,
    ) -> None:
        self._node = node
        self._chance = chance
        self._quotas = quotas
        self._secured = secured
        self._transactions = transactions
        self._model = model
        self._line = line

    def audit(self, loss: Loss, now_ms: int) -> None:
        """After a start: topics, settings, every record of every partition, committed offsets. `now_ms`: the true time,
        which the broker's clock may not know.
        """
        self._look_for_strays()
        if self._secured is not None:
            self._audit_rights(self._secured)
        if self._quotas:
            described = DescribeClientQuotasRequest(components=[], strict=False)
            answer = self._ask(described, 1, DescribeClientQuotasResponse)
            for administrator in self._quotas:
                administrator.audit(answer)
        found = self._topics()
        settings = self._settings(found)
        self._model.audit_topics({name: (topic_id, count, settings[name]) for name, (topic_id, count) in found.items()})
        shown = self._shown(loss)
        for topic in self._model.topics.values():
            for index in range(len(topic.partitions)):
                self._model.audit_partition(topic, index, shown[topic.name, index], loss, now_ms)
        for group, places in groupby(sorted(self._model.commits), itemgetter(0)):
            ask_for_offsets(self._line, self._model, group, list(places))
        self._node.settle()
        self._line.take()
        for known in self._model.commits.values():
            known.note_found()

    def _look_for_strays(self) -> None:
        """Nobody has put a directory here: what no topic wants is of one that was deleted, which the start knows.

        But for what a power cut left of a log that was never synced: its topic id may be lost, and its records not. A
        repair renames the leftover of a topic whose name another one has.
        """
        if self._model.was_repaired:
            return
        for directory in self._node.services.log_manager.directories:
            for name in self._node.services.files.list_directory(directory.path):
                has_id = self._node.services.files.exists(directory.path / name / PARTITION_METADATA_FILE)
                if name.endswith(STRAY_DIRECTORY_SUFFIX) and has_id:
                    raise Violation(f"{name}: a start does not know of whose deletion it is a leftover")

    def _ask(self, request: Request, version: int, kind: type[R]) -> R:
        got: list[Response] = []
        self._line.send(request, version, got.append)
        self._node.settle()
        self._line.take()
        if len(got) != 1 or not isinstance(got[0], kind):
            raise Violation(f"{type(request).__name__} was not answered after a start")
        return got[0]

    def _audit_rights(self, secured: RightsClients) -> None:
        """ACLs, all of them."""
        asked = DescribeAclsRequest(
            resource_type_filter=ANY,
            resource_name_filter=None,
            pattern_type_filter=ANY,
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        )
        of_acls = self._ask(asked, 3, DescribeAclsResponse)
        secured.rights.audit(
            {
                Acl(
                    resource.resource_type,
                    resource.resource_name,
                    resource.pattern_type,
                    acl.principal,
                    acl.host,
                    acl.operation,
                    acl.permission_type,
                )
                for resource in of_acls.resources
                for acl in resource.acls
            }
        )

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
            if not topic.is_internal and topic.name != DEAD_LETTERS and not (topic.name or "").startswith(INTERNAL)
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
                raise Violation(f"the settings of {answer.resource_name} cannot be described: {answer.error_message}")
            found[answer.resource_name] = {
                config.name: config.value or ""
                for config in answer.configs
                if config.config_source == DYNAMIC_TOPIC_CONFIG
            }
        return found

    def _fetched(self, request: FetchRequest) -> FetchResponse:
        return self._ask(request, FETCH_VERSION, FetchResponse)

    def _looked_up(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return self._ask(request, LOOK_UP_VERSION, ListOffsetsResponse)

    def _epochs_asked(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        return self._ask(request, EPOCH_VERSION, OffsetForLeaderEpochResponse)

    def _epoch_log(self, place: tuple[str, int], reading: Reading) -> EpochLog:
        topic = self._model.topics[place[0]]
        known = topic.partitions[place[1]]
        if topic.expires or known.start_asked > known.start:
            known.epochs_from = reading.end
        return EpochLog(
            reading.start,
            reading.end,
            reading.batches,
            self._epochs.get(place, 0),
            topic.is_compacted,
            known,
        )

    def _shown(self, loss: Loss) -> dict[tuple[str, int], Shown]:
        """Everything that partitions show, by topic and partition; one fetch asks all of them for more."""
        readings = {
            (topic.name, index): Reading(f"{topic.name}-{index}", topic.is_compacted)
            for topic in self._model.topics.values()
            for index in range(len(topic.partitions))
        }
        while wanted := {place: reading.position for place, reading in readings.items() if not reading.is_over}:
            for answer in self._fetched(fetch_request(wanted)).responses:
                for partition in answer.partitions:
                    readings[answer.topic, partition.partition_index].take(partition)
        if readings:
            producers = {place: reading.producers for place, reading in readings.items()}
            audit_producers(self._ask(describe(producers), 0, DescribeProducersResponse), producers)
        if self._transactions is not None:
            logs = {place: reading.log for place, reading in readings.items()}
            audit_committed(self._fetched, self._transactions, logs, loss)
        audit_look_ups(self._looked_up, {place: reading.timed() for place, reading in readings.items()}, self._chance)
        of_epochs = {place: self._epoch_log(place, reading) for place, reading in readings.items()}
        audit_epochs(self._epochs_asked, self._fetched, of_epochs, self._chance)
        return {
            place: Shown(
                reading.start,
                reading.end,
                reading.records,
                self._epochs.get(place, 0),
                reading.size_bytes,
                frozenset(reading.markers),
                reading.stamps_ms,
            )
            for place, reading in readings.items()
        }


class Reading:
    """One partition, read from its start to its high watermark."""

    def __init__(self, place: str, is_compacted: bool) -> None:
        self._place = place
        self._is_compacted = is_compacted
        self.position = 0
        self.start = self.end = -1
        self.records: dict[int, Stored] = {}
        self.stamps_ms: dict[int, int] = {}
        self.batches: list[EpochBatch] = []
        self.log = LogContent()
        self.producers = ProducersOfLog(is_compacted=is_compacted)
        self.markers: set[int] = set()
        self.is_over = False
        self.size_bytes = 0

    def timed(self) -> TimedLog:
        """What it has shown, for look-ups by time."""
        return TimedLog(self.start, self.end, self.stamps_ms, self.log)

    def take(self, answer: FetchResponse.PartitionData) -> None:
        """Go on with what a fetch at `position` has found."""
        if self.end < 0:
            if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self.position == 0:
                self.position = answer.log_start_offset
                return
            self.start, self.end = answer.log_start_offset, answer.high_watermark
            self.position = self.start
            if self.start == self.end:
                self.is_over = True
                return
        if answer.error_code != ErrorCode.NONE or not answer.records:
            if self._is_compacted and answer.error_code == ErrorCode.NONE:
                self.is_over = True  # nothing is left up to the end
                return
            raise Violation(
                f"{self._place}: nothing at {self.position}, below the high watermark {self.end}"
                f" (error {answer.error_code})"
            )
        content = bytes(answer.records)
        self.size_bytes += len(content)
        try:
            got = stored_records(content)
        except CorruptBatch as error:
            raise Violation(f"{self._place} at {self.position}: {error}") from error
        self.records |= {offset: record for offset, record in got.items() if self.start <= offset < self.end}
        self.batches += epoch_batches(content)
        stamps = stamps_of(content).items()
        self.stamps_ms |= {offset: stamp for offset, stamp in stamps if self.start <= offset < self.end}
        following = end_of(content)
        self.log.add(content)
        self.producers.add(content)
        self.markers |= {header.base_offset for _, header in iter_batches(content) if header.is_control}
        if following <= self.position:
            raise Violation(f"{self._place}: a fetch at {self.position} answers what ends at {following}")
        self.position = following
        self.is_over = following >= self.end
