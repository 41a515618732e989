"""ACLs in the metadata: what is created, what filters find, and what is deleted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from uuid import UUID

import pytest

from ottla.broker.metadata import acl_plans as module
from ottla.broker.metadata.acl_plans import AclPlan, plan_creation, plan_deletion
from ottla.broker.metadata.acls import Acl, AclFilter, acl_record, find_acls
from ottla.broker.metadata.image import MetadataError, MetadataImage
from ottla.broker.metadata.image_records import records_of
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.metadata import FeatureLevelRecord, RemoveAccessControlEntryRecord

TOPIC, GROUP, CLUSTER = 2, 3, 4
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
READ, WRITE, DENY, ALLOW = 3, 4, 2, 3
READER = Acl(TOPIC, "orders", LITERAL, "User:a", "*", READ, ALLOW)
EVERYTHING = AclFilter(ANY, None, ANY, None, None, ANY, ANY)


def image_with(*acls: Acl) -> MetadataImage:
    image = MetadataImage()
    for number, acl in enumerate(acls):
        image.replay(acl_record(UUID(int=number + 1), acl))
    return image


def create(image: MetadataImage, acls: Sequence[Acl], most: int = 100) -> AclPlan:
    numbers = count(1000)
    return plan_creation(image, acls, most=most, new_id=lambda: UUID(int=next(numbers)))


def test_a_snapshot_has_the_acls_and_removed_ones_are_gone() -> None:
    image = image_with(READER, READER._replace(operation=WRITE))
    again = MetadataImage()
    for record in records_of(image):
        again.replay(record)
    assert again == image
    for acl_id in list(again.acls):
        again.replay(RemoveAccessControlEntryRecord(id=acl_id))
    assert again == MetadataImage()
    with pytest.raises(MetadataError, match="does not exist"):
        again.replay(RemoveAccessControlEntryRecord(id=UUID(int=1)))


def test_one_acl_under_two_ids_is_found_once_and_deleted_twice() -> None:
    image = image_with(READER, READER)
    assert find_acls(image.acls.values(), EVERYTHING) == [READER]
    plan = plan_deletion(image, [EVERYTHING])
    assert plan.results[0].deleted == [READER]
    for record in plan.records:
        image.replay(record)
    assert image == MetadataImage()


def test_an_id_that_comes_again_takes_the_new_acl() -> None:
    image = image_with(READER)
    other = READER._replace(principal="User:b")
    image.replay(acl_record(UUID(int=1), other))
    assert (list(image.acls.values()), list(image.acl_ids)) == ([other], [other])


def test_an_acl_that_is_there_or_twice_in_the_request_is_written_once() -> None:
    other = READER._replace(operation=WRITE)
    plan = create(image_with(READER), [READER, other, other])
    assert [result.error_code for result in plan.results] == [0, 0, 0]
    assert plan.records == [acl_record(UUID(int=1000), other)]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"resource_type": CLUSTER, "resource_name": "x"}, "The only valid name for the CLUSTER resource is kafka-cl"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": 0}, "Invalid resourceType UNKNOWN"),
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_type": 8}, "Invalid resourceType UNKNOWN"),
        ({"resource_type": -1}, "Invalid resourceType UNKNOWN"),
        ({"pattern_type": 1}, "Invalid patternType ANY"),
        ({"pattern_type": 2}, "Invalid patternType MATCH"),
        ({"pattern_type": 5}, "Invalid patternType UNKNOWN"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"operation": 16}, "Invalid operation UNKNOWN"),
        ({"permission_type": 1}, "Invalid permissionType ANY"),
        ({"permission_type": 4}, "Invalid permissionType UNKNOWN"),
        ({"principal": "alice"}, "Could not parse principal from `alice`"),
        ({"principal": "User:" + "ä" * 498}, "has more than 1000 bytes"),
        ({"resource_name": "n" * 1001}, "has more than 1000 bytes"),
        ({"host": "h" * 1001}, "has more than 1000 bytes"),
        ({"host": ""}, "Host pattern cannot be null or empty"),
    ],
)
def test_what_is_no_acl_is_refused_alone_and_by_kafkas_words(changed: dict[str, object], message: str) -> None:
    plan = create(MetadataImage(), [READER._replace(**changed), READER])  # type: ignore[arg-type]  # fields by name
    assert [result.error_code for result in plan.results] == [ErrorCode.INVALID_REQUEST, 0]
    assert message in str(plan.results[0].error_message)
    assert len(plan.records) == 1


def test_a_host_may_be_a_range_of_addresses_from_the_metadata_version_of_kafka_4_4_on() -> None:
    ranges = [READER._replace(host=host) for host in ("10.0.0.0/8", "10.1.2.3/16", "2001:db8::/32", "0.0.0.0/0")]
    wrong = [READER._replace(host=host) for host in ("10.0.0.0/33", "10.0.0.0/x", "10.0.0/8", "/", "1.0.0.0/255.0.0.0")]
    image = MetadataImage()
    for level in (31, 32):
        image.replay(FeatureLevelRecord(name="metadata.version", feature_level=level))
        results = create(image, ranges).results
        assert {result.error_code for result in results} == {ErrorCode.UNSUPPORTED_VERSION if level == 31 else 0}
    for result in create(image, wrong).results:
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert str(result.error_message).startswith("Invalid CIDR notation '")


def test_odd_principals_and_the_longest_texts_are_kept() -> None:
    odd = [READER._replace(principal=one) for one in ("User:", ":", "User:a:b", "User:\n\u202e;", "User:" + "x" * 995)]
    plan = create(MetadataImage(), odd)
    assert [result.error_code for result in plan.results] == [0] * len(odd)


def test_at_most_so_many_acls_can_be_created() -> None:
    image = image_with(READER)
    more = [READER._replace(principal=f"User:{name}") for name in "bcd"]
    plan = create(image, [READER, *more], most=3)
    assert [result.error_code for result in plan.results] == [0, 0, 0, ErrorCode.POLICY_VIOLATION]
    assert "ottla.acls.max" in str(plan.results[3].error_message)
    assert len(plan.records) == 2


ACLS = [
    READER,
    READER._replace(resource_name="*"),
    READER._replace(resource_name="ord", pattern_type=PREFIXED),
    READER._replace(resource_name="orders", pattern_type=PREFIXED, permission_type=DENY),
    READER._replace(resource_name="ordersX", pattern_type=PREFIXED),
    READER._replace(resource_type=GROUP, host="h", principal="User:b", operation=WRITE),
]


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"resource_type": TOPIC}, [0, 1, 2, 3, 4]),
        ({"resource_name": "orders"}, [0, 3, 5]),
        ({"resource_name": "orders", "pattern_type": LITERAL}, [0, 5]),
        ({"resource_name": "orders", "pattern_type": PREFIXED}, [3]),
        ({"resource_name": "orders", "pattern_type": MATCH}, [0, 1, 2, 3, 5]),
        ({"pattern_type": MATCH}, [0, 1, 2, 3, 4, 5]),
        ({"pattern_type": PREFIXED}, [2, 3, 4]),
        ({"resource_name": "*", "pattern_type": LITERAL}, [1]),
        ({"principal": "User:b"}, [5]),
        ({"host": "*"}, [0, 1, 2, 3, 4]),
        ({"operation": READ}, [0, 1, 2, 3, 4]),
        ({"permission_type": DENY}, [3]),
        ({"resource_type": 77}, []),
    ],
)
def test_a_filter_finds_what_kafkas_finds(changed: dict[str, object], found: list[int]) -> None:
    asked = EVERYTHING._replace(**changed)  # type: ignore[arg-type]  # fields by name
    expected = [ACLS[index] for index in found]
    assert find_acls(ACLS, asked) == expected
    if asked.resource_type != 77:
        for filters in ([asked], [asked, EVERYTHING._replace(resource_type=7)]):
            plan = plan_deletion(image_with(*ACLS), filters)
            assert plan.results[0].deleted == expected
            assert [record.id.int - 1 for record in plan.records] == found  # type: ignore[attr-defined]  # removals


@pytest.mark.parametrize("field", ["resource_type", "pattern_type", "operation", "permission_type"])
def test_unknown_numbers_in_filters_are_refused_and_the_others_delete(field: str) -> None:
    unknown = EVERYTHING._replace(**{field: 0})  # type: ignore[arg-type]  # fields by name
    with pytest.raises(KafkaError, match="UNKNOWN"):
        find_acls(ACLS, unknown)
    later = EVERYTHING._replace(**{field: 99})  # type: ignore[arg-type]  # fields by name
    assert find_acls(ACLS, later) == []
    plan = plan_deletion(image_with(*ACLS), [later, unknown, EVERYTHING])
    assert [result.error_code for result in plan.results] == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, 0]
    assert len(plan.records) == len(ACLS)


def test_filters_that_overlap_each_report_and_delete_once() -> None:
    plan = plan_deletion(image_with(*ACLS), [EVERYTHING, EVERYTHING._replace(resource_type=GROUP)])
    assert [len(result.deleted) for result in plan.results] == [6, 1]
    assert len(plan.records) == 6


def test_a_deletion_that_costs_too_much_is_refused_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    image = image_with(*ACLS)
    plan_deletion(image, [EVERYTHING] * module.MAX_WIDE_FILTERS)
    with pytest.raises(KafkaError, match="do not name one resource"):
        plan_deletion(image, [EVERYTHING] * (module.MAX_WIDE_FILTERS + 1))
    monkeypatch.setattr(module, "MAX_MATCHES", 12)
    plan_deletion(image, [EVERYTHING] * 2)
    with pytest.raises(KafkaError, match="match more than 12"):
        plan_deletion(image, [EVERYTHING] * 3)
