"""Scenes of the matrix of rights: requests of consumers and about groups.

`g` is the group of the user's ACLs: it has committed offsets of `mine` and `other`; so has `h`, which has no ACL.
"""

from __future__ import annotations

from typing import Any

from kit.rights.scene import Ask, Json, Scene, scene
from kit.rights.topics import NAMES, each

GROUPS = ("g", "h", "nobody")
OFFSET = {"partitionIndex": 0, "committedOffset": 0, "committedMetadata": ""}
BOTH = {
    "group-only": ("READ group g",),
    "topic-only": ("READ topic mine",),
    "described-topic": ("READ group g", "DESCRIBE topic mine"),
    "denied-topic": ("READ group g", "READ topic mine", "deny READ topic mine"),
}


def committing(group: str) -> Ask:
    """Offsets of both topics, as of no member."""
    topics = each("name", NAMES[:2], partitions=[OFFSET])
    return Ask("OFFSET_COMMIT", 8, {"groupId": group, "generationIdOrMemberEpoch": -1, "topics": topics})


def joining(group: str, topics: list[str]) -> Ask:
    """A member of a group of the new protocol."""
    return Ask(
        "CONSUMER_GROUP_HEARTBEAT",
        1,
        {
            "groupId": group,
            "memberId": "bWVtYmVyLW9mLXRoZS1ncm91cA",
            "rebalanceTimeoutMs": 600_000,
            "subscribedTopicNames": topics,
            "topicPartitions": [],
        },
    )


def _commit(version: int) -> Scene:
    topics = each("name", partitions=[OFFSET])
    asked = {"groupId": "g", "generationIdOrMemberEpoch": -1, "topics": topics}
    return scene("OFFSET_COMMIT", version, asked, "READ group g", "READ topic mine", also=BOTH)


def _fetched(version: int, what: str, topics: list[Json] | None) -> Scene:
    asked: Json
    if version >= 8:
        asked = {"groups": [{"groupId": group, "topics": topics, "memberEpoch": -1} for group in GROUPS]}
    else:
        asked = {"groupId": "g", "topics": topics}
    also = {
        "group-only": ("DESCRIBE group g",),
        "read": ("READ group g", "READ topic mine"),
        "denied-topic": ("DESCRIBE group g", "DESCRIBE topic mine", "deny DESCRIBE topic mine"),
        "deleter": ("DELETE group g", "READ topic mine"),
    }
    return scene("OFFSET_FETCH", version, asked, "DESCRIBE group g", "DESCRIBE topic mine", what=what, also=also)


def _heartbeat(what: str, *rights: str, **fields: Any) -> Scene:
    asked = {
        "groupId": "new-{s}",
        "memberId": "bWVtYmVyLW9mLXRoZS1uZXc",
        "rebalanceTimeoutMs": 600_000,
        "topicPartitions": [],
        **fields,
    }
    also = {
        "group-only": ("READ group new-{s}",),
        "described-group": ("DESCRIBE group new-{s}", "DESCRIBE topic mine"),
    }
    return scene("CONSUMER_GROUP_HEARTBEAT", 1, asked, *rights, what=what, also=also)


MEMBER = {"groupId": "g", "memberId": "a-stranger", "generationId": 1}

