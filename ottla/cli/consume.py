"""`ottla consume`: the records of a topic, one per line of standard output."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, NamedTuple

import click

from ottla.cli.client_options import bootstrap_server
from ottla.cli.entry import EXIT_INTERRUPTED, EXIT_TERMINATED
from ottla.cli.failures import Failure, client_errors, closed_pipe_ends_quietly, reader_is_gone
from ottla.cli.show import json_bytes, parse_time, printable, show_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.cli.progress import Progress
    from ottla.client import Consumer, ConsumerRecord, TopicPartition
    from ottla.client.consumer_options import GroupProtocol

POLL_MS = 1_000
TIMEOUT_MS = 30_000


class Fields(NamedTuple):
    """What is printed of a record beside its value."""

    timestamps: bool
    offsets: bool
    keys: bool
    headers: bool
    separator: bytes


@click.command(short_help="Write a topic's records to standard output.")
@click.argument("topic")
@bootstrap_server
@click.option(
    "-B",
    "--from-beginning",
    is_flag=True,
    help="Start with the first record there is.  [default: with the next one that is written]",
)
@click.option(
    "-o",
    "--offset",
    type=click.IntRange(-(2**63), 2**63 - 1),
    metavar="N",
    help="Start at offset N; -N: N before the end.",
)
@click.option(
    "-t",
    "--timestamp",
    metavar="T",
    help="Start at the first record stamped so or later: milliseconds since 1970, or a time such as "
    "2023-11-14T22:13:20 (UTC).",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(0, 2**31 - 1),
    multiple=True,
    help="Only this partition. May be given often.  [default: all]",
)
@click.option(
    "-g",
    "--group",
    "group_id",
    metavar="GROUP",
    help="Share the topic with this consumer group: start where it has committed, commit what is printed.",
)
@click.option(
    "--group-protocol",
    type=click.Choice(["classic", "consumer"]),
    default="classic",
    show_default=True,
    help="Who shares out: a member, or the broker (KIP-848).",
)
@click.option("-n", "--max-messages", type=click.IntRange(1), help="Stop after so many records.")
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at the end that the topic has now.")
@click.option("--keys", is_flag=True, help="Print keys.")
@click.option("--headers", is_flag=True, help="Print headers.")
@click.option("--timestamps", is_flag=True, help="Print timestamps.")
@click.option("--offsets", is_flag=True, help="Print partition:offset.")
@click.option("-v", "--verbose", is_flag=True, help="Print all four.")
@click.option("-s", "--separator", default="\t", show_default="a tab", help="What stands between the fields.")
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
def consume(
    topic: str,
    servers: str,
    from_beginning: bool,
    offset: int | None,
    timestamp: str | None,
    partitions: tuple[int, ...],
    group_id: str | None,
    group_protocol: GroupProtocol,
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
) -> None:
    """Write the records of TOPIC to standard output, a line each, until Ctrl-C.

    Fields stand in this order: timestamp, partition:offset, key, headers, value. A null is printed as `null`; --json
    tells it from the text.

    \b
    Examples:
      ottla consume orders --from-beginning --exit-at-end
      ottla consume orders --partition 0 --offset 368776 --max-messages 1 --json
      ottla consume orders -B -e --format '%p:%o %k=%s\\n'
      ottla consume orders --group billing
    """
    import asyncio

    from ottla.cli.progress import Progress
    from ottla.cli.record_format import compile_format

    if sum((from_beginning, offset is not None, timestamp is not None)) > 1:
        raise click.UsageError("give one of --from-beginning, --offset and --timestamp")
    if group_id is not None and (partitions or offset is not None or timestamp is not None):
        raise click.UsageError(
            "a group shares out partitions and knows where it was; --partition, --offset and "
            "--timestamp go without --group (`ottla groups reset` moves a group)"
        )
    if group_id == "":
        raise click.BadParameter("must not be empty", param_hint="--group")
    start = _Start(from_beginning, offset, parse_time(timestamp) if timestamp is not None else None)
    if start.timestamp is not None and start.timestamp < 0:
        raise click.BadParameter("must not lie before 1970", param_hint="--timestamp")
    fields = Fields(timestamps or verbose, offsets or verbose, keys or verbose, headers or verbose, separator.encode())
    if template is not None and (as_json or any(fields[:4])):
        raise click.UsageError("--format says all that is written; it goes without --json and the fields' options")
    try:
        write = None if template is None else compile_format(template, for_terminal=sys.stdout.isatty())
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--format") from None
    progress = Progress("received", is_shown=not sys.stdout.isatty())
    group = None if group_id is None else _Group(group_id, group_protocol)
    reading = _Reading(topic, partitions, start, group, max_messages, exit_at_end, write, fields, as_json, progress)
    try:
        with closed_pipe_ends_quietly(), client_errors():
            asyncio.run(reading.run(servers))
    except KeyboardInterrupt:
        progress.end()
        raise SystemExit(EXIT_INTERRUPTED) from None
    except asyncio.CancelledError:
        progress.end()
        raise SystemExit(EXIT_TERMINATED) from None
    finally:
        progress.end()


class _Start(NamedTuple):
    from_beginning: bool
    offset: int | None
    timestamp: int | None


class _Group(NamedTuple):
    group_id: str
    protocol: GroupProtocol


class _Reading:
    """One run of the command."""

    def __init__(
        self,
        topic: str,
        partitions: tuple[int, ...],
        start: _Start,
        group: _Group | None,
        max_messages: int | None,
        exit_at_end: bool,
        write: Callable[[ConsumerRecord], bytes] | None,
        fields: Fields,
        as_json: bool,
        progress: Progress,
    ) -> None:
        self._topic = topic
        self._wanted = partitions
        self._start = start
        self._group = group
        self._left = max_messages
        self._exit_at_end = exit_at_end
        self._fields = fields
        self._line = write or self._plain_line
        self._as_json = as_json
        self._progress = progress
        self._out = sys.stdout.buffer
        self._is_terminal = sys.stdout.isatty()

    async def run(self, servers: str) -> None:
        from ottla.client import Admin, Consumer, TopicPartition

        async with Admin(servers, client_id="ottla-consume", default_api_timeout_ms=TIMEOUT_MS) as admin:
            # Asked of Admin, which answers at once; a consumer waits for a topic to come about.
            known = [one.partition for one in (await admin.describe_topics([self._topic]))[self._topic].partitions]
        if self._group is not None:
            await self._run_in_group(servers, self._group)
            return
        chosen = [TopicPartition(self._topic, one) for one in self._choose(known)]
        reset = "none" if self._start.offset is not None else "earliest" if self._start.from_beginning else "latest"
        async with Consumer(
            servers,
            client_id="ottla-consume",
            auto_offset_reset="none" if reset == "none" else "earliest" if reset == "earliest" else "latest",
            default_api_timeout_ms=TIMEOUT_MS,
        ) as consumer:
            await self._place(consumer, chosen)
            await self._read(consumer, chosen)

    async def _run_in_group(self, servers: str, group: _Group) -> None:
        """Read what the group assigns; what was printed is committed from time to time, and at the end.

        SIGTERM ends it like Ctrl-C, so that the group need not wait for the session of one who is gone.
        """
        import asyncio
        import signal

        from ottla.client import Consumer

        reading = asyncio.current_task()
        if reading is not None and sys.platform != "win32":
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, reading.cancel)
        async with Consumer(
            servers,
            client_id="ottla-consume",
            group_id=group.group_id,
            group_protocol=group.protocol,
            auto_offset_reset="earliest" if self._start.from_beginning else "latest",
            default_api_timeout_ms=TIMEOUT_MS,
        ) as consumer:
            consumer.subscribe([self._topic])
            ends: dict[TopicPartition, int] = {}
            while True:
                polled = await consumer.getmany(timeout_ms=POLL_MS, max_records=self._left)
                unwritten = dict(polled)
                try:
                    for partition, records in polled.items():
                        self._write(records)
                        del unwritten[partition]
                finally:  # the end of the group's consumer commits how far was read: that is what was written
                    for partition, records in unwritten.items():
                        consumer.seek(partition, records[0].offset)
                if self._left is not None and self._left <= 0:
                    return
                if not polled and reader_is_gone():
                    raise BrokenPipeError
                if self._exit_at_end and await self._is_group_at_end(consumer, ends):
                    return

    @staticmethod
    async def _is_group_at_end(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
        """Whether all that is assigned is read to the end it had when it was; False while nothing is assigned yet."""
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
            raise Failure(f"{self._topic} has {len(known)} partitions; say with --partition whose offset you mean")
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

    def _write(self, records: list[ConsumerRecord]) -> None:
        if not records:
            return
        lines = b"".join(map(self._line, records))
        self._out.write(lines)
        self._out.flush()
        if self._left is not None:
            self._left -= len(records)
        self._progress.add(len(records), len(lines))

    def _plain_line(self, record: ConsumerRecord) -> bytes:
        if self._as_json:
            return json.dumps(_record_to_json(record)).encode() + b"\n"
        fields = self._fields
        parts: list[bytes] = []
        if fields.timestamps:
            parts.append(show_time(record.timestamp_ms).encode())
        if fields.offsets:
            parts.append(b"%d:%d" % (record.partition, record.offset))
        if fields.keys:
            parts.append(self._bytes(record.key))
        if fields.headers:
            headers = (
                name.encode("utf-8", "surrogateescape") + b"=" + self._bytes(value) for name, value in record.headers
            )
            parts.append(b",".join(headers))
        parts.append(self._bytes(record.value))
        return fields.separator.join(parts) + b"\n"

    def _bytes(self, data: bytes | None) -> bytes:
        if data is None:
            return b"null"
        return printable(data).encode() if self._is_terminal else data


def _record_to_json(record: ConsumerRecord) -> dict[str, object]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
        "headers": [[name, json_bytes(value)] for name, value in record.headers],
    }
