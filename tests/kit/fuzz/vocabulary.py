"""What a hostile client says: for each field what a well-behaved one would say, what a node has answered, and what no
client should say.

`SANE` lets most of a request pass the first checks, so that the hostile part of it gets as far as it can. `Vocabulary`
keeps what answers held (member ids, generations, topic ids, sessions, ...): requests built from it meet state that is
there.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from typing import Any
from uuid import UUID

from ottla.protocol.message import Struct

WITNESS = "witness"
"""Topic and group of the client that behaves. Nobody else says the name: who knows it may delete it."""
TOPICS = ("plain", "compacted", "tight", "old")
GROUPS = ("classic", "modern", "offsets", "g")
CONFIG_KEYS = (
    "retention.ms", "retention.bytes", "segment.bytes", "segment.ms", "cleanup.policy", "max.message.bytes",
    "compression.type", "compression.gzip.level", "message.timestamp.type", "min.insync.replicas", "flush.messages",
    "index.interval.bytes", "min.cleanable.dirty.ratio", "delete.retention.ms", "ottla.acks.all",
    "ottla.validate.records", "message.timestamp.before.max.ms", "log.retention.ms", "log.cleaner.backoff.ms",
    "max.connections.per.ip.overrides", "follower.replication.throttled.replicas", "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms", "ottla.dispatch", "ROOT", "root", "producer_byte_rate", "consumer_byte_rate",
    "request_percentage", "connection_creation_rate", "log.dirs", "listeners", "", "no.such.key",
)  # fmt: skip
CONFIG_VALUES = (
    "", "1", "0", "-1", "-2", "1000", "9223372036854775807", "9223372036854775808", "1e9", "NaN", "Infinity",
    "-Infinity", "compact", "delete", "compact,delete", "delete,compact,,", "zstd", "gzip", "producer", "lz4",
    "LogAppendTime", "CreateTime", "sync", "page-cache", "true", "FALSE", "maybe", "0.5", "1_000", " 7 ", "0x10",
    "١٢", "127.0.0.1:1", "a:b,c:", "DEBUG", "OFF", "0:1,1:2", "*", "\n", "\0", "9" * 5000,
)  # fmt: skip
STRINGS = (
    "", " ", ".", "..", "/", "../../etc/passwd", "a" * 249, "a" * 250, "b" * 255, "c" * 5000, "\0", "\n", "a\nbug: b",
    "%s%n{}{0}", "é" * 120, "\U0001f600", "\x7f", "a.b", "a_b", "__cluster_metadata", "__transaction_state", "-1",
    "0", "NaN", "plain-0", "consumer", "range", "<default>", "\ud7ff", "\ue000", "\ufeff", "AAAAAAAAAAAAAAAAAAAAAA",
)  # fmt: skip
REGEXES = (
    "", ".*", "p.*", "(", "[", "(a*)*b", "(?=x)", r"\1", "a{1000}", "((a{100}){100}){100}", "(?i)PLAIN", "\\C",
    r"\pN", "x" * 4000, "|" * 2000, "(" * 900 + ")" * 900, "[[:word:]]", "^" * 3000,
)  # fmt: skip
INTEGERS = (
    0, 1, -1, 2, 3, 5, -2, -3, -4, -5, 7, 10, 63, 64, 127, 128, 255, 256, 1000, 32767, 32768, 65535, 65536, 1 << 20,
    (1 << 31) - 1, -(1 << 31), 1 << 31, (1 << 32) - 1, 1 << 62, (1 << 63) - 1, (1 << 63) - 2, -(1 << 63),
    -(1 << 63) + 1, 1_700_000_000_000, 253402300800000, -62135596800001,
)  # fmt: skip
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e308, 5e-324, float("inf"), float("-inf"), float("nan"), 1e15, 1024.5)

SANE: dict[str, tuple[Any, ...]] = {
    "protocol_type": ("consumer", "", "connect"),
    "protocol_name": ("range", "cooperative-sticky"),
    "session_timeout_ms": (10_000, 6_000, 30_000),
    "rebalance_timeout_ms": (30_000, 1_000, -1),
    "server_assignor": ("uniform", "range", None),
    "subscribed_topic_regex": ("p.*", "", None),
    "member_epoch": (0, -1, -2, 1),
    "timeout_ms": (1_000, 0, 30_000),
    "max_wait_ms": (0, 0, 100),
    "min_bytes": (0, 1),
    "max_bytes": (1 << 20, 1, 0),
    "partition_max_bytes": (1 << 20, 1, 100),
    "acks": (-1, 1, 0),
    "num_partitions": (1, 2, -1),
    "replication_factor": (1, -1),
    "count": (2, 3, 4),
    "assignments": ([],),
    "partition_index": (0, 1),
    "partition": (0, 1),
    "index": (0, 1),
    "partitions": (0, 1),
    "fetch_offset": (0, 1, 3),
    "offset": (0, 1, -1),
    "committed_offset": (0, 1, 5),
    "timestamp": (-1, -2, -3, -4, -5, 1_700_000_000_000),
    "current_leader_epoch": (-1, 0, 1),
    "committed_leader_epoch": (-1, 0),
    "leader_epoch": (0, -1, 1),
    "last_fetched_epoch": (-1, 0),
    "replica_id": (-1,),
    "isolation_level": (0, 1),
    "resource_type": (2, 4, 8, 32),
    "config_operation": (0, 1, 2, 3),
    "key_type": (0, 1),
    "validate_only": (False, False, True),
    "transactional_id": (None,),
    "producer_id": (-1, 0),
    "producer_epoch": (-1, 0),
    "generation_id_or_member_epoch": (-1, 0, 1),
    "retention_time_ms": (-1, 1000),
    "entity_type": ("user", "client-id", "ip"),
    "entity_name": ("alice", None, "127.0.0.1"),
    "match_type": (0, 1, 2),
    "upgrade_type": (1, 2, 3),
    "feature": ("metadata.version", "group.version", "transaction.version"),
    "max_version_level": (1, 27),
    "remove": (False, True),
    "session_id": (0,),
    "session_epoch": (-1, 0, 1),
    "replicas": (1, 0),
    "broker_ids": (1,),
    "path": ("/data",),
    "reason": ("why", None),
}  # fmt: skip
NAMES_BY_FIELD: dict[str, tuple[Any, ...]] = {
    "topic": TOPICS, "topics": TOPICS, "topic_names": TOPICS, "subscribed_topic_names": TOPICS, "group_id": GROUPS,
    "group": GROUPS, "groups": GROUPS, "groups_names": GROUPS, "key": GROUPS, "coordinator_keys": GROUPS,
    "group_instance_id": (None, None, "static-1", "static-2"), "instance_id": (None, "static-1"),
    "resource_name": (*TOPICS, "1", "", *GROUPS), "name": (*TOPICS, "range", "cooperative-sticky", *CONFIG_KEYS[:8]),
    "config_name": CONFIG_KEYS, "configuration_keys": CONFIG_KEYS, "value": CONFIG_VALUES,
    "states_filter": ("Stable", "Empty", "Dead", ""), "types_filter": ("classic", "consumer", "share", ""),
    "rack_id": (None, "r"), "client_software_name": ("ottla",), "client_software_version": ("1",),
    "match": ("alice", None),
}  # fmt: skip

MOST_REMEMBERED = 12
_MEANINGS = {
    "member_id": ("member_id", "leader"),
    "generation_id": ("generation_id", "group_epoch", "generation_id_or_member_epoch", "member_epoch"),
    "member_epoch": ("member_epoch", "generation_id_or_member_epoch", "generation_id"),
    "next_cursor": ("cursor",),
}
"""Under which fields of requests the value of a response's field may be used."""


class Vocabulary:
    """What answers held, by the name of the field."""

    def __init__(self) -> None:
        self._values: dict[str, deque[Any]] = defaultdict(lambda: deque(maxlen=MOST_REMEMBERED))

    def learn(self, struct: Struct) -> None:
        """Remember the ids, epochs and names of an answer."""
        if any(getattr(struct, field.name) in (WITNESS, "__consumer_offsets") for field in struct.fields()):
            return
        for field in struct.fields():
            value = getattr(struct, field.name)
            if isinstance(value, list):
                for element in value[:50]:
                    if isinstance(element, Struct):
                        self.learn(element)
            elif isinstance(value, Struct):
                self.learn(value)
            elif isinstance(value, str | UUID) or (
                isinstance(value, int) and value > 0 and not isinstance(value, bool)
            ):
                self._note(field.name, value)

    def _note(self, name: str, value: object) -> None:
        for each in _MEANINGS.get(name, (name,)):
            known = self._values[each]
            if value not in known:
                known.append(value)

    def one(self, name: str, chance: random.Random) -> Any:
        """Something that an answer gave under this name, or None."""
        known = self._values.get(name)
        return chance.choice(list(known)) if known else None
