"""`ottla topics delete-records`: moves the start of a topic's partitions forward, after a question."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from ottla.cli import suggestions
from ottla.cli.admin import with_admin
from ottla.cli.client_options import bootstrap_server
from ottla.cli.failures import Failure, WrongOption
from ottla.cli.parameters import NAME, Number
from ottla.cli.partitions import require_known
from ottla.cli.questions import ask
from ottla.cli.show import parse_time
from ottla.cli.tables import table_lines
from ottla.cli.topics import NOT_DONE
from ottla.shown import counted

if TYPE_CHECKING:
    from ottla.client import Admin, AdminError, TopicPartition
    from ottla.diagnosis.group_facts import Edges

LATEST = "latest"


class Before(NamedTuple):
    """The bound of the deletion: exactly one of these is set."""

    offset: int | None = None
    """A negative one counts from the end."""
    timestamp_ms: int | None = None
    is_latest: bool = False


class Trim(NamedTuple):
    """One partition: its first offset, its end, and the first offset that it is to have."""

    start: int
    end: int
    new_start: int

    @property
    def records(self) -> int:
        """How many offsets are deleted."""
        return self.new_start - self.start


_Plan = Mapping["TopicPartition", Trim]


@click.command("delete-records", short_help="Delete a topic's records before an offset or a time.")
@click.argument("topic", metavar="TOPIC", type=NAME, shell_complete=suggestions.topics)
@bootstrap_server
@click.option(
    "--before",
    required=True,
    metavar="OFFSET|TIME|latest",
    help="Delete what is before this offset (-N: all but the last N), or before the first record with this timestamp "
    "or a later one: a time such as 2023-11-14T22:13:20 (UTC), or @ and milliseconds since 1970. latest: all records.",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=Number(0, 2**31 - 1),
    metavar="N",
    multiple=True,
    help="Only this partition. May be repeated.  [default: all]",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per partition.")
def delete_records(
    topic: str,
    servers: str,
    before: str,
    partitions: tuple[int, ...],
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Delete the records of TOPIC before an offset or a time, after a question. This cannot be undone.

    The topic stays, and so do the offsets of the records that are left: each partition begins at a later one. Records
    that are written after the question was asked are kept. A topic whose cleanup.policy is only compact is refused.

    \b
    Examples:
      ottla topics delete-records orders --before latest
      ottla topics delete-records orders --before 2026-11-01 --dry-run
      ottla topics delete-records orders --before 368776 --partition 0 --yes
      ottla topics delete-records orders --before -1000
    """
    wanted = parse_before(before)
    plan = with_admin(servers, "ottla-topics", lambda admin: _plan(admin, topic, partitions, wanted))
    deleted = {one: trim for one, trim in plan.items() if trim.records}
    if as_json and dry_run:
        _print_json(plan)
        return
    if not deleted or dry_run:
        _print_table(plan)
        click.echo(f"{_words(deleted)} can be deleted{NOT_DONE}" if deleted else "there is nothing to delete")
        return
    if not yes:
        if not as_json:
            _print_table(plan)
        ask(f"Delete {_words(deleted)} of {topic} permanently?", otherwise="nothing is deleted")
    refused = with_admin(servers, "ottla-topics", lambda admin: _delete(admin, deleted))
    errors = {} if refused is None else refused.errors
    done = {one: trim for one, trim in plan.items() if _name(one) not in errors}
    if as_json:
        _print_json(done)
    else:
        for one, trim in done.items():
            words = f"{counted(trim.records, 'record')} deleted, the log" if trim.records else "the log"
            click.echo(f"{_name(one)}: {words} starts at {trim.new_start}")
    if refused is not None:
        raise Failure(f"{refused.message} ({refused.code.name})")


def parse_before(text: str) -> Before:
    """The bound that `--before` names. Raises WrongOption."""
    if text == LATEST:
        return Before(is_latest=True)
    if text in ("earliest", "beginning"):
        raise WrongOption(f"--before {text}: there is nothing before it; latest deletes all records")
    is_time = text.startswith("@")
    try:
        offset = int(text.removeprefix("@"))
    except ValueError:
        pass
    else:
        if is_time and offset < 0:
            raise WrongOption("--before: must not lie before 1970")
        if not is_time and not -(2**63) <= offset < 2**63:
            raise WrongOption(f"--before {text}: no partition has so many offsets")
        return Before(timestamp_ms=offset) if is_time else Before(offset=offset)
    try:
        timestamp_ms = parse_time(text.removeprefix("@"), "--before")
    except click.BadParameter:
        raise WrongOption(
            f"--before {text}: neither an offset nor a time such as 2023-11-14T22:13:20 nor latest"
        ) from None
    if timestamp_ms < 0:
        raise WrongOption("--before: must not lie before 1970")
    return Before(timestamp_ms=timestamp_ms)


