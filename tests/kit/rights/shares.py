"""Scenes of the rights of share groups, which Apache Kafka 4.1.0 was not asked: it serves none by default.

`sg` is a share group whose member `m` subscribes to `mine`.
"""

from __future__ import annotations

from kit.rights.scene import Ask, scene

MEMBER = {"groupId": "sg", "memberId": "m"}
JOINED = Ask("SHARE_GROUP_HEARTBEAT", 1, {**MEMBER, "memberEpoch": 0, "subscribedTopicNames": ["mine"]})
LEFT = Ask("SHARE_GROUP_HEARTBEAT", 1, {**MEMBER, "memberEpoch": -1})
TOPIC = [{"topicId": "@id(mine)", "partitions": [{"partitionIndex": 0, "acknowledgementBatches": []}]}]
FIRST = {"firstOffset": 0, "lastOffset": 0, "acknowledgeTypes": [1]}
ACCEPTED = [{"topicId": "@id(mine)", "partitions": [{"partitionIndex": 0, "acknowledgementBatches": [FIRST]}]}]
FETCH = {**MEMBER, "shareSessionEpoch": 0, "minBytes": 1, "maxRecords": 10, "batchSize": 10, "topics": TOPIC}
FETCHED = Ask("SHARE_FETCH", 1, {**FETCH, "maxBytes": 1000})
ALTERED = {"groupId": "sg", "topics": [{"topicName": "mine", "partitions": [{"partitionIndex": 0, "startOffset": 0}]}]}

SCENES = [
    scene(
        "SHARE_GROUP_HEARTBEAT",
        1,
        {"groupId": "sg", "memberId": "m-{s}", "memberEpoch": 0, "subscribedTopicNames": ["mine"]},
    ),
    scene("SHARE_GROUP_DESCRIBE", 1, {"groupIds": ["sg", "nobody"]}, before=(JOINED,)),
    scene("SHARE_FETCH", 1, {**FETCH, "maxBytes": 1000}, before=(JOINED,)),
    scene("SHARE_ACKNOWLEDGE", 1, {**MEMBER, "shareSessionEpoch": 1, "topics": ACCEPTED}, before=(JOINED, FETCHED)),
    scene("DESCRIBE_SHARE_GROUP_OFFSETS", 1, {"groups": [{"groupId": "sg", "topics": None}]}, before=(JOINED,)),
    scene(
        "DESCRIBE_SHARE_GROUP_OFFSETS",
        1,
        {"groups": [{"groupId": "sg", "topics": [{"topicName": "mine", "partitions": [0]}]}]},
        what="topics",
        before=(JOINED,),
    ),
    scene("ALTER_SHARE_GROUP_OFFSETS", 0, ALTERED, before=(JOINED, LEFT)),
    scene(
        "DELETE_SHARE_GROUP_OFFSETS",
        0,
        {"groupId": "sg", "topics": [{"topicName": "mine"}]},
        before=(JOINED, LEFT),
    ),
]
