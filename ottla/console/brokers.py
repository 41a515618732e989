"""The cluster: its brokers, features and APIs, log directories, and what is configured that is not the default."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.client import Admin, ConfigResource, KafkaError
from ottla.console.api_versions import api_versions, release_of
from ottla.console.clients import line_of
from ottla.console.topics import configs_if_known
from ottla.version import __version__

MOST_BROKERS = 20
_ALWAYS_SHOWN = ("listeners", "advertised.listeners", "log.dirs")


async def status(admin: Admin, servers: str, *, is_read_only: bool) -> dict[str, Any]:
    """What is at the top of the page: whether a broker answers, and which. Raises KafkaError."""
    cluster = await admin.describe_cluster()
    return {
        "servers": servers,
        "cluster": cluster.cluster_id,
        "brokers": len(cluster.brokers),
        "read_only": is_read_only,
        "console": __version__,
    }


async def describe_brokers(admin: Admin) -> dict[str, Any]:
    """The cluster. What the user may not see is null, and named in `notes`. Raises KafkaError."""
    cluster = await admin.describe_cluster()
    notes: list[str] = []
    shown = [one.node_id for one in cluster.brokers[:MOST_BROKERS]]
    features, directories, apis = await asyncio.gather(
        _features(admin, notes), _log_dirs(admin, notes), api_versions(admin, shown, notes)
    )
    brokers = []
    for one in cluster.brokers[:MOST_BROKERS]:
        configs = await configs_if_known(admin, ConfigResource.broker(one.node_id), notes)
        brokers.append(
            {
                "id": one.node_id,
                "host": one.host,
                "port": one.port,
                "controller": one.node_id == cluster.controller_id,
                "directories": directories.get(one.node_id) if directories is not None else None,
                "configs": None
                if configs is None
                else [entry for entry in configs if not entry["default"] or entry["name"] in _ALWAYS_SHOWN],
            }
        )
    if len(cluster.brokers) > MOST_BROKERS:
        notes.append(f"{len(cluster.brokers) - MOST_BROKERS:,} more brokers are not shown")
    return {
        "cluster": cluster.cluster_id,
        "brokers": brokers,
        "features": features,
        "apis": apis,
        "notes": notes,
    }


async def _features(admin: Admin, notes: list[str]) -> list[dict[str, Any]] | None:
    try:
        found = await admin.describe_features()
    except KafkaError as refused:
        notes.append(f"features: {line_of(refused)}")
        return None
    return [
        {
            "name": name,
            "level": one.level or 0,
            "least": one.least,
            "highest": one.highest,
            "release": release_of(name, one.level),
            "highest_release": release_of(name, one.highest),
        }
        for name, one in found.items()
    ]


async def _log_dirs(admin: Admin, notes: list[str]) -> dict[int, list[dict[str, Any]]] | None:
    try:
        described = await admin.describe_log_dirs()
    except KafkaError as refused:
        notes.append(f"log directories: {line_of(refused)}")
        return None
    return {
        node_id: [
            {
                "path": one.path,
                "total": one.total_bytes if one.total_bytes >= 0 else None,
                "free": one.usable_bytes if one.usable_bytes >= 0 else None,
                "used": sum(replica.size_bytes for replica in one.replicas.values()),
                "partitions": len(one.replicas),
                "error": None if one.error is None else line_of(one.error),
                "cordoned": one.is_cordoned,
            }
            for one in directories
        ]
        for node_id, directories in described.items()
    }
