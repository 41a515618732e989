"""Scenes of the matrix of rights: requests about topics and their records.

`mine` is the topic of the user's ACLs, `other` one without any, `missing` is not there.
"""

from __future__ import annotations

import base64
from typing import Any

from kit.rights.scene import Ask, Json, Scene, scene

from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record

NAMES = ("mine", "other", "missing")
IDS = ("@id(mine)", "@id(other)", "YWFhYWFhYWFhYWFhYWFhYQ")
"""The last one is of no topic."""
RECORD = Record(0, 1_700_000_000_000, None, b"x")
BATCH = base64.b64encode(encode_batch([RECORD])).decode()
TRANSACTIONAL_BATCH = base64.b64encode(
    encode_batch([RECORD], producer_id=123_456, producer_epoch=0, base_sequence=0, is_transactional=True)
).decode()


def each(key: str, items: tuple[str, ...] = NAMES, **rest: Any) -> list[Json]:
    """One object per topic."""
    return [{key: item, **rest} for item in items]


def creating(*names: str) -> Ask:
    """Topics of one partition."""
    topics = [{"name": name, "numPartitions": 1, "replicationFactor": 1} for name in names]
    return Ask("CREATE_TOPICS", 7, {"topics": topics, "timeoutMs": 10_000})


def _produce(version: int, *rights: str, what: str = "", **fields: Any) -> Scene:
    data = [{"index": 0, "records": TRANSACTIONAL_BATCH if "transactionalId" in fields else BATCH}]
    topics = each("topicId", IDS, partitionData=data) if version >= 13 else each("name", partitionData=data)
    asked = {"acks": -1, "timeoutMs": 5000, "topicData": topics, **fields}
    return scene("PRODUCE", version, asked, *rights, what=what, also={"read": ("READ topic mine",)})


def _to(name: str) -> Json:
    return {"timeoutMs": 5000, "topicData": [{"name": name, "partitionData": [{"index": 0, "records": BATCH}]}]}


def _fetch(version: int, *rights: str, what: str = "", **fields: Any) -> Scene:
    wanted = [{"partition": 0, "partitionMaxBytes": 1000}]
    topics = each("topicId", IDS, partitions=wanted) if version >= 13 else each("topic", partitions=wanted)
    asked = {"maxBytes": 100_000, "topics": topics, **fields}
    return scene("FETCH", version, asked, *rights, what=what, also={"write": ("WRITE topic mine",)})


def _metadata(version: int, *rights: str, what: str, topics: list[Json] | None, also: Any = None, **more: Any) -> Scene:
    return scene("METADATA", version, {"topics": topics, **more}, *rights, what=what, also=also)


def of_each_kind(operation: str) -> dict[str, tuple[str, ...]]:
    """KINDS of this operation."""
    return {name: tuple(line.format(operation) for line in lines) for name, lines in KINDS.items()}


DESCRIBE_BY_OTHERS = {
    "read": ("READ topic mine",),
    "alter-configs": ("ALTER_CONFIGS topic mine",),
    "deny-describe": ("READ topic mine", "deny DESCRIBE topic mine"),
    "deny-read": ("DESCRIBE topic mine", "deny READ topic mine"),
}
"""Which operations mean DESCRIBE, too."""
KINDS = {
    "prefixed": ("{} topic prefixed:mi",),
    "prefixed-whole": ("{} topic prefixed:mine",),
    "prefixed-of-another": ("{} topic prefixed:mines",),
    "denied-prefixed": ("{} topic mine", "deny {} topic prefixed:m"),
    "any": ("{} topic *",),
    "any-but-one": ("{} topic *", "deny {} topic mine"),
    "denied-any": ("{} topic mine", "deny {} topic *"),
    "a-star-is-no-prefix": ("{} topic mi*",),
    "everything": ("ALL topic mine",),
    "everything-denied": ("{} topic mine", "deny ALL topic mine"),
    "described-denied": ("{} topic mine", "deny DESCRIBE topic mine"),
    "from-elsewhere": ("{} topic mine from 192.0.2.1",),
    "denied-from-elsewhere": ("{} topic mine", "deny {} topic mine from 192.0.2.1"),
    "from-here": ("{} topic mine from 127.0.0.1",),
    "denied-from-here": ("{} topic mine", "deny {} topic mine from 127.0.0.1"),
}
"""Patterns and hosts of ACLs."""
AUTO = {
    "create": ("DESCRIBE topic auto-{s}", "CREATE topic auto-{s}"),
    "create-only": ("CREATE topic auto-{s}",),
    "create-in-cluster": ("DESCRIBE topic auto-{s}", "CREATE cluster"),
}
NEW = {
    "create-in-cluster": ("CREATE cluster",),
    "with-configs": ("CREATE topic new-{s}", "DESCRIBE_CONFIGS topic new-{s}"),
    "denied-in-cluster": ("CREATE topic new-{s}", "deny CREATE cluster"),
    "denied-topic": ("CREATE cluster", "deny CREATE topic new-{s}"),
}


