"""An explanation as JSON: the steps under their names, null for those that were not reached."""

from __future__ import annotations

from ottla.cli.batch_words import header_to_json, record_to_json
from ottla.cli.show import show_hex
from ottla.storage.index.index_reading import IndexStep
from ottla.storage.tools.explain import Explanation


def explanation_to_json(explanation: Explanation) -> dict[str, object]:
    """The explanation as `json.dumps` accepts it."""
    segment, scan, batch, record = explanation.segment, explanation.scan, explanation.batch, explanation.record
    return {
        "topic": explanation.topic,
        "partition": explanation.partition,
        "directory": str(explanation.directory),
        "offset": explanation.offset,
        "timestamp": explanation.timestamp,
        "log_start_offset": explanation.log_start_offset,
        "segment_timestamps": [one._asdict() for one in explanation.timestamps],
        "segment": segment
        and {
            "base_offsets": list(segment.base_offsets),
            "slot": segment.slot,
            "base_offset": segment.base_offset,
            "file": segment.path.name,
            "size_bytes": segment.size_bytes,
        },
        "time_index": _index(explanation.time_index, "timestamp", "relative_offset"),
        "offset_index": _index(explanation.offset_index, "relative_offset", "position"),
        "scan": scan
        and {
            "start_position": scan.start_position,
            "end_position": scan.end_position,
            "headers_read": scan.headers_read,
            "batches": [
                {
                    "position": one.position,
                    "base_offset": one.header.base_offset,
                    "last_offset": one.header.last_offset,
                    "max_timestamp": one.header.max_timestamp,
                    "is_wanted": one.is_wanted,
                }
                for one in scan.batches
            ],
        },
        "batch": batch
        and {
            **header_to_json(batch.header, batch.position),
            "raw_header": show_hex(batch.raw_header),
            "is_crc_right": batch.is_crc_right,
        },
        "record": record and {"number": record.number, **record_to_json(record.record)},
        "ending": str(explanation.ending),
        "reason": explanation.reason,
    }


def _index(index: IndexStep | None, key: str, value: str) -> dict[str, object] | None:
    if index is None:
        return None
    entry = None
    if index.slot is not None:
        entry = {
            "slot": index.slot,
            "file_position": index.file_position,
            "bytes": show_hex(index.raw),
            key: index.key,
            value: index.value,
        }
    return {
        "file": index.path.name,
        "entries": index.entries,
        "target": index.target,
        "probes": [probe._asdict() for probe in index.probes],
        "entry": entry,
        "problem": index.problem or None,
    }
