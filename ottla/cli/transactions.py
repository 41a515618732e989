"""`ottla transactions`: list, describe and abort transactions, and find those that no coordinator will end."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from ottla.cli import suggestions
from ottla.cli.admin import with_admin
from ottla.cli.client_options import bootstrap_server
from ottla.cli.failures import Failure, closed_pipe_ends_quietly
from ottla.cli.lazy import LazyGroup
from ottla.cli.parameters import NAME, Choice, Number
from ottla.cli.partitions import require_known
from ottla.cli.show import one_line, show_time
from ottla.cli.tables import NONE, table_lines

if TYPE_CHECKING:
    from ottla.client import Admin, HangingTransaction, TopicPartition, TransactionDescription

_T = TypeVar("_T")

STATES = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort"),
    *("CompleteCommit", "CompleteAbort", "PrepareEpochFence", "Dead"),
)


@click.group(
    cls=LazyGroup,
    commands_by_name={
        "list": ("ottla.cli.transactions:list_transactions", "List transactional ids with their state."),
        "describe": ("ottla.cli.transactions:describe", "Show a transactional id's producer and open transaction."),
        "abort": ("ottla.cli.transactions:abort", "Abort transactions, and fence their producers."),
        "find-hanging": ("ottla.cli.transactions:find_hanging", "Find open transactions that no coordinator will end."),
    },
    short_help="List, describe and abort transactions; find hanging ones.",
)
def transactions() -> None:
    """List, describe and abort transactions, and find those that block readers permanently."""


def _work(servers: str, work: Callable[[Admin], Awaitable[_T]]) -> _T:
    return with_admin(servers, "ottla-transactions", work)


# --- list --------------------------------------------------------------------------------------------------------


@click.command("list")
@bootstrap_server
@click.option(
    "--state",
    "states",
    multiple=True,
    type=Choice(STATES),
    metavar="STATE",
    help=f"Only in this state: {', '.join(STATES)}. May be repeated.",
)
@click.option("--producer-id", "producer_ids", multiple=True, type=Number(0, 2**63 - 1), help="Only of this producer.")
@click.option(
    "--open-for-ms", type=Number(0, 2**63 - 1), help="Only transactions that have been open for at least so long."
)
@click.option("--pattern", metavar="REGEX", help="Only ids that match a regular expression (RE2).")
@click.option("-q", "--quiet", is_flag=True, help="Ids alone, one per line.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def list_transactions(
    servers: str,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    open_for_ms: int | None,
    pattern: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """List the transactional ids of all coordinators: state and producer id.

    \b
    Example:
      ottla transactions list --state Ongoing --open-for-ms 60000
    """
    listed = _work(
        servers,
        lambda admin: admin.list_transactions(
            states=states, producer_ids=producer_ids, open_for_ms=open_for_ms, pattern=pattern
        ),
    )
    names = ("transactional id", "state", "producer id")
    with closed_pipe_ends_quietly():
        if quiet:
            for one in listed:
                click.echo(one_line(one.transactional_id))
        elif as_json:
            for one in listed:
                row = (one.transactional_id, one.state, one.producer_id)
                click.echo(json.dumps(dict(zip(_keys(names), row, strict=True))))
        elif listed:
            rows = [(one.transactional_id, one.state, str(one.producer_id)) for one in listed]
            click.echo("\n".join(table_lines(rows, names)))


def _keys(names: tuple[str, ...]) -> list[str]:
    return [name.replace(" ", "_") for name in names]


# --- describe ----------------------------------------------------------------------------------------------------


@click.command()
@click.argument(
    "transactional_ids",
    nargs=-1,
    required=True,
    metavar="ID...",
    type=NAME,
    shell_complete=suggestions.transactional_ids,
)
@bootstrap_server
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def describe(transactional_ids: tuple[str, ...], servers: str, as_json: bool) -> None:
    """Show a transactional id's state and producer, since when its transaction is open, and where it has written."""
    described = _work(servers, lambda admin: _those_there(admin, transactional_ids))
    missing = [one for one in dict.fromkeys(transactional_ids) if one not in described]
    now_ms = int(time.time() * 1000)
    with closed_pipe_ends_quietly():
        for number, one in enumerate(described.values()):
            if as_json:
                click.echo(json.dumps(_to_json(one)))
                continue
            if number:
                click.echo()
            click.echo("\n".join(_lines(one, now_ms)))
    if missing:
        raise _unknown(missing)


async def _those_there(admin: Admin, ids: tuple[str, ...]) -> dict[str, TransactionDescription]:
    from ottla.client import AdminError, ErrorCode

    try:
        return await admin.describe_transactions(ids)
    except AdminError as refused:
        if any(error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND for error in refused.errors.values()):
            raise
        return await admin.describe_transactions([one for one in ids if one not in refused.errors])


def _unknown(missing: list[str]) -> Failure:
    return Failure(f"there is no transactional id {', '.join(missing)}")


def _lines(one: TransactionDescription, now_ms: int) -> list[str]:
    name = click.style(one_line(one.transactional_id), bold=True)
    lines = [
        f"{name}   {one.state}   coordinator {one.coordinator.node_id}",
        f"  producer id {one.producer_id}, epoch {one.producer_epoch}, timeout {one.timeout_ms:,} ms",
    ]
    if one.start_ms is not None:
        lines.append(f"  open since {show_time(one.start_ms)} ({_age(one.start_ms, now_ms)})")
    if one.partitions:
        lines += ["", *(f"  {line}" for line in table_lines(sorted(one.partitions), ("topic", "partition")))]
    return lines


