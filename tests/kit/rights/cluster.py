"""Scenes of the matrix of rights: requests about the cluster, configurations, quotas, ACLs and replicas."""

from __future__ import annotations

from kit.rights.scene import Ask, Json, scene
from kit.rights.topics import NAMES, each

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
RESOURCES = [
    (TOPIC, "mine"),
    (TOPIC, "other"),
    (TOPIC, "missing"),
    (BROKER, "1"),
    (BROKER, ""),
    (GROUP, "g"),
    (METRICS, "m"),
]
EACH_KIND = {
    "cluster": ("{} cluster",),
    "group": ("{} group g",),
    "all": ("{} cluster", "{} group g", "{} topic mine"),
    "denied-in-cluster": ("{} topic mine", "{} cluster", "deny {} cluster"),
}
AN_ACL = {
    "resourceType": TOPIC,
    "resourceName": "acl-{s}",
    "principal": "User:somebody",
    "host": "*",
    "operation": 3,
    "permissionType": 3,
}
ITS_FILTER = {
    "patternTypeFilter": 3,
    "resourceTypeFilter": TOPIC,
    "resourceNameFilter": "acl-{s}",
    "principalFilter": "User:somebody",
    "hostFilter": None,
    "operation": 1,
    "permissionType": 1,
}


def _of_each_kind(operation: str) -> dict[str, tuple[str, ...]]:
    return {name: tuple(line.format(operation) for line in lines) for name, lines in EACH_KIND.items()}


def _resources(**configs: object) -> list[Json]:
    return [{"resourceType": kind, "resourceName": name, **configs} for kind, name in RESOURCES]


CREATING = Ask("CREATE_ACLS", 3, {"creations": [{**AN_ACL, "resourcePatternType": 3}]})
RETENTION = [{"name": "retention.ms", "value": "1000000"}]

