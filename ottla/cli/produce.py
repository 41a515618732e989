"""`ottla produce`: each line of standard input becomes a record; `input_records.py` reads the lines."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from ottla.cli import suggestions
from ottla.cli.client_options import bootstrap_server, split_header
from ottla.cli.client_properties import options_of
from ottla.cli.escapes import IN_WORDS
from ottla.cli.failures import Failure, client_errors, file_errors
from ottla.cli.input_records import Reader, json_reader, plain_reader
from ottla.cli.notices import notice
from ottla.cli.parameters import NAME, Number, Option, split_pairs, unescaped
from ottla.cli.waiting import Waiting

if TYPE_CHECKING:
    import asyncio

    from ottla.cli.progress import Progress
    from ottla.client import Producer
    from ottla.client.accumulator import Delivery

MAX_BLOCK_MS = 15_000
"""The time to wait for the topic: enough for a broker that is starting, and not too long for a mistyped name."""

_INPUT = "lines on standard input"


PARTITIONERS = ("murmur2", "murmur2_random", "consistent", "consistent_random", "random", "roundrobin", "sticky")
"""The client's partitioners. `--help` names them without importing the client; a test compares the two."""


@click.command(short_help="Write lines from standard input to a topic.")
@click.argument("topic", type=NAME, shell_complete=suggestions.topics)
@bootstrap_server
@click.option("-k", "--key-separator", metavar="TEXT", help=rf"A line is key, TEXT, value; {IN_WORDS} in TEXT.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="A line is a JSON object, as consume --json prints it: value, key, headers, timestamp, partition.",
)
@click.option("--null-marker", metavar="TEXT", help="A key or a value that is TEXT is null, such as a tombstone's.")
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    callback=split_header,
    help="A header for every record. May be repeated.",
)
@click.option(
    "-p",
    "--partition",
    type=Number(0, 2**31 - 1),
    metavar="N",
    help="The partition for every record.  [default: that of the JSON, else the --partitioner chooses]",
)
@click.option(
    "--partitioner",
    type=click.Choice(PARTITIONERS),
    metavar="NAME",
    help=f"The rule that chooses partitions: {', '.join(PARTITIONERS)}.  [default: murmur2, as Kafka's Java clients: "
    "by key, and without one a partition per batch]",
)
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    help="How batches are compressed.  [default: none]",
)
@click.option(
    "--acks",
    cls=Option,
    old=["-a"],
    type=click.Choice(["all", "1", "0"]),
    help="all: wait until each record is safe; 1: until the broker has it; 0: not at all.  [default: all]",
)
@click.option(
    "--producer-property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=suggestions.producer_pairs,
    help="An option of the producer by Kafka's name, such as linger.ms=20. May be repeated.",
)
@click.option("-q", "--quiet", is_flag=True, help="Show no progress and no messages about waiting.")
def produce(
    topic: str,
    servers: str,
    key_separator: str | None,
    as_json: bool,
    null_marker: str | None,
    headers: list[tuple[str, bytes]],
    partition: int | None,
    partitioner: str | None,
    compression: str | None,
    acks: str | None,
    properties: tuple[str, ...],
    quiet: bool,
) -> None:
    """Write each line of standard input to TOPIC as a record, until the end of the input.

    A line ends with a line feed. On Windows a carriage return before it belongs to the line end; elsewhere it is part
    of the record.

    With --json a record keeps its key, value, headers, timestamp and partition: `ottla consume --json` of one topic
    piped into `ottla produce --json` of another one copies it. Only "value" is required; bytes that are not UTF-8 are
    {"base64": "..."}. --partition and --partitioner choose other partitions; --header adds to the record's own.

    The topic is created if the broker creates topics automatically. Exit status 0 means that every record was
    acknowledged.

    \b
    Examples:
      seq 10 | ottla produce numbers
      ottla produce numbers --producer-property linger.ms=50 < numbers.txt
      printf 'ada:1815\\nalan:1912\\n' | ottla produce born --key-separator :
      ottla consume born -B -e --json | ottla produce copy --json
      echo 'ada:NULL' | ottla produce born --key-separator : --null-marker NULL
    """
    import asyncio

    from ottla.cli.progress import Progress
    from ottla.client import Producer
    from ottla.client.producer_options import ProducerOptions

    for option, text in (("--key-separator", key_separator), ("--null-marker", null_marker)):
        if text == "":
            raise click.BadParameter("must not be empty", param_hint=option)
    if as_json and (key_separator is not None or null_marker is not None):
        raise click.UsageError("--json cannot be used with --key-separator and --null-marker")
    separator = None if key_separator is None else unescaped("--key-separator", key_separator)
    if partition is not None and partitioner is not None:
        raise click.UsageError("give one of --partition and --partitioner")
    options = options_of(
        ProducerOptions,
        servers,
        {"client_id": "ottla-produce", "max_block_ms": MAX_BLOCK_MS},
        properties=split_pairs("--producer-property", properties),
        option="--producer-property",
        chosen={"acks": acks, "compression_type": compression, "partitioner": partitioner},
    )

    if as_json:
        read = json_reader(tuple(headers), partition, keeps_partition=partitioner is None)
    else:
        marker = None if null_marker is None else null_marker.encode()
        read = plain_reader(separator, marker, tuple(headers), partition)

    async def send_all(progress: Progress) -> None:
        async with Producer(servers, **options) as producer:
            sending = _Sending(producer, topic, read, progress, waiting)
            if sys.stdin.isatty() and not quiet:
                shape = "" if key_separator is None else f" as KEY{key_separator}VALUE"
                shape = " as JSON objects" if as_json else shape
                line = f"waiting for records for {topic}: type them{shape}, one a line; Ctrl-D ends"
                sending.is_input_said = notice(line)
            # All lines or none, if the producer has transactions.
            async with producer.transaction() if options.get("transactional_id") else nullcontext():
                await sending.run()

    waiting = Waiting(f"an answer of {servers}", is_quiet=quiet)
    progress = Progress("sent", is_shown=not (quiet or sys.stdin.isatty()))
    try:
        with client_errors(), file_errors(), waiting:
            asyncio.run(send_all(progress))
    except KeyboardInterrupt:
        progress.end()
        raise SystemExit(130) from None
    finally:
        progress.end(f" to {topic}")


