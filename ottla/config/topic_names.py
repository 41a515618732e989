"""The rules for topic names, and the names that are the broker's own, exactly Apache Kafka's (`Topic`).

Pure, and in this package because a configuration may name topics. `storage/formats/layout.py` has the same names for
what is on the disk.
"""

from __future__ import annotations

import re

CLUSTER_METADATA_TOPIC = "__cluster_metadata"
OFFSETS_TOPIC = "__consumer_offsets"
"""The topic of groups and committed offsets (Kafka's `Topic.GROUP_METADATA_TOPIC_NAME`)."""
TRANSACTIONS_TOPIC = "__transaction_state"
"""The topic of transactional ids (Kafka's `Topic.TRANSACTION_STATE_TOPIC_NAME`)."""
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_GROUP_STATE_TOPIC})
"""Topics that coordinators write and clients do not."""

MAX_TOPIC_NAME_CHARACTERS = 249
_LEGAL_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def topic_name_problem(name: str) -> str | None:
    """The reason why `name` cannot be a topic, in one line; None when it can be one. Kafka's `Topic.validate`."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in {".", ".."}:
        return "Topic name is invalid: '.' and '..' are not allowed"
    if len(name) > MAX_TOPIC_NAME_CHARACTERS:
        return f"Topic name is invalid: it has {len(name)} characters, the limit is {MAX_TOPIC_NAME_CHARACTERS}"
    if _LEGAL_TOPIC_NAME.fullmatch(name) is None:
        return f"Topic name is invalid: {name!r} has characters other than ASCII letters, digits, '.', '_' and '-'"
    return None