SCENES = [
    scene("API_VERSIONS", 4, {"clientSoftwareName": "wire", "clientSoftwareVersion": "1"}),
    scene(
        "DESCRIBE_CLUSTER",
        1,
        {"includeClusterAuthorizedOperations": True, "endpointType": 1},
        "DESCRIBE cluster",
        also={"more": ("ALTER cluster", "CREATE cluster", "CLUSTER_ACTION cluster"), "other": ("CREATE cluster",)},
    ),
    scene("DESCRIBE_CLUSTER", 0, {}, "DESCRIBE cluster", what="without operations"),
    scene("DESCRIBE_CLUSTER", 2, {"endpointType": 1, "includeFencedBrokers": True}, "DESCRIBE cluster", what="fenced"),
    scene(
        "DESCRIBE_CONFIGS",
        4,
        {"resources": _resources(configurationKeys=["retention.ms"])},
        "DESCRIBE_CONFIGS topic mine",
        also=_of_each_kind("DESCRIBE_CONFIGS"),
    ),
    scene(
        "DESCRIBE_CONFIGS",
        4,
        {"resources": [{"resourceType": LOGGER, "resourceName": "1", "configurationKeys": None}]},
        "DESCRIBE_CONFIGS cluster",
        what="of loggers",
        also={"alter": ("ALTER_CONFIGS cluster",)},
    ),
    scene(
        "ALTER_CONFIGS",
        2,
        {
            "resources": [
                {"resourceType": kind, "resourceName": name, "configs": []}
                for kind, name in ((BROKER, "1"), (BROKER, ""), (GROUP, "g"), (METRICS, "m"))
            ],
            "validateOnly": True,
        },
        "ALTER_CONFIGS cluster",
        what="others",
        also={"group": ("ALTER_CONFIGS group g",), "alter": ("ALTER cluster",)},
    ),
    scene(
        "ALTER_CONFIGS",
        2,
        {
            "resources": [{"resourceType": TOPIC, "resourceName": name, "configs": RETENTION} for name in NAMES],
            "validateOnly": True,
        },
        "ALTER_CONFIGS topic mine",
        what="topics",
        also={"alter": ("ALTER topic mine",), "cluster": ("ALTER_CONFIGS cluster",)},
    ),
    scene(
        "INCREMENTAL_ALTER_CONFIGS",
        1,
        {"resources": _resources(configs=[]), "validateOnly": True},
        "ALTER_CONFIGS topic mine",
        also=_of_each_kind("ALTER_CONFIGS"),
    ),
    scene(
        "INCREMENTAL_ALTER_CONFIGS",
        1,
        {
            "resources": [
                {
                    "resourceType": LOGGER,
                    "resourceName": "1",
                    "configs": [{"name": "root", "configOperation": 0, "value": "INFO"}],
                }
            ],
            "validateOnly": True,
        },
        "ALTER_CONFIGS cluster",
        what="of loggers",
        also={"alter": ("ALTER cluster",)},
    ),
    *(
        scene(
            "LIST_CONFIG_RESOURCES",
            version,
            fields,
            "DESCRIBE_CONFIGS cluster",
            also={"topic": ("DESCRIBE_CONFIGS topic mine",)},
        )
        for version, fields in ((0, {}), (1, {"resourceTypes": [GROUP, METRICS]}))
    ),
    *(
        scene(
            "DESCRIBE_ACLS",
            version,
            ITS_FILTER,
            "DESCRIBE cluster",
            before=(CREATING,),
            also={"alter": ("ALTER cluster",)},
        )
        for version in (1, 3)
    ),
    scene("CREATE_ACLS", 3, {"creations": [{**AN_ACL, "resourcePatternType": 3}]}, "ALTER cluster"),
    scene("DELETE_ACLS", 3, {"filters": [ITS_FILTER]}, "ALTER cluster", before=(CREATING,)),
    scene(
        "DESCRIBE_ACLS",
        3,
        {**ITS_FILTER, "resourceTypeFilter": 1, "resourceNameFilter": None, "principalFilter": "User:of-no-acl"},
        "DESCRIBE cluster",
        what="of somebody without any",
        also={"everything": ("ALL cluster",), "denied-everything": ("DESCRIBE cluster", "deny ALL cluster")},
    ),
    scene("DESCRIBE_CLIENT_QUOTAS", 1, {"strict": False}, "DESCRIBE_CONFIGS cluster"),
    scene(
        "ALTER_CLIENT_QUOTAS",
        1,
        {
            "entries": [
                {
                    "entity": [{"entityType": "client-id", "entityName": "somebody"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}],
                }
            ],
            "validateOnly": True,
        },
        "ALTER_CONFIGS cluster",
    ),
    scene(
        "ALTER_REPLICA_LOG_DIRS",
        2,
        {"dirs": [{"path": "/no-such", "topics": each("name", ("mine", "missing"), partitions=[0])}]},
        "ALTER cluster",
    ),
    scene("DESCRIBE_LOG_DIRS", 1, {"topics": each("topic", ("mine",), partitions=[0])}, "DESCRIBE cluster"),
    scene("DESCRIBE_LOG_DIRS", 4, {"topics": each("topic", ("mine",), partitions=[0])}, "DESCRIBE cluster"),
    scene(
        "ELECT_LEADERS",
        2,
        {"topicPartitions": each("topic", ("mine", "missing"), partitions=[0]), "timeoutMs": 5000},
        "ALTER cluster",
        also={"action": ("CLUSTER_ACTION cluster",)},
    ),
    scene("ELECT_LEADERS", 2, {"topicPartitions": None, "timeoutMs": 5000}, "ALTER cluster", what="all"),
    scene(
        "ALTER_PARTITION_REASSIGNMENTS",
        1,
        {
            "timeoutMs": 5000,
            "allowReplicationFactorChange": True,
            "topics": each("name", ("mine",), partitions=[{"partitionIndex": 0, "replicas": None}]),
        },
        "ALTER cluster",
    ),
    scene(
        "ALTER_PARTITION_REASSIGNMENTS",
        0,
        {
            "timeoutMs": 5000,
            "topics": each("name", ("mine", "missing"), partitions=[{"partitionIndex": 0, "replicas": [1]}]),
        },
        "ALTER cluster",
    ),
    scene(
        "LIST_PARTITION_REASSIGNMENTS",
        0,
        {"timeoutMs": 5000, "topics": each("name", ("mine",), partitionIndexes=[0])},
        "DESCRIBE cluster",
    ),
    scene("LIST_PARTITION_REASSIGNMENTS", 0, {"timeoutMs": 5000, "topics": None}, "DESCRIBE cluster", what="all"),
    scene(
        "DESCRIBE_QUORUM",
        2,
        {"topics": [{"topicName": "__cluster_metadata", "partitions": [{"partitionIndex": 0}]}]},
        "DESCRIBE cluster",
    ),
    *(
        scene(
            "UPDATE_FEATURES",
            version,
            {
                "timeoutMs": 5000,
                "featureUpdates": [{"feature": "group.version", "maxVersionLevel": 1, "upgradeType": 1}],
                "validateOnly": True,
            },
            "ALTER cluster",
        )
        for version in (1, 2)
    ),
]
UNREGISTERING = scene("UNREGISTER_BROKER", 0, {"brokerId": 77})
"""Not among the scenes that Apache Kafka was asked: Ottla serves it since it shows the versions of Kafka 4.4."""
