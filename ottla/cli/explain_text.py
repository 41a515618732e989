"""An explanation as text: numbered steps, in which `>` marks the chosen entry."""

from __future__ import annotations

from collections.abc import Iterator

import click

from ottla.cli.batch_words import codec_of, flags_of, header_fields, offsets_of
from ottla.cli.show import show_bytes, show_hex, show_time
from ottla.protocol.records.batch import MAGIC
from ottla.shown import counted, shown_bytes
from ottla.storage.index.index_reading import IndexStep
from ottla.storage.tools.explain import BatchStep, Ending, Explanation, RecordStep, ScannedBatch, ScanStep, SegmentStep

_NEIGHBOURS = 3
"""How many segments and batches long lists show on either side of the chosen one."""


def explanation_lines(explanation: Explanation) -> Iterator[str]:
    """The lines to print. They have colours, which click removes if the output is not a terminal."""
    yield from _question(explanation)
    for number, (heading, lines) in enumerate(_steps(explanation), 1):
        yield ""
        yield click.style(f"{number}. {heading}", bold=True)
        yield from lines
    yield ""
    yield _answer(explanation)


def _question(explanation: Explanation) -> Iterator[str]:
    wanted = (
        f"offset {explanation.offset}"
        if explanation.offset is not None
        else f"the first record stamped {_stamp(explanation.timestamp or 0)} or later"
    )
    yield f"Looking for {wanted} in {explanation.directory}"
    if explanation.log_start_offset:
        yield f"The log starts at offset {explanation.log_start_offset} (log-start-offset-checkpoint)."


def _steps(explanation: Explanation) -> Iterator[tuple[str, Iterator[str]]]:
    if explanation.timestamp is not None:
        yield "Segment: the first one whose largest timestamp is late enough", _timestamps(explanation)
        if explanation.time_index is not None:
            yield (
                "Time index: the greatest timestamp at or below the one looked for",
                _time_entry(explanation.time_index),
            )
    if explanation.segment is not None:
        if explanation.offset is not None:
            count = len(explanation.segment.base_offsets)
            yield (
                f"Segment: the greatest base offset at or below {explanation.offset}, of {count}",
                _segment(explanation.segment, explanation.offset),
            )
        if explanation.offset_index is not None:
            target = explanation.offset_index.base_offset + explanation.offset_index.target
            yield (
                f"Offset index: the greatest entry at or below {target}",
                _offset_entry(explanation.offset_index, explanation.segment),
            )
    if explanation.scan is not None:
        yield (
            f"Scan: batch headers from position {explanation.scan.start_position} on",
            _scan(explanation.scan, explanation),
        )
    if explanation.batch is not None:
        magic, size_bytes = explanation.batch.header.magic, len(explanation.batch.raw_header)
        kind = "Batch header" if magic == MAGIC else f"Header of a message of format v{magic}"
        yield f"{kind}: {size_bytes} bytes at position {explanation.batch.position}", _batch(explanation.batch)
    if explanation.record is not None and explanation.batch is not None:
        count = explanation.batch.header.record_count
        yield f"Record {explanation.record.number + 1} of {count} in the batch", _record(explanation.record)


def _segment(step: SegmentStep, offset: int) -> Iterator[str]:
    first, last = max(0, step.slot - _NEIGHBOURS), step.slot + _NEIGHBOURS + 1
    if first:
        yield f"       {first} smaller ones"
    for slot, base_offset in enumerate(step.base_offsets[first:last], first):
        chosen = f"   {step.path.name}, {shown_bytes(step.size_bytes)}" if slot == step.slot else ""
        yield f"     {_mark(slot == step.slot)} {base_offset}{chosen}"
    if last < len(step.base_offsets):
        yield f"       {len(step.base_offsets) - last} greater ones"
    yield "     A file is named by the first offset that it may hold, not by the last offset of the file before it."
    yield f"     {offset} - {step.base_offset} = {offset - step.base_offset}: the offset relative to the segment"


def _timestamps(explanation: Explanation) -> Iterator[str]:
    asked = explanation.timestamps
    skipped = max(0, len(asked) - 2 * _NEIGHBOURS)
    if skipped:
        yield f"       {counted(skipped, 'segment')} whose records are all older"
    for one in asked[skipped:]:
        largest = _stamp(one.largest_timestamp) if one.largest_timestamp >= 0 else "no timestamp"
        yield f"     {_mark(one.is_late_enough)} segment {one.base_offset}: largest timestamp {largest}"


def _time_entry(index: IndexStep) -> Iterator[str]:
    if index.slot is None:
        yield from _no_entry(index, f"the look-up begins with the segment's first offset, {index.base_offset}")
        return
    yield from _probes(index)
    yield from _entry_bytes(index, 8)
    offset = index.base_offset + index.value
    yield (
        f"       timestamp {_stamp(index.key)}, "
        f"relative offset {index.value} ({index.base_offset} + {index.value} = {offset})"
    )