def _create_topics(version: int) -> Scene:
    sizes = {"numPartitions": 1, "replicationFactor": 1}
    topics = [{"name": name, **sizes} for name in ("new-{s}", "mine")]
    asked = {"topics": topics, "validateOnly": True}
    return scene("CREATE_TOPICS", version, asked, "CREATE topic new-{s}", also=NEW)


def _internal(name: str, *rights: str) -> Scene:
    sizes = {"numPartitions": 1, "replicationFactor": 1}
    asked = {"topics": [{"name": name, **sizes}], "timeoutMs": 10_000}
    return scene("CREATE_TOPICS", 7, asked, *rights, what=name, also={"cluster": ("CREATE cluster",)})


def _gone(version: int, what: str, asked: Json) -> Scene:
    also = {
        "delete-only": ("DELETE topic gone-{s}",),
        "delete-in-cluster": ("DELETE cluster",),
        "denied-describe": ("DELETE topic gone-{s}", "deny DESCRIBE topic gone-{s}"),
    }
    rights = ("DELETE topic gone-{s}", "DESCRIBE topic gone-{s}")
    return scene(
        "DELETE_TOPICS", version, asked, *rights, what=what, also=also, before=(creating("gone-{s}", "kept-{s}"),)
    )


SCENES = [
    _produce(3, "WRITE topic mine"),
    _produce(9, "WRITE topic mine"),
    _produce(12, "WRITE topic mine"),
    _produce(13, "WRITE topic mine"),
    _produce(9, "WRITE transactional tx", "WRITE topic mine", what="transactional", transactionalId="tx"),
    _produce(12, "WRITE transactional tx", "WRITE topic mine", what="transactional", transactionalId="tx"),
    scene(
        "PRODUCE", 9, {**_to("mine"), "acks": 1}, "WRITE topic mine", what="kinds of ACLs", also=of_each_kind("WRITE")
    ),
    *(
        scene("PRODUCE", 9, {**_to(name), "acks": -1}, f"WRITE topic {name}", what=name)
        for name in ("__consumer_offsets", "__transaction_state", "__cluster_metadata")
    ),
    _fetch(4, "READ topic mine"),
    _fetch(12, "READ topic mine"),
    _fetch(13, "READ topic mine"),
    scene(
        "FETCH",
        12,
        {"maxBytes": 100_000, "topics": each("topic", NAMES[:2], partitions=[{"partitionMaxBytes": 1000}])},
        "READ topic mine",
        what="kinds of ACLs",
        also=of_each_kind("READ"),
    ),
    _fetch(12, "CLUSTER_ACTION cluster", what="as a replica", replicaId=1),
    _fetch(17, "CLUSTER_ACTION cluster", what="as a replica", replicaState={"replicaId": 1, "replicaEpoch": -1}),
    _fetch(12, "READ topic mine", what="with a session", sessionEpoch=0),
    scene(
        "LIST_OFFSETS",
        1,
        {"replicaId": -1, "topics": each("name", partitions=[{"partitionIndex": 0, "timestamp": -2}])},
        "DESCRIBE topic mine",
        also=DESCRIBE_BY_OTHERS,
    ),
    scene(
        "LIST_OFFSETS",
        7,
        {"replicaId": -1, "topics": each("name", partitions=[{"partitionIndex": 0, "timestamp": -1}])},
        "DESCRIBE topic mine",
    ),
    scene(
        "OFFSET_FOR_LEADER_EPOCH",
        2,
        {"topics": each("topic", partitions=[{"partition": 0, "currentLeaderEpoch": -1}])},
        "DESCRIBE topic mine",
    ),
    scene(
        "OFFSET_FOR_LEADER_EPOCH",
        4,
        {"replicaId": -1, "topics": each("topic", partitions=[{"partition": 0, "currentLeaderEpoch": -1}])},
        "DESCRIBE topic mine",
        also={"replica": ("CLUSTER_ACTION cluster",)},
    ),
    _metadata(0, "DESCRIBE topic mine", what="all topics", topics=[]),
    _metadata(1, "DESCRIBE topic mine", what="all topics", topics=None),
    _metadata(1, "DESCRIBE topic mine", what="no topics", topics=[]),
    _metadata(
        4,
        "DESCRIBE topic mine",
        what="names",
        topics=each("name"),
        also=DESCRIBE_BY_OTHERS,
        allowAutoTopicCreation=False,
    ),
    _metadata(
        8,
        "ALTER topic mine",
        "DESCRIBE topic mine",
        what="authorized operations",
        topics=each("name"),
        includeClusterAuthorizedOperations=True,
        includeTopicAuthorizedOperations=True,
        allowAutoTopicCreation=False,
        also={
            "cluster": ("DESCRIBE cluster", "CREATE cluster"),
            "most": ("READ topic mine", "WRITE topic mine", "deny DELETE topic mine", "ALTER_CONFIGS cluster"),
        },
    ),
    _metadata(
        9,
        "DESCRIBE topic mine",
        what="kinds of ACLs",
        topics=each("name", NAMES[:2]),
        includeTopicAuthorizedOperations=True,
        allowAutoTopicCreation=False,
        also=of_each_kind("WRITE"),
    ),
    _metadata(12, "DESCRIBE topic mine", what="names", topics=each("name"), allowAutoTopicCreation=False),
    _metadata(
        12,
        "DESCRIBE topic mine",
        what="ids",
        topics=each("topicId", IDS, name=None),
        includeTopicAuthorizedOperations=True,
        allowAutoTopicCreation=False,
        also={"read": ("READ topic mine",)},
    ),
    _metadata(
        12,
        "DESCRIBE topic auto-{s}",
        what="created by being asked for",
        topics=[{"name": "auto-{s}"}],
        allowAutoTopicCreation=True,
        also=AUTO,
    ),
    scene(
        "DESCRIBE_TOPIC_PARTITIONS",
        0,
        {"topics": each("name")},
        "DESCRIBE topic mine",
        what="names",
        also={"read-alter": ("READ topic mine", "ALTER topic mine")},
    ),
    scene("DESCRIBE_TOPIC_PARTITIONS", 0, {"topics": []}, "DESCRIBE topic mine", what="all topics"),
    _create_topics(4),
    _create_topics(6),
    _create_topics(7),
    scene(
        "CREATE_TOPICS",
        7,
        {"topics": [{"name": "made-{s}", "numPartitions": 1, "replicationFactor": 1}], "timeoutMs": 10_000},
        "CREATE topic made-{s}",
        what="created",
        also={
            "with-configs": ("CREATE topic made-{s}", "DESCRIBE_CONFIGS topic made-{s}"),
            "by-altering-configs": ("CREATE topic made-{s}", "ALTER_CONFIGS topic made-{s}"),
            "prefixed": ("CREATE topic prefixed:made-",),
            "denied-prefixed": ("CREATE cluster", "deny CREATE topic prefixed:made-"),
        },
    ),
    _internal("__consumer_offsets", "CREATE topic __consumer_offsets"),
    _internal("__cluster_metadata", "CREATE topic __cluster_metadata"),
    _gone(5, "names", {"topicNames": ["gone-{s}", "kept-{s}", "missing"], "timeoutMs": 10_000}),
    _gone(6, "names", {"topics": each("name", ("gone-{s}", "kept-{s}", "missing")), "timeoutMs": 10_000}),
    _gone(
        6,
        "ids",
        {"topics": each("topicId", ("@id(gone-{s})", "@id(kept-{s})", IDS[2]), name=None), "timeoutMs": 10_000},
    ),
    scene(
        "CREATE_PARTITIONS",
        3,
        {"topics": each("name", count=5, assignments=None), "timeoutMs": 10_000, "validateOnly": True},
        "ALTER topic mine",
        also={"cluster": ("ALTER cluster",)},
    ),
    scene(
        "DELETE_RECORDS",
        2,
        {"topics": each("name", partitions=[{"partitionIndex": 0, "offset": 0}]), "timeoutMs": 5000},
        "DELETE topic mine",
    ),
    scene(
        "DESCRIBE_PRODUCERS",
        0,
        {"topics": each("name", partitionIndexes=[0])},
        "READ topic mine",
        also={"write": ("WRITE topic mine",)},
    ),
]
