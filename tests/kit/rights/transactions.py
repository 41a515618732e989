"""Scenes of the matrix of rights: requests of transactional producers, and about them.

`tx` is the transactional id of the user's ACLs; `ty` has none. The producer ids belong to no producer: a client
with the right gets the error for that.
"""

from __future__ import annotations

from kit.rights.groups import OFFSET
from kit.rights.scene import Ask, scene
from kit.rights.topics import each, of_each_kind

STRANGER = {"producerId": 123_456, "producerEpoch": 0}


def beginning(transactional_id: str) -> Ask:
    """A producer that has never begun a transaction."""
    return Ask("INIT_PRODUCER_ID", 4, {"transactionalId": transactional_id, "transactionTimeoutMs": 60_000})


SCENES = [
    scene(
        "INIT_PRODUCER_ID",
        4,
        {"transactionalId": "tx-{s}", "transactionTimeoutMs": 60_000},
        "WRITE transactional tx-{s}",
        what="transactional",
        also={"idempotent": ("IDEMPOTENT_WRITE cluster",)},
    ),
    scene(
        "INIT_PRODUCER_ID",
        4,
        {"transactionalId": None, "transactionTimeoutMs": 60_000},
        "IDEMPOTENT_WRITE cluster",
        what="idempotent",
        also={
            "write-topic": ("WRITE topic mine",),
            "write-missing-topic": ("WRITE topic no-such",),
            "denied-topic": ("WRITE topic mine", "deny WRITE topic mine"),
            "denied-topic-of-two": ("WRITE topic mine", "WRITE topic other", "deny WRITE topic mine"),
            "read-topic": ("READ topic mine",),
            "transactional": ("WRITE transactional tx",),
            **of_each_kind("WRITE"),
            "denied-prefixed-of-two": ("WRITE topic mine", "WRITE topic other", "deny WRITE topic prefixed:mi"),
            "prefixed-in-denied-prefixed": ("WRITE topic prefixed:mine", "deny WRITE topic prefixed:mi"),
            "prefixed-beyond-denied-prefixed": ("WRITE topic prefixed:mi", "deny WRITE topic prefixed:mine"),
            "any-denied-prefixed": ("WRITE topic *", "deny WRITE topic prefixed:m"),
            "everything-in-cluster": ("ALL cluster",),
            "denied-in-cluster": ("WRITE topic mine", "deny IDEMPOTENT_WRITE cluster"),
        },
    ),
    scene(
        "ADD_PARTITIONS_TO_TXN",
        3,
        {
            "v3AndBelowTransactionalId": "tx",
            "v3AndBelowProducerId": 123_456,
            "v3AndBelowTopics": each("name", partitions=[0]),
        },
        "WRITE transactional tx",
        "WRITE topic mine",
        also={"transactional-only": ("WRITE transactional tx",), "topic-only": ("WRITE topic mine",)},
    ),
    scene(
        "ADD_PARTITIONS_TO_TXN",
        3,
        {
            "v3AndBelowTransactionalId": "tx",
            "v3AndBelowProducerId": 123_456,
            "v3AndBelowTopics": each("name", ("mine",), partitions=[0]),
        },
        "WRITE transactional tx",
        "WRITE topic mine",
        what="one topic",
    ),
    *(
        scene(
            "ADD_PARTITIONS_TO_TXN",
            4,
            {
                "transactions": [
                    {
                        "transactionalId": "tx",
                        **STRANGER,
                        "verifyOnly": verify,
                        "topics": each("name", ("mine",), partitions=[0]),
                    }
                ]
            },
            "CLUSTER_ACTION cluster",
            what="of a broker" + (", verifying" if verify else ""),
            also={"write": ("WRITE transactional tx", "WRITE topic mine")},
        )
        for verify in (False, True)
    ),
    *(
        scene(
            "ADD_OFFSETS_TO_TXN",
            version,
            {"transactionalId": "tx", **STRANGER, "groupId": "g"},
            "WRITE transactional tx",
            "READ group g",
            also={"transactional-only": ("WRITE transactional tx",), "group-only": ("READ group g",)},
        )
        for version in (1, 3, 4)
    ),
    *(
        scene("END_TXN", version, {"transactionalId": "tx", **STRANGER, "committed": True}, "WRITE transactional tx")
        for version in (1, 3, 5)
    ),
    *(
        scene(
            "TXN_OFFSET_COMMIT",
            version,
            {"transactionalId": "tx", "groupId": "g", **STRANGER, "topics": each("name", partitions=[OFFSET])},
            "WRITE transactional tx",
            "READ group g",
            "READ topic mine",
            also={
                "transactional-only": ("WRITE transactional tx", "READ topic mine"),
                "group-only": ("READ group g", "READ topic mine"),
                "no-topic": ("WRITE transactional tx", "READ group g"),
            },
        )
        for version in (2, 3, 5)
    ),
    scene(
        "WRITE_TXN_MARKERS",
        1,
        {"markers": [{**STRANGER, "topics": each("name", ("mine", "missing"), partitionIndexes=[0])}]},
        "ALTER cluster",
        also={"cluster-action": ("CLUSTER_ACTION cluster",), "write": ("WRITE topic mine", "WRITE transactional tx")},
    ),
    scene(
        "DESCRIBE_TRANSACTIONS",
        0,
        {"transactionalIds": ["open", "ty", "nobody"]},
        "DESCRIBE transactional open",
        "DESCRIBE topic mine",
        also={"transactional-only": ("DESCRIBE transactional open",), "write": ("WRITE transactional open",)},
    ),
    scene(
        "LIST_TRANSACTIONS",
        0,
        {},
        "DESCRIBE transactional open",
        also={
            "write": ("WRITE transactional open",),
            "cluster": ("DESCRIBE cluster",),
            "prefixed": ("DESCRIBE transactional prefixed:op",),
            "any-but-one": ("DESCRIBE transactional *", "deny DESCRIBE transactional open"),
        },
    ),
]