def _offset_entry(index: IndexStep, segment: SegmentStep) -> Iterator[str]:
    if index.slot is None:
        yield from _no_entry(index, f"the scan begins at position 0 of {segment.path.name}")
        return
    yield from _probes(index)
    yield from _entry_bytes(index, 4)
    yield (
        f"       relative offset {index.key} ({index.base_offset} + {index.key} = {index.base_offset + index.key}), "
        f"position {index.value}"
    )


def _no_entry(index: IndexStep, consequence: str) -> Iterator[str]:
    if index.problem:
        yield f"     {index.path.name}: {index.problem}"
    else:
        yield from _probes(index)
        yield f"     none among {counted(index.entries, 'entry')} of {index.path.name}"
    yield f"     so {consequence}"


def _probes(index: IndexStep) -> Iterator[str]:
    for probe in index.probes:
        verdict = "at or below" if probe.is_floor else "above"
        key = f"{probe.key}" if index.entry_bytes == 8 else _stamp(probe.key)
        yield f"       entry {probe.slot} has {key}: {verdict}"


def _entry_bytes(index: IndexStep, key_bytes: int) -> Iterator[str]:
    raw = f"{show_hex(index.raw[:key_bytes])}   {show_hex(index.raw[key_bytes:])}"
    place = f"entry {index.slot} of {index.entries}, byte {index.file_position} of {index.path.name}"
    yield f"     {_mark(True)} {place}:   {raw}"


def _scan(scan: ScanStep, explanation: Explanation) -> Iterator[str]:
    batches = scan.batches
    shown = batches if len(batches) <= 2 * _NEIGHBOURS + 1 else (*batches[:_NEIGHBOURS], *batches[-_NEIGHBOURS:])
    hidden = scan.headers_read - len(shown)
    rows = [_scanned(one, explanation) for one in shown]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    for number, (one, row) in enumerate(zip(shown, rows, strict=True)):
        if hidden and number == _NEIGHBOURS:
            yield f"       … {hidden} more …"
        cells = "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        yield f"     {_mark(one.is_wanted)} {cells}"
    if not batches or not batches[-1].is_wanted:
        reason = explanation.reason if explanation.ending is Ending.BROKEN else "the end"
        yield f"       position {scan.end_position}: {reason}"


def _scanned(one: ScannedBatch, explanation: Explanation) -> list[str]:
    row = [
        f"position {one.position}",
        f"offsets {offsets_of(one.header)}",
        f"{one.header.size_bytes:,} bytes",
        codec_of(one.header),
    ]
    if explanation.timestamp is not None:
        row.append(f"largest timestamp {_stamp(one.header.max_timestamp)}")
    return row


def _batch(step: BatchStep) -> Iterator[str]:
    header = step.header
    notes = {
        "base_offset": "of the first record",
        "batch_length": f"bytes after this field; {header.size_bytes:,} in all",
        "crc": f"{'CRC-32C' if header.magic == MAGIC else 'CRC-32'} of what follows: "
        f"{'right' if step.is_crc_right else 'WRONG'}",
        "attributes": ", ".join([f"codec {codec_of(header)}", *flags_of(header)]),
        "last_offset": "of the last record inside" if header.record_count > 1 else "",
        "last_offset_delta": f"last offset {header.last_offset}",
        "base_timestamp": show_time(header.base_timestamp),
        "max_timestamp": show_time(header.max_timestamp),
        "producer_id": "not idempotent" if header.producer_id < 0 else "",
    }
    for name, position, width in header_fields(header):
        raw = show_hex(step.raw_header[position : position + width])
        value = getattr(header, name)
        number = f"{value:#010x}" if name == "crc" else str(value)
        yield f"     {position:>2}  {raw:<23}  {name:<22}  {number:<14} {notes.get(name, '')}".rstrip()


def _record(step: RecordStep) -> Iterator[str]:
    record = step.record
    yield f"     offset     {record.offset}"
    yield f"     timestamp  {_stamp(record.timestamp)}"
    yield f"     key        {show_bytes(record.key, most=1000)}"
    yield f"     value      {show_bytes(record.value, most=1000)}"
    for name, value in record.headers:
        yield f"     header     {name} = {show_bytes(value)}"


def _answer(explanation: Explanation) -> str:
    words = {
        Ending.FOUND: ("Found", "green"),
        Ending.FOUND_LATER: ("Found the next one", "yellow"),
        Ending.OUT_OF_RANGE: ("OFFSET_OUT_OF_RANGE", "red"),
        Ending.AT_LOG_END: ("Nothing there yet", "yellow"),
        Ending.NOTHING_SO_LATE: ("Nothing", "yellow"),
        Ending.BROKEN: ("Broken", "red"),
    }
    word, colour = words[explanation.ending]
    reason = explanation.reason
    if (
        not reason
        and explanation.record is not None
        and explanation.batch is not None
        and explanation.segment is not None
    ):
        reason = (
            f"offset {explanation.record.record.offset} is in the batch at position {explanation.batch.position} "
            f"of {explanation.segment.path.name}"
        )
    return f"{click.style(word, fg=colour, bold=True)}: {reason}"


def _mark(is_chosen: bool) -> str:
    return ">" if is_chosen else " "


def _stamp(timestamp_ms: int) -> str:
    return f"{timestamp_ms} ({show_time(timestamp_ms)})"
