"""DescribeConfigs, DescribeCluster and FindCoordinator as the wire sees them."""

from __future__ import annotations

import pytest
from kit.nodes import ask, start_node

from ottla.broker.catalog.catalog import NewTopic
from ottla.broker.node import Node
from ottla.config.accepted import REMOVED_KEYS
from ottla.config.broker import ALL_BROKER_KEYS
from ottla.config.topic import ALL_TOPIC_KEYS
from ottla.protocol.api.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.errors import ErrorCode

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
TOPIC_SOURCE, STATIC_SOURCE, DEFAULT_SOURCE = 1, 4, 5
LONG = 5


def node_with_topic(**keys: object) -> Node:
    node, _, _ = start_node(**keys)
    node.services.catalog.create_topics([NewTopic("orders", configs=[("retention.ms", "5000")])], lambda _: None)
    node.settle()
    return node


def describe(
    node: Node,
    kind: int,
    name: str,
    keys: list[str] | None = None,
    *,
    version: int = 4,
    synonyms: bool = False,
    documentation: bool = False,
) -> DescribeConfigsResponse.DescribeConfigsResult:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=synonyms, include_documentation=documentation
    )
    response = ask(node, request, version)
    assert isinstance(response, DescribeConfigsResponse)
    (result,) = response.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topic_has_all_its_keys_with_value_source_and_type(version: int) -> None:
    result = describe(node_with_topic(log_segment_bytes=2_000_000), TOPIC, "orders", version=version)
    entries = {entry.name: entry for entry in result.configs}
    assert set(entries) == set(ALL_TOPIC_KEYS) - REMOVED_KEYS
    retention, segment = entries["retention.ms"], entries["segment.bytes"]
    assert (retention.value, retention.config_source) == ("5000", TOPIC_SOURCE)
    assert (segment.value, segment.config_source) == ("2000000", STATIC_SOURCE)
    assert entries["cleanup.policy"].config_source == DEFAULT_SOURCE
    assert {entry.config_type > 0 for entry in entries.values()} == {version >= 3}
    assert retention.config_type == (LONG if version >= 3 else 0)


def test_version_0_says_of_each_key_whether_its_value_is_the_default() -> None:
    result = describe(node_with_topic(log_segment_bytes=2_000_000), TOPIC, "orders", version=0)
    entries = {entry.name: (entry.value, entry.is_default) for entry in result.configs}
    assert entries["retention.ms"] == ("5000", False)
    assert entries["segment.bytes"] == ("2000000", False)
    assert entries["cleanup.policy"] == ("delete", True)


def test_only_the_keys_that_were_asked_for_are_described() -> None:
    node = node_with_topic()
    names = [entry.name for entry in describe(node, TOPIC, "orders", ["segment.ms", "no.such.key"]).configs]
    assert names == ["segment.ms"]


def test_an_empty_list_of_keys_asks_for_all_as_null_does() -> None:
    node = node_with_topic()
    assert describe(node, TOPIC, "orders", []) == describe(node, TOPIC, "orders", None)


def test_synonyms_and_documentation_are_sent_only_when_asked_for() -> None:
    node = node_with_topic(log_retention_hours=24)
    (plain,) = describe(node, TOPIC, "orders", ["retention.ms"]).configs
    (full,) = describe(node, TOPIC, "orders", ["retention.ms"], synonyms=True, documentation=True).configs
    assert (plain.synonyms, plain.documentation) == ([], None)
    assert full.synonyms[0].name == "retention.ms"
    assert full.synonyms[0].source == TOPIC_SOURCE
    assert "log.retention.hours" in [synonym.name for synonym in full.synonyms]
    assert full.documentation


def test_this_broker_has_all_its_keys() -> None:
    result = describe(node_with_topic(num_partitions=7), BROKER, "1")
    entries = {entry.name: entry for entry in result.configs}
    assert set(entries) == set(ALL_BROKER_KEYS) - REMOVED_KEYS
    assert (entries["num.partitions"].value, entries["num.partitions"].config_source) == ("7", STATIC_SOURCE)
    assert entries["node.id"].read_only is True


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "2", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_described_says_why(kind: int, name: str, code: ErrorCode) -> None:
    result = describe(node_with_topic(), kind, name)
    assert (result.error_code, result.configs) == (code, [])
    assert result.error_message


def test_what_is_not_set_for_all_brokers_is_not_described() -> None:
    result = describe(node_with_topic(), BROKER, "")
    assert (result.error_code, result.configs) == (ErrorCode.NONE, [])


def test_loggers_have_levels() -> None:
    levels = {entry.name: entry.value for entry in describe(node_with_topic(), BROKER_LOGGER, "1").configs}
    assert levels["root"] in ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF")
    assert "ottla.dispatch" in levels


# --- DescribeCluster


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_this_broker(version: int) -> None:
    node, _, _ = start_node(broker_rack="r1")
    response = ask(node, DescribeClusterRequest(include_cluster_authorized_operations=False), version)
    assert isinstance(response, DescribeClusterResponse)
    (broker,) = response.brokers
    assert (broker.broker_id, broker.host, broker.port, broker.rack) == (1, "127.0.0.1", 9092, "r1")
    assert (response.cluster_id, response.controller_id) == (node.services.catalog.cluster_id, 1)
    assert response.cluster_authorized_operations == -(1 << 31)


def test_the_clusters_operations_are_sent_when_asked_for() -> None:
    node, _, _ = start_node()
    response = ask(node, DescribeClusterRequest(include_cluster_authorized_operations=True), 0)
    assert isinstance(response, DescribeClusterResponse)
    assert response.cluster_authorized_operations > 0


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_other_endpoints_than_brokers_are_refused(endpoint_type: int, code: ErrorCode) -> None:
    node, _, _ = start_node()
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=endpoint_type)
    response = ask(node, request, 1)
    assert isinstance(response, DescribeClusterResponse)
    assert (response.error_code, response.endpoint_type, response.brokers) == (code, 1, [])


# --- FindCoordinator


@pytest.mark.parametrize("version", range(4))
def test_the_coordinator_of_a_group_is_this_broker(version: int) -> None:
    node, _, _ = start_node()
    response = ask(node, FindCoordinatorRequest(key="g"), version)
    assert isinstance(response, FindCoordinatorResponse)
    assert (response.error_code, response.node_id, response.host, response.port) == (0, 1, "127.0.0.1", 9092)


@pytest.mark.parametrize("version", [4, 5, 6])
@pytest.mark.parametrize("key_type", [0, 1])
def test_coordinators_of_many_keys_are_found_in_one_answer(version: int, key_type: int) -> None:
    node, _, _ = start_node()
    response = ask(node, FindCoordinatorRequest(key_type=key_type, coordinator_keys=["a", "b"]), version)
    assert isinstance(response, FindCoordinatorResponse)
    assert [(one.key, one.node_id, one.error_code) for one in response.coordinators] == [("a", 1, 0), ("b", 1, 0)]


@pytest.mark.parametrize(("key_type", "key"), [(2, "share"), (9, "x"), (1, "")])
def test_coordinators_that_do_not_exist_are_an_invalid_request(key_type: int, key: str) -> None:
    node, _, _ = start_node()
    batched = ask(node, FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 6)
    single = ask(node, FindCoordinatorRequest(key_type=key_type, key=key), 3)
    assert isinstance(batched, FindCoordinatorResponse)
    assert isinstance(single, FindCoordinatorResponse)
    (refused,) = batched.coordinators
    assert (refused.error_code, refused.node_id) == (ErrorCode.INVALID_REQUEST, -1)
    assert single.error_code == ErrorCode.INVALID_REQUEST
