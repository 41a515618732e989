"""Plans of topic changes: the records of a request, or its refusal.

Pure functions of (image, requests, rules). Each topic of a request is checked independently; the records of those that
pass are one batch. The order of the checks and the codes follow Kafka's ControllerApis and ReplicationControlManager.

Differences: one broker cannot provide a replication factor above 1. So that is INVALID_REPLICATION_FACTOR, or counts as
1 with `ottla.replication.factor.lenient`, as `default.replication.factor` always does. And the number of the broker's
partitions is bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.broker.metadata.change_requests import NewPartitions, NewTopic, TopicResult, refused
from ottla.broker.metadata.image import TOPIC_RESOURCE, MetadataImage, TopicState
from ottla.broker.metadata.partition_state import PartitionState, partition_record
from ottla.broker.metadata.placement import ChooseDirectory, Placement
from ottla.config.errors import ConfigError
from ottla.config.topic import ALL_TOPIC_KEYS, TopicConfig
from ottla.plain import Plain, field
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.metadata import ConfigRecord, RemoveTopicRecord, TopicRecord
from ottla.shown import counted
from ottla.storage.formats.layout import CLUSTER_METADATA_TOPIC, collision_key, may_collide, topic_name_problem

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.protocol.stored.metadata import MetadataRecord

MAX_CONFIGS_PER_TOPIC = 1_000


class TopicPlan(Plain):
    """Results in the order of the requests, and the records of those that pass."""

    results: list[TopicResult] = field(factory=list)
    records: list[MetadataRecord] = field(factory=list)


Charge = Callable[[int], None]
"""Charges created or deleted partitions to the client's quota. Raises KafkaError if that is used up."""


def charge_nobody(_partitions: int) -> None:
    """Charge no quota."""


class Rules(NamedTuple):
    """The facts about this broker that the plans need."""

    config: BrokerConfig
    node_id: int
    new_id: Callable[[], UUID]
    choose_directory: ChooseDirectory

    def placement(self, image: MetadataImage) -> Placement:
        """The placement for the new partitions of one request."""
        return Placement(image, self.config.ottla_max_partitions, self.choose_directory)


def plan_topics(
    image: MetadataImage,
    requests: Sequence[NewTopic],
    rules: Rules,
    *,
    validate_only: bool,
    charge: Charge = charge_nobody,
) -> TopicPlan:
    """Create topics. Duplicate names in one request are all refused. Topics with the same settings share a config."""
    plan = TopicPlan()
    names = Counter(request.name for request in requests)
    collisions = _Collisions(image)
    placement = rules.placement(image)
    checked: dict[tuple[tuple[str, str | None], ...], tuple[dict[str, str], TopicConfig]] = {}
    for request in requests:
        try:
            if names[request.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names this topic more than once")
            _check_name(image, request, collisions)
            given = tuple(request.configs)
            if given not in checked:
                checked[given] = _check_configs(request, rules.config)
            overrides, config = checked[given]
            count = _check_size(request, rules, placement)
            charge(count)
            directories = placement.take(count, is_assigned=bool(request.assignments))
        except KafkaError as error:
            plan.results.append(refused(request.name, error))
            continue
        collisions.add(request.name)
        topic_id = rules.new_id()  # also for a topic that is only validated, as in Kafka
        plan.results.append(TopicResult(request.name, topic_id, partitions=count, config=config))
        if validate_only:
            continue
        plan.records.append(TopicRecord(name=request.name, topic_id=topic_id))
        plan.records.extend(
            ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=request.name, name=key, value=value)
            for key, value in overrides.items()
        )
        plan.records.extend(
            partition_record(topic_id, index, _new_partition(rules.node_id, directory))
            for index, directory in enumerate(directories)
        )
    return plan


