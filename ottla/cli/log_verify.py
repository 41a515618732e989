"""`ottla log verify`: checks whether a data directory has what was written to it; `--repair` mends what it can."""

from __future__ import annotations

import json
import logging
import shlex
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.failures import Failure, closed_pipe_ends_quietly, file_errors, require_posix
from ottla.cli.parameters import NAME, FilePath, Number
from ottla.cli.partitions import DEFAULT_LOG_DIRECTORY, parse_partition, require_partition_in
from ottla.cli.progress import Bar
from ottla.cli.waiting import Waiting
from ottla.shown import counted, shown_bytes

if TYPE_CHECKING:
    from ottla.storage.formats.layout import TopicPartition
    from ottla.storage.tools.verify import Counts, Finding

STATUS_UNSURE = 3
"""Findings that the next start checks and repairs, and no damage."""
_COLOURS = {"damage": "red", "unsure": "yellow", "note": "cyan"}


@click.command(short_help="Check every batch, index, checkpoint and snapshot.")
@click.argument("what", type=NAME, metavar="[DIR|TOPIC-N]", required=False)
@click.option(
    "--log-dir",
    type=FilePath(path_type=Path),
    help="The data directory (one of log.dirs) that holds the partition.  [default: ./data]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per finding, and one for the end.")
@click.option("-q", "--quiet", is_flag=True, help="No progress bar, no notes, no closing line.")
@click.option("--repair", is_flag=True, help="Repair the findings, instead of listing the repairs.")
@click.option("--yes", is_flag=True, help="With --repair: answer its questions with yes, for scripts.")
@click.option(
    "--node-id",
    type=Number(0, 2**31 - 1),
    metavar="N",
    help="With --repair: the broker's node.id, if no file in the directory has it.  [default: 1]",
)
@click.option(
    "--also",
    type=FilePath(path_type=Path, exists=True, file_okay=False),
    multiple=True,
    help="Another one of the broker's log.dirs, when the metadata log has to be rebuilt.",
)
def verify(
    what: str | None,
    log_dir: Path | None,
    *,
    as_json: bool,
    quiet: bool,
    repair: bool,
    yes: bool,
    node_id: int | None,
    also: tuple[Path, ...],
) -> None:
    """Check every batch of a data directory, or of one partition: headers, checksums, offsets, both indexes, leader
    epochs, producer snapshots and checkpoints. No broker is needed. Without --repair nothing is changed, and the
    repairs that it would make are listed.

    A broker's start checks only the log past the recovery point; this checks everything. Each finding names file,
    byte position and offset, and its severity: `damage`; `unsure`, which the next start will repair; `note`, which is
    only information. Exit status 0 if there are only notes, 1 if there is damage, 3 if something is unsure and
    nothing is damage.

    With --repair everything that can be repaired is, with one line each; the rest is reported again, with exit status
    1 (0 if nothing is left). The broker must be stopped. Batches after damage are moved to files of their own, never
    removed. For partitions without a metadata log it creates topics, after a question.

    \b
    Examples:
      ottla log verify
      ottla log verify orders-0 --log-dir /var/lib/ottla/data
      ottla log verify data --json | jq 'select(.severity == "damage")'
      ottla log verify --repair /var/lib/ottla/data
    """
    require_posix("ottla log verify")
    from ottla.broker.metadata.rebuild import MetadataRebuild
    from ottla.storage.tools.readable_files import ReadableFiles
    from ottla.storage.tools.repair import DirectoryInUse, Repair
    from ottla.storage.tools.verify import NothingToVerify, Severity, Verification

    if not repair and (yes or node_id is not None):
        raise click.UsageError("--yes and --node-id are for --repair")
    directory, partition = _find(what, log_dir)
    files, now_ms = ReadableFiles(), time.time_ns() // 1_000_000
    work = Waiting(str(directory), verb="mending" if repair else "looking into", is_quiet=quiet)
    agrees = partial(_agrees, is_agreed=yes, work=work)
    with file_errors(), closed_pipe_ends_quietly():
        require_partition_in(directory, partition)
        try:
            with work:
                Verification(files, directory, partition)
                metadata = MetadataRebuild(files, directory, now_ms, also, node_id)
                if repair:
                    # The lines of the repair contain what recovery logs.
                    logging.getLogger("ottla").addHandler(logging.NullHandler())
                    mended = Repair(files, directory, now_ms, partition, metadata, agrees).run()
                    for path, line in work.over(mended):
                        _print_mend("mended", path, line, directory, as_json=as_json)
                    metadata = MetadataRebuild(files, directory, now_ms, also, node_id)
                going = Repair(files, directory, now_ms, partition, metadata)
        except (NothingToVerify, DirectoryInUse) as error:
            raise Failure(str(error)) from None
        bar = Bar("verifying", going.verification.size_bytes(), is_shown=not quiet)
        try:
            for finding in going.look(bar.add):
                if quiet and finding.severity is Severity.NOTE:
                    continue
                bar.above()
                click.echo(json.dumps(_to_json(finding)) if as_json else _line(finding, directory))
        except KeyboardInterrupt:
            raise SystemExit(130) from None
        finally:
            bar.end()
        counts = going.verification.counts
        with Waiting(str(directory), verb="looking into", is_quiet=quiet):
            left = [mend for mend in going.plan() if not mend.is_optional]
        if not quiet:
            for mend in left:
                _print_mend("left" if repair else "would", mend.path, mend.plan, directory, as_json=as_json)
            if left and not repair and not as_json:
                place = shlex.quote(str(directory if partition is None else directory / str(partition)))
                click.echo(f"to have that done, stop the broker and run: ottla log verify --repair {place}")
            click.echo(json.dumps(_counts_to_json(counts)) if as_json else _closing(counts))
    if counts.findings[Severity.DAMAGE] or (repair and left):
        raise SystemExit(1)
    if counts.findings[Severity.UNSURE]:
        raise SystemExit(STATUS_UNSURE)