class _Sending:
    """Sends the lines, and reports the errors of the producer."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        read: Reader,
        progress: Progress,
        waiting: Waiting,
    ) -> None:
        import asyncio

        self._producer = producer
        self._topic = topic
        self._record_of = read
        self._progress = progress
        self._waiting = waiting
        self.is_input_said = False
        """Whether a notice on the terminal has said that the command waits for lines."""
        self._deliveries: asyncio.Queue[Delivery] = asyncio.Queue()
        self._line = 0

    async def run(self) -> None:
        """Send until the input ends or a record is refused, whichever comes first."""
        import asyncio

        tasks = asyncio.create_task(self._read()), asyncio.create_task(self._watch())
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:  # also after Ctrl-C: a task that continued would use a closed producer
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._waiting.on("the acknowledgement of what was sent")
        await self._producer.flush()

    async def _read(self) -> None:
        from ottla.cli.stdin_lines import LineTooLong, stdin_lines
        from ottla.client.errors import RecordTooLarge

        try:
            self._waiting.on(_INPUT, is_ordinary=True, is_said=self.is_input_said)
            async for lines in stdin_lines():
                self._waiting.on(f"the broker to take records for {self._topic}")
                for line in lines:
                    await self._send(line)
                self._progress.add(len(lines), sum(map(len, lines)))
                self._waiting.on(_INPUT, is_ordinary=True, is_said=self.is_input_said)
        except LineTooLong as error:
            raise Failure(f"line {self._line + 1}: {error}") from None
        except RecordTooLarge as error:
            raise Failure(f"line {self._line} was not sent: {error.message} ({error.code.name})") from None

    async def _send(self, line: bytes) -> None:
        self._line += 1
        try:
            record = self._record_of(line)
        except ValueError as error:
            raise Failure(f"line {self._line} was not sent: it {error}") from None
        if record is None:
            return
        key, value, headers, timestamp_ms, partition = record
        try:
            delivery = await self._producer.send(
                self._topic,
                value,
                key=key,
                headers=headers,
                timestamp_ms=timestamp_ms,
                partition=partition,
            )
        except ValueError as error:
            raise Failure(f"line {self._line} was not sent: {error}") from None
        self._deliveries.put_nowait(delivery)

    async def _watch(self) -> None:
        """Raise the error of a refused record, even while the command waits for the next line."""
        while True:
            await (await self._deliveries.get())