SCENES = [
    # First, while there are no other groups.
    *(
        scene(
            "LIST_GROUPS",
            version,
            {},
            "DESCRIBE group g",
            also={
                "cluster": ("DESCRIBE cluster",),
                "denied-in-cluster": ("DESCRIBE group g", "deny DESCRIBE cluster"),
                "denied-group": ("DESCRIBE cluster", "deny DESCRIBE group g"),
                "reader": ("READ group g",),
            },
        )
        for version in (2, 5)
    ),
    _commit(2),
    _commit(8),
    _commit(9),
    _fetched(1, "topics", each("name", partitionIndexes=[0])),
    _fetched(7, "topics", each("name", partitionIndexes=[0])),
    _fetched(7, "all", None),
    _fetched(8, "topics", each("name", partitionIndexes=[0])),
    _fetched(9, "all", None),
    scene(
        "OFFSET_DELETE",
        0,
        {"groupId": "kept-{s}", "topics": each("name", partitions=[{"partitionIndex": 0}])},
        "DELETE group kept-{s}",
        "READ topic mine",
        before=(committing("kept-{s}"),),
        also={"group-only": ("DELETE group kept-{s}",), "reader": ("READ group kept-{s}", "READ topic mine")},
    ),
    scene("FIND_COORDINATOR", 3, {"key": "g"}, "DESCRIBE group g", what="group", also={"read": ("READ group g",)}),
    scene("FIND_COORDINATOR", 4, {"coordinatorKeys": list(GROUPS)}, "DESCRIBE group g", what="groups"),
    scene("FIND_COORDINATOR", 3, {"key": "tx", "keyType": 1}, "DESCRIBE transactional tx", what="transaction"),
    scene(
        "FIND_COORDINATOR",
        4,
        {"coordinatorKeys": ["tx", "ty"], "keyType": 1},
        "DESCRIBE transactional tx",
        what="transactions",
        also={"write": ("WRITE transactional tx",)},
    ),
    scene("FIND_COORDINATOR", 6, {"coordinatorKeys": ["g:@:0"], "keyType": 2}, "CLUSTER_ACTION cluster", what="share"),
    *(
        scene(
            "JOIN_GROUP",
            version,
            {
                "groupId": "new-{s}",
                "sessionTimeoutMs": 10_000,
                "rebalanceTimeoutMs": 10_000,
                "protocolType": "consumer",
                "protocols": [{"name": "range", "metadata": ""}],
            },
            "READ group new-{s}",
        )
        for version in (5, 9)
    ),
    scene("SYNC_GROUP", 2, {**MEMBER}, "READ group g"),
    scene("SYNC_GROUP", 5, {**MEMBER, "protocolType": "consumer", "protocolName": "range"}, "READ group g"),
    scene("HEARTBEAT", 0, MEMBER, "READ group g"),
    scene("HEARTBEAT", 4, MEMBER, "READ group g"),
    scene("LEAVE_GROUP", 2, {"groupId": "g", "memberId": "a-stranger"}, "READ group g"),
    scene("LEAVE_GROUP", 5, {"groupId": "g", "members": [{"memberId": "a-stranger"}]}, "READ group g"),
    scene(
        "DESCRIBE_GROUPS",
        5,
        {"groups": list(GROUPS), "includeAuthorizedOperations": True},
        "DESCRIBE group g",
        also={"more": ("READ group g", "DELETE group g"), "reader-of-all": ("READ group g", "DESCRIBE cluster")},
    ),
    scene(
        "DESCRIBE_GROUPS",
        5,
        {"groups": ["g", "h"], "includeAuthorizedOperations": True},
        "DESCRIBE group g",
        what="kinds of ACLs",
        also={
            "prefixed": ("READ group prefixed:g",),
            "any": ("DESCRIBE group *",),
            "any-but-one": ("READ group *", "deny READ group g"),
            "everything": ("ALL group g",),
            "from-elsewhere": ("DESCRIBE group g from 192.0.2.1",),
        },
    ),
    scene("DESCRIBE_GROUPS", 6, {"groups": list(GROUPS)}, "DESCRIBE group g"),
    scene(
        "DELETE_GROUPS",
        2,
        {"groupsNames": ["gone-{s}", "h", "nobody"]},
        "DELETE group gone-{s}",
        before=(committing("gone-{s}"),),
    ),
    _heartbeat("names", "READ group new-{s}", "DESCRIBE topic mine", subscribedTopicNames=["mine"]),
    _heartbeat("another name", "READ group new-{s}", "DESCRIBE topic mine", subscribedTopicNames=["mine", "other"]),
    _heartbeat("a missing name", "READ group new-{s}", "DESCRIBE topic mine", subscribedTopicNames=["missing"]),
    _heartbeat(
        "leaving",
        "READ group new-{s}",
        "DESCRIBE topic mine",
        memberEpoch=-1,
        rebalanceTimeoutMs=-1,
        topicPartitions=None,
    ),
    _heartbeat(
        "a wrong regex", "READ group new-{s}", "DESCRIBE topic mine", subscribedTopicNames=[], subscribedTopicRegex="["
    ),
    _heartbeat(
        "a regex", "READ group new-{s}", "DESCRIBE topic mine", subscribedTopicNames=[], subscribedTopicRegex="mi.*"
    ),
    scene(
        "CONSUMER_GROUP_DESCRIBE",
        1,
        {"groupIds": ["members-{s}", "h", "nobody"], "includeAuthorizedOperations": True},
        "DESCRIBE group members-{s}",
        "DESCRIBE topic mine",
        before=(joining("members-{s}", ["mine"]),),
        also={
            "group-only": ("DESCRIBE group members-{s}",),
            "reader": ("READ group members-{s}", "DELETE group members-{s}", "READ topic mine"),
        },
    ),
    scene(
        "CONSUMER_GROUP_DESCRIBE",
        0,
        {"groupIds": ["members-{s}"]},
        "DESCRIBE group members-{s}",
        "DESCRIBE topic mine",
        what="of two topics",
        before=(joining("members-{s}", ["mine", "other"]),),
    ),
]
