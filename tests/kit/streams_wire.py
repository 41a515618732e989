"""Members of streams groups as raw frames: any request, nothing papered over; topologies and groups for them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kit.share_wire import GROUP_RESOURCE
from kit.wire import PATIENCE_S, Wire
from kit.wire_groups import COMING_UP

from ottla.protocol.api.create_partitions import CreatePartitionsRequest
from ottla.protocol.api.create_topics import CreateTopicsRequest
from ottla.protocol.api.describe_configs import DescribeConfigsRequest
from ottla.protocol.api.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest
from ottla.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.api.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from ottla.protocol.errors import ErrorCode

Kind = StreamsGroupHeartbeatRequest
Tasks = Mapping[str, Sequence[int]]
"""Partitions by the id of their subtopology."""
VERSION = 1
TOPIC_RESOURCE = 2
OWN_SOURCE = {TOPIC_RESOURCE: 1, GROUP_RESOURCE: 8}
"""The source of a setting that a resource has itself, by the type of the resource."""
SETTINGS = {"initial_rebalance_delay_ms": "0", "assignment_interval_ms": "0"}
"""Those of the tests' groups, so that each heartbeat can have an assignment."""


def topic_info(name: str, partitions: int = 0, **configs: str) -> Any:
    """An internal topic; `configs` as in `cleanup_policy="compact"`."""
    pairs = [Kind.KeyValue(key=key.replace("_", "."), value=value) for key, value in configs.items()]
    return Kind.TopicInfo(name=name, partitions=partitions, replication_factor=0, topic_configs=pairs)


def subtopology(
    number: str,
    *sources: str,
    regex: Sequence[str] = (),
    changelogs: Sequence[Any] = (),
    repartition_sources: Sequence[Any] = (),
    repartition_sinks: Sequence[str] = (),
    copartitioned: Sequence[tuple[Sequence[int], Sequence[int]]] = (),
) -> Any:
    """A subtopology; `copartitioned` are indexes of source topics, and of repartition topics."""
    groups = [
        Kind.CopartitionGroup(
            source_topics=list(plain), source_topic_regex=[], repartition_source_topics=list(internal)
        )
        for plain, internal in copartitioned
    ]
    return Kind.Subtopology(
        subtopology_id=number,
        source_topics=list(sources),
        source_topic_regex=list(regex),
        state_changelog_topics=list(changelogs),
        repartition_sink_topics=list(repartition_sinks),
        repartition_source_topics=list(repartition_sources),
        copartition_groups=groups,
    )


def topology(*subtopologies: Any, epoch: int = 0) -> Any:
    """What a member sends when it joins."""
    return Kind.Topology(epoch=epoch, subtopologies=list(subtopologies))


def new_streams_group(wire: Wire, group_id: str, **settings: str) -> None:
    """Set what the group needs, as in `num_standby_replicas="1"`, and wait for its coordinator."""
    alter_streams_group(wire, group_id, **(SETTINGS | settings))
    give_up = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up:
        (found,) = wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id]), 4).coordinators
        if found.error_code == ErrorCode.NONE and described(wire, group_id).error_code not in COMING_UP:
            return
        time.sleep(0.05)
    raise AssertionError(f"no coordinator of {group_id} within {PATIENCE_S} s")


def alter_streams_group(wire: Wire, group_id: str, **settings: str) -> None:
    """Change settings of the group."""
    kind = IncrementalAlterConfigsRequest
    changes = [
        kind.AlterableConfig(name=f"streams.{key.replace('_', '.')}", config_operation=0, value=value)
        for key, value in settings.items()
    ]
    resource = kind.AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group_id, configs=changes)
    (altered,) = wire.call(kind(resources=[resource], validate_only=False), 1).responses
    assert altered.error_code == ErrorCode.NONE, altered
    give_up = time.monotonic() + PATIENCE_S
    while any(configs_of(wire, group_id, GROUP_RESOURCE).get(one.name) != one.value for one in changes):
        assert time.monotonic() < give_up, "the settings are not there"
        time.sleep(0.05)  # Kafka applies them after it has said so


def described(wire: Wire, group_id: str, version: int = VERSION) -> Any:
    """The group as StreamsGroupDescribe has it."""
    request = StreamsGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    return wire.call(request, version).groups[0]


def partition_count(wire: Wire, topic: str) -> int:
    """How many partitions a topic has; 0 if it does not exist."""
    kind = DescribeTopicPartitionsRequest
    request = kind(topics=[kind.TopicRequest(name=topic)], response_partition_limit=100, cursor=None)
    (found,) = wire.call(request, 0).topics
    return len(found.partitions)


def create_named_topic(wire: Wire, name: str, partitions: int) -> None:
    """Create a topic with this name."""
    kind = CreateTopicsRequest
    topic = kind.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    (made,) = wire.call(kind(topics=[topic]), 7).topics
    assert made.error_code == ErrorCode.NONE, made


def add_partitions(wire: Wire, name: str, count: int) -> None:
    """Let a topic have so many partitions."""
    kind = CreatePartitionsRequest
    topic = kind.CreatePartitionsTopic(name=name, count=count, assignments=None)
    (made,) = wire.call(kind(topics=[topic], timeout_ms=10_000, validate_only=False), 3).results
    assert made.error_code == ErrorCode.NONE, made


