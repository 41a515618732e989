"""Segments whose indexes Apache Kafka made, kept as files: `tests/storage/golden/kafka-4.1.0-indexes`.

A folder for each topic of `TOPICS`, with the `.log`, `.index` and `.timeindex` of each of its segments as a clean stop
of Kafka leaves them: the last one was active, the others were rolled by `segment.ms`. When the indexes were missing,
Kafka made the same of the `.log` files. scripts/interop/index-golden makes all of it, so that tests need neither Java
nor Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.record import Record

FOLDER = Path(__file__).parent.parent / "storage" / "golden" / "kafka-4.1.0-indexes"
START_MS = 1_700_000_000_000
SEGMENT_MS = 60_000
BATCHES = 45
TOPICS = {
    "interval-300": {"index.interval.bytes": "300", "segment.ms": str(SEGMENT_MS)},
    "interval-0": {"index.interval.bytes": "0", "segment.ms": str(SEGMENT_MS)},
    "default": {"segment.ms": str(SEGMENT_MS)},
    "timeless": {"index.interval.bytes": "100"},
    "equal-sizes": {"index.interval.bytes": "218", "segment.ms": str(SEGMENT_MS)},
}
"""`equal-sizes`: a batch has 109 bytes, and Kafka waits for more than the interval, not for as much."""
CODECS = (Compression.NONE, Compression.NONE, Compression.GZIP, Compression.LZ4)


@dataclass(frozen=True)
class Segment:
    """The files of one segment as Kafka left them."""

    base_offset: int
    log: bytes
    index: bytes
    time_index: bytes


def batches(topic: str) -> list[bytes]:
    """What is produced, a request each: the same bytes whenever this runs."""
    if topic == "equal-sizes":
        times = [Record(0, _stamp(topic, number, 0), b"k", b"%02d" % number * 20, ()) for number in range(BATCHES)]
        return [bytes(encode_batch([record])) for record in times]
    made = []
    for number in range(BATCHES):
        stamps = [_stamp(topic, number, place) for place in range(1 + number * 7 % 4)]
        size = 1_200 if number % 11 == 5 else 10 + number * 37 % 160
        value = (b"%d " % number * size)[:size]
        records = [Record(place, stamp, b"key %d" % place, value, ()) for place, stamp in enumerate(stamps)]
        codec = CODECS[number % len(CODECS)]
        made.append(bytes(encode_batch(records, compression=codec)))
    return made


def _stamp(topic: str, number: int, place: int) -> int:
    """Times that continue and back a little; after every 18 batches a segment's time has passed."""
    if topic == "timeless" and number % 9 < 4:
        return -1
    return START_MS + number // 18 * (2 * SEGMENT_MS) + number % 18 * 100 - number * 13 % 5 * 150 + place % 2 * 30


def kept_segments(topic: str) -> list[Segment]:
    """The segments of a topic, oldest first."""
    return [
        Segment(
            int(path.stem),
            path.read_bytes(),
            path.with_suffix(".index").read_bytes(),
            path.with_suffix(".timeindex").read_bytes(),
        )
        for path in sorted((FOLDER / topic).glob("*.log"))
    ]
