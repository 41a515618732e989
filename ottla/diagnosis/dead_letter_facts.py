"""The facts about the dead letters of a share group, for `ottla groups why` and `ottla configs alter`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.diagnosis.dead_letter_diagnosis import (
    COPY_KEY,
    CREATE_KEY,
    ENABLE_KEY,
    NAME_KEY,
    PREFIX_KEY,
    DeadLetterFacts,
    LetterTopic,
)
from ottla.protocol.errors import ErrorCode
from ottla.storage.formats.layout import topic_name_problem

if TYPE_CHECKING:
    from ottla.client import Admin, ConfigEntry

_LARGE = 2**31 - 1
"""An offset and a partition with as many digits as any that a group is likely to have."""


async def dead_letter_facts_of(
    admin: Admin, group_id: str, settings: Mapping[str, str | None], topics_read: Iterable[str]
) -> DeadLetterFacts | None:
    """Return the facts that `diagnose_dead_letters` needs; None for a group without dead letters.

    `settings` has the group's own keys. What the broker does not report, or this user may not see, is left out.
    """
    from ottla.client import ConfigResource, KafkaError

    name = settings.get(NAME_KEY)
    if not name:
        return None
    of_broker: dict[str, ConfigEntry] = {}
    level: int | None = None
    try:
        levels = (await admin.describe_features()).get("share.version")
        level = None if levels is None else levels.level or 0
        broker = ConfigResource.broker((await admin.describe_cluster()).brokers[0].node_id)
        of_broker = (await admin.describe_configs([broker], keys=[PREFIX_KEY, CREATE_KEY]))[broker]
    except KafkaError:  # the diagnosis continues without
        pass
    topic, is_hidden = (None, False) if topic_name_problem(name) else await _topic(admin, name)
    topics = [*topics_read]
    return DeadLetterFacts(
        group_id=group_id,
        name=name,
        copies=settings.get(COPY_KEY) == "true",
        share_version=level,
        prefix=_text(of_broker, PREFIX_KEY),
        is_created=_text(of_broker, CREATE_KEY) == "true",
        topic=topic,
        is_hidden=is_hidden,
        letter_bytes=max((_letter_bytes(group_id, one) for one in topics), default=0),
        most_record_bytes=max([await _max_message_bytes(admin, one) for one in topics], default=0),
    )


async def _topic(admin: Admin, name: str) -> tuple[LetterTopic | None, bool]:
    """The topic, if it exists, and whether it is hidden from this user."""
    from ottla.client import AdminError, ConfigResource

    resource = ConfigResource.topic(name)
    try:
        described = (await admin.describe_topics([name]))[name]
        configs = (await admin.describe_configs([resource]))[resource]
    except AdminError as refused:
        code = refused.errors[name].code
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return None, True
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None, False
        raise
    size = _text(configs, "max.message.bytes")
    topic = LetterTopic(
        takes_letters=_text(configs, ENABLE_KEY) == "true",
        is_compacted="compact" in _text(configs, "cleanup.policy").split(","),
        max_message_bytes=int(size) if size.isdecimal() else None,
        offline=tuple(one.partition for one in described.partitions if one.leader_id < 0),
    )
    return topic, False


async def _max_message_bytes(admin: Admin, topic: str) -> int:
    """The largest batch of the topic; 0 if it is not known."""
    from ottla.client import ConfigResource, KafkaError

    resource = ConfigResource.topic(topic)
    try:
        entries = (await admin.describe_configs([resource], keys=["max.message.bytes"]))[resource]
    except KafkaError:  # deleted meanwhile, or hidden
        return 0
    size = _text(entries, "max.message.bytes")
    return int(size) if size.isdecimal() else 0


def _letter_bytes(group_id: str, topic: str) -> int:
    """The size of a batch with one dead letter that has no copy."""
    from ottla.broker.share.dead_letter import About, encode_letters
    from ottla.broker.share.deliveries import Cause, DeadLetters

    letters = DeadLetters(_LARGE, _LARGE, 1, max(Cause, key=lambda one: len(one.value)))
    batch, _ = encode_letters(About(group_id, topic, 0), letters, _LARGE, _LARGE, {}, now_ms=0, most_bytes=0)
    return len(batch)


def _text(entries: Mapping[str, ConfigEntry], key: str) -> str:
    entry = entries.get(key)
    return "" if entry is None or entry.value is None else entry.value
