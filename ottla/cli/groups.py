"""`ottla groups`: list, describe, kick, reset and delete consumer groups, and say why one receives nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from ottla.cli import suggestions
from ottla.cli.admin import TIMEOUT_MS, with_admin
from ottla.cli.client_options import bootstrap_server
from ottla.cli.failures import Failure, closed_pipe_ends_quietly
from ottla.cli.lazy import LazyGroup
from ottla.cli.parameters import NAME, Option
from ottla.cli.partitions import choose_partitions
from ottla.cli.show import one_line
from ottla.cli.tables import NONE, table_lines

if TYPE_CHECKING:
    from ottla.cli.group_diagnosis import Finding
    from ottla.cli.group_facts import GroupView
    from ottla.client import Admin, GroupDescription, GroupListing, MemberDescription, TopicPartition

_T = TypeVar("_T")

MEMBER_ID_WITH_DASH = re.compile("-[A-Za-z0-9_-]{21}")
WHY_TIMEOUT_MS = 8_000
"""Shorter than other commands wait: `why` reports that a group has no coordinator."""

STATES = (
    *("Stable", "Empty", "Dead", "PreparingRebalance", "CompletingRebalance"),
    *("Assigning", "Reconciling", "NotReady"),
)
TYPES = ("classic", "consumer", "share", "streams")
"""All types of Apache Kafka, too: for an unknown type a broker would list no groups, without an error."""


@click.group(
    cls=LazyGroup,
    commands_by_name={
        "list": ("ottla.cli.groups:list_groups", "List the groups with their state and members."),
        "describe": ("ottla.cli.groups:describe", "Show a group's members, offsets and lag."),
        "why": ("ottla.cli.groups:why", "Say why a group receives nothing."),
        "kick": ("ottla.cli.groups:kick", "Remove members from a group."),
        "reset": ("ottla.cli.groups_reset:reset", "Set the offsets at which a group continues."),
        "delete": ("ottla.cli.groups:delete", "Delete groups, or their committed offsets for some topics."),
    },
    short_help="Describe, diagnose, reset and delete consumer groups.",
)
def groups() -> None:
    """List, describe, reset and delete consumer groups, and say why one receives nothing."""


def work_on_groups(servers: str, work: Callable[[Admin], Awaitable[_T]], *, timeout_ms: int = TIMEOUT_MS) -> _T:
    """Return the result of `work` with an Admin."""
    return with_admin(servers, "ottla-groups", work, timeout_ms=timeout_ms)


# --- list --------------------------------------------------------------------------------------------------------


@click.command("list")
@bootstrap_server
@click.option(
    "--state",
    "states",
    cls=Option,
    old=["-s"],
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    metavar="STATE",
    help=f"Only in this state: {', '.join(STATES)}. May be repeated.",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    type=click.Choice(TYPES, case_sensitive=False),
    metavar="TYPE",
    help=f"Only of this type: {', '.join(TYPES)}. May be repeated.",
)
@click.option("-q", "--quiet", is_flag=True, help="Names alone, one per line.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def list_groups(servers: str, states: tuple[str, ...], types: tuple[str, ...], quiet: bool, as_json: bool) -> None:
    """List the groups: state, type, assignor, and how many members each has."""

    async def look(admin: Admin) -> tuple[list[GroupListing], dict[str, GroupDescription]]:
        listed = await admin.list_groups(states=states, types=types)
        return listed, {} if quiet else await _describe_those_there(admin, [one.group_id for one in listed])

    listed, described = work_on_groups(servers, look)
    with closed_pipe_ends_quietly():
        if quiet:
            for one in listed:
                click.echo(one_line(one.group_id))
            return
        rows = [_listed_row(one, described.get(one.group_id)) for one in listed]
        names = ("group", "state", "type", "protocol", "assignor", "members")
        if as_json:
            for row in rows:
                known = (None if cell == NONE else cell for cell in row)
                click.echo(json.dumps(dict(zip(names, known, strict=True))))
        elif rows:
            click.echo("\n".join(table_lines(rows, names)))


async def _describe_those_there(admin: Admin, group_ids: list[str]) -> dict[str, GroupDescription]:
    """Descriptions, without groups that were deleted since or have other requests for it, as share groups."""
    from ottla.client import AdminError

    try:
        return await admin.describe_groups(group_ids)
    except AdminError as refused:
        rest = [group_id for group_id in group_ids if group_id not in refused.errors]
        return await admin.describe_groups(rest)


def _listed_row(listed: GroupListing, described: GroupDescription | None) -> tuple[object, ...]:
    return (
        listed.group_id,
        listed.state or NONE,
        listed.group_type or NONE,
        listed.protocol_type or NONE,
        (described.assignor if described is not None else "") or NONE,
        len(described.members) if described is not None else 0,
    )


_DESCRIBED_TYPES = frozenset({"", "classic", "consumer"})
"""Share groups and streams groups have requests of their own; a broker before Kafka 3.8 names no type."""


# --- describe ----------------------------------------------------------------------------------------------------


@click.command()
@click.argument("group_ids", nargs=-1, metavar="[GROUP]...", type=NAME, shell_complete=suggestions.groups)
@bootstrap_server
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def describe(group_ids: tuple[str, ...], servers: str, as_json: bool) -> None:
    """Show the state and members of groups, and for each partition the committed offset, the log end, and the lag.
    Without a name: of all groups.
    """

    async def look(admin: Admin) -> dict[str, GroupView]:
        from ottla.cli.group_facts import view_group

        asked = group_ids or [one.group_id for one in await admin.list_groups() if one.group_type in _DESCRIBED_TYPES]
        return {group_id: await view_group(admin, group_id) for group_id in dict.fromkeys(asked)}

    views = work_on_groups(servers, look)
    missing = [group_id for group_id, view in views.items() if view.description is None and not view.committed]
    with closed_pipe_ends_quietly():
        for number, (group_id, view) in enumerate(one for one in views.items() if one[0] not in missing):
            if as_json:
                click.echo(json.dumps(_view_to_json(group_id, view)))
                continue
            if number:
                click.echo()
            click.echo("\n".join(_view_lines(group_id, view)))
    if missing and group_ids:
        raise Failure(f"there is no group {', '.join(missing)}")


def _view_lines(group_id: str, view: GroupView) -> list[str]:
    group = view.description
    state = group.state if group is not None else "not there"
    about = [] if group is None else [group.group_type, *([group.assignor] if group.assignor else [])]
    if group is not None:
        about.append(f"coordinator {group.coordinator.node_id}")
    lines = [f"{click.style(one_line(group_id), bold=True)}   {state}   {', '.join(about)}"]
    if group is not None and group.members:
        rows = [_member_row(member) for member in group.members]
        lines += ["", *_indented(table_lines(rows, ("member", "instance", "client", "host", "partitions")))]
    rows = [_partition_row(view, partition) for partition in view.partitions]
    if rows:
        names = ("topic", "partition", "committed", "end", "lag", "member")
        lines += ["", *_indented(table_lines(rows, names))]
    return lines


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _member_row(member: MemberDescription) -> tuple[object, ...]:
    host = member.host.lstrip("/")
    return (member.member_id, member.group_instance_id or NONE, member.client_id, host, len(member.assignment))


def _partition_row(view: GroupView, partition: TopicPartition) -> tuple[object, ...]:
    from ottla.cli.group_facts import member_name

    committed, end, lag = _offsets(view, partition)
    owner = view.owners.get(partition)
    return (*partition, committed, end, lag, NONE if owner is None else member_name(owner))


def _offsets(view: GroupView, partition: TopicPartition) -> tuple[int | None, int | None, int | None]:
    """The committed offset, the end of the log, and the lag; None if there is none."""
    committed = view.committed[partition].offset if partition in view.committed else None
    edges = view.edges.get(partition)
    if edges is None or committed is None:
        return committed, edges.end if edges is not None else None, None
    return committed, edges.end, max(0, edges.end - committed)


def _view_to_json(group_id: str, view: GroupView) -> dict[str, object]:
    group = view.description
    partitions: list[dict[str, object]] = []
    for partition in view.partitions:
        committed, end, lag = _offsets(view, partition)
        owner = view.owners.get(partition)
        partitions.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "committed": committed,
                "metadata": view.committed[partition].metadata if partition in view.committed else None,
                "end": end,
                "lag": lag,
                "member": owner.member_id if owner is not None else None,
            }
        )
    members = group.members if group is not None else []
    return {
        "group": group_id,
        "state": group.state if group is not None else None,
        "type": group.group_type if group is not None else None,
        "assignor": group.assignor if group is not None else None,
        "coordinator": group.coordinator.node_id if group is not None else None,
        "members": [
            {
                "member": member.member_id,
                "instance": member.group_instance_id,
                "client": member.client_id,
                "host": member.host.lstrip("/"),
                "topics": member.topics,
                "pattern": member.pattern,
                "assignment": [list(partition) for partition in member.assignment],
            }
            for member in members
        ],
        "partitions": partitions,
    }


# --- why ---------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("group_id", metavar="GROUP", type=NAME, shell_complete=suggestions.groups)
@bootstrap_server
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def why(group_id: str, servers: str, as_json: bool) -> None:
    """Say why GROUP receives nothing: one finding per line, the most important first.

    `!` blocks the group, `?` may block it (it depends on the consumer's options), `-` is in order.

    \b
    Example:
      ottla groups why billing
    """

    from ottla.cli.group_diagnosis import diagnose, without_coordinator
    from ottla.cli.group_facts import WITHOUT_COORDINATOR, facts_of
    from ottla.client import KafkaError

    async def look(admin: Admin) -> list[Finding]:
        try:
            return diagnose(await facts_of(admin, group_id))
        except KafkaError as error:
            if error.code not in WITHOUT_COORDINATOR:
                raise
            return [without_coordinator(error.message)]

    findings = work_on_groups(servers, look, timeout_ms=WHY_TIMEOUT_MS)
    with closed_pipe_ends_quietly():
        for finding in findings:
            if as_json:
                said = {"weight": finding.weight.name.lower(), "finding": finding.text, "remedy": finding.remedy}
                click.echo(json.dumps(said))
            else:
                remedy = f" -> {finding.remedy}" if finding.remedy else ""
                click.echo(one_line(f"{finding.weight} {finding.text}{remedy}"))


# --- kick and delete ---------------------------------------------------------------------------------------------


class MembersCommand(click.Command):
    """A command whose arguments may be member ids that begin with a dash.

    A client of KIP-848 draws its own id, 16 bytes as 22 characters of base64url: one in 64 begins with `-`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's, with such ids after a `--`, so that they are not options."""
        ids = [arg for arg in args if MEMBER_ID_WITH_DASH.fullmatch(arg)]
        if ids and "--" not in args:
            args = [*(arg for arg in args if arg not in ids), "--", *ids]
        return super().parse_args(ctx, args)


@click.command(cls=MembersCommand)
@click.argument("group_id", metavar="GROUP", type=NAME, shell_complete=suggestions.groups)
@click.argument("members", nargs=-1, metavar="[MEMBER]...")
@bootstrap_server
@click.option("--all", "kicks_all", is_flag=True, help="Every member.")
@click.option("--dry-run", is_flag=True, help="Only show which members would be removed.")
def kick(group_id: str, members: tuple[str, ...], servers: str, kicks_all: bool, dry_run: bool) -> None:
    """Remove members from GROUP, by member id or instance id. Other members get their partitions immediately.

    For dead members whose session has not expired yet, and for members that do not read their partitions. A consumer
    that still runs joins again by itself.
    """
    if kicks_all == bool(members):
        raise click.UsageError("name the members, or give --all")

    async def remove(admin: Admin) -> list[str]:
        from ottla.cli.groups_dry_run import members_to_kick

        named = None if kicks_all else members
        if dry_run:
            return await members_to_kick(admin, group_id, named)
        removed = await admin.remove_members(group_id, named, reason="kicked by an operator")
        return [f"removed {member}" for member in removed]

    lines = work_on_groups(servers, remove)
    for line in lines:
        click.echo(one_line(line))
    if not lines:
        click.echo(f"{group_id} has no members")


@click.command()
@click.argument("group_ids", nargs=-1, required=True, metavar="GROUP...", shell_complete=suggestions.groups)
@bootstrap_server
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:P,P]",
    type=NAME,
    shell_complete=suggestions.topics,
    help="Only the committed offsets for it. May be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
