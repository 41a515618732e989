"""`ottla consume`: the records of a topic, one per line of standard output."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ottla.cli import suggestions
from ottla.cli.client_options import bootstrap_server
from ottla.cli.client_properties import options_of
from ottla.cli.entry import EXIT_INTERRUPTED, EXIT_TERMINATED
from ottla.cli.escapes import IN_WORDS
from ottla.cli.failures import Failure, client_errors, closed_pipe_ends_quietly, reader_is_gone
from ottla.cli.notices import notice
from ottla.cli.parameters import NAME, Number, split_pairs, unescaped
from ottla.cli.record_lines import Fields, json_line, plain_line
from ottla.cli.show import parse_time, show_time
from ottla.cli.waiting import Waiting
from ottla.shown import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.cli.progress import Progress
    from ottla.client import Consumer, ConsumerRecord, TopicPartition

POLL_MS = 1_000
TIMEOUT_MS = 30_000
CLIENT_ID = "ottla-consume"


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
    start = _Start(from_beginning, offset, parse_time(timestamp) if timestamp is not None else None)
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
    reading = _Reading(topic, partitions, start, options, max_messages, exit_at_end, line, progress, waiting)
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
        {"client_id": CLIENT_ID, "default_api_timeout_ms": TIMEOUT_MS},
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


class _Start(NamedTuple):
    from_beginning: bool
    offset: int | None
    timestamp: int | None


class _Reading:
    """One run of the command."""

    def __init__(
        self,
        topic: str,
        partitions: tuple[int, ...],
        start: _Start,
        options: dict[str, Any],
        max_messages: int | None,
        exit_at_end: bool,
        line: Callable[[ConsumerRecord], bytes],
        progress: Progress,
        waiting: Waiting,
    ) -> None:
        self._topic = topic
        self._wanted = partitions
        self._start = start
        self._options = options
        self._group_id: str | None = options.get("group_id")
        self.on_waiting: Callable[[str], bool] = _say_nothing
        """Called with a line that says what the command waits for; returns whether it was shown."""
        self._is_said = False
        self._left = max_messages
        self._exit_at_end = exit_at_end
        self._line = line
        self._progress = progress
        self._waiting = waiting
        self._waits_for = ""
        self._out = sys.stdout.buffer

    async def run(self, servers: str) -> None:
        from ottla.client import Consumer, TopicPartition

        known = await self._known_partitions(servers)
        if self._group_id is not None:
            await self.run_in_group(servers)
            return
        chosen = [TopicPartition(self._topic, one) for one in self._choose(known)]
        async with Consumer(servers, **self._options) as consumer:
            await self._place(consumer, chosen)
            self._say(self._waiting_words())
            self._wait_for_records()
            await self._read(consumer, chosen)

    async def _known_partitions(self, servers: str) -> list[int]:
        """Return the topic's partitions. An Admin reports a missing topic immediately; a consumer waits for it."""
        from ottla.client import Admin
        from ottla.client.options import AdminOptions

        limits = {"client_id": CLIENT_ID, "default_api_timeout_ms": TIMEOUT_MS}
        async with Admin(servers, **options_of(AdminOptions, servers, limits)) as admin:
            return [one.partition for one in (await admin.describe_topics([self._topic]))[self._topic].partitions]

    async def run_in_share_group(self, servers: str) -> None:
        """Read as a member of a share group, and accept what was printed."""
        from ottla.cli.consume_share_group import read_share_group

        await self._known_partitions(servers)
        self._say(f"joining share group {self._group_id} to read {self._topic}; Ctrl-C ends")
        await read_share_group(
            servers,
            self._topic,
            self._options,
            self._left,
            write=self._write,
            wait_for=lambda what: self._wait_for(what, is_ordinary=True),
        )

    def _waiting_words(self) -> str:
        if self._start.offset is not None and self._start.offset >= 0:
            begin = f"reading {self._topic} from offset {self._start.offset} on"
        elif self._start.offset is not None:
            begin = f"reading {self._topic} from {-self._start.offset} before its end on"
        elif self._start.timestamp is not None:
            begin = f"reading {self._topic} from {show_time(self._start.timestamp)} on"
        elif self._options.get("auto_offset_reset") == "earliest":
            begin = f"reading {self._topic} from its beginning"
        else:
            return f"waiting for new records of {self._topic}; --from-beginning shows all; Ctrl-C ends"
        return f"{begin}, then waiting for more; Ctrl-C ends"

    async def run_in_group(self, servers: str) -> None:
        """Read the partitions that the group assigns. Commit what was printed from time to time, and at the end.

        SIGTERM ends it like Ctrl-C, so that the member leaves and the group need not wait for the end of its session.
        """
        import asyncio
        import signal

        from ottla.client import Consumer

        reading = asyncio.current_task()
        if reading is not None and sys.platform != "win32":
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, reading.cancel)
        self._say(f"joining group {self._group_id} to read {self._topic}; Ctrl-C ends")
        async with Consumer(servers, **self._options) as consumer:
            consumer.subscribe([self._topic])
            ends: dict[TopicPartition, int] = {}
            assigned: list[TopicPartition] | None = None
            while True:
                self._wait_in_group(consumer)
                polled = await consumer.getmany(timeout_ms=POLL_MS, max_records=self._left)
                if consumer.group_metadata().generation >= 0 and sorted(consumer.assignment()) != assigned:
                    assigned = sorted(consumer.assignment())
                    self._say(self._assigned_words(assigned))
                unwritten = dict(polled)
                try:
                    for partition, records in polled.items():
                        self._write(records)
                        del unwritten[partition]
                finally:  # the consumer commits its positions when it closes: only what was written may count
                    for partition, records in unwritten.items():
                        consumer.seek(partition, records[0].offset)
                if self._left is not None and self._left <= 0:
                    return
                if not polled and reader_is_gone():
                    raise BrokenPipeError
                if self._exit_at_end and await self._is_group_at_end(consumer, ends):
                    return

    def _assigned_words(self, assigned: list[TopicPartition]) -> str:
        if not assigned:
            return f"no partition is left for this member of {self._group_id}: waiting until another one leaves"
        names = ", ".join(str(one.partition) for one in assigned)
        return f"reading partition{'' if len(assigned) == 1 else 's'} {names}, then waiting for more"

    def _wait_in_group(self, consumer: Consumer) -> None:
        """Set what a message about waiting would name."""
        if consumer.group_metadata().generation < 0:
            self._wait_for(f"a place in the group {self._group_id}")
        elif not consumer.assignment():
            self._wait_for(f"a partition of {self._topic}, of which other members of {self._group_id} have all", True)
        else:
            self._wait_for_records()

    def _wait_for_records(self) -> None:
        self._wait_for(f"records of {self._topic}, of which none has come", True)

    def _wait_for(self, what: str, is_ordinary: bool = False) -> None:
        if what != self._waits_for:
            self._waits_for = what
            self._waiting.on(what, is_ordinary=is_ordinary, is_said=is_ordinary and self._is_said)

    def _say(self, line: str) -> None:
        self._is_said = self.on_waiting(line)

    @staticmethod
    async def _is_group_at_end(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
        """Whether each assigned partition is read to the end that it had when it was assigned; False without any."""
        assigned = consumer.assignment()
        if consumer.group_metadata().generation < 0:
            return False
        ends.update(await consumer.end_offsets([one for one in assigned if one not in ends]))
        for partition in assigned:
            if not await consumer.has_reached(partition, ends[partition]):
                return False
        return bool(assigned)

    def _choose(self, known: list[int]) -> list[int]:
        for one in self._wanted:
            if one not in known:
                raise Failure(f"{self._topic} has no partition {one}; it has {known[0]} to {known[-1]}")
        chosen = list(dict.fromkeys(self._wanted)) or known
        if self._start.offset is not None and self._start.offset >= 0 and len(chosen) > 1:
            many = counted(len(known), "partition")
            raise Failure(f"{self._topic} has {many}; say with --partition whose offset you mean")
        return chosen

    async def _place(self, consumer: Consumer, chosen: list[TopicPartition]) -> None:
        if self._start.offset is None:
            consumer.assign(chosen)
            if self._start.timestamp is not None:
                await consumer.seek_to_times(dict.fromkeys(chosen, self._start.timestamp))
            return
        first, end = await consumer.beginning_offsets(chosen), await consumer.end_offsets(chosen)
        consumer.assign(chosen)
        for one in chosen:
            wanted = self._start.offset
            if wanted < 0:
                wanted = max(first[one], end[one] + wanted)
            elif not first[one] <= wanted <= end[one]:
                raise Failure(
                    f"{one.topic}-{one.partition} has no offset {wanted}; "
                    f"it begins at {first[one]} and ends before {end[one]}"
                )
            consumer.seek(one, wanted)

    async def _read(self, consumer: Consumer, chosen: list[TopicPartition]) -> None:
        ends = await consumer.end_offsets(chosen) if self._exit_at_end else {}
        while not (self._exit_at_end and await self._is_at_end(consumer, ends)):
            polled = await consumer.getmany(timeout_ms=POLL_MS, max_records=self._left)
            for partition, records in polled.items():
                end = ends.get(partition)
                self._write([one for one in records if end is None or one.offset < end])
            if self._left is not None and self._left <= 0:
                return
            if not polled and reader_is_gone():
                raise BrokenPipeError

    @staticmethod
    async def _is_at_end(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
        for partition, end in ends.items():
            if not await consumer.has_reached(partition, end):
                return False
        return True

    def _write(self, records: Sequence[ConsumerRecord]) -> None:
        if not records:
            return
        lines = b"".join(map(self._line, records))
        self._out.write(lines)
        self._out.flush()
        if self._left is not None:
            self._left -= len(records)
        self._progress.add(len(records), len(lines))
        self._waiting.heard()


def _say_nothing(_: str) -> bool:
    return False