async def _plan(admin: Admin, topic: str, partitions: Sequence[int], wanted: Before) -> _Plan:
    """The plan of the deletion. Raises Failure if the broker would refuse it."""
    from ottla.client import TopicPartition
    from ottla.diagnosis.group_facts import edges_of

    description = (await admin.describe_topics([topic]))[topic]
    known = [one.partition for one in description.partitions]
    require_known(topic, partitions, known)
    if description.is_internal:
        raise Failure(f"{topic} is internal: no broker deletes records of it by offset")
    await _require_deletion_policy(admin, topic)
    chosen = [TopicPartition(topic, one) for one in sorted(set(partitions)) or known]
    if wanted.offset is not None and wanted.offset >= 0 and len(chosen) > 1:
        raise Failure(f"{topic} has {counted(len(known), 'partition')}; say with --partition whose offset you mean")
    # The ends come first: a record that is written meanwhile is after them, and not deleted.
    edges = await edges_of(admin, chosen)
    at_time: dict[TopicPartition, int] = {}
    if wanted.timestamp_ms is not None:
        found = await admin.list_offsets(dict.fromkeys(chosen, wanted.timestamp_ms))
        at_time = {one: place.offset for one, place in found.items() if place is not None}
    return {one: plan_trim(one, wanted, edges[one], at_time.get(one)) for one in chosen}


def plan_trim(partition: TopicPartition, wanted: Before, edges: Edges, at_time: int | None) -> Trim:
    """The new start of a partition. `at_time` is the offset of the first record at the time, None if there is none.

    Raises Failure for an offset after the end.
    """
    start, end = edges.start, edges.end
    if wanted.timestamp_ms is not None:
        new_start = end if at_time is None else min(at_time, end)
    elif wanted.offset is None:
        new_start = end
    elif wanted.offset < 0:
        new_start = end + wanted.offset
    else:
        new_start = wanted.offset
    if new_start > end:
        raise Failure(
            f"{_name(partition)} ends before offset {end}: {new_start} is after it; latest deletes all records"
        )
    return Trim(start, end, max(new_start, start))


async def _require_deletion_policy(admin: Admin, topic: str) -> None:
    from ottla.client import AdminError, ConfigResource

    key = "cleanup.policy"
    resource = ConfigResource.topic(topic)
    try:
        entry = (await admin.describe_configs([resource], keys=[key]))[resource].get(key)
    except AdminError:  # a user may have the right to delete records, and not to see this
        return
    if entry is not None and entry.value is not None and "delete" not in entry.value:
        raise Failure(
            f"{topic} has cleanup.policy={entry.value}: brokers delete records before an offset only where it has "
            f"delete; a tombstone deletes a key, and `ottla topics delete` the topic"
        )


async def _delete(admin: Admin, plan: _Plan) -> AdminError | None:
    """Delete, and return what was refused."""
    from ottla.client import AdminError

    try:
        await admin.delete_records({one: trim.new_start for one, trim in plan.items()})
    except AdminError as refused:
        return refused
    return None


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def _words(plan: _Plan) -> str:
    return counted(sum(trim.records for trim in plan.values()), "record")


def _print_table(plan: _Plan) -> None:
    rows = [(one.partition, trim.start, trim.end, trim.new_start, trim.records) for one, trim in plan.items()]
    for line in table_lines(rows, ("partition", "start", "end", "new start", "records deleted")):
        click.echo(f"  {line}")


def _print_json(plan: _Plan) -> None:
    for one, trim in plan.items():
        row = {
            "topic": one.topic,
            "partition": one.partition,
            "start_offset": trim.start,
            "end_offset": trim.end,
            "new_start_offset": trim.new_start,
            "records_deleted": trim.records,
        }
        click.echo(json.dumps(row))
