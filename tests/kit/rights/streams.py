"""Scenes of the rights of streams groups, which Apache Kafka 4.1.0 was not asked: it serves none by default.

`sst` is a streams group with the member `m`, which reads `mine` and needs a changelog topic that is not there.
"""

from __future__ import annotations

from kit.rights.scene import Ask, Json, scene

CHANGELOG = {"name": "sst-log-changelog", "partitions": 0, "replicationFactor": 1, "topicConfigs": []}
SUBTOPOLOGY = {
    "subtopologyId": "0",
    "sourceTopics": ["mine"],
    "sourceTopicRegex": [],
    "stateChangelogTopics": [CHANGELOG],
    "repartitionSinkTopics": [],
    "repartitionSourceTopics": [],
    "copartitionGroups": [],
}
MEMBER = {"groupId": "sst", "memberEpoch": 0, "rebalanceTimeoutMs": 1000, "processId": "p"}
TOPOLOGY = {"epoch": 0, "subtopologies": [SUBTOPOLOGY]}
JOINS = {**MEMBER, "topology": TOPOLOGY, "activeTasks": [], "standbyTasks": [], "warmupTasks": []}
JOINED = Ask("STREAMS_GROUP_HEARTBEAT", 1, {**JOINS, "memberId": "m"})
DESCRIPTION: Json = {"subtopologies": [], "globalStores": []}

SCENES = [
    scene("STREAMS_GROUP_HEARTBEAT", 1, {**JOINS, "memberId": "m-{s}"}),
    scene("STREAMS_GROUP_DESCRIBE", 1, {"groupIds": ["sst", "nobody"]}, before=(JOINED,)),
    scene(
        "STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE",
        0,
        {"groupId": "sst", "memberId": "m", "topologyEpoch": 0, "topologyDescription": DESCRIPTION},
        before=(JOINED,),
    ),
]
