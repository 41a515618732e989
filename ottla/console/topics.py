"""The list of topics, and a topic: its partitions, its configuration, and the groups that read it.

What the user may not see is left out and named in `notes`; the rest is shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from ottla.client import (
    EARLIEST,
    LATEST,
    Admin,
    AdminError,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    GroupListing,
    KafkaError,
    NoBrokersAvailable,
    OffsetAndTimestamp,
    TopicDescription,
    TopicPartition,
)
from ottla.console import reading
from ottla.console.clients import line_of
from ottla.diagnosis.group_facts import SHARE

MOST_TOPICS = 5_000
MOST_GROUPS = 500
_POLICY = "cleanup.policy"


async def list_topics(admin: Admin) -> dict[str, Any]:
    """All topics. `records` are offsets, of which a compacted or transactional topic has fewer records; `bytes` and
    `policy` are null if they are not known. Raises KafkaError.
    """
    described = await admin.describe_topics()
    names = sorted(described)[:MOST_TOPICS]
    notes = [f"{len(described) - len(names):,} more topics are not shown"] if len(described) > len(names) else []
    partitions = [TopicPartition(name, one.partition) for name in names for one in described[name].partitions]
    edges, sizes, policies = await asyncio.gather(
        edges_if_known(admin, partitions, notes), _sizes(admin, notes), _policies(admin, names, notes)
    )
    return {"topics": [_row(described[name], edges, sizes, policies.get(name)) for name in names], "notes": notes}


def _row(
    topic: TopicDescription,
    edges: Mapping[TopicPartition, tuple[int, int]] | None,
    sizes: Mapping[TopicPartition, int] | None,
    policy: str | None,
) -> dict[str, Any]:
    partitions = [TopicPartition(topic.name, one.partition) for one in topic.partitions]
    return {
        "name": topic.name,
        "internal": topic.is_internal,
        "partitions": len(partitions),
        "records": None if edges is None else sum(edges[one][1] - edges[one][0] for one in partitions),
        "bytes": None if sizes is None else sum(sizes.get(one, 0) for one in partitions),
        "policy": policy,
    }


async def describe_topic(admin: Admin, name: str) -> dict[str, Any]:
    """A topic's partitions and configuration. `can_merge`: whether the records of all can be shown as one list.

    Raises KafkaError if it does not exist.
    """
    topic = (await admin.describe_topics([name]))[name]
    notes: list[str] = []
    partitions = [TopicPartition(name, one.partition) for one in topic.partitions]
    edges, sizes, configs = await asyncio.gather(
        edges_if_known(admin, partitions, notes),
        _sizes(admin, notes, partitions),
        configs_if_known(admin, ConfigResource.topic(name), notes),
    )
    return {
        "name": name,
        "id": str(topic.topic_id),
        "internal": topic.is_internal,
        "can_merge": len(partitions) <= reading.MOST_PARTITIONS,
        "partitions": [
            {
                "partition": one.partition,
                "leader": one.leader_id,
                "replicas": one.replicas,
                "in_sync": one.in_sync_replicas,
                "start": None if edges is None else edges[TopicPartition(name, one.partition)][0],
                "end": None if edges is None else edges[TopicPartition(name, one.partition)][1],
                "bytes": None if sizes is None else sizes.get(TopicPartition(name, one.partition)),
            }
            for one in topic.partitions
        ],
        "configs": configs,
        "notes": notes,
    }


async def readers_of(admin: Admin, name: str) -> dict[str, Any]:
    """The groups that have committed offsets of a topic, or start offsets as share groups. `lag` is null if it is not
    known. Raises KafkaError.
    """
    topic = (await admin.describe_topics([name]))[name]
    listed = await admin.list_groups()
    notes = [f"{len(listed) - MOST_GROUPS:,} more groups are not shown"] if len(listed) > MOST_GROUPS else []
    listed = listed[:MOST_GROUPS]
    partitions = [TopicPartition(name, one.partition) for one in topic.partitions]
    edges = await edges_if_known(admin, partitions, notes)
    lags = await _lags(admin, [one.group_id for one in listed if one.group_type != SHARE], name, edges, notes)
    lags |= await _share_lags(admin, [one.group_id for one in listed if one.group_type == SHARE], name, notes)
    return {"groups": [_reader(one, lags[one.group_id]) for one in listed if one.group_id in lags], "notes": notes}


def _reader(group: GroupListing, lag: tuple[int, int | None]) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "state": group.state,
        "type": group.group_type,
        "partitions": lag[0],
        "lag": lag[1],
    }


async def _lags(
    admin: Admin,
    group_ids: list[str],
    topic: str,
    edges: Mapping[TopicPartition, tuple[int, int]] | None,
    notes: list[str],
) -> dict[str, tuple[int, int | None]]:
    """The number of partitions of the topic with committed offsets, and the lag, by group."""
    found: dict[str, tuple[int, int | None]] = {}
    if not group_ids:
        return found
    try:
        committed = await admin.list_group_offsets(dict.fromkeys(group_ids))
    except AdminError as refused:
        notes.append(f"committed offsets: {line_of(refused)}")
        left = [group_id for group_id in group_ids if group_id not in refused.errors]
        return await _lags(admin, left, topic, edges, notes) if len(left) < len(group_ids) else found
    for group_id, offsets in committed.items():
        here = {one: place.offset for one, place in offsets.items() if one.topic == topic}
        if here:
            ends = edges or {}
            known = [max(0, ends[one][1] - offset) for one, offset in here.items() if one in ends]
            found[group_id] = (len(here), sum(known) if edges is not None else None)
    return found


async def _share_lags(
    admin: Admin, group_ids: list[str], topic: str, notes: list[str]
) -> dict[str, tuple[int, int | None]]:
    found: dict[str, tuple[int, int | None]] = {}
    if not group_ids:
        return found
    try:
        offsets = await admin.share_group_offsets(dict.fromkeys(group_ids))
    except KafkaError as refused:
        notes.append(f"offsets of share groups: {line_of(refused)}")
        return found
    for group_id, places in offsets.items():
        here = [place for one, place in places.items() if one.topic == topic and place is not None]
        if here:
            lags = [place.lag for place in here]
            found[group_id] = (len(here), sum(lags) if _are_known(lags) else None)
    return found


def _are_known(lags: Sequence[int | None]) -> TypeGuard[Sequence[int]]:
    return None not in lags


async def edges_if_known(
    admin: Admin, partitions: Sequence[TopicPartition], notes: list[str]
) -> dict[TopicPartition, tuple[int, int]] | None:
    """The first offset and the end of each log; None if a broker refuses, which is added to `notes`."""
    try:
        starts, ends = await asyncio.gather(
            admin.list_offsets(dict.fromkeys(partitions, EARLIEST)),
            admin.list_offsets(dict.fromkeys(partitions, LATEST)),
        )
    except NoBrokersAvailable:
        raise
    except KafkaError as refused:
        notes.append(f"offsets: {line_of(refused)}")
        return None

    def offset(found: OffsetAndTimestamp | None) -> int:
        return found.offset if found is not None else 0

    return {one: (offset(starts[one]), offset(ends[one])) for one in partitions}


async def _sizes(
    admin: Admin, notes: list[str], partitions: Sequence[TopicPartition] | None = None
) -> dict[TopicPartition, int] | None:
    """The bytes of each partition, of its largest replica."""
    try:
        described = await admin.describe_log_dirs(partitions)
    except KafkaError as refused:
        notes.append(f"sizes: {line_of(refused)}")
        return None
    sizes: dict[TopicPartition, int] = {}
    for directories in described.values():
        for directory in directories:
            for one, replica in directory.replicas.items():
                sizes[one] = max(sizes.get(one, 0), replica.size_bytes)
    return sizes


async def _policies(admin: Admin, names: Sequence[str], notes: list[str]) -> dict[str, str | None]:
    """The cleanup policy of topics, without those that may not be seen."""
    resources = [ConfigResource.topic(name) for name in names]
    try:
        found = await admin.describe_configs(resources, keys=[_POLICY])
    except AdminError as refused:
        notes.append(f"cleanup policies: {line_of(refused.errors[next(iter(refused.errors))])}")
        left = [name for name in names if name not in refused.errors]
        return await _policies(admin, left, []) if left and len(left) < len(names) else {}
    return {one.name: entries[_POLICY].value for one, entries in found.items() if _POLICY in entries}


async def configs_if_known(admin: Admin, resource: ConfigResource, notes: list[str]) -> list[dict[str, Any]] | None:
    """A configuration, sorted by name; None if the user may not see it."""
    try:
        found = await admin.describe_configs([resource], include_synonyms=True, include_documentation=True)
    except NoBrokersAvailable:
        raise
    except KafkaError as refused:
        notes.append(f"configuration: {line_of(refused)}")
        return None
    entries = found[resource]
    return [_config(entries[name]) for name in sorted(entries)]


_SOURCES = {
    ConfigSource.TOPIC: "topic",
    ConfigSource.DYNAMIC_BROKER: "broker, changed while it runs",
    ConfigSource.DYNAMIC_DEFAULT_BROKER: "all brokers, changed while they run",
    ConfigSource.STATIC_BROKER: "broker's file or options",
    ConfigSource.DEFAULT: "default",
    ConfigSource.GROUP: "group",
}


def _config(entry: ConfigEntry) -> dict[str, Any]:
    source = _SOURCES.get(ConfigSource(entry.source), "") if entry.source in [*ConfigSource] else ""
    # of a key that a topic inherits: the broker's key, which may have another name
    inherited = [one.name for one in entry.synonyms if one.source == entry.source and one.name != entry.name]
    return {
        "name": entry.name,
        "value": entry.value,
        "source": source or f"source {entry.source}",
        "from_key": inherited[0] if inherited else None,
        "default": entry.is_default,
        "secret": entry.is_sensitive,
        "about": entry.documentation,
    }
