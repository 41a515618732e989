"""The list of groups of all types, and a group: its members, its lag, and why it receives nothing (`groups why`)."""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus
from typing import Any

from ottla.client import Admin, KafkaError
from ottla.console.clients import Clients, line_of
from ottla.diagnosis.findings import findings_about
from ottla.diagnosis.group_facts import WITHOUT_COORDINATOR, describe_if_there, is_share, view_group
from ottla.diagnosis.group_json import view_to_json
from ottla.diagnosis.group_listing import describe_those_there
from ottla.diagnosis.share_facts import view_share_group
from ottla.web_server import BadRequest

MOST_GROUPS = 1_000


async def list_groups(admin: Admin) -> dict[str, Any]:
    """All groups with their state and the number of members (null if it is not known). Raises KafkaError."""
    listed = await admin.list_groups()
    notes = [f"{len(listed) - MOST_GROUPS:,} more groups are not shown"] if len(listed) > MOST_GROUPS else []
    listed = listed[:MOST_GROUPS]
    members: dict[str, int] = {}
    assignors: dict[str, str] = {}
    try:
        for group_id, described in (await describe_those_there(admin, listed)).items():
            members[group_id] = len(described.members)
            assignors[group_id] = described.assignor
    except KafkaError as refused:
        notes.append(f"members: {line_of(refused)}")
    return {
        "groups": [
            {
                "group": one.group_id,
                "state": one.state,
                "type": one.group_type,
                "assignor": assignors.get(one.group_id) or None,
                "members": members.get(one.group_id),
            }
            for one in listed
        ],
        "notes": notes,
    }


async def describe_group(clients: Clients, group_id: str) -> dict[str, Any]:
    """A group in full, with findings. Raises BadRequest if there is none, KafkaError."""
    admin, open_reader = await clients.admin(), partial(clients.reading, "read_committed")
    view, findings = await asyncio.gather(_view(admin, group_id), findings_about(admin, group_id, open_reader))
    return {
        **view,
        "findings": [{"weight": one.weight.name.lower(), "text": one.text, "remedy": one.remedy} for one in findings],
    }


async def _view(admin: Admin, group_id: str) -> dict[str, Any]:
    try:
        group = await describe_if_there(admin, group_id)
        view = await (view_share_group(admin, group) if is_share(group) else view_group(admin, group_id, group))
    except KafkaError as error:
        if error.code not in WITHOUT_COORDINATOR:
            raise
        return {"group": group_id, "state": None, "type": None, "members": [], "partitions": []}  # a finding says why
    if view.is_missing:
        raise BadRequest(HTTPStatus.NOT_FOUND, f"there is no group {group_id}")
    return view_to_json(group_id, view)
