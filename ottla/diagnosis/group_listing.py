"""The descriptions of many groups, each asked for by the request of its type."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ottla.diagnosis.group_facts import SHARE
from ottla.diagnosis.streams_partitions import STREAMS

if TYPE_CHECKING:
    from ottla.client import Admin, GroupDescription, GroupListing


async def describe_those_there(admin: Admin, listed: list[GroupListing]) -> dict[str, GroupDescription]:
    """Descriptions, without groups that were deleted since, and those of types that have requests of their own."""
    own = {SHARE: admin.describe_share_groups, STREAMS: admin.describe_streams_groups}
    others = [one.group_id for one in listed if one.group_type not in own]
    found = await _of_those_there(admin.describe_groups, others)
    for group_type, describe in own.items():
        if of_type := [one.group_id for one in listed if one.group_type == group_type]:
            found |= await _of_those_there(describe, of_type)
    return found


async def _of_those_there(
    describe: Callable[[list[str]], Awaitable[dict[str, GroupDescription]]], group_ids: list[str]
) -> dict[str, GroupDescription]:
    from ottla.client import AdminError

    try:
        return await describe(group_ids)
    except AdminError as refused:
        return await describe([group_id for group_id in group_ids if group_id not in refused.errors])