def configs_of(wire: Wire, name: str, resource_type: int = TOPIC_RESOURCE) -> dict[str, str]:
    """The settings that a topic, or a group, has itself."""
    kind = DescribeConfigsRequest
    resource = kind.DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=None)
    (found,) = wire.call(kind(resources=[resource]), 4).results
    return {one.name: one.value for one in found.configs if one.config_source == OWN_SOURCE[resource_type]}


def tasks_of(answer: Any) -> tuple[dict[str, list[int]], dict[str, list[int]], dict[str, list[int]]] | None:
    """Active, standby and warm-up tasks of a heartbeat's answer, or of a member's assignment; None if unchanged."""
    if answer.active_tasks is None:
        assert answer.standby_tasks is answer.warmup_tasks is None, answer
        return None
    active, standby, warmup = (
        {one.subtopology_id: list(one.partitions) for one in tasks if one.partitions}
        for tasks in (answer.active_tasks, answer.standby_tasks, answer.warmup_tasks)
    )
    return active, standby, warmup


def statuses(answer: Any) -> dict[int, str]:
    """The details of a heartbeat's statuses, by their codes."""
    assert answer.error_code == ErrorCode.NONE, answer
    found = {one.status_code: one.status_detail for one in answer.status or ()}
    assert len(found) == len(answer.status or ()), answer
    return found


def task_ids(tasks: Tasks | None) -> Any:
    """Tasks as a request has them."""
    if tasks is None:
        return None
    return [Kind.TaskIds(subtopology_id=number, partitions=list(some)) for number, some in tasks.items()]


class StreamsWireMember:
    """One member of one streams group; `member_epoch`, `active`, `standby` and `warmup` are as the last answers say."""

    def __init__(self, port: int, group_id: str, *, process: str | None = None, instance: str | None = None) -> None:
        """`process`: the id of its process, by default one of its own."""
        self.wire = Wire(port)
        self.group_id = group_id
        self.member_id = str(uuid.uuid4())
        self.member_epoch = 0
        self.endpoint_epoch = 0
        self.process = process or str(uuid.uuid4())
        self.instance = instance
        self.active: dict[str, list[int]] = {}
        self.standby: dict[str, list[int]] = {}
        self.warmup: dict[str, list[int]] = {}

    def heartbeat(
        self,
        epoch: int | None = None,
        *,
        topology: Any = None,
        active: Tasks | None = None,
        standby: Tasks | None = None,
        warmup: Tasks | None = None,
        rebalance_ms: int = -1,
        process: str | None = None,
        rack: str | None = None,
        endpoint: tuple[str, int] | None = None,
        tags: Mapping[str, str] | None = None,
        offsets: Iterable[tuple[str, int, int]] | None = None,
        end_offsets: Iterable[tuple[str, int, int]] | None = None,
        shutdown: bool = False,
        version: int = VERSION,
    ) -> Any:
        """Send a StreamsGroupHeartbeat; the next one begins with the epoch of a good answer."""
        sent_epoch = self.member_epoch if epoch is None else epoch
        request = Kind(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=sent_epoch,
            endpoint_information_epoch=self.endpoint_epoch,
            instance_id=self.instance,
            rack_id=rack,
            rebalance_timeout_ms=rebalance_ms,
            topology=topology,
            active_tasks=task_ids(active),
            standby_tasks=task_ids(standby),
            warmup_tasks=task_ids(warmup),
            process_id=process,
            user_endpoint=None if endpoint is None else Kind.Endpoint(host=endpoint[0], port=endpoint[1]),
            client_tags=None if tags is None else [Kind.KeyValue(key=key, value=tags[key]) for key in tags],
            task_offsets=_task_offsets(offsets),
            task_end_offsets=_task_offsets(end_offsets),
            shutdown_application=shutdown,
        )
        answer = self.wire.call(request, version)
        if answer.error_code == ErrorCode.NONE:
            self.member_epoch = answer.member_epoch
            self.endpoint_epoch = answer.endpoint_information_epoch
            if (tasks := tasks_of(answer)) is not None:
                self.active, self.standby, self.warmup = tasks
        return answer

    def join(self, wanted: Any, *, rebalance_ms: int = 30_000, **more: Any) -> Any:
        """Send the first heartbeat, as Kafka Streams does."""
        none: dict[str, list[int]] = {}
        return self.heartbeat(
            0,
            topology=wanted,
            active=none,
            standby=none,
            warmup=none,
            rebalance_ms=rebalance_ms,
            process=self.process,
            **more,
        )

    def own(self, **more: Any) -> Any:
        """Send a heartbeat that says that this member has what it was assigned, and nothing else."""
        return self.heartbeat(active=self.active, standby=self.standby, warmup=self.warmup, **more)

    def settle(self) -> None:
        """Send heartbeats that own what was assigned, until an answer changes nothing."""
        give_up = time.monotonic() + PATIENCE_S
        while True:
            before = self.member_epoch
            answer = self.own()
            assert answer.error_code == ErrorCode.NONE, answer
            if answer.active_tasks is None and answer.member_epoch == before and not answer.status:
                return
            assert time.monotonic() < give_up, f"it does not settle: {answer}"
            time.sleep(0.05)

    def close(self) -> None:
        """End the connection."""
        self.wire.socket.close()


def _task_offsets(offsets: Iterable[tuple[str, int, int]] | None) -> Any:
    if offsets is None:
        return None
    return [Kind.TaskOffset(subtopology_id=number, partition=index, offset=end) for number, index, end in offsets]
