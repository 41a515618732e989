"""Profiles: the versions and features of one release, cut to what exists."""

from __future__ import annotations

import struct

import pytest
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS, infer_broker_version_from_api_versions
from kit.exchange import Exchange
from kit.nodes import start_node

from ottla.broker.api import HANDLERS
from ottla.broker.metadata.metadata_version import METADATA_VERSION
from ottla.broker.node import Node
from ottla.broker.profiles.profiles import DEFAULT, profile_named
from ottla.broker.profiles.releases import API_NAMES, FEATURES, RELEASES
from ottla.broker.requests.gate import advertised_apis
from ottla.config.ours import PROFILE_NAMES
from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.errors import ErrorCode

OF_RELEASES = [name for name in PROFILE_NAMES if name != "default"]
STREAMS_APIS = {
    ApiKey.STREAMS_GROUP_HEARTBEAT,
    ApiKey.STREAMS_GROUP_DESCRIBE,
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
}
ONLY_WITH_ZOOKEEPER = {4, 5, 6, 7, 56, 58, 67}
"""In kafka-python's table of 3.9, which is that of a broker with ZooKeeper."""
NEWER_THAN_KAFKA_PYTHON = "4.4"
NEWEST_OF_KAFKA_PYTHON = max(BROKER_API_VERSIONS)


def node_of(profile: str) -> Node:
    node, _, _ = start_node(ottla_profile=profile)
    return node


def versions(node: Node, version: int = 4) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = Exchange(node).ask(request, version)
    assert isinstance(answer, ApiVersionsResponse)
    return answer


@pytest.mark.parametrize("release", [name for name in RELEASES if name != NEWER_THAN_KAFKA_PYTHON])
def test_the_tables_are_those_of_kafka_python(release: str) -> None:
    major, minor = map(int, release.split("."))
    theirs = BROKER_API_VERSIONS[major, minor]
    ours = RELEASES[release]
    both = ours.keys() & theirs.keys()
    assert {key: ours[key] for key in both} == {key: theirs[key] for key in both}
    if release == "3.9":
        assert theirs.keys() - ours.keys() == ONLY_WITH_ZOOKEEPER
    else:
        assert ours.keys() == theirs.keys()


def test_the_tables_name_apis_as_kafka_does() -> None:
    assert {key: API_NAMES[key] for key in REGISTRY} == {key: api.name for key, api in REGISTRY.items()}
    assert RELEASES.keys() == FEATURES.keys() == {name.removeprefix("kafka-") for name in OF_RELEASES}


@pytest.mark.parametrize("name", OF_RELEASES)
def test_a_profile_lists_what_the_release_has_and_we_have(name: str) -> None:
    release = RELEASES[name.removeprefix("kafka-")]
    listed = {api.api_key: (api.min_version, api.max_version) for api in versions(node_of(name), 3).api_keys}
    assert listed.keys() == release.keys() & HANDLERS.keys()
    for key, (first, last) in listed.items():
        api = REGISTRY[key]
        assert last == min(release[key][1], api.max_version)
        assert first == max(release[key][0], api.min_version)


def test_kafka_python_knows_no_release_that_is_newer_than_these_tables() -> None:
    assert tuple(map(int, NEWER_THAN_KAFKA_PYTHON.split("."))) > NEWEST_OF_KAFKA_PYTHON


def test_by_default_the_newest_versions_are_those_of_kafka_4_4_and_the_oldest_ours() -> None:
    for api in advertised_apis():
        declared = REGISTRY[api.key]
        assert api.min_version == declared.min_version
        assert api.max_version == min(RELEASES["4.4"][api.key][1], declared.max_version)


