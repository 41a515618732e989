"""The declared APIs: the ranges that this release is about, and imports that stay cheap."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ottla.protocol.api as declarations
from ottla.protocol.api import REGISTRY, Api, ApiKey
from ottla.protocol.versions import NO_VERSION

RANGES = {
    "Produce": (0, 0, 13, 9),
    "Fetch": (1, 0, 18, 12),
    "ListOffsets": (2, 0, 11, 6),
    "Metadata": (3, 0, 13, 9),
    "OffsetCommit": (8, 0, 10, 8),
    "OffsetFetch": (9, 0, 10, 6),
    "FindCoordinator": (10, 0, 6, 3),
    "JoinGroup": (11, 0, 9, 6),
    "Heartbeat": (12, 0, 4, 4),
    "LeaveGroup": (13, 0, 5, 4),
    "SyncGroup": (14, 0, 5, 4),
    "DescribeGroups": (15, 0, 6, 5),
    "ListGroups": (16, 0, 5, 3),
    "SaslHandshake": (17, 0, 1, 32767),
    "ApiVersions": (18, 0, 5, 3),
    "CreateTopics": (19, 0, 7, 5),
    "DeleteTopics": (20, 0, 6, 4),
    "DeleteRecords": (21, 0, 2, 2),
    "InitProducerId": (22, 0, 5, 2),
    "OffsetForLeaderEpoch": (23, 2, 4, 4),
    "AddPartitionsToTxn": (24, 0, 5, 3),
    "AddOffsetsToTxn": (25, 0, 4, 3),
    "EndTxn": (26, 0, 5, 3),
    "WriteTxnMarkers": (27, 1, 2, 1),
    "TxnOffsetCommit": (28, 0, 6, 3),
    "DescribeAcls": (29, 0, 3, 2),
    "CreateAcls": (30, 0, 3, 2),
    "DeleteAcls": (31, 0, 3, 2),
    "DescribeConfigs": (32, 0, 4, 4),
    "AlterConfigs": (33, 0, 2, 2),
    "AlterReplicaLogDirs": (34, 1, 2, 2),
    "DescribeLogDirs": (35, 0, 5, 2),
    "SaslAuthenticate": (36, 0, 2, 2),
    "CreateDelegationToken": (38, 1, 3, 2),
    "RenewDelegationToken": (39, 1, 2, 2),
    "ExpireDelegationToken": (40, 1, 2, 2),
    "DescribeDelegationToken": (41, 1, 3, 2),
    "CreatePartitions": (37, 0, 3, 2),
    "DeleteGroups": (42, 0, 3, 2),
    "ElectLeaders": (43, 0, 2, 2),
    "IncrementalAlterConfigs": (44, 0, 1, 1),
    "AlterPartitionReassignments": (45, 0, 1, 0),
    "ListPartitionReassignments": (46, 0, 0, 0),
    "OffsetDelete": (47, 0, 0, 32767),
    "DescribeClientQuotas": (48, 0, 1, 1),
    "AlterClientQuotas": (49, 0, 1, 1),
    "DescribeUserScramCredentials": (50, 0, 0, 0),
    "AlterUserScramCredentials": (51, 0, 0, 0),
    "DescribeQuorum": (55, 0, 2, 0),
    "UpdateFeatures": (57, 0, 2, 0),
    "DescribeCluster": (60, 0, 2, 0),
    "DescribeProducers": (61, 0, 0, 0),
    "UnregisterBroker": (64, 0, 0, 0),
    "DescribeTransactions": (65, 0, 0, 0),
    "ListTransactions": (66, 0, 2, 0),
    "ConsumerGroupHeartbeat": (68, 0, 1, 0),
    "ConsumerGroupDescribe": (69, 0, 1, 0),
    "ListConfigResources": (74, 0, 1, 0),
    "DescribeTopicPartitions": (75, 0, 0, 0),
    "ShareGroupHeartbeat": (76, 1, 1, 0),
    "ShareGroupDescribe": (77, 1, 1, 0),
    "ShareFetch": (78, 1, 2, 0),
    "ShareAcknowledge": (79, 1, 2, 0),
    "StreamsGroupHeartbeat": (88, 0, 1, 0),
    "StreamsGroupDescribe": (89, 0, 1, 0),
    "DescribeShareGroupOffsets": (90, 0, 1, 0),
    "AlterShareGroupOffsets": (91, 0, 0, 0),
    "DeleteShareGroupOffsets": (92, 0, 0, 0),
    "StreamsGroupTopologyDescriptionUpdate": (93, 0, 0, 0),
}


def test_versions_are_those_of_kafka_4_4_and_older_ones() -> None:
    declared = {
        api.name: (int(api.key), api.min_version, api.max_version, api.flexible_from) for api in REGISTRY.values()
    }
    assert declared == RANGES


def test_every_key_has_its_api() -> None:
    assert set(REGISTRY) == set(ApiKey)
    assert all(REGISTRY[key].name.upper() == key.name.replace("_", "") for key in ApiKey)


@pytest.mark.parametrize("key", ApiKey, ids=lambda key: key.name)
def test_the_messages_have_the_versions_that_are_known_without_them(key: ApiKey) -> None:
    api = REGISTRY[key]
    for message in (api.request, api.response):
        assert message.message_versions == (api.min_version, api.max_version)
        assert message.flexible_versions == NO_VERSION or message.flexible_versions.first == api.flexible_from


@pytest.mark.parametrize(("versions", "flexible"), [("0-2", "2+"), ("0-1", "1+"), ("0-1", "none")])
def test_a_module_that_declares_other_versions_is_refused(
    versions: str, flexible: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert declarations.VERSIONS[ApiKey.LIST_CONFIG_RESOURCES] == ("0-1", "0+")
    monkeypatch.setitem(declarations.VERSIONS, ApiKey.LIST_CONFIG_RESOURCES, (versions, flexible))
    api = Api(ApiKey.LIST_CONFIG_RESOURCES, versions, flexible)
    with pytest.raises(TypeError, match="ListConfigResourcesRequest"):
        _ = api.request


def test_the_registry_imports_no_module_of_an_api() -> None:
    program = "import ottla.protocol.headers, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in loaded if name.startswith("ottla.protocol.api.")] == []
    assert "ottla.protocol.api" in loaded


def test_importing_the_declarations_pulls_in_nothing_heavy() -> None:
    program = "import ottla.protocol.api, ottla.protocol.headers, sys; print('\\n'.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    before = subprocess.run([sys.executable, "-c", "import sys; print('\\n'.join(sys.modules))"],
                            capture_output=True, text=True, check=True).stdout.split()  # fmt: skip
    assert not {"asyncio", "uvloop", "inspect", "dataclasses", "json", "logging"} & (set(loaded) - set(before))