def _agrees(question: str, *, is_agreed: bool, work: Waiting) -> bool:
    """Whether the user agrees; without a terminal to ask at the answer is no."""
    if is_agreed:
        return True
    if not sys.stdin.isatty():
        click.echo(f"not done: there is no terminal to ask at (--yes does it): {question}", err=True)
        return False
    with work.resting():
        return click.confirm(question, err=True)


def _print_mend(word: str, path: Path, line: str, directory: Path, *, as_json: bool) -> None:
    """`mended`: what was done; `would`: what `--repair` would do; `left`: what it could not."""
    if as_json:
        click.echo(json.dumps({"type": word, "file": str(path), "what": line}))
    else:
        shown = path.relative_to(directory) if path.is_relative_to(directory) else path
        click.echo(f"{click.style(f'{word:<6}', fg='green')}  {shown}: {line}")


def _find(what: str | None, log_dir: Path | None) -> tuple[Path, TopicPartition | None]:
    """A partition by name or path, or a log directory. An existing directory of that name wins over `./data`."""
    if what is None:
        return log_dir or DEFAULT_LOG_DIRECTORY, None
    path = Path(what)
    partition = parse_partition(path.name)
    if partition is None:
        if log_dir is not None:
            raise click.BadParameter(f"{what!r} is not a topic and a partition, such as orders-0", param_hint="TOPIC-N")
        return path, None
    if log_dir is not None:
        return log_dir, partition
    if "/" not in what:
        return DEFAULT_LOG_DIRECTORY, partition
    with file_errors():
        is_log_directory = (path / "meta.properties").exists()
    return (path, None) if is_log_directory else (path.parent, partition)


def _line(finding: Finding, directory: Path) -> str:
    path = finding.path.relative_to(directory) if finding.path.is_relative_to(directory) else finding.path
    places = [str(path)]
    if finding.position is not None:
        places.append(f"position {finding.position}")
    if finding.offset is not None:
        places.append(f"offset {finding.offset}")
    word = click.style(f"{finding.severity:<6}", fg=_COLOURS[finding.severity])
    return f"{word}  {', '.join(places)}: {finding.problem}"


def _to_json(finding: Finding) -> dict[str, object]:
    return {
        "type": "finding",
        "severity": str(finding.severity),
        "file": str(finding.path),
        "position": finding.position,
        "offset": finding.offset,
        "problem": finding.problem,
    }


def _counts_to_json(counts: Counts) -> dict[str, object]:
    return {
        "type": "verified",
        "partitions": counts.partitions,
        "segments": counts.segments,
        "batches": counts.batches,
        "size_bytes": counts.size_bytes,
        **{f"findings_{severity}": number for severity, number in counts.findings.items()},
    }


def _closing(counts: Counts) -> str:
    looked_at = ((counts.partitions, "partition"), (counts.segments, "segment"), (counts.batches, "batch"))
    words = [counted(number, noun) for number, noun in looked_at]
    looked = ", ".join([*words, shown_bytes(counts.size_bytes)])
    found = [f"{number:,} {severity}" for severity, number in counts.findings.items() if number]
    return f"{looked}: {', '.join(found) if found else 'sound'}"
