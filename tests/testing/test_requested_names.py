"""The topics and groups that requests name, in every API: each text of a request says which field it is in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.api.fetch import FetchRequest
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest
from ottla.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.api.share_fetch import ShareFetchRequest
from ottla.protocol.message import Request
from ottla.protocol.plan import StructPlan, plan_message
from ottla.testing.requested_names import groups_of, topics_of

TOPIC_ID = UUID(int=7)
SERVICES: Any = SimpleNamespace(
    catalog=SimpleNamespace(topics_by_id={TOPIC_ID: SimpleNamespace(name="by id")}),
    fetch_sessions=SimpleNamespace(find=lambda _: None),
    share_groups=SimpleNamespace(if_made=None),
)


def filled(plan: StructPlan) -> Any:
    """A struct with one element in each list; each text says which field it is."""
    values: dict[str, Any] = {}
    for field in (*plan.fields, *plan.tagged):
        value: Any
        if field.struct is not None:
            value = filled(field.struct)
        elif field.primitive is not None and field.primitive.name in {"String", "NullableString"}:
            value = f"{plan.name.rpartition('.')[2]}.{field.name}"
        elif field.primitive is not None and field.primitive.name == "Uuid":
            value = TOPIC_ID
        elif field.primitive is not None and field.primitive.name in {"Bytes", "NullableBytes", "Records"}:
            value = b""
        else:
            value = 0
        values[field.name] = [value] if field.is_array else value
    return plan.cls(**values)


def request_of(api: int, version: int) -> Request:
    request: Request = filled(plan_message(REGISTRY[api].request, version))
    return request


NEWEST: dict[str, tuple[set[str], set[str]]] = {
    "Produce": ({"by id"}, set()),
    "Fetch": ({"by id"}, set()),
    "ListOffsets": ({"name"}, set()),
    "Metadata": ({"name"}, set()),
    "OffsetCommit": ({"by id"}, {"group_id"}),
    "OffsetFetch": ({"by id"}, {"group_id"}),
    "FindCoordinator": (set(), {"coordinator_keys"}),
    "JoinGroup": (set(), {"group_id"}),
    "Heartbeat": (set(), {"group_id"}),
    "LeaveGroup": (set(), {"group_id"}),
    "SyncGroup": (set(), {"group_id"}),
    "DescribeGroups": (set(), {"groups"}),
    "CreateTopics": ({"name"}, set()),
    "DeleteTopics": ({"name"}, set()),
    "DeleteRecords": ({"name"}, set()),
    "OffsetForLeaderEpoch": ({"topic"}, set()),
    "AddPartitionsToTxn": ({"name"}, set()),
    "AddOffsetsToTxn": (set(), {"group_id"}),
    "WriteTxnMarkers": ({"name"}, set()),
    "TxnOffsetCommit": ({"by id"}, {"group_id"}),
    "AlterReplicaLogDirs": ({"name"}, set()),
    "DescribeLogDirs": ({"topic"}, set()),
    "CreatePartitions": ({"name"}, set()),
    "DeleteGroups": (set(), {"groups_names"}),
    "ElectLeaders": ({"topic"}, set()),
    "AlterPartitionReassignments": ({"name"}, set()),
    "ListPartitionReassignments": ({"name"}, set()),
    "OffsetDelete": ({"name"}, {"group_id"}),
    "DescribeQuorum": ({"topic_name"}, set()),
    "DescribeProducers": ({"name"}, set()),
    "ConsumerGroupHeartbeat": ({"by id", "subscribed_topic_names"}, {"group_id"}),
    "ConsumerGroupDescribe": (set(), {"group_ids"}),
    "DescribeTopicPartitions": ({"name"}, set()),
    "ShareGroupHeartbeat": ({"subscribed_topic_names"}, {"group_id"}),
    "ShareGroupDescribe": (set(), {"group_ids"}),
    "ShareFetch": ({"by id"}, {"group_id"}),
    "ShareAcknowledge": ({"by id"}, {"group_id"}),
    "StreamsGroupHeartbeat": ({"name", "repartition_sink_topics", "source_topics"}, {"group_id"}),
    "StreamsGroupDescribe": (set(), {"group_ids"}),
    "DescribeShareGroupOffsets": ({"topic_name"}, {"group_id"}),
    "AlterShareGroupOffsets": ({"topic_name"}, {"group_id"}),
    "DeleteShareGroupOffsets": ({"topic_name"}, {"group_id"}),
    "StreamsGroupTopologyDescriptionUpdate": ({"source_topics"}, {"group_id"}),
}
"""The fields from which topics and groups come, in the newest version of each API; the others name none."""


def short(names: set[str]) -> set[str]:
    return {name.rpartition(".")[2] for name in names}


@pytest.mark.parametrize("api", sorted(REGISTRY), ids=lambda api: REGISTRY[api].name)
def test_the_names_in_the_newest_version(api: int) -> None:
    request = request_of(api, REGISTRY[api].request.message_versions[1])
    found = short(topics_of(request, SERVICES)), short(groups_of(request))
    assert found == NEWEST.get(REGISTRY[api].name, (set(), set()))


@pytest.mark.parametrize("api", sorted(REGISTRY), ids=lambda api: REGISTRY[api].name)
def test_every_version_names_as_much(api: int) -> None:
    name, (first, last) = REGISTRY[api].name, REGISTRY[api].request.message_versions
    has_topics, has_groups = (bool(names) for names in NEWEST.get(name, (set(), set())))
    for version in range(first, last + 1):
        request = request_of(api, version)
        assert bool(topics_of(request, SERVICES)) == has_topics, version
        assert bool(groups_of(request)) == has_groups, version


def test_resources_name_topics_and_groups() -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    resources = [resource(resource_type=kind, resource_name=f"of type {kind}", configs=[]) for kind in (2, 3, 4, 32)]
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=False)
    assert topics_of(request, SERVICES) == {"of type 2"}
    assert groups_of(request) == {"of type 3", "of type 32"}


def test_only_groups_have_group_coordinators() -> None:
    for key_type, names in ((0, {"key", "one"}), (1, set()), (2, set())):
        request = FindCoordinatorRequest(key="key", key_type=key_type, coordinator_keys=["one"])
        assert groups_of(request) == names


def test_a_session_has_its_topics() -> None:
    targets = {
        1: SimpleNamespace(topic="by name"),
        2: SimpleNamespace(topic=TOPIC_ID),
        3: SimpleNamespace(topic=UUID(int=8)),
    }
    sessions = SimpleNamespace(find=lambda number: SimpleNamespace(targets=targets) if number == 5 else None)
    services: Any = SimpleNamespace(catalog=SERVICES.catalog, fetch_sessions=sessions)
    plan = plan_message(FetchRequest, FetchRequest.message_versions[1])
    request = filled(plan).replace(topics=[], session_id=5)
    assert topics_of(request, services) == {"by name", "by id"}
    assert topics_of(request.replace(session_id=6), services) == set()
    assert request.message_key == ApiKey.FETCH


def test_a_share_session_has_its_topics() -> None:
    session = SimpleNamespace(places={(TOPIC_ID, 0): None, (TOPIC_ID, 1): None, (UUID(int=8), 0): None})
    sessions = SimpleNamespace(get=lambda *names: session if names == ("g", "m") else None)
    coordinator = SimpleNamespace(if_made=SimpleNamespace(sessions=sessions))
    services: Any = SimpleNamespace(catalog=SERVICES.catalog, share_groups=coordinator)
    newest = ShareFetchRequest.message_versions[1]
    request = filled(plan_message(ShareFetchRequest, newest)).replace(topics=[], group_id="g", member_id="m")
    assert topics_of(request.replace(share_session_epoch=3), services) == {"by id"}
    assert topics_of(request.replace(share_session_epoch=0), services) == set()  # it names all
    assert topics_of(request.replace(share_session_epoch=3, member_id="other"), services) == set()