def test_the_profile_of_kafka_4_1_has_share_groups_as_that_release_has_them() -> None:
    listed = {api.key: api.max_version for api in advertised_apis(profile=profile_named("kafka-4.1"))}
    keys = (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
    assert [listed[key] for key in keys] == [1, 1, 0]


@pytest.mark.parametrize("name", PROFILE_NAMES)
def test_only_the_profiles_of_kafka_4_4_have_streams_groups(name: str) -> None:
    node = node_of(name)
    listed = {api.api_key for api in versions(node, 3).api_keys}
    supported, finalized, _ = features(node)
    if name in ("default", "kafka-4.4"):
        assert listed >= STREAMS_APIS
        assert (supported["streams.version"], finalized["streams.version"]) == ((0, 1), 1)
    else:
        assert not listed & STREAMS_APIS
        assert "streams.version" not in supported | finalized


@pytest.mark.parametrize("name", PROFILE_NAMES)
def test_a_client_that_infers_the_release_from_the_versions_finds_it(name: str) -> None:
    listed = {api.api_key: (api.min_version, api.max_version) for api in versions(node_of(name), 3).api_keys}
    release = tuple(int(part) for part in profile_named(name).release.split("."))
    assert infer_broker_version_from_api_versions(listed) == min(release, NEWEST_OF_KAFKA_PYTHON)


@pytest.mark.parametrize("name", OF_RELEASES)
def test_an_api_that_gains_a_handler_appears_by_itself(name: str) -> None:
    profile = profile_named(name)
    only = {ApiKey.FETCH: HANDLERS[ApiKey.FETCH]}
    assert [api.key for api in advertised_apis(only, profile)] == [ApiKey.FETCH]


def test_an_api_that_the_release_does_not_have_is_left_out() -> None:
    api = REGISTRY[ApiKey.DESCRIBE_TOPIC_PARTITIONS]
    assert profile_named("kafka-2.8").served(api) is None
    assert DEFAULT.served(api) == (0, 0)


def closes(node: Node, key: int, version: int) -> bool:
    client = Exchange(node)
    client.send_frame(struct.pack(">hhih", key, version, 1, -1) + bytes(30))
    node.settle()
    return bool(client.transport.closed)


@pytest.mark.parametrize(
    ("name", "key", "version"),
    [
        ("kafka-4.4", 0, 2),
        ("kafka-4.4", 1, 3),
        ("kafka-4.4", 8, 1),
        ("kafka-4.1", 0, 2),
        ("kafka-4.1", 1, 3),
        ("kafka-4.1", 2, 0),
        ("kafka-4.0", 0, 13),
        ("kafka-4.0", 0, 2),
        ("kafka-3.9", 0, 12),
        ("kafka-2.8", 3, 12),
        ("kafka-2.8", 75, 0),
    ],
)
def test_what_is_outside_of_the_profile_closes_the_connection(name: str, key: int, version: int) -> None:
    node = node_of(name)
    assert closes(node, key, version)
    assert versions(node, 0).error_code == 0


def test_api_versions_outside_of_the_profile_gets_unsupported_version() -> None:
    node = node_of("kafka-2.8")
    client = Exchange(node)
    client.send_frame(struct.pack(">hhih", 18, 4, 5, -1) + b"\0\2a\2b\0")
    node.settle()
    correlation_id, code = struct.unpack_from(">ih", client.transport.written, 4)
    assert (correlation_id, code) == (5, ErrorCode.UNSUPPORTED_VERSION)
    assert (18, 0, 3) in {
        struct.unpack_from(">hhh", client.transport.written, 14 + 6 * slot)
        for slot in range(struct.unpack_from(">i", client.transport.written, 10)[0])
    }
    assert not client.transport.closed


@pytest.mark.parametrize("name", ["kafka-4.0", "kafka-4.1", "kafka-4.4"])
def test_kafka_4_lists_the_versions_of_produce_that_it_refuses(name: str) -> None:
    node = node_of(name)
    produce = next(api for api in versions(node, 0).api_keys if api.api_key == 0)
    assert produce.min_version == 0
    assert closes(node, 0, 0)


def features(node: Node) -> tuple[dict[str, tuple[int, int]], dict[str, int], int]:
    answer = versions(node, 4 if node.services.profile.release != "2.8" else 3)
    return (
        {feature.name: (feature.min_version, feature.max_version) for feature in answer.supported_features},
        {feature.name: feature.max_version_level for feature in answer.finalized_features},
        answer.finalized_features_epoch,
    )


def test_kafka_2_8_knows_no_features() -> None:
    assert features(node_of("kafka-2.8")) == ({}, {}, -1)


@pytest.mark.parametrize(
    ("name", "level"), [("kafka-3.9", 21), ("kafka-4.0", 25), ("kafka-4.1", 27), ("kafka-4.4", 33), ("default", 33)]
)
def test_the_metadata_version_is_that_of_the_release(name: str, level: int) -> None:
    supported, finalized, epoch = features(node_of(name))
    assert finalized["metadata.version"] == min(level, METADATA_VERSION)
    assert supported["metadata.version"][1] == level
    assert epoch >= 0
    release = FEATURES[profile_named(name).release]
    assert supported.keys() <= release.keys()
    assert all(supported[feature][1] <= release[feature][1] for feature in supported)


def test_a_feature_that_the_release_lacks_is_neither_supported_nor_finalized() -> None:
    profile = profile_named("kafka-3.9")
    assert profile.supported_features({"group.version": (0, 1), "transaction.version": (0, 2)}) == {}
    levels = {"group.version": 1, "metadata.version": 27, "transaction.version": 2}
    assert profile.finalized_features(7, levels) == (7, {"metadata.version": 21})


@pytest.mark.parametrize("name", PROFILE_NAMES)
def test_the_transaction_version_is_shown_from_kafka_4_on(name: str) -> None:
    supported, finalized, _ = features(node_of(name))
    if name in ("kafka-3.9", "kafka-2.8"):
        assert "transaction.version" not in supported | finalized
    else:
        assert (supported["transaction.version"], finalized["transaction.version"]) == ((0, 2), 2)
