"""`ottla consume`: the records of a topic, one per line of standard output."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ottla.cli import suggestions
from ottla.cli.client_options import bootstrap_server
from ottla.cli.client_properties import options_of
from ottla.cli.consume_reading import LIMITS, Reading, Start
from ottla.cli.entry import EXIT_INTERRUPTED, EXIT_TERMINATED
from ottla.cli.escapes import IN_WORDS
from ottla.cli.failures import client_errors, closed_pipe_ends_quietly
from ottla.cli.notices import notice
from ottla.cli.parameters import NAME, Number, split_pairs, unescaped
from ottla.cli.record_lines import Fields, json_line, plain_line
from ottla.cli.show import parse_time
from ottla.cli.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.client import ConsumerRecord


class _Offset(Number):
    """A number. For the words that `--offset` takes in other tools the error names the option of this command."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """See Number."""
        if value in ("beginning", "earliest"):
            self.fail(f"{value!r} is not a whole number; --from-beginning starts with the first record", param, ctx)
        if value in ("end", "latest"):
            self.fail(f"{value!r} is not a whole number; without --offset the next record is the first", param, ctx)
        return super().convert(value, param, ctx)


@click.command(short_help="Write a topic's records to standard output.")
@click.argument("topic", type=NAME, shell_complete=suggestions.topics)
@bootstrap_server
@click.option(
    "-B",
    "--from-beginning",
    is_flag=True,
    help="Start with the first record.  [default: with the next one that is written]",
)
@click.option(
    "-o",
    "--offset",
    type=_Offset(-(2**63), 2**63 - 1),
    metavar="N",
    help="Start at offset N; -N: N before the end.",
)
@click.option(
    "--timestamp",
    metavar="T",
    help="Start at the first record with this timestamp or a later one: milliseconds since 1970, or a time such as "
    "2023-11-14T22:13:20 (UTC).",
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
@click.option(
    "-g",
    "--group",
    "group_id",
    metavar="GROUP",
    type=NAME,
    shell_complete=suggestions.groups,
    help="Share the topic with this consumer group: start where it has committed, commit what is printed.",
)
@click.option(
    "--share-group",
    metavar="GROUP",
    type=NAME,
    shell_complete=suggestions.groups,
    help="Read the topic as a queue, in this share group: accept what is printed.",
)
@click.option(
    "--group-protocol",
    type=click.Choice(["classic", "consumer"]),
    help="What assigns the partitions: classic, a member; consumer, the broker (KIP-848).  [default: classic]",
)
@click.option(
    "--isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    help="read_committed hides records of open and aborted transactions.  [default: read_uncommitted]",
)
@click.option("-n", "--max-messages", type=Number(1), metavar="N", help="Stop after this many records.")
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at the current end of the topic.")
@click.option("--keys", is_flag=True, help="Print keys.")
@click.option("--headers", is_flag=True, help="Print headers.")
@click.option("--timestamps", is_flag=True, help="Print timestamps.")
@click.option("--offsets", is_flag=True, help="Print partition:offset.")
@click.option("-v", "--verbose", is_flag=True, help="Print all four.")
@click.option(
    "-s", "--separator", default="\t", show_default="a tab", help=rf"The text between the fields; {IN_WORDS}."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.option(
    "-f",
    "--format",
    "template",
    metavar="TEXT",
    help=r"How a record is written, as in kcat: %s value, %S its length, %R the same as 4 bytes, %k key, "
    r"%K its length, %t topic, %p partition, %o offset, %T timestamp in milliseconds, %D as a date, %h headers, "
    r"%% percent; \n \r \t \\ \xHH. Nothing is added.",
)
@click.option(
    "--consumer-property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=suggestions.consumer_pairs,
    help="An option of the consumer by Kafka's name, such as max.poll.records=100. May be repeated.",
)
@click.option("-q", "--quiet", is_flag=True, help="Show no progress and no messages about waiting.")
def consume(
    topic: str,
    servers: str,
    from_beginning: bool,
    offset: int | None,
    timestamp: str | None,
    partitions: tuple[int, ...],
    group_id: str | None,
    share_group: str | None,
    group_protocol: str | None,
    isolation: str | None,
    max_messages: int | None,
    exit_at_end: bool,
    keys: bool,
    headers: bool,
    timestamps: bool,
    offsets: bool,
    verbose: bool,
    separator: str,
    as_json: bool,
    template: str | None,
    properties: tuple[str, ...],
    quiet: bool,
) -> None:
    """Write the records of TOPIC to standard output, a line each, until Ctrl-C.

    Fields are in this order: timestamp, partition:offset, key, headers, value. A null is printed as `null`; --json
    distinguishes it from that text.

    \b
    Examples:
      ottla consume orders --from-beginning --exit-at-end
      ottla consume orders --partition 0 --offset 368776 --max-messages 1 --json
      ottla consume orders -B -e --format '%p:%o %k=%s\\n'
      ottla consume orders --group billing
      ottla consume mails --share-group mailer
    """
    import asyncio

    from ottla.cli.progress import Progress

    if sum((from_beginning, offset is not None, timestamp is not None)) > 1:
        raise click.UsageError("give one of --from-beginning, --offset and --timestamp")
    given = split_pairs("--consumer-property", properties)
    if share_group is not None:
        _check_share_group(
            share_group,
            {
                "--group": group_id is not None or "group.id" in given,
                "--group-protocol": group_protocol is not None,
                "--isolation": isolation is not None,
                "--from-beginning": from_beginning,
                "--offset": offset is not None,
                "--timestamp": timestamp is not None,
                "--partition": bool(partitions),
                "--exit-at-end": exit_at_end,
            },
        )
    group_id = group_id if group_id is not None else given.pop("group.id", None)
    has_place = bool(partitions) or offset is not None or timestamp is not None
    _check_group(group_id, has_place=has_place)
    start = Start(from_beginning, offset, parse_time(timestamp) if timestamp is not None else None)
    if start.timestamp is not None and start.timestamp < 0:
        raise click.BadParameter("must not lie before 1970", param_hint="--timestamp")
    fields = Fields(
        timestamps or verbose,
        offsets or verbose,
        keys or verbose,
        headers or verbose,
        unescaped("--separator", separator),
    )
    if template is not None and (as_json or any(fields[:4])):
        raise click.UsageError(
            "--format cannot be used with --json, --keys, --headers, --timestamps, --offsets and --verbose"
        )
    line = _line_writer(fields, template, as_json=as_json)
    reset = "earliest" if from_beginning else "none" if offset is not None else None
    chosen = {
        "auto_offset_reset": reset,
        "group_id": group_id,
        "group_protocol": group_protocol,
        "isolation_level": isolation,
    }
    options = _options(servers, given, chosen, share_group, max_messages)
    if group_protocol is not None and "group_id" not in options:
        raise click.UsageError("--group-protocol needs --group")
    if has_place:
        options.pop("group_id", None)  # it may be in a --command-config that other programs share
    progress = Progress("received", is_shown=not (quiet or sys.stdout.isatty()))
    waiting = Waiting(f"an answer of {servers}", is_quiet=quiet)
    reading = Reading(topic, partitions, start, options, max_messages, exit_at_end, line, progress, waiting)
    if not quiet and not exit_at_end:
        reading.on_waiting = notice
    try:
        with closed_pipe_ends_quietly(), client_errors(), waiting:
            asyncio.run(reading.run(servers) if share_group is None else reading.run_in_share_group(servers))
    except KeyboardInterrupt:
        progress.end()
        raise SystemExit(EXIT_INTERRUPTED) from None
    except asyncio.CancelledError:
        progress.end()
        raise SystemExit(EXIT_TERMINATED) from None
    finally:
        progress.end()


def _line_writer(fields: Fields, template: str | None, *, as_json: bool) -> Callable[[ConsumerRecord], bytes]:
    """Return the function that makes the line of a record."""
    from ottla.cli.record_format import compile_format

    is_terminal = sys.stdout.isatty()
    try:
        if template is not None:
            return compile_format(template, for_terminal=is_terminal)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--format") from None
    return json_line if as_json else partial(plain_line, fields, for_terminal=is_terminal)


def _options(
    servers: str,
    given: Mapping[str, str],
    chosen: Mapping[str, object],
    share_group: str | None,
    max_messages: int | None,
) -> dict[str, Any]:
    """Return the options of the consumer, or of the share consumer."""
    from ottla.cli.consume_share_group import share_options
    from ottla.client.consumer_options import ConsumerOptions
    from ottla.client.share_consumer_options import ShareConsumerOptions

    return options_of(
        ConsumerOptions if share_group is None else ShareConsumerOptions,
        servers,
        LIMITS,
        properties=given,
        option="--consumer-property",
        chosen=chosen if share_group is None else share_options(share_group, max_messages),
    )


def _check_share_group(share_group: str, others: Mapping[str, bool]) -> None:
    for name, is_given in others.items():
        if is_given:
            raise click.UsageError(
                f"{name} cannot be used with --share-group: the group's settings say where it begins and which records "
                "it reads (`ottla configs describe --group`), and it has no end"
            )
    if share_group == "":
        raise click.BadParameter("must not be empty", param_hint="--share-group")


def _check_group(group_id: str | None, *, has_place: bool) -> None:
    if group_id is not None and has_place:
        raise click.UsageError(
            "--partition, --offset and --timestamp cannot be used with --group: a group assigns the partitions, and "
            "starts at its committed offsets (`ottla groups reset` changes them)"
        )
    if group_id == "":
        raise click.BadParameter("must not be empty", param_hint="--group")
