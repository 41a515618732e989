"""`ottla log strays`: lists the directories that a start has renamed to `-stray`, with the reason, and removes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.failures import Failure, closed_pipe_ends_quietly, file_errors, require_posix
from ottla.cli.parameters import NAME, FilePath
from ottla.cli.partitions import DEFAULT_LOG_DIRECTORY, require_log_directory
from ottla.cli.questions import ask
from ottla.cli.show import show_time
from ottla.cli.tables import table_lines
from ottla.cli.waiting import Waiting
from ottla.shown import shown_bytes

if TYPE_CHECKING:
    from ottla.storage.tools.strays import Stray


@click.command(short_help="List and remove the directories that a start has renamed to -stray.")
@click.argument("names", type=NAME, nargs=-1, metavar="[NAME]...")
@click.option(
    "--log-dir",
    type=FilePath(path_type=Path),
    help="The data directory (one of log.dirs) to look into.  [default: ./data]",
)
@click.option(
    "--also",
    type=FilePath(path_type=Path, exists=True, file_okay=False),
    multiple=True,
    help="Another one of the broker's log.dirs, where the metadata log is.",
)
@click.option("--deleted", is_flag=True, help="Only directories of topics that are known to have been deleted.")
@click.option("--remove", is_flag=True, help="Remove them, after a question; the broker must be stopped.")
@click.option("--yes", is_flag=True, help="With --remove: do not ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per directory.")
def strays(
    names: tuple[str, ...],
    log_dir: Path | None,
    also: tuple[Path, ...],
    *,
    deleted: bool,
    remove: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """List the -stray directories of a data directory: topic, partition, topic id, bytes, when a file in it was last
    written to, and why no broker serves it. NAME is the name of a directory or a topic. Without a name, all are listed.

    A start renames a directory to -stray if its metadata has no such partition, and never removes it, since it may be
    the only copy. With --remove the directories are removed permanently.

    \b
    Examples:
      ottla log strays
      ottla log strays --deleted --remove --log-dir /var/lib/ottla/data
      ottla log strays orders --remove --yes
    """
    require_posix("ottla log strays")
    from ottla.storage.files.files import OsFiles
    from ottla.storage.formats.layout import LOCK_FILE
    from ottla.storage.tools.readable_files import ReadableFiles
    from ottla.storage.tools.strays import StrayReason, find_strays, remove_stray

    if yes and not remove:
        raise click.UsageError("--yes needs --remove: it answers the question")
    directory = log_dir or DEFAULT_LOG_DIRECTORY
    files = OsFiles()
    with file_errors(), closed_pipe_ends_quietly():
        require_log_directory(directory)
        lock = None
        if remove:
            try:
                lock = files.lock(directory / LOCK_FILE)
            except BlockingIOError as error:
                raise Failure(f"{directory} is in use by a broker ({error.strerror}): stop it first") from None
        try:
            with Waiting(str(directory), verb="looking into") as work:
                listed = find_strays(ReadableFiles(), directory, also)
                found = [one for one in work.over(listed) if _is_meant(one, names)]
            if deleted:
                found = [one for one in found if one.reason is StrayReason.DELETED]
            chosen = bool(names) or deleted
            _show(found, directory, f"no -stray directories{' that match' if chosen else ''}", as_json=as_json)
            if not remove or not found:
                return
            if not yes:
                _ask(found)
            with Waiting(str(directory), verb="removing") as work:
                for one in found:
                    work.on(str(one.path))
                    remove_stray(files, one)
                    if not as_json:
                        with work.resting():
                            click.echo(f"{click.style('removed', fg='green')}  {one.path.name}")
        finally:
            if lock is not None:
                lock.release()


def _is_meant(stray: Stray, names: tuple[str, ...]) -> bool:
    known_as = (stray.path.name, stray.topic_partition.topic, str(stray.topic_partition))
    return not names or any(name in known_as for name in names)


def _show(found: list[Stray], directory: Path, nothing: str, *, as_json: bool) -> None:
    from ottla.storage.formats.kafka_uuid import uuid_to_text

    if as_json:
        for one in found:
            row = {
                "directory": str(one.path),
                "topic": one.topic_partition.topic,
                "partition": one.topic_partition.partition,
                "topic_id": None if one.topic_id is None else uuid_to_text(one.topic_id),
                "size_bytes": one.size_bytes,
                "newest_ms": one.newest_ms,
                "reason": one.reason.name.lower(),
                "why": one.reason.value,
            }
            click.echo(json.dumps(row))
        return
    if not found:
        click.echo(f"{directory}: {nothing}")
        return
    rows = [
        (
            one.topic_partition.topic,
            one.topic_partition.partition,
            "none" if one.topic_id is None else uuid_to_text(one.topic_id),
            one.size_bytes,
            "none" if one.newest_ms is None else show_time(one.newest_ms),
            one.path.name,
            one.reason.value,
        )
        for one in found
    ]
    for line in table_lines(rows, ("topic", "partition", "topic id", "bytes", "last written", "directory", "why")):
        click.echo(line)


def _ask(found: list[Stray]) -> None:
    size = shown_bytes(sum(one.size_bytes for one in found))
    ask(f"Remove {_directories(len(found))} with {size} permanently?", otherwise="nothing is removed")


def _directories(count: int) -> str:
    return "this directory" if count == 1 else f"these {count:,} directories"