def plan_partitions(
    image: MetadataImage,
    requests: Sequence[NewPartitions],
    rules: Rules,
    *,
    validate_only: bool,
    charge: Charge = charge_nobody,
) -> TopicPlan:
    """Grow topics. Duplicate names in one request are all refused."""
    plan = TopicPlan()
    names = Counter(request.name for request in requests)
    placement = rules.placement(image)
    for request in requests:
        try:
            if names[request.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names this topic more than once")
            topic = _existing(image, request.name)
            more = _check_growth(topic, request, rules)
            charge(more)
            directories = placement.take(more)
        except KafkaError as error:
            plan.results.append(refused(request.name, error))
            continue
        plan.results.append(TopicResult(request.name, topic.id, partitions=request.count))
        if not validate_only:
            first = len(topic.partitions)
            plan.records.extend(
                partition_record(topic.id, first + index, _new_partition(rules.node_id, directory))
                for index, directory in enumerate(directories)
            )
    return plan


def plan_removal(
    image: MetadataImage, targets: Sequence[str | UUID], rules: Rules, *, charge: Charge = charge_nobody
) -> TopicPlan:
    """Delete topics by name or id. One that is named twice, even once by name and once by id, is refused twice."""
    plan = TopicPlan()
    found = [image.find_topic(target) for target in targets]
    times = Counter(topic.id if topic is not None else target for topic, target in zip(found, targets, strict=True))
    for topic, target in zip(found, targets, strict=True):
        if not rules.config.delete_topic_enable:
            error = KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
            plan.results.append(refused(target, error))
        elif times[topic.id if topic is not None else target] > 1:
            error = KafkaError(ErrorCode.INVALID_REQUEST, "the request names this topic more than once")
            plan.results.append(refused(target, error))
        elif topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if isinstance(target, UUID) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            plan.results.append(refused(target, KafkaError(code)))
        else:
            try:
                charge(len(topic.partitions))
            except KafkaError as error:
                plan.results.append(refused(target, error))
                continue
            plan.results.append(TopicResult(topic.name, topic.id, partitions=len(topic.partitions)))
            plan.records.append(RemoveTopicRecord(topic_id=topic.id))
    return plan


class _Collisions:
    """Topics whose names are equal if '.' and '_' count as the same. Only names with either character are indexed, and
    only when a request has such a name: there may be 10,000 topics.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._names: dict[str, str] | None = None

    def find(self, name: str) -> str | None:
        """The topic with which a new topic of this name would collide."""
        return self._known().get(collision_key(name)) if may_collide(name) else None

    def add(self, name: str) -> None:
        """Add a planned topic."""
        if may_collide(name):
            self._known()[collision_key(name)] = name

    def _known(self) -> dict[str, str]:
        names = self._names
        if names is None:
            names = self._names = {collision_key(name): name for name in self._image.topics if may_collide(name)}
        return names


def _check_name(image: MetadataImage, request: NewTopic, collisions: _Collisions) -> None:
    """Raise KafkaError unless a topic of this name can be created."""
    if request.name == CLUSTER_METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{request.name} is the broker's own and not a topic")
    problem = topic_name_problem(request.name)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if request.name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{request.name}' already exists.")
    other = collisions.find(request.name)
    if other is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{request.name} collides with {other}: '.' and '_' count as the same"
        )


def _check_size(request: NewTopic, rules: Rules, placement: Placement) -> int:
    """The number of partitions. Raises KafkaError."""
    if request.assignments:
        count = _check_assignments(request, rules)
    else:
        wanted = request.replication_factor
        if wanted == 0 or wanted < -1:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"the replication factor is at least 1, not {wanted}; -1: the default",
            )
        if request.partitions == 0 or request.partitions < -1:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"a topic has at least 1 partition, not {request.partitions}; -1: the default",
            )
        _check_replication_factor(wanted, rules)
        count = rules.config.num_partitions if request.partitions == -1 else request.partitions
    placement.check(count)
    return count


def _check_replication_factor(wanted: int, rules: Rules) -> None:
    if wanted > 1 and not rules.config.ottla_replication_factor_lenient:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the replication factor is {wanted}, there is 1 broker (see ottla.replication.factor.lenient)",
        )


def _check_assignments(request: NewTopic, rules: Rules) -> int:
    if request.partitions != -1 or request.replication_factor != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "with a manual assignment the number of partitions and the replication factor must both be -1",
        )
    seen: set[int] = set()
    for index, brokers in request.assignments:
        if index in seen:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {index} is assigned more than once")
        seen.add(index)
        _check_brokers(brokers, rules)
    if seen != set(range(len(seen))):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the assigned partitions must be 0, 1, 2, ...")
    return len(seen)


def _check_brokers(brokers: Sequence[int], rules: Rules) -> None:
    """Raise KafkaError unless each assignment is this broker alone."""
    if not brokers:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned to no broker")
    if len(set(brokers)) < len(brokers):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the assignment {list(brokers)} names a broker twice")
    unknown = [broker for broker in brokers if broker != rules.node_id]
    if unknown:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"the assignment names broker {unknown[0]}, and there is only broker {rules.node_id}",
        )


def _check_configs(request: NewTopic, broker: BrokerConfig) -> tuple[dict[str, str], TopicConfig]:
    if len(request.configs) > MAX_CONFIGS_PER_TOPIC:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"more than {MAX_CONFIGS_PER_TOPIC} configuration entries")
    given: dict[str, str | None] = {}
    for key, value in request.configs:
        if key in given:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"the key {key} is given more than once")
        given[key] = value
    nulls = [key for key, value in given.items() if value is None]
    if nulls:
        message = f"Null value not supported for topic configs: {','.join(nulls)}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    unknown = sorted(given.keys() - ALL_TOPIC_KEYS.keys())
    if unknown:
        from ottla.broker.metadata.config_plans import unknown_topic_key  # for a mistake only

        raise unknown_topic_key(unknown[0], given[unknown[0]])
    try:
        TopicConfig.validate(given)
        overrides = {key: value for key, value in given.items() if value is not None}
        return overrides, TopicConfig.resolve(overrides, broker)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, error.for_client()) from error


def _check_growth(topic: TopicState, request: NewPartitions, rules: Rules) -> int:
    """The number of partitions to add. Raises KafkaError."""
    present = len(topic.partitions)
    if request.count == present:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"the topic has {counted(present, 'partition')} already")
    if request.count < present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"the topic has {counted(present, 'partition')}, which would become {request.count}; "
            "they can only grow in number",
        )
    more = request.count - present
    if request.assignments is not None:
        if len(request.assignments) != more:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{more} partitions are to be added and {len(request.assignments)} are assigned",
            )
        for brokers in request.assignments:
            _check_brokers(brokers, rules)
    return more


def _existing(image: MetadataImage, name: str) -> TopicState:
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic


def _new_partition(node_id: int, directory: UUID) -> PartitionState:
    return PartitionState(
        replicas=(node_id,), isr=(node_id,), leader=node_id, leader_epoch=0, partition_epoch=0, directories=(directory,)
    )
