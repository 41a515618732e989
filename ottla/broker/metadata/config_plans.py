"""Plans of configuration changes: the records of a request, or its refusal.

Pure functions of (image, requests, rules). Each resource is checked independently: all of its changes happen, or none.
The order of the checks, the codes and the beginnings of the messages follow Kafka 4.1 (`ConfigAdminManager`,
`ConfigurationControlManager`), as observed with a running broker.

Differences: an unknown key of a broker is refused, where Kafka keeps it for plug-ins. The listeners themselves are also
refused, since they cannot change here without a restart, and so are all keys of a listener that are not about its
certificates. The number of groups and client metrics subscriptions with a configuration is bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.broker.metadata.change_requests import APPEND, DELETE, SET, SUBTRACT, ConfigRequest, ConfigResult
from ottla.broker.metadata.image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    MetadataImage,
)
from ottla.config.broker import ALL_BROKER_KEYS
from ottla.config.describe import merged
from ottla.config.errors import ConfigError
from ottla.config.options import ConfigType, Option
from ottla.config.resources import ClientMetricsConfig, GroupConfig, OutOfPlace
from ottla.config.topic import ALL_TOPIC_KEYS, TopicConfig
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.metadata import ConfigRecord
from ottla.storage.formats.layout import topic_name_problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.config.broker import BrokerConfig
    from ottla.protocol.stored.metadata import MetadataRecord

MAX_CONFIGURED_RESOURCES = 10_000
"""Groups and client metrics subscriptions that may have a configuration: clients name them freely."""
MAX_LIST_BYTES = 32_000
"""The longest list that APPEND may create; a string on the wire and in the log has at most 32767 bytes."""

_CODES = {
    TOPIC_RESOURCE: ErrorCode.INVALID_CONFIG,
    GROUP_RESOURCE: ErrorCode.INVALID_CONFIG,
    BROKER_RESOURCE: ErrorCode.INVALID_REQUEST,
    CLIENT_METRICS_RESOURCE: ErrorCode.INVALID_CONFIG,
}
"""The error code for a wrong value, by the type of the resource: Kafka uses different ones."""
_KEYS: dict[int, Mapping[str, Option]] = {
    TOPIC_RESOURCE: ALL_TOPIC_KEYS,
    GROUP_RESOURCE: GroupConfig.by_key,
    BROKER_RESOURCE: ALL_BROKER_KEYS,
    CLIENT_METRICS_RESOURCE: ClientMetricsConfig.by_key,
}
_NAMED_FREELY = (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE)
_OPERATIONS = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}


CheckListeners: TypeAlias = "Callable[[Mapping[str, Mapping[str, str]]], None]"
"""Checks that the listeners could work with keys, by listener and short key. Raises ConfigError."""


class ConfigPlan(NamedTuple):
    """Results in the order of the requests, and the records of those that pass."""

    results: list[ConfigResult]
    records: list[MetadataRecord]


def plan_configs(
    image: MetadataImage,
    requests: Sequence[ConfigRequest],
    config: BrokerConfig,
    *,
    validate_only: bool,
    check_listeners: CheckListeners | None = None,
) -> ConfigPlan:
    """Change configurations. A resource that is named twice is refused twice."""
    plan = ConfigPlan([], [])
    times = Counter((request.resource_type, request.name) for request in requests)
    room = MAX_CONFIGURED_RESOURCES - sum(kind in _NAMED_FREELY for kind, _ in image.configs)
    for request in requests:
        resource = (request.resource_type, request.name)
        try:
            if times[resource] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            _check_form(request)
            if request.resource_type == BROKER_RESOURCE and request.name:
                check_node_id(request.name, config.node_id)
            own = image.configs.get(resource, {})
            wanted = _wanted(request, own, config)
            _check_name(request)
            _check_values(request, own, wanted, config, check_listeners)
            if request.resource_type == TOPIC_RESOURCE and request.name not in image.topics:
                message = f"The topic '{request.name}' does not exist."
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
            if not own and wanted and request.resource_type in _NAMED_FREELY:
                if room <= 0:
                    message = (
                        f"{MAX_CONFIGURED_RESOURCES} groups and client metrics subscriptions are configured already"
                    )
                    raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
                room -= 1
        except KafkaError as error:
            plan.results.append(request.refused(error))
            continue
        records = [] if validate_only else _records(request, own, wanted)
        plan.records.extend(records)
        plan.results.append(ConfigResult(*resource, changed=bool(records)))
    return plan


def _check_form(request: ConfigRequest) -> None:
    """Check the parts that need neither the image nor the configuration. Raises KafkaError."""
    if request.resource_type not in _KEYS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {request.resource_type}")
    if len({key for key, _, _ in request.changes}) < len(request.changes):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    for key, operation, _ in request.changes:
        if operation not in (SET, DELETE, APPEND, SUBTRACT):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation {operation} for {key}")
    nulls = [key for key, operation, value in request.changes if value is None and operation != DELETE]
    if nulls:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}")


def _check_name(request: ConfigRequest) -> None:
    """Raise KafkaError unless a resource can have this name."""
    name = request.name
    if request.resource_type == TOPIC_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        problem = topic_name_problem(name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    elif request.resource_type in _NAMED_FREELY and not name:
        is_group = request.resource_type == GROUP_RESOURCE
        message = "Default group resources are not allowed." if is_group else "Subscription name can't be empty"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def check_node_id(name: str, node_id: int) -> None:
    """Raise KafkaError unless `name` is this broker's id."""
    if not (name.isascii() and name.removeprefix("-").isdigit() and len(name) <= 11):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name[:40]}")
    if name != str(node_id):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {name}")


