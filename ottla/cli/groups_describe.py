"""`ottla groups describe`: the state of a group, its members, and where it is in each partition."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from ottla.cli import suggestions
from ottla.cli.client_options import bootstrap_server
from ottla.cli.failures import Failure, closed_pipe_ends_quietly
from ottla.cli.groups import work_on_groups
from ottla.cli.parameters import NAME
from ottla.cli.show import one_line
from ottla.cli.streams_groups import (
    TASK_HEADINGS,
    TOPOLOGY_HEADINGS,
    task_rows,
    topology_rows,
)
from ottla.cli.tables import NONE, table_lines

if TYPE_CHECKING:
    from ottla.client import Admin, MemberDescription
    from ottla.diagnosis.group_facts import GroupView
    from ottla.diagnosis.share_facts import ShareView

_DESCRIBED_TYPES = frozenset({"", "classic", "consumer", "share", "streams"})
"""A broker before Kafka 3.8 names no type."""


@click.command()
@click.argument("group_ids", nargs=-1, metavar="[GROUP]...", type=NAME, shell_complete=suggestions.groups)
@bootstrap_server
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def describe(group_ids: tuple[str, ...], servers: str, as_json: bool) -> None:
    """Show the state and members of groups, and for each partition the committed offset (of a share group: the start
    offset), the log end, and the lag; of a streams group its tasks and topology, too. Without a name: of all groups.
    """

    async def view_one(admin: Admin, group_id: str) -> GroupView | ShareView:
        from ottla.diagnosis.group_facts import describe_if_there, is_share, view_group
        from ottla.diagnosis.share_facts import view_share_group

        group = await describe_if_there(admin, group_id)
        return await (view_share_group(admin, group) if is_share(group) else view_group(admin, group_id, group))

    async def look(admin: Admin) -> dict[str, GroupView | ShareView]:
        from ottla.client import ErrorCode, KafkaError

        asked = group_ids or [one.group_id for one in await admin.list_groups() if one.group_type in _DESCRIBED_TYPES]
        views: dict[str, GroupView | ShareView] = {}
        for group_id in asked:
            try:
                views[group_id] = await view_one(admin, group_id)
            except KafkaError as error:
                if group_ids or error.code is not ErrorCode.UNSUPPORTED_VERSION:
                    raise  # otherwise: a share or streams group, where such groups are switched off
        return views

    from ottla.diagnosis.group_json import view_to_json

    views = work_on_groups(servers, look)
    missing = [group_id for group_id, view in views.items() if view.is_missing]
    with closed_pipe_ends_quietly():
        for number, (group_id, view) in enumerate(one for one in views.items() if one[0] not in missing):
            if as_json:
                click.echo(json.dumps(view_to_json(group_id, view)))
                continue
            if number:
                click.echo()
            click.echo("\n".join(_view_lines(group_id, view)))
    if missing and group_ids:
        raise Failure(f"there is no group {', '.join(missing)}")


def _view_lines(group_id: str, view: GroupView | ShareView) -> list[str]:
    from ottla.diagnosis.group_facts import member_name

    group = view.description
    state = group.state if group is not None else "not there"
    about = [] if group is None else [group.group_type, *([group.assignor] if group.assignor else [])]
    if group is not None:
        about.append(f"coordinator {group.coordinator.node_id}")
    lines = [f"{click.style(one_line(group_id), bold=True)}   {state}   {', '.join(about)}"]
    if group is not None and group.members:
        rows = [_member_row(member) for member in group.members]
        lines += ["", *_indented(table_lines(rows, ("member", "instance", "client", "host", "partitions")))]
        if tasks := task_rows(group, member_name):
            lines += ["", *_indented(table_lines(tasks, TASK_HEADINGS))]
    if group is not None and group.topology is not None and (topology := topology_rows(group.topology)):
        lines += ["", *_indented(table_lines(topology, TOPOLOGY_HEADINGS))]
    names, rows = _partition_table(view)
    if rows:
        lines += ["", *_indented(table_lines(rows, names))]
    return lines


def _partition_table(view: GroupView | ShareView) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """The headings, and a row for each partition."""
    from ottla.diagnosis.group_facts import GroupView, member_name
    from ottla.diagnosis.group_json import offsets_of

    if not isinstance(view, GroupView):
        names = ("topic", "partition", "start offset", "end", "lag", "members")
        return names, [(*one, *view.place(one), len(view.readers.get(one, ()))) for one in view.partitions]
    rows: list[tuple[object, ...]] = []
    for one in view.partitions:
        owner = view.owners.get(one)
        rows.append((*one, *offsets_of(view, one), NONE if owner is None else member_name(owner)))
    return ("topic", "partition", "committed", "end", "lag", "member"), rows


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _member_row(member: MemberDescription) -> tuple[object, ...]:
    host = member.host.lstrip("/")
    return (member.member_id, member.group_instance_id or NONE, member.client_id, host, len(member.assignment))
