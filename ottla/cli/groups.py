"""`ottla groups`: list, describe, kick, reset and delete consumer, share and streams groups, and say why one receives
nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import click

from ottla.cli import suggestions
from ottla.cli.admin import TIMEOUT_MS, with_admin
from ottla.cli.client_options import bootstrap_server
from ottla.cli.client_properties import options_of
from ottla.cli.failures import Failure, closed_pipe_ends_quietly
from ottla.cli.lazy import LazyGroup
from ottla.cli.parameters import NAME, Choice, Option
from ottla.cli.partitions import choose_partitions
from ottla.cli.show import one_line
from ottla.cli.tables import NONE, table_lines

if TYPE_CHECKING:
    from ottla.client import Admin, GroupDescription, GroupListing
    from ottla.diagnosis.group_diagnosis import Finding

_T = TypeVar("_T")

MEMBER_ID_WITH_DASH = re.compile("-[A-Za-z0-9_-]{21}")
WHY_TIMEOUT_MS = 8_000
"""Shorter than other commands wait: `why` reports that a group has no coordinator."""
READER: Final[dict[str, object]] = {
    "isolation_level": "read_committed",
    "auto_offset_reset": "earliest",
    "max_partition_fetch_bytes": 64 * 1024,  # one record is enough
    "group_id": None,
    "group_instance_id": None,
}
"""Of the consumer of `why`, whatever the file says: with a group.id of the file it would commit for that group."""

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
        "describe": ("ottla.cli.groups_describe:describe", "Show a group's members, offsets and lag."),
        "why": ("ottla.cli.groups:why", "Say why a group receives nothing."),
        "kick": ("ottla.cli.groups:kick", "Remove members from a group."),
        "reset": ("ottla.cli.groups_reset:reset", "Set the offsets at which a group continues."),
        "delete": ("ottla.cli.groups:delete", "Delete groups, or their committed offsets for some topics."),
    },
    short_help="Describe, diagnose, reset and delete groups of all types.",
)
def groups() -> None:
    """List, describe, reset and delete consumer, share and streams groups, and say why one receives nothing."""


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
    type=Choice(STATES),
    metavar="STATE",
    help=f"Only in this state: {', '.join(STATES)}. May be repeated.",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    type=Choice(TYPES),
    metavar="TYPE",
    help=f"Only of this type: {', '.join(TYPES)}. May be repeated.",
)
@click.option("-q", "--quiet", is_flag=True, help="Names alone, one per line.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def list_groups(servers: str, states: tuple[str, ...], types: tuple[str, ...], quiet: bool, as_json: bool) -> None:
    """List the groups: state, type, assignor, and how many members each has."""
    from ottla.diagnosis.group_listing import describe_those_there

    async def look(admin: Admin) -> tuple[list[GroupListing], dict[str, GroupDescription]]:
        listed = await admin.list_groups(states=states, types=types)
        return listed, {} if quiet else await describe_those_there(admin, listed)

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


def _listed_row(listed: GroupListing, described: GroupDescription | None) -> tuple[object, ...]:
    return (
        listed.group_id,
        listed.state or NONE,
        listed.group_type or NONE,
        listed.protocol_type or NONE,
        (described.assignor if described is not None else "") or NONE,
        len(described.members) if described is not None else 0,
    )


# --- why ---------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("group_id", metavar="GROUP", type=NAME, shell_complete=suggestions.groups)
@bootstrap_server
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def why(group_id: str, servers: str, as_json: bool) -> None:
    """Say why GROUP receives nothing: one finding per line, the most important first.

    `!` blocks the group or loses its dead letters, `?` may do so (it depends on the consumer's options), `-` is in
    order.

    \b
    Example:
      ottla groups why billing
    """

    from ottla.client import Consumer
    from ottla.client.consumer_options import ConsumerOptions
    from ottla.diagnosis.findings import findings_about

    options = {**options_of(ConsumerOptions, servers, {"client_id": "ottla-groups"}), **READER}

    async def look(admin: Admin) -> list[Finding]:
        return await findings_about(admin, group_id, lambda: Consumer(servers, **options))

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
@click.argument("members", nargs=-1, metavar="[MEMBER]...", type=NAME)
@bootstrap_server
@click.option("--all", "kicks_all", is_flag=True, help="Every member.")
@click.option("--dry-run", is_flag=True, help="Only show which members would be removed.")
def kick(group_id: str, members: tuple[str, ...], servers: str, kicks_all: bool, dry_run: bool) -> None:
    """Remove members from GROUP, by member id or instance id. Other members get their partitions immediately.

    For dead members whose session has not expired yet, and for members that do not read their partitions. A consumer
    that still runs joins again by itself. Members of share groups and streams groups cannot be removed.
    """
    if kicks_all == bool(members):
        raise click.UsageError("name the members, or give --all")

    async def remove(admin: Admin) -> list[str]:
        from ottla.cli.groups_dry_run import members_to_kick
        from ottla.cli.share_groups import require_no_share_group
        from ottla.cli.streams_groups import require_no_streams_group
        from ottla.diagnosis.group_facts import describe_if_there

        group = await describe_if_there(admin, group_id)
        await require_no_share_group(admin, group)
        await require_no_streams_group(admin, group)
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
@click.argument("group_ids", nargs=-1, required=True, metavar="GROUP...", type=NAME, shell_complete=suggestions.groups)
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
    subscribed to them; a share group may have no members at all.
    """

    async def delete_all(admin: Admin) -> list[str]:
        from ottla.cli.groups_dry_run import groups_to_delete, offsets_to_delete
        from ottla.cli.share_groups import forget_topics
        from ottla.diagnosis.group_facts import describe_if_there, is_share

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
            group = await describe_if_there(admin, group_id)
            if is_share(group):
                done += await forget_topics(admin, group, topics, dry_run=dry_run)
                continue
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
