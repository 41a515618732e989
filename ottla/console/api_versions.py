"""What ApiVersions says of the brokers: the versions of each API, and the release that a `metadata.version` belongs to.

A broker does not say which version of which program it is. The levels of `metadata.version` that it supports name the
newest release of Kafka whose metadata it can read (Kafka's `MetadataVersion`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ottla.client import Admin, ApiVersionRange, KafkaError
from ottla.console.clients import line_of

METADATA_VERSION: Final = "metadata.version"
RELEASES: Final = {
    1: "3.0-IV1",
    2: "3.1-IV0",
    3: "3.2-IV0",
    4: "3.3-IV0",
    5: "3.3-IV1",
    6: "3.3-IV2",
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
    31: "4.4-IV0",
    32: "4.4-IV1",
    33: "4.4-IV2",
}
"""Kafka's names of the levels of `metadata.version`; Kafka 4 has no levels below 7 any more."""


def release_of(feature: str, level: int | None) -> str | None:
    """Kafka's name of a level, of which the part before the hyphen is the release; None where there is none."""
    return RELEASES.get(level) if feature == METADATA_VERSION and level is not None else None


async def api_versions(admin: Admin, brokers: Sequence[int], notes: list[str]) -> list[dict[str, Any]] | None:
    """The APIs of these brokers: each with the ranges of versions, and the brokers that have them. None, with a note,
    if no broker says it.
    """
    answers = await asyncio.gather(*(_of_broker(admin, one, notes) for one in brokers))
    found = {one: answer for one, answer in zip(brokers, answers, strict=True) if answer is not None}
    return _by_api(found) if found else None


async def _of_broker(admin: Admin, node_id: int, notes: list[str]) -> list[ApiVersionRange] | None:
    try:
        return await admin.describe_api_versions(node_id)
    except KafkaError as refused:
        notes.append(f"API versions of broker {node_id}: {line_of(refused)}")
        return None


def _by_api(found: Mapping[int, Iterable[ApiVersionRange]]) -> list[dict[str, Any]]:
    names: dict[int, str | None] = {}
    ranges: dict[int, dict[tuple[int, int], list[int]]] = {}
    for node_id, apis in found.items():
        for one in apis:
            names[one.key] = one.name
            ranges.setdefault(one.key, {}).setdefault((one.least, one.highest), []).append(node_id)
    return [
        {
            "key": key,
            "name": names[key],
            "ranges": [
                {"least": least, "highest": highest, "brokers": nodes}
                for (least, highest), nodes in sorted(its.items())
            ],
        }
        for key, its in sorted(ranges.items(), key=lambda item: (names[item[0]] is None, names[item[0]] or "", item[0]))
    ]