def _age(since_ms: int, now_ms: int) -> str:
    """`3 s`, `12 min`, `5 h`: roughly."""
    seconds = max(0, now_ms - since_ms) // 1000
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _to_json(one: TransactionDescription) -> dict[str, object]:
    return {
        "transactional_id": one.transactional_id,
        "state": one.state,
        "coordinator": one.coordinator.node_id,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "timeout_ms": one.timeout_ms,
        "start_ms": one.start_ms,
        "partitions": [list(partition) for partition in sorted(one.partitions)],
    }


# --- abort -------------------------------------------------------------------------------------------------------


@click.command()
@click.argument(
    "transactional_ids", nargs=-1, metavar="[ID]...", type=NAME, shell_complete=suggestions.transactional_ids
)
@bootstrap_server
@click.option(
    "-t",
    "--topic",
    metavar="TOPIC",
    type=NAME,
    shell_complete=suggestions.topics,
    help="With --partition in place of ids: end the hanging transactions of a partition.",
)
@click.option("-p", "--partition", type=Number(0, 2**31 - 1), metavar="N", help="The partition.")
@click.option("--producer-id", type=Number(0, 2**63 - 1), help="Only that of this producer.")
def abort(
    transactional_ids: tuple[str, ...], servers: str, topic: str | None, partition: int | None, producer_id: int | None
) -> None:
    """Abort the open transactions of transactional ids. Their producers are fenced: they cannot write any more, and
    their programs have to create new ones.

    With --topic and --partition in place of ids, end the transactions that hang there, as `find-hanging` finds them,
    however old they are. A transaction that its coordinator knows is not touched.

    \b
    Examples:
      ottla transactions abort billing-0
      ottla transactions abort --topic orders --partition 0
    """
    has_place = topic is not None and partition is not None
    if has_place == bool(transactional_ids) or (topic is None) != (partition is None):
        raise click.UsageError("give transactional ids, or --topic and --partition")
    if topic is not None and partition is not None:
        _abort_hanging(servers, topic, partition, producer_id)
        return
    if producer_id is not None:
        raise click.UsageError("--producer-id needs --topic and --partition")

    async def fence(admin: Admin) -> tuple[dict[str, TransactionDescription], dict[str, tuple[int, int]]]:
        described = await _those_there(admin, transactional_ids)
        missing = [one for one in dict.fromkeys(transactional_ids) if one not in described]
        if missing:
            raise _unknown(missing)
        return described, await admin.fence_producers(list(described))

    described, fenced = _work(servers, fence)
    for transactional_id, (now_id, epoch) in fenced.items():
        was = described[transactional_id]
        done = "aborted its transaction" if was.start_ms is not None else "had no open transaction"
        click.echo(f"{transactional_id}: {done}; its producer is fenced (producer id {now_id}, epoch {epoch} now)")


def _abort_hanging(servers: str, topic: str, partition: int, producer_id: int | None) -> None:
    from ottla.client import TopicPartition

    async def end(admin: Admin) -> list[HangingTransaction]:
        known = [one.partition for one in await _partitions_of(admin, (topic,))]  # a look-up would wait for it
        require_known(topic, [partition], known)
        hanging = await admin.find_hanging_transactions([TopicPartition(topic, partition)], older_than_ms=0)
        chosen = [one for one in hanging if producer_id in (None, one.producer_id)]
        for one in chosen:
            await admin.abort_hanging_transaction(one)
        return chosen

    ended = _work(servers, end)
    for one in ended:
        click.echo(f"aborted the transaction of producer id {one.producer_id} at offset {one.start_offset}")
    if not ended:
        whose = "" if producer_id is None else f" of producer id {producer_id}"
        raise Failure(f"no transaction{whose} hangs in {topic}-{partition}")


# --- find-hanging ------------------------------------------------------------------------------------------------


@click.command("find-hanging")
@bootstrap_server
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    type=NAME,
    shell_complete=suggestions.topics,
    help="Only in this topic. May be repeated.",
)
@click.option(
    "--older-than-ms",
    type=Number(0, 2**63 - 1),
    default=900_000,
    show_default=True,
    help="Only where the producer has written nothing for so long; not less than transaction.max.timeout.ms.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def find_hanging(servers: str, topics: tuple[str, ...], older_than_ms: int, as_json: bool) -> None:
    """Find the open transactions that no coordinator knows, and that no coordinator will end. Consumers with
    isolation.level=read_committed read nothing after them.

    `ottla transactions abort --topic T --partition N` ends them.
    """

    async def find(admin: Admin) -> list[HangingTransaction]:
        partitions = await _partitions_of(admin, topics) if topics else None
        return await admin.find_hanging_transactions(partitions, older_than_ms=older_than_ms)

    found = sorted(_work(servers, find), key=lambda one: (one.partition, one.start_offset))
    names = ("topic", "partition", "start offset", "producer id", "epoch", "last write", "transactional id")
    now_ms = int(time.time() * 1000)
    with closed_pipe_ends_quietly():
        if as_json:
            for one in found:
                row = (*one.partition, one.start_offset, one.producer_id, one.producer_epoch, one.last_timestamp_ms)
                click.echo(json.dumps(dict(zip(_keys(names), (*row, one.transactional_id), strict=True))))
        elif found:
            rows = [
                (
                    *one.partition,
                    one.start_offset,
                    str(one.producer_id),
                    one.producer_epoch,
                    f"{_age(one.last_timestamp_ms, now_ms)} ago",
                    NONE if one.transactional_id is None else one.transactional_id,
                )
                for one in found
            ]
            click.echo("\n".join(table_lines(rows, names)))


async def _partitions_of(admin: Admin, topics: tuple[str, ...]) -> list[TopicPartition]:
    from ottla.client import TopicPartition

    described = await admin.describe_topics(topics)
    return [TopicPartition(topic.name, one.partition) for topic in described.values() for one in topic.partitions]
