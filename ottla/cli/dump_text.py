"""The rows of a dump as text: a heading per file, a line per row, in columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator

import click

from ottla.cli.dump_records import Row
from ottla.cli.dump_rows import UNREAD_0_7
from ottla.cli.show import show_bytes, show_time
from ottla.protocol.records.batch import MAGIC
from ottla.shown import counted, shown_bytes


def lines_of(rows: Iterable[Row]) -> Iterator[str]:
    """The lines to print."""
    is_first = True
    is_empty = False
    for row in rows:
        if row["type"] == "file":
            if is_empty:
                yield "  (empty)"
            if not is_first:
                yield ""
            yield click.style(f"{row['file']}", bold=True) + f"   {row['kind']}, {shown_bytes(row['size_bytes'])}"
            is_first, is_empty = False, row["kind"] not in ("unknown", UNREAD_0_7)
            continue
        is_empty = False
        yield "  " + _LINES[row["type"]](row)
    if is_empty:
        yield "  (empty)"


def _batch(row: Row) -> str:
    offsets = f"{row['base_offset']}-{row['last_offset']}"
    flags = [
        word
        for word, is_set in (
            ("transactional", row["is_transactional"]),
            ("control", row["is_control"]),
            ("log append time", row["is_log_append_time"]),
        )
        if is_set
    ]
    parts = [
        f"position {row['position']:<10}",
        f"offsets {offsets:<15}",
        f"{row['record_count']:>6} record{'s' if row['record_count'] != 1 else ' '}",
        f"{row['size_bytes']:>9,} bytes",
        f"{row['compression']:<6}",
        f"to {show_time(row['max_timestamp'])}",
        f"epoch {row['partition_leader_epoch']}" if row["magic"] == MAGIC else f"message format v{row['magic']}",
    ]
    if row["producer_id"] >= 0:
        parts.append(
            f"producer {row['producer_id']}/{row['producer_epoch']} "
            f"sequence {row['base_sequence']}-{row['last_sequence']}"
        )
    if "is_crc_right" in row:
        parts.append("crc ok" if row["is_crc_right"] else click.style("CRC WRONG", fg="red"))
    return "  ".join([*parts, *flags])


def _record(row: Row) -> str:
    start = f"    offset {row['offset']}  {show_time(row['timestamp'])}  "
    for name in ("control", "metadata", "transaction", "group", "share_state"):
        if name in row:
            fields = {key: value for key, value in row[name].items() if key != "kind"}
            return f"{start}{row[name]['kind']} {json.dumps(fields)}"
    headers = "".join(f"  {name}={_shown(value)}" for name, value in row["headers"])
    return f"{start}key {_shown(row['key'])}  value {_shown(row['value'])}{headers}"


def _shown(value: str | dict[str, str] | None) -> str:
    if isinstance(value, dict):
        import base64

        return show_bytes(base64.b64decode(value["base64"]))
    return show_bytes(None if value is None else value.encode())


def _offset_entry(row: Row) -> str:
    return (
        f"entry {row['entry']:<6}  {row['bytes']}   relative offset {row['relative_offset']:<10}  "
        f"offset {row['offset']:<12}  position {row['position']}"
    )


def _time_entry(row: Row) -> str:
    return (
        f"entry {row['entry']:<6}  {row['bytes']}   timestamp {row['timestamp']} ({show_time(row['timestamp'])})  "
        f"relative offset {row['relative_offset']:<10}  offset {row['offset']}"
    )


def _producer(row: Row) -> str:
    transaction = row["current_txn_first_offset"]
    return (
        f"producer {row['producer_id']:<10}  epoch {row['producer_epoch']}  last sequence {row['last_sequence']}  "
        f"last offset {row['last_offset']}  {show_time(row['timestamp'])}"
        + (f"  transaction open since offset {transaction}" if transaction >= 0 else "")
    )


def _aborted(row: Row) -> str:
    return (
        f"entry {row['entry']:<6}  producer {row['producer_id']:<10}  aborted from offset {row['first_offset']} "
        f"to {row['last_offset']}  last stable offset {row['last_stable_offset']}"
    )


def _redo_record(row: Row) -> str:
    return (
        f"position {row['position']:<10}  generation {row['generation']}  sequence {row['sequence']:<6}  "
        f"{row['size_bytes']:>9,} bytes  {counted(row['entry_count'], 'entry')}"
    )


def _redo_entry(row: Row) -> str:
    return (
        f"  {row['partition']}  topic id {row['topic_id']}  segment {row['base_offset']}  position {row['position']}  "
        f"{row['size_bytes']:,} bytes  to offset {row['end_offset'] - 1}"
    )


_LINES: dict[str, Callable[[Row], str]] = {
    "batch": _batch,
    "record": _record,
    "offset index entry": _offset_entry,
    "time index entry": _time_entry,
    "producer": _producer,
    "aborted transaction": _aborted,
    "redo record": _redo_record,
    "redo entry": _redo_entry,
    "checkpoint": lambda row: f"{row['topic']}-{row['partition']}  {row['offset']}",
    "leader epoch": lambda row: f"epoch {row['epoch']}  from offset {row['start_offset']}",
    "line": lambda row: str(row["text"]),
    "problem": lambda row: click.style(f"problem: {row['problem']}", fg="red"),
}
