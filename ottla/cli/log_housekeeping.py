"""`ottla log clean`, and `log explain` with `--retention` and `--compaction`: they ask a running broker."""

from __future__ import annotations

import json
import time
from typing import Any, Final

import click

from ottla.cli.failures import Failure, closed_pipe_ends_quietly
from ottla.cli.log_operations import http_option, post
from ottla.cli.parameters import NAME
from ottla.cli.partitions import require_partition
from ottla.cli.show import show_time
from ottla.cli.waiting import Waiting
from ottla.shown import counted, shown_bytes

POLL_S: Final = 0.2
_UNFINISHED = ("waiting", "running")


@click.command(short_help="Compact a topic now, on a running broker.")
@click.argument("topic", metavar="TOPIC", type=NAME)
@http_option
@click.option("--no-wait", is_flag=True, help="Start it and do not wait.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per partition.")
def clean(topic: str, address: str, no_wait: bool, as_json: bool) -> None:
    """Make the running broker compact TOPIC now, however little of it is dirty, and wait until it is done.

    Only whole segments are compacted, never the active one (see log roll), nor records younger than
    min.compaction.lag.ms. A topic that is clean already is read from its start once, and tombstones whose
    delete.retention.ms is over are removed. The broker accepts this only from its own machine, at its
    ottla.http.listener. Exit status 1 when a partition could not be cleaned.

    \b
    Examples:
      ottla log clean customers
      ottla log roll customers-0 && ottla log clean customers
    """
    answer = post(address, "/log/clean", {"topic": topic})["partitions"]
    with Waiting(f"the end of the cleaning of {topic}"):
        while not no_wait and any(one["state"] in _UNFINISHED for one in answer):
            time.sleep(POLL_S)
            answer = post(address, "/log/cleaning", {"topic": topic})["partitions"]
    with closed_pipe_ends_quietly():
        for one in answer:
            click.echo(json.dumps(one) if as_json else _described(one))
    if any(one["state"] == "failed" for one in answer):
        raise SystemExit(1)


def _described(one: dict[str, Any]) -> str:
    name, state = one["partition"], one["state"]
    if state != "done":
        return f"{name}: {state}{': ' if one['message'] else ''}{one['message']}"
    if not one["rounds"]:
        return f"{name}: nothing to clean: {one['message']}"
    return (
        f"{name}: clean up to offset {one['end_offset']}, {counted(one['records_removed'], 'record')} removed, "
        f"{shown_bytes(one['bytes_before'])} became {shown_bytes(one['bytes_after'])}"
    )


def explain_segments(
    partition: str, address: str, *, with_retention: bool, with_compaction: bool, as_json: bool
) -> None:
    """Print for each segment of a partition what retention and the cleaner do with it. Raises Failure."""
    answer = post(address, "/log/explain", {"partition": str(require_partition(partition))})
    with closed_pipe_ends_quietly():
        if as_json:
            click.echo(json.dumps(answer))
            return
        if not answer["segments"]:
            raise Failure(f"{partition} has no segments")
        for line in _head(answer, with_compaction=with_compaction):
            click.echo(line)
        for segment in answer["segments"]:
            click.echo(
                f"segment {segment['base_offset']}: offsets up to {segment['end_offset'] - 1},"
                f" {shown_bytes(segment['size_bytes'])}, newest record {show_time(segment['newest_ms'])}"
                if segment["end_offset"] > segment["base_offset"]
                else f"segment {segment['base_offset']}: empty"
            )
            if with_retention:
                until_ms = segment["retained_until_ms"]
                until = "" if until_ms is None else f", until {show_time(until_ms)}"
                click.echo(f"  retention:  {segment['retention']}{until}")
            if with_compaction:
                click.echo(f"  compaction: {segment['compaction']}")


def _head(answer: dict[str, Any], *, with_compaction: bool) -> list[str]:
    policy = ",".join(answer["cleanup_policy"])
    lines = [
        f"{answer['partition']}: cleanup.policy={policy}, log start {answer['log_start_offset']},"
        f" high watermark {answer['high_watermark']}, log end {answer['log_end_offset']}"
    ]
    if with_compaction and "compact" in answer["cleanup_policy"]:
        lines.append(
            f"clean up to offset {answer['first_dirty_offset']}, cleanable up to {answer['first_uncleanable_offset']},"
            f" dirty ratio {answer['dirty_ratio']:.2f}"
        )
        if answer["uncleanable"]:
            lines.append(f"it cannot be cleaned: {answer['uncleanable']}")
        elif answer["is_cleaning"]:
            lines.append("it is being cleaned now")
        elif not answer["is_cleaner_enabled"]:
            lines.append("log.cleaner.enable is false: only `ottla log clean` cleans it")
    return lines