def delete(group_ids: tuple[str, ...], servers: str, topics: tuple[str, ...], dry_run: bool) -> None:
    """Delete groups without members, with all their committed offsets. This cannot be undone.

    With --topic the groups stay, and only their committed offsets for these topics are deleted. No member may be
    subscribed to them.
    """

    async def delete_all(admin: Admin) -> list[str]:
        from ottla.cli.groups_dry_run import groups_to_delete, offsets_to_delete

        if not topics and dry_run:
            lines, refused = await groups_to_delete(admin, group_ids)
            if refused is not None:
                for line in lines:
                    click.echo(one_line(line))
                raise refused
            return lines
        if not topics:
            return await _delete_groups(admin, group_ids)
        done: list[str] = []
        for group_id in group_ids:
            committed = (await admin.list_group_offsets({group_id: None}))[group_id]
            chosen = [one for one in committed if any(wants(one) for wants in choose_partitions(topics))]
            if not chosen:
                raise Failure(f"{group_id} has committed nothing for {', '.join(topics)}")
            if dry_run:
                done += await offsets_to_delete(admin, group_id, chosen)
                continue
            await admin.delete_group_offsets(group_id, chosen)
            done += [f"{group_id}: forgot {one.topic}-{one.partition}" for one in sorted(chosen)]
        return done

    for line in work_on_groups(servers, delete_all):
        click.echo(one_line(line))


async def _delete_groups(admin: Admin, group_ids: tuple[str, ...]) -> list[str]:
    """Delete the groups, and report those that were deleted even if others were refused."""
    from ottla.client import AdminError

    try:
        await admin.delete_groups(group_ids)
    except AdminError as refused:
        for group_id in dict.fromkeys(group_ids):
            if group_id not in refused.errors:
                click.echo(f"deleted {group_id}")
        raise
    return [f"deleted {group_id}" for group_id in dict.fromkeys(group_ids)]