def _wanted(request: ConfigRequest, own: Mapping[str, str], config: BrokerConfig) -> dict[str, str]:
    """All keys that the resource would set itself."""
    wanted = {} if request.replaces else dict(own)
    for key, operation, value in request.changes:
        if operation == DELETE or value is None:
            wanted.pop(key, None)
        elif operation == SET:
            wanted[key] = value
        else:
            wanted[key] = _changed_list(request, key, operation, value, own, config)
    return wanted


def _changed_list(
    request: ConfigRequest, key: str, operation: int, value: str, own: Mapping[str, str], config: BrokerConfig
) -> str:
    """The list that is in effect now, with the items of `value` added or removed."""
    option = _KEYS[request.resource_type].get(key)
    if option is None or option.kind is not ConfigType.LIST:
        message = f"Can't {_OPERATIONS[operation]} to key {key} because its type is not LIST."
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    items = _items(own[key] if key in own else _inherited(request, option, config))
    given = _items(value)
    if operation == APPEND:
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    changed = ",".join(items)
    if len(changed.encode()) > MAX_LIST_BYTES:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} would be longer than {MAX_LIST_BYTES} bytes")
    return changed


def _items(text: str) -> list[str]:
    return list(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))


def _inherited(request: ConfigRequest, option: Option, config: BrokerConfig) -> str:
    """The value in effect for a resource that does not set the key itself."""
    if request.resource_type == BROKER_RESOURCE:
        below = config.layers[1:] if request.name else config.layers[2:]
        return option.show(option.effective(merged(below))) or ""
    if option.inherits is not None:
        return option.show(getattr(config, option.inherits.attribute)) or ""
    return option.show(option.default) or ""


def _check_values(
    request: ConfigRequest,
    own: Mapping[str, str],
    wanted: Mapping[str, str],
    config: BrokerConfig,
    check_listeners: CheckListeners | None,
) -> None:
    """Raise KafkaError unless the resource could set all of this; unknown keys that it sets already are ignored."""
    named = {key for key, _, _ in request.changes}
    try:
        if request.resource_type == TOPIC_RESOURCE:
            for key in sorted(named & wanted.keys() - ALL_TOPIC_KEYS.keys()):
                raise unknown_topic_key(key, wanted[key])
            TopicConfig.validate({key: text for key, text in wanted.items() if key in ALL_TOPIC_KEYS})
        elif request.resource_type == BROKER_RESOURCE:
            changed = {key: text for key, text in wanted.items() if own.get(key) != text}
            on_listener = {key for key in changed.keys() | own.keys() if config.is_set_on_listener(key)}
            if on_listener and not request.name:
                level = "Cannot update these configs at default cluster level, broker id must be specified"
                raise ConfigError(min(on_listener), None, f"{level}: Set({', '.join(sorted(on_listener))})")
            config.check_dynamic(
                {key: changed[key] for key in changed if key not in on_listener}, for_all=not request.name
            )
            config.check_against_log_dirs(changed)
            # A file may have other contents by now, so that even an equal value is checked, as in Kafka.
            if check_listeners is not None and (on_listener or any(map(config.is_set_on_listener, named))):
                check_listeners(config.overrides_in(wanted))
        elif request.resource_type == GROUP_RESOURCE:
            GroupConfig.validate(
                {key: wanted[key] for key in wanted if key in named or key in GroupConfig.by_key}, config
            )
        else:
            ClientMetricsConfig.validate(wanted)
            for expression in ClientMetricsConfig.expressions(wanted):
                _check_expression(expression)
    except OutOfPlace as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, error.for_client()) from error
    except ConfigError as error:
        message = error.for_client() + _instead(request.resource_type, error.key, wanted)
        raise KafkaError(_CODES[request.resource_type], message) from error


def unknown_topic_key(key: str, value: str | None) -> KafkaError:
    """The refusal of a key that topics do not have, with the key that was probably meant."""
    from ottla.config.meant import instead_on_topic  # for a mistake only

    return KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {key}{instead_on_topic(key, value)}")


def _instead(resource_type: int, key: str, wanted: Mapping[str, str]) -> str:
    """A hint at the key to use in place of one that this resource does not have, or cannot change."""
    from ottla.config import meant

    if resource_type == BROKER_RESOURCE and not (key in ALL_BROKER_KEYS and ALL_BROKER_KEYS[key].is_dynamic):
        return meant.instead_on_broker(key, wanted.get(key))
    if resource_type == GROUP_RESOURCE and key not in GroupConfig.by_key:
        return meant.instead_on_group(key, wanted.get(key))
    return ""


def _check_expression(expression: str) -> None:
    """Refuse a pattern that cannot be compiled, as Kafka does."""
    from ottla.broker.runtime.regular_expressions import (
        compile_expression,
    )  # imports RE2, for which no start should wait

    try:
        compile_expression(expression)
    except KafkaError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {expression}") from error


def _records(request: ConfigRequest, own: Mapping[str, str], wanted: Mapping[str, str]) -> list[MetadataRecord]:
    changes: dict[str, str | None] = {key: text for key, text in wanted.items() if own.get(key) != text}
    changes |= dict.fromkeys(own.keys() - wanted.keys())
    return [
        ConfigRecord(resource_type=request.resource_type, resource_name=request.name, name=key, value=changes[key])
        for key in sorted(changes)
    ]
