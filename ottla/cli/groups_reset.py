"""`ottla groups reset`: sets the offsets at which a group without members continues. It only shows the plan without
--execute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ottla.cli import suggestions
from ottla.cli.client_options import bootstrap_server
from ottla.cli.failures import Failure
from ottla.cli.groups import work_on_groups
from ottla.cli.offset_reset import Reset, ResetTo, plan_reset
from ottla.cli.parameters import NAME, Number
from ottla.cli.partitions import choose_partitions
from ottla.cli.share_groups import require_no_members
from ottla.cli.show import parse_time
from ottla.cli.tables import table_lines
from ottla.shown import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.client import Admin, GroupDescription, OffsetAndMetadata, TopicPartition

_Plan = dict["TopicPartition", Reset]


@click.command()
@click.argument("group_id", metavar="GROUP", type=NAME, shell_complete=suggestions.groups)
@bootstrap_server
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:P,P]",
    type=NAME,
    shell_complete=suggestions.topics,
    help="A topic, or some of its partitions. May be repeated.",
)
@click.option("--all-topics", is_flag=True, help="All topics for which the group has offsets.")
@click.option("--to-earliest", is_flag=True, help="The first record.")
@click.option("--to-latest", is_flag=True, help="The end: skip all existing records.")
@click.option(
    "--to-current", is_flag=True, help="The group's present offset, moved into the log if retention has passed it."
)
@click.option("--to-offset", type=Number(0, 2**63 - 1), metavar="N", help="This offset.")
@click.option(
    "--to-datetime",
    metavar="T",
    help="The first record with this timestamp or a later one: "
    "milliseconds since 1970, or a time such as 2023-11-14T22:13:20 (UTC).",
)
@click.option("--shift-by", type=Number(-(2**63), 2**63 - 1), metavar="N", help="N records forward, or (-N) back.")
@click.option(
    "--share", is_flag=True, help="If there is no such group, make a share group.  [default: a consumer group]"
)
@click.option("--execute", is_flag=True, help="Do it.  [default: --dry-run]")
@click.option("--dry-run", is_flag=True, help="Only show what would be done, which is the default.")
def reset(
    group_id: str,
    servers: str,
    topics: tuple[str, ...],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    to_datetime: str | None,
    shift_by: int | None,
    share: bool,
    execute: bool,
    dry_run: bool,
) -> None:
    """Set the offsets at which GROUP continues. It must have no members; without --execute nothing is changed.

    An offset outside the log becomes the nearest offset inside it. A share group delivers all records from the new
    start offset on, also those that were acknowledged before.

    A group that does not exist is made, so that its first member begins there.

    \b
    Examples:
      ottla groups reset billing --topic orders --to-earliest
      ottla groups reset billing --topic orders:0,2 --shift-by -100 --execute
    """
    timestamp_ms = parse_time(to_datetime, "--to-datetime") if to_datetime is not None else None
    wanted = ResetTo(to_earliest, to_latest, to_current, to_offset, timestamp_ms, shift_by)
    if wanted.choices != 1:
        raise click.UsageError("give one of the --to- options, or --shift-by")
    if execute and dry_run:
        raise click.UsageError("give one of --execute and --dry-run")
    if all_topics == bool(topics):
        raise click.UsageError("give --topic, or --all-topics")
    if timestamp_ms is not None and timestamp_ms < 0:
        raise click.BadParameter("must not lie before 1970", param_hint="--to-datetime")
    if topics:
        choose_partitions(topics)  # so that errors are reported before a broker is asked

    async def work(admin: Admin) -> tuple[_Plan, bool, bool]:
        from ottla.diagnosis.group_facts import describe_if_there, is_share, kind_of

        group = await describe_if_there(admin, group_id)
        is_shared = is_share(group) or (group is None and share)
        if share and group is not None and not is_shared:
            raise Failure(f"{group_id} is a {kind_of(group)} group: --share is for share groups")
        if is_share(group):
            require_no_members(group)
        elif group is not None:
            _require_no_members(group)
        known = {} if group is None and is_shared else await _present_offsets(admin, group_id, is_shared)
        is_new = group is None and not known
        if is_new and not topics:
            raise Failure(f"there is no group {group_id}; to make it, name topics with --topic")
        plan = await _plan(admin, group_id, topics, wanted, known, is_shared)
        offsets = {one: reset.offset for one, reset in plan.items()}
        if execute and is_shared:
            await admin.alter_share_group_offsets(group_id, offsets)
        elif execute:
            await admin.alter_group_offsets(group_id, offsets)
        return plan, is_shared, is_new

    plan, is_shared, is_new = work_on_groups(servers, work)
    rows = [_row(partition, reset) for partition, reset in plan.items()]
    present = "start offset" if is_shared else "committed"
    click.echo("\n".join(table_lines(rows, ("topic", "partition", present, "new", "lag", ""))))
    if is_new:
        kind = "share group" if is_shared else "consumer group"
        others = "" if is_shared else " (with --share, a share group)"
        would = f"there is no group {group_id}: --execute makes a {kind} of this name{others}"
        click.echo(f"there was no group {group_id}: a {kind} of this name was made" if execute else would)
    if not execute:
        click.echo("nothing was changed; --execute does it")


def _row(partition: TopicPartition, reset: Reset) -> tuple[object, ...]:
    return (*partition, reset.committed, reset.offset, reset.end - reset.offset, reset.remark)


def _require_no_members(group: GroupDescription) -> None:
    from ottla.cli.streams_groups import SESSION_KEY
    from ottla.diagnosis.streams_partitions import STREAMS

    if not group.members:
        return
    has_members = (
        f"{group.group_id} has {counted(len(group.members), 'member')} ({group.state}), which would not notice"
    )
    if group.group_type == STREAMS:  # no command can remove them
        raise Failure(f"{has_members}: stop the application (a dead member is removed after {SESSION_KEY})")
    them = "it" if len(group.members) == 1 else "them"
    raise Failure(f"{has_members}: stop {them} before (`ottla groups kick` removes dead ones)")


async def _present_offsets(
    admin: Admin, group_id: str, is_shared: bool
) -> dict[TopicPartition, OffsetAndMetadata | None]:
    """The committed offsets, or the start offsets of a share group: None for a partition without one yet."""
    from ottla.client import OffsetAndMetadata

    if not is_shared:
        return {**(await admin.list_group_offsets({group_id: None}))[group_id]}
    found = (await admin.share_group_offsets({group_id: None}))[group_id]
    return {one: None if place is None else OffsetAndMetadata(place.start_offset) for one, place in found.items()}


async def _plan(
    admin: Admin,
    group_id: str,
    topics: tuple[str, ...],
    wanted: ResetTo,
    known: Mapping[TopicPartition, OffsetAndMetadata | None],
    is_shared: bool,
) -> _Plan:
    from ottla.client import TopicPartition
    from ottla.diagnosis.group_facts import edges_of

    if topics:
        names = sorted({text.partition(":")[0] for text in topics})
        described = await admin.describe_topics(names)
        existing = [TopicPartition(name, one.partition) for name in names for one in described[name].partitions]
        for text, wants in zip(topics, choose_partitions(topics), strict=True):
            asked = text.partition(":")[2]
            found = sum(map(wants, existing))
            if asked and found < len(set(asked.split(","))):
                name = text.partition(":")[0]
                many = counted(len(described[name].partitions), "partition")
                raise Failure(f"{name} has {many}, not all of {asked}")
        chosen = [one for one in existing if any(wants(one) for wants in choose_partitions(topics))]
    else:
        chosen = list(known)
        if not chosen:
            nothing = "has read nothing yet" if is_shared else "has committed nothing"
            raise Failure(f"{group_id} {nothing}; name topics with --topic")
    at_time: dict[TopicPartition, int | None] = {}
    if wanted.timestamp_ms is not None:
        found_at = await admin.list_offsets(dict.fromkeys(chosen, wanted.timestamp_ms))
        at_time = {one: None if place is None else place.offset for one, place in found_at.items()}
    present = {one: offset for one, offset in known.items() if offset is not None}
    plan, without = plan_reset(wanted, await edges_of(admin, chosen), present, at_time)
    if without:
        names_of = ", ".join(f"{one.topic}-{one.partition}" for one in without)
        nothing = "there is no start offset yet" if is_shared else "nothing is committed"
        raise Failure(f"{nothing} for {names_of}, so there is nothing to start from")
    return plan
