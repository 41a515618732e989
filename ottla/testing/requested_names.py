"""The topics and groups that a request names, whatever its API.

Kafka's schemas have a few names for the same things; a list of topics has texts, or structs with a name or an id. An
incremental Fetch or ShareFetch names only what has changed, so the topics of its session belong to it, too (KIP-227,
KIP-932).
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.metadata.image import GROUP_RESOURCE
from ottla.broker.share.sessions import INITIAL_EPOCH
from ottla.protocol.acls import ResourceType
from ottla.protocol.api import ApiKey
from ottla.protocol.message import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.broker.context import ApiServices
    from ottla.protocol.message import Request

_TOPICS = frozenset({"topics", "topic_data", "topic_names", "topic_partitions", "subscribed_topic_names"})
"""Lists of topics, and those whose names end so."""
_TOPICS_END = "_topics"
_TOPIC_NAMES = ("name", "topic", "topic_name")
_GROUPS = frozenset({"groups", "group_ids", "groups_names"})
_GROUP_RESOURCES = frozenset({ResourceType.GROUP, GROUP_RESOURCE})
"""Of ACLs, and of configurations (Kafka's ConfigResource.Type)."""
_GROUP_KEYS = 0
"""FindCoordinator's type of keys for groups."""


def topics_of(request: Request, services: ApiServices) -> set[str]:
    """The names of its topics. Ids that no topic has are left out."""

    def name_of(topic_id: object) -> str | None:
        topic = services.catalog.topics_by_id.get(topic_id) if isinstance(topic_id, UUID) else None
        return None if topic is None else topic.name

    found = set(_topics_in(request, name_of))
    if request.message_key == ApiKey.FETCH:
        session = services.fetch_sessions.find(getattr(request, "session_id", 0))
        for target in session.targets.values() if session is not None else ():
            name = target.topic if isinstance(target.topic, str) else name_of(target.topic)
            if name is not None:
                found.add(name)
    elif request.message_key == ApiKey.SHARE_FETCH:
        found.update(filter(None, map(name_of, _ids_of_share_session(request, services))))
    return found


def groups_of(request: Request) -> set[str]:
    """The ids of its groups."""
    if request.message_key == ApiKey.FIND_COORDINATOR:
        if getattr(request, "key_type", _GROUP_KEYS) != _GROUP_KEYS:
            return set()
        keys: list[str] = [*getattr(request, "coordinator_keys", ()), getattr(request, "key", "")]
        return {key for key in keys if key}
    return set(_groups_in(request))


def _ids_of_share_session(request: Request, services: ApiServices) -> set[UUID]:
    """The ids of the topics in the session that the request continues; one that opens a session names all of them."""
    coordinator = services.share_groups.if_made
    if coordinator is None or getattr(request, "share_session_epoch", INITIAL_EPOCH) == INITIAL_EPOCH:
        return set()
    session = coordinator.sessions.get(getattr(request, "group_id", ""), getattr(request, "member_id", ""))
    return set() if session is None else {topic_id for topic_id, _ in session.places}


def _fields(struct: Struct) -> Iterator[tuple[str, object]]:
    for name in type(struct).__slots__:
        yield name, getattr(struct, name)


def _topics_in(struct: Struct, name_of: Callable[[object], str | None]) -> Iterator[str]:
    if getattr(struct, "resource_type", None) == ResourceType.TOPIC:
        yield str(getattr(struct, "resource_name", ""))
    for field, value in _fields(struct):
        for item in value if isinstance(value, list) else (value,):
            if field in _TOPICS or field.endswith(_TOPICS_END):
                name = item if isinstance(item, str) else _name_in(item, name_of)
                if name:
                    yield name
            if isinstance(item, Struct):
                yield from _topics_in(item, name_of)


def _name_in(item: object, name_of: Callable[[object], str | None]) -> str | None:
    for field in _TOPIC_NAMES:
        name = getattr(item, field, None)
        if isinstance(name, str) and name:
            return name
    return name_of(getattr(item, "topic_id", None))


def _groups_in(struct: Struct) -> Iterator[str]:
    if getattr(struct, "resource_type", None) in _GROUP_RESOURCES:
        yield str(getattr(struct, "resource_name", ""))
    for field, value in _fields(struct):
        if field == "group_id" and isinstance(value, str) and value:
            yield value
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, str):
                    if field in _GROUPS:
                        yield item
                elif isinstance(item, Struct):
                    yield from _groups_in(item)
