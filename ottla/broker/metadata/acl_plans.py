"""Plans that create and delete ACLs.

Pure functions of the image. Rules and messages follow Kafka 4.4 (`AclControlManager`, `AclApis`). The creation of an
existing ACL succeeds, without a record.

Differences: the number of ACLs is bounded (`ottla.acls.max`), and so are the lengths of their texts and the deletions
of one request. An unknown number gets INVALID_REQUEST, where Kafka closes the connection for 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from ottla.broker.metadata.acls import Acl, AclFilter, acl_record
from ottla.broker.metadata.metadata_version import (
    FIRST_METADATA_VERSION_WITH_CIDR,
    METADATA_VERSION,
    METADATA_VERSION_FEATURE,
)
from ottla.protocol.acls import CLUSTER_NAME, AclOperation, PatternType, PermissionType, ResourceType, parse_range
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.metadata import RemoveAccessControlEntryRecord

if TYPE_CHECKING:
    from ottla.broker.metadata.image import MetadataImage
    from ottla.protocol.stored.metadata import MetadataRecord

MAX_TEXT_BYTES: Final = 1_000
"""The longest resource name, principal or host: topic names have up to 249, certificate subjects some hundred bytes."""
MAX_WIDE_FILTERS: Final = 20
"""The most filters in one request that do not name one resource: each is compared with every ACL."""
MAX_MATCHES: Final = 40_000
"""The most ACLs in the answer to one deletion; an ACL counts for each filter that finds it."""


class AclResult(NamedTuple):
    """The result of the creation or deletion at the same index; `deleted` are the ACLs that its filter found."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    deleted: Sequence[Acl] = ()


class AclPlan(NamedTuple):
    """Results in the order of the requests, and the records of those that pass."""

    results: list[AclResult]
    records: list[MetadataRecord]


def plan_creation(image: MetadataImage, acls: Sequence[Acl], *, most: int, new_id: Callable[[], UUID]) -> AclPlan:
    """Create ACLs, each independently, up to `most` in all."""
    plan = AclPlan([], [])
    new: set[Acl] = set()
    for acl in acls:
        try:
            _check(acl, image)
            if acl not in image.acl_ids and acl not in new:
                if len(image.acls) + len(new) >= most:
                    raise KafkaError(ErrorCode.POLICY_VIOLATION, f"there are {most} ACLs (ottla.acls.max); delete some")
                new.add(acl)
                plan.records.append(acl_record(new_id(), acl))
        except KafkaError as error:
            plan.results.append(AclResult(error.code, error.message))
        else:
            plan.results.append(AclResult())
    return plan


def plan_deletion(image: MetadataImage, filters: Sequence[AclFilter]) -> AclPlan:
    """Delete the ACLs that the filters match. Raises KafkaError if these are too many: then nothing is deleted."""
    if sum(not one.names_one_pattern for one in filters) > MAX_WIDE_FILTERS:
        raise _invalid(f"more than {MAX_WIDE_FILTERS} filters in one request do not name one resource")
    plan = AclPlan([], [])
    by_name = _by_name(image.acls.values()) if len(filters) > 1 else {}
    removed: set[Acl] = set()
    matches = 0
    for one in filters:
        problem = _problem_of(one)
        if problem is not None:
            plan.results.append(AclResult(ErrorCode.INVALID_REQUEST, problem))
            continue
        is_indexed = by_name and one.names_one_pattern
        candidates = by_name.get(one.resource_name or "", ()) if is_indexed else image.acls.values()
        found = list(dict.fromkeys(filter(one.matches, candidates)))
        matches += len(found)
        if matches > MAX_MATCHES:
            raise _invalid(f"the filters match more than {MAX_MATCHES} ACLs; delete them in several requests")
        plan.results.append(AclResult(deleted=found))
        removed.update(found)
    gone = (acl_id for acl_id, acl in image.acls.items() if acl in removed)
    plan.records.extend(RemoveAccessControlEntryRecord(id=acl_id) for acl_id in gone)
    return plan


def _by_name(acls: Iterable[Acl]) -> dict[str, list[Acl]]:
    named: dict[str, list[Acl]] = {}
    for acl in acls:
        named.setdefault(acl.resource_name, []).append(acl)
    return named


def _check(acl: Acl, image: MetadataImage) -> None:
    """Raise KafkaError for an invalid ACL, with Kafka's messages."""
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        raise _invalid("Invalid empty resource name")
    if not ResourceType.TOPIC <= acl.resource_type <= ResourceType.USER:
        raise _invalid(f"Invalid resourceType {_named(ResourceType, acl.resource_type)}")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {_named(PatternType, acl.pattern_type)}")
    if not AclOperation.ALL <= acl.operation <= AclOperation.TWO_PHASE_COMMIT:
        raise _invalid(f"Invalid operation {_named(AclOperation, acl.operation)}")
    if acl.permission_type not in (PermissionType.DENY, PermissionType.ALLOW):
        raise _invalid(f"Invalid permissionType {_named(PermissionType, acl.permission_type)}")
    if ":" not in acl.principal:
        raise _invalid(
            f"Could not parse principal from `{acl.principal[:80]}` (no colon is present separating the principal type"
            " from the principal name)"
        )
    for what, text in (("resource name", acl.resource_name), ("principal", acl.principal), ("host", acl.host)):
        if len(text) > MAX_TEXT_BYTES or len(text.encode(errors="surrogatepass")) > MAX_TEXT_BYTES:
            raise _invalid(f"the {what} {text[:80]}... has more than {MAX_TEXT_BYTES} bytes")
    _check_host(acl.host, image.features.get(METADATA_VERSION_FEATURE, METADATA_VERSION))


def _check_host(host: str, metadata_version: int) -> None:
    """An address, a name, `*`, or a range of addresses."""
    if not host:
        raise _invalid("Host pattern cannot be null or empty")
    if "/" not in host:
        return
    if metadata_version < FIRST_METADATA_VERSION_WITH_CIDR:
        message = "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
    try:
        parse_range(host)
    except ValueError as error:
        raise _invalid(f"Invalid CIDR notation '{host[:80]}': {error}") from error


def _problem_of(one: AclFilter) -> str | None:
    if not (
        ResourceType.ANY <= one.resource_type <= ResourceType.USER
        and PatternType.ANY <= one.pattern_type <= PatternType.PREFIXED
    ):
        return "Unknown patternFilter."
    if not (
        AclOperation.ANY <= one.operation <= AclOperation.TWO_PHASE_COMMIT
        and PermissionType.ANY <= one.permission_type <= PermissionType.ALLOW
    ):
        return "Unknown entryFilter."
    return None


def _named(numbers: type[ResourceType | PatternType | AclOperation | PermissionType], number: int) -> str:
    """Kafka's name of a number; UNKNOWN for unknown numbers."""
    return next((one.name for one in numbers if one == number), "UNKNOWN")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
