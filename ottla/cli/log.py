"""`ottla log`: the group, and its commands `dump` and `explain`, which read the files of a data directory."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ottla.cli.failures import Failure, closed_pipe_ends_quietly, file_errors, require_posix
from ottla.cli.lazy import LazyGroup
from ottla.cli.log_operations import http_option
from ottla.cli.parameters import NAME, FilePath, Number
from ottla.cli.waiting import Waiting


@click.group(
    cls=LazyGroup,
    commands_by_name={
        "dump": ("ottla.cli.log:dump", "Print the content of a log, index, checkpoint or snapshot file."),
        "explain": ("ottla.cli.log:explain", "Show every step by which a record is found."),
        "verify": ("ottla.cli.log_verify:verify", "Check every batch, index, checkpoint and snapshot."),
        "strays": (
            "ottla.cli.log_strays:strays",
            "List and remove the directories that a start has renamed to -stray.",
        ),
        "dirs": ("ottla.cli.log_dirs:dirs", "Show a running broker's log directories, and what takes room in them."),
        "roll": ("ottla.cli.log_operations:roll", "Begin a new segment, on a running broker."),
        "retain": ("ottla.cli.log_operations:retain", "Apply retention now, on a running broker."),
        "clean": ("ottla.cli.log_housekeeping:clean", "Compact a topic now, on a running broker."),
        "trust-clock": (
            "ottla.cli.log_operations:trust_clock",
            "Make a running broker trust its wall clock.",
        ),
    },
    short_help="Read and repair the log files on disk; roll, retain and clean on a running broker.",
)
def log() -> None:
    """Examine the files of a data directory.

    dump, explain, verify and strays need no broker; they only read, and may run beside one (with --repair or
    --remove it must be stopped). roll, retain, clean and trust-clock ask a running broker, at its ottla.http.listener,
    and so does explain with --retention or --compaction. dirs asks it as clients do, at --bootstrap-server.
    """


@click.command()
@click.argument("path", type=FilePath(path_type=Path), metavar="FILE|DIR")
@click.option("--records", "with_records", is_flag=True, help="Decode the batches and print their records too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def dump(path: Path, with_records: bool, as_json: bool) -> None:
    """Print the content of a file of a data directory, or of all files in a directory.

    Knows .log, .index, .timeindex and .snapshot files, checkpoints, partition.metadata and meta.properties. With
    --records the records of the metadata log, of groups and offsets, transactions and share groups are decoded. Files
    of Apache Kafka can be read as well.

    \b
    Examples:
      ottla log dump data/orders-0
      ottla log dump data/orders-0/00000000000000000000.log --records
      ottla log dump data --json | jq .
    """
    require_posix("ottla log dump")
    from ottla.cli.dump_rows import rows_of
    from ottla.cli.dump_text import lines_of
    from ottla.storage.tools.readable_files import CheckedFiles

    with file_errors(), closed_pipe_ends_quietly():
        if not path.exists():
            raise Failure(f"{path}: No such file or directory")
        rows = rows_of(CheckedFiles(), path, with_records=with_records)
        lines = (json.dumps(row) for row in rows) if as_json else lines_of(rows)
        with Waiting(str(path), verb="reading") as work:
            for line in work.over(lines):
                click.echo(line)


@click.command()
@click.argument("partition", type=NAME, metavar="TOPIC-N")
@click.option(
    "--log-dir",
    type=FilePath(path_type=Path),
    help="The data directory (one of log.dirs) that holds the partition.  [default: ./data]",
)
@click.option("-o", "--offset", type=Number(0, 2**63 - 1), metavar="N", help="The offset to look for.")
@click.option(
    "--timestamp",
    metavar="T",
    help="The first record with this timestamp or a later one: "
    "milliseconds since 1970, or a time such as 2023-11-14T22:13:20 (UTC).",
)
@click.option(
    "--retention", "with_retention", is_flag=True, help="Why each segment is kept, or when it will be deleted."
)
@click.option("--compaction", "with_compaction", is_flag=True, help="Why each segment is clean, or not yet cleaned.")
@http_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def explain(
    partition: str,
    log_dir: Path | None,
    offset: int | None,
    timestamp: str | None,
    with_retention: bool,
    with_compaction: bool,
    address: str,
    as_json: bool,
) -> None:
    """Show every step by which the broker finds a record in the files of a partition.

    TOPIC-N is the partition's directory, such as orders-0; its path may be given too. Exit status 1 when there is no
    such record.

    With --retention or --compaction, say for each segment why it is still there. This asks a running broker, which
    knows the configuration and the time.

    \b
    Examples:
      ottla log explain orders-0 --offset 368776
      ottla log explain data/orders-0 --timestamp 2023-11-14T22:13:20
      ottla log explain orders-0 --retention --compaction
    """
    if with_retention or with_compaction:
        if offset is not None or timestamp is not None or log_dir is not None:
            raise click.UsageError("--retention and --compaction are about segments of a running broker")
        from ottla.cli.log_housekeeping import explain_segments

        explain_segments(
            partition, address, with_retention=with_retention, with_compaction=with_compaction, as_json=as_json
        )
        return
    require_posix("ottla log explain of a directory")
    from ottla.cli.explain_json import explanation_to_json
    from ottla.cli.explain_text import explanation_lines
    from ottla.cli.partitions import find_partition, require_partition_in
    from ottla.cli.show import parse_time
    from ottla.storage.tools.explain import Ending, NoSuchPartition, explain_offset, explain_timestamp
    from ottla.storage.tools.readable_files import CheckedFiles

    if (offset is None) == (timestamp is None):
        raise click.UsageError("give one of --offset and --timestamp, or --retention, --compaction")
    directory, wanted = find_partition(partition, log_dir)
    topic, number = wanted
    time_ms = None if timestamp is None else parse_time(timestamp)
    with file_errors(), closed_pipe_ends_quietly():
        require_partition_in(directory, wanted)
        try:
            files = CheckedFiles()
            with Waiting(str(directory), verb="reading"):
                if offset is not None:
                    explanation = explain_offset(files, directory, topic, number, offset)
                else:
                    explanation = explain_timestamp(files, directory, topic, number, time_ms or 0)
        except NoSuchPartition as error:
            raise Failure(str(error)) from None
        lines = [json.dumps(explanation_to_json(explanation), indent=2)] if as_json else explanation_lines(explanation)
        for line in lines:
            click.echo(line)
    if explanation.ending not in (Ending.FOUND, Ending.FOUND_LATER):
        raise SystemExit(1)
