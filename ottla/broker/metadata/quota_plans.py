"""Plans of client quota changes, and the filter that finds quotas. `security/quotas` enforces them.

Pure functions of the image. Rules and messages follow Kafka 4.1 (`ClientQuotaControlManager`, `ClientQuotasImage`), as
observed with a running broker. An entity is a user, a client id, both together, or an address (`ip`); a name of None is
the default of its type.

Differences: the address is not looked up in the DNS; the number of entities with quotas is bounded.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.metadata.change_requests import QuotaRequest, QuotaResult
from ottla.broker.metadata.image import QuotaEntity
from ottla.broker.metadata.image_records import quota_record
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.metadata.image import MetadataImage
    from ottla.protocol.stored.metadata import MetadataRecord

MAX_QUOTA_ENTITIES = 10_000
"""The most entities with quotas: clients name them freely."""
USER, CLIENT_ID, IP = "user", "client-id", "ip"
EXACT, DEFAULT, SPECIFIED = range(3)
"""How a component of a filter matches (Kafka's DescribeClientQuotasRequest.MATCH_TYPE_*)."""

_INT_MAX, _LONG_MAX = (1 << 31) - 1, (1 << 63) - 1
_CLIENT_KEYS: Mapping[str, int | None] = {
    "producer_byte_rate": _LONG_MAX,
    "consumer_byte_rate": _LONG_MAX,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
_IP_KEYS: Mapping[str, int | None] = {"connection_creation_rate": _INT_MAX}
"""The quotas, each with its largest value if it must be an integer (Kafka's QuotaConfig)."""


class QuotaPlan(NamedTuple):
    """Results in the order of the requests, the records of those that pass, and the entities that these change."""

    results: list[QuotaResult]
    records: list[MetadataRecord]
    changed: list[QuotaEntity]


def plan_quotas(image: MetadataImage, requests: Sequence[QuotaRequest], *, validate_only: bool) -> QuotaPlan:
    """Set and remove quotas. An entity or a key that is named twice is refused."""
    plan = QuotaPlan([], [], [])
    entities = [tuple(sorted(dict(request.entity).items())) for request in requests]
    times = Counter(entities)
    new_entities = 0
    for entity, request in zip(entities, requests, strict=True):
        try:
            if times[entity] > 1 or len({key for key, _ in request.changes}) < len(request.changes):
                raise _invalid(f"Ignoring duplicate entity {_shown(entity)}")
            keys = _keys_of(entity)
            for key, value in request.changes:
                if value is not None:
                    _check_value(keys, key, value)
            if entity not in image.quotas and any(value is not None for _, value in request.changes):
                new_entities += 1
                if len(image.quotas) + new_entities > MAX_QUOTA_ENTITIES:
                    message = f"{MAX_QUOTA_ENTITIES} entities have quotas already"
                    raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
        except KafkaError as error:
            plan.results.append(QuotaResult(error.code, error.message))
            continue
        plan.results.append(QuotaResult())
        if not validate_only and (records := _records(entity, request, image.quotas.get(entity, {}))):
            plan.records.extend(records)
            plan.changed.append(entity)
    return plan


def quota_filter(
    components: Sequence[tuple[str, int, str | None]], *, is_strict: bool
) -> Callable[[QuotaEntity], bool]:
    """A function that tests whether an entity matches every component (type, how, name) and, if strict, has no other.

    Raises KafkaError for an invalid filter.
    """
    wanted: dict[str, tuple[int, str | None]] = {}
    for entity_type, how, name in components:
        _check_component(entity_type, how, name)
        if entity_type in wanted:
            raise _invalid(f"Entity type {entity_type} cannot appear more than once in the filter.")
        wanted[entity_type] = (how, name)
    if IP in wanted and len(wanted) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId"
            " filter component."
        )
    return lambda entity: _matches(dict(entity), wanted, is_strict)


def _check_component(entity_type: str, how: int, name: str | None) -> None:
    if not entity_type:
        raise _invalid("Invalid empty entity type.")
    if entity_type not in (USER, CLIENT_ID, IP):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {entity_type[:80]}")
    if how not in (EXACT, DEFAULT, SPECIFIED):
        raise _invalid(f"Unknown match type {how}")
    if how == EXACT and name is None:
        raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    if how != EXACT and name is not None:
        kind = "DEFAULT" if how == DEFAULT else "SPECIFIED"
        raise _invalid(f"Request specified MATCH_TYPE_{kind}, but also specified a match string.")


def _matches(entity: Mapping[str, str | None], wanted: Mapping[str, tuple[int, str | None]], is_strict: bool) -> bool:
    """Whether the entity matches. An empty filter matches everything; a strict one nothing."""
    if is_strict and entity.keys() != wanted.keys():
        return False
    for entity_type, (how, name) in wanted.items():
        if entity_type not in entity:
            return False
        if how != SPECIFIED and entity[entity_type] != (name if how == EXACT else None):
            return False
    return True


def _keys_of(entity: QuotaEntity) -> Mapping[str, int | None]:
    """The quotas that such an entity may have. Raises KafkaError for an invalid entity."""
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for entity_type, name in entity:
        if entity_type not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {entity_type[:80]}")
        if name == "":
            raise _invalid(f"Empty {entity_type} not supported")
    parts = dict(entity)
    if IP not in parts:
        return _CLIENT_KEYS
    if len(parts) > 1:
        raise _invalid("Invalid quota entity combination, IP entity should not be combined with User or ClientId")
    address = parts[IP]
    if address is not None:
        import ipaddress  # costs two milliseconds of a start, and is rarely needed

        try:
            ipaddress.ip_address(address)
        except ValueError:
            raise _invalid(f"{address[:80]} is not a valid IP or resolvable host.") from None
    return _IP_KEYS


def _check_value(keys: Mapping[str, int | None], key: str, value: float) -> None:
    if key not in keys:
        raise _invalid(f"Invalid configuration key {key[:80]}")
    largest = keys[key]
    if not math.isfinite(value):
        raise _invalid(f"Quota {key} must be a finite number")
    if value <= 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    if largest is None:
        return
    if value > largest:
        raise _invalid(f"Proposed value for {key} is too large for {'a LONG' if largest == _LONG_MAX else 'an INT'}.")
    if not math.isclose(value, round(value), rel_tol=0, abs_tol=1e-6):
        raise _invalid(f"{key} cannot be a fractional value.")


def _records(entity: QuotaEntity, request: QuotaRequest, present: Mapping[str, float]) -> list[MetadataRecord]:
    return [quota_record(entity, key, value) for key, value in request.changes if present.get(key) != value]


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _shown(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind[:80]}={name[:80] if name is not None else '<default>'}" for kind, name in entity)
