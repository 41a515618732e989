"""What a wish about topics comes to: the records that fulfil it, or the refusal.

Pure functions of (image, wishes, rules). Each wish of a request is judged on its own; the records of those that pass
go into one batch. Order of the checks and codes follow Kafka's ControllerApis and ReplicationControlManager.

Differences: a replication factor above 1 can never be met by one broker, so it is INVALID_REPLICATION_FACTOR at once,
or counts as 1 where `ottla.replication.factor.lenient` says so, as `default.replication.factor` always does; and the
partitions of the broker are bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.metadata.config_plans import unknown_topic_key
from ottla.broker.metadata.image import TOPIC_RESOURCE, MetadataImage, TopicState
from ottla.broker.metadata.partition_state import PartitionState, partition_record
from ottla.broker.metadata.placement import ChooseDirectory, Placement
from ottla.broker.metadata.wishes import ZERO_ID, NewPartitions, NewTopic, TopicOutcome, refused
from ottla.config.errors import ConfigError
from ottla.config.topic import ALL_TOPIC_KEYS, TopicConfig
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.metadata import ConfigRecord, RemoveTopicRecord, TopicRecord
from ottla.storage.formats.layout import CLUSTER_METADATA_TOPIC, collision_key, topic_name_problem
from ottla.storage.tools.counted import counted

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.protocol.stored.metadata import MetadataRecord

MAX_CONFIGS_PER_TOPIC = 1_000


@dataclass(slots=True)
class TopicPlan:
    """Outcomes in the order of the wishes, and the records of those that pass."""

    outcomes: list[TopicOutcome] = field(default_factory=list)
    records: list[MetadataRecord] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Rules:
    """What the plans need to know of this broker."""

    config: BrokerConfig
    node_id: int
    new_id: Callable[[], UUID]
    choose_directory: ChooseDirectory

    def placement(self, image: MetadataImage) -> Placement:
        """For the new partitions of one request."""
        return Placement(image, self.config.ottla_max_partitions, self.choose_directory)


def plan_topics(image: MetadataImage, wishes: Sequence[NewTopic], rules: Rules, *, validate_only: bool) -> TopicPlan:
    """Create topics. Duplicate names in one request are all refused. Topics that are given the same share a config."""
    plan = TopicPlan()
    names = Counter(wish.name for wish in wishes)
    collisions = {collision_key(name): name for name in image.topics}
    placement = rules.placement(image)
    checked: dict[tuple[tuple[str, str | None], ...], tuple[dict[str, str], TopicConfig]] = {}
    for wish in wishes:
        try:
            if names[wish.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names this topic more than once")
            _check_name(image, wish, collisions)
            given = tuple(wish.configs)
            if given not in checked:
                checked[given] = _check_configs(wish, rules.config)
            overrides, config = checked[given]
            count = _check_size(wish, rules, placement)
            directories = placement.take(count)
        except KafkaError as error:
            plan.outcomes.append(refused(wish.name, error))
            continue
        collisions[collision_key(wish.name)] = wish.name
        topic_id = ZERO_ID if validate_only else rules.new_id()
        plan.outcomes.append(TopicOutcome(wish.name, topic_id, partitions=count, config=config))
        if validate_only:
            continue
        plan.records.append(TopicRecord(name=wish.name, topic_id=topic_id))
        plan.records.extend(
            ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=wish.name, name=key, value=value)
            for key, value in overrides.items()
        )
        plan.records.extend(
            partition_record(topic_id, index, _new_partition(rules.node_id, directory))
            for index, directory in enumerate(directories)
        )
    return plan


def plan_partitions(
    image: MetadataImage, wishes: Sequence[NewPartitions], rules: Rules, *, validate_only: bool
) -> TopicPlan:
    """Grow topics. Duplicate names in one request are all refused."""
    plan = TopicPlan()
    names = Counter(wish.name for wish in wishes)
    placement = rules.placement(image)
    for wish in wishes:
        try:
            if names[wish.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names this topic more than once")
            topic = _existing(image, wish.name)
            more = _check_growth(topic, wish, rules)
            directories = placement.take(more)
        except KafkaError as error:
            plan.outcomes.append(refused(wish.name, error))
            continue
        plan.outcomes.append(TopicOutcome(wish.name, topic.id, partitions=wish.count))
        if not validate_only:
            first = len(topic.partitions)
            plan.records.extend(
                partition_record(topic.id, first + index, _new_partition(rules.node_id, directory))
                for index, directory in enumerate(directories)
            )
    return plan


def plan_removal(image: MetadataImage, targets: Sequence[str | UUID], rules: Rules) -> TopicPlan:
    """Delete topics by name or id. One that is named twice, be it once by name and once by id, is refused twice."""
    plan = TopicPlan()
    found = [_find(image, target) for target in targets]
    times = Counter(topic.id if topic is not None else target for topic, target in zip(found, targets, strict=True))
    for topic, target in zip(found, targets, strict=True):
        if not rules.config.delete_topic_enable:
            error = KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
            plan.outcomes.append(refused(target, error))
        elif times[topic.id if topic is not None else target] > 1:
            error = KafkaError(ErrorCode.INVALID_REQUEST, "the request names this topic more than once")
            plan.outcomes.append(refused(target, error))
        elif topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if isinstance(target, UUID) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            plan.outcomes.append(refused(target, KafkaError(code)))
        else:
            plan.outcomes.append(TopicOutcome(topic.name, topic.id, partitions=len(topic.partitions)))
            plan.records.append(RemoveTopicRecord(topic_id=topic.id))
    return plan


def _check_name(image: MetadataImage, wish: NewTopic, collisions: Mapping[str, str]) -> None:
    """Raise KafkaError unless a topic of this name can be made."""
    if wish.name == CLUSTER_METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{wish.name} is the broker's own and not a topic")
    problem = topic_name_problem(wish.name)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if wish.name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{wish.name}' already exists.")
    other = collisions.get(collision_key(wish.name))
    if other is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{wish.name} collides with {other}: '.' and '_' count as the same"
        )


def _check_size(wish: NewTopic, rules: Rules, placement: Placement) -> int:
    """The number of partitions. Raises KafkaError."""
    if wish.assignments:
        count = _check_assignments(wish, rules)
    else:
        wanted = wish.replication_factor
        if wanted == 0 or wanted < -1:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"the replication factor is at least 1, not {wanted}; -1: the default",
            )
        if wish.partitions == 0 or wish.partitions < -1:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"a topic has at least 1 partition, not {wish.partitions}; -1: the default",
            )
        _check_replication_factor(wanted, rules)
        count = rules.config.num_partitions if wish.partitions == -1 else wish.partitions
    placement.check(count)
    return count


def _check_replication_factor(wanted: int, rules: Rules) -> None:
    if wanted > 1 and not rules.config.ottla_replication_factor_lenient:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the replication factor is {wanted}, there is 1 broker (see ottla.replication.factor.lenient)",
        )


def _check_assignments(wish: NewTopic, rules: Rules) -> int:
    if wish.partitions != -1 or wish.replication_factor != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "with a manual assignment the number of partitions and the replication factor must both be -1",
        )
    seen: set[int] = set()
    for index, brokers in wish.assignments:
        if index in seen:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {index} is assigned more than once")
        seen.add(index)
        _check_brokers(brokers, rules)
    if seen != set(range(len(seen))):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the assigned partitions must be 0, 1, 2, ...")
    return len(seen)


def _check_brokers(brokers: Sequence[int], rules: Rules) -> None:
    """The only assignment that one broker can meet is itself."""
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


def _check_configs(wish: NewTopic, broker: BrokerConfig) -> tuple[dict[str, str], TopicConfig]:
    if len(wish.configs) > MAX_CONFIGS_PER_TOPIC:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"more than {MAX_CONFIGS_PER_TOPIC} configuration entries")
    given: dict[str, str | None] = {}
    for key, value in wish.configs:
        if key in given:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"the key {key} is given more than once")
        given[key] = value
    nulls = [key for key, value in given.items() if value is None]
    if nulls:
        message = f"Null value not supported for topic configs: {','.join(nulls)}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    unknown = sorted(given.keys() - ALL_TOPIC_KEYS.keys())
    if unknown:
        raise unknown_topic_key(unknown[0], given[unknown[0]])
    try:
        TopicConfig.validate(given)
        overrides = {key: value for key, value in given.items() if value is not None}
        return overrides, TopicConfig.resolve(overrides, broker)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, error.for_client()) from error


def _check_growth(topic: TopicState, wish: NewPartitions, rules: Rules) -> int:
    """How many partitions are to be added. Raises KafkaError."""
    present = len(topic.partitions)
    if wish.count == present:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"the topic has {counted(present, 'partition')} already")
    if wish.count < present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"the topic has {counted(present, 'partition')}, which would become {wish.count}; "
            "they can only grow in number",
        )
    more = wish.count - present
    if wish.assignments is not None:
        if len(wish.assignments) != more:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{more} partitions are to be added and {len(wish.assignments)} are assigned",
            )
        for brokers in wish.assignments:
            _check_brokers(brokers, rules)
    return more


def _existing(image: MetadataImage, name: str) -> TopicState:
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic


def _find(image: MetadataImage, target: str | UUID) -> TopicState | None:
    return image.topics_by_id.get(target) if isinstance(target, UUID) else image.topics.get(target)


def _new_partition(node_id: int, directory: UUID) -> PartitionState:
    return PartitionState(
        replicas=(node_id,), isr=(node_id,), leader=node_id, leader_epoch=0, partition_epoch=0, directories=(directory,)
    )
