"""Hostile files: a data directory in which anything may have been changed, then the tools and a start.

Files are bent with knowledge of what they are: bytes of a log anywhere, with the checksum made right again; records
of the metadata and of `__consumer_offsets` with bytes of their values changed; numbers in checkpoints; entries of
indexes; single bits; pages of zeros; logs that lost their end; files missing, empty, cut, exchanged. What must hold:

- `log dump`, `log verify` (with `--repair` too) and `log explain` tell what they find and raise nothing but what
  becomes one line;
- a start either refuses, in one line, or serves: every partition is read from its start, groups are asked for, time
  passes (loading, cleaning, retention), and the broker can be stopped and started again;
- a read below the high watermark gives batches whose checksums are right, or an error.
"""

from __future__ import annotations

import json
import random
import re
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kit.clock import ManualClock
from kit.exchange import batch, produce_request
from kit.fuzz.life import CONFIG, Life
from kit.fuzz.values import mutate
from kit.fuzz.vocabulary import INTEGERS, WITNESS
from kit.fuzz.watch import Finding, Watch, describe, error_codes
from kit.nodes import DATA, ask, pass_time, start_node
from kit.simulated_files import SimulatedFiles

from ottla.broker.http.operations import explain
from ottla.broker.metadata.image import MetadataError
from ottla.broker.metadata.rebuild import MetadataRebuild
from ottla.broker.node import Node
from ottla.broker.telemetry.exposition import Exposition
from ottla.cli.dump_rows import rows_of
from ottla.cli.dump_text import lines_of
from ottla.cli.explain_json import explanation_to_json
from ottla.cli.explain_text import explanation_lines
from ottla.protocol.api.describe_groups import DescribeGroupsRequest
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.api.list_groups import ListGroupsRequest
from ottla.protocol.api.list_offsets import ListOffsetsRequest
from ottla.protocol.api.offset_fetch import OffsetFetchRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response
from ottla.protocol.records.batch import compute_crc
from ottla.protocol.records.errors import CorruptBatch
from ottla.protocol.records.formats import any_crc_matches, iter_any
from ottla.storage.errors import StorageError
from ottla.storage.files.clock_trust import KnownTime
from ottla.storage.formats.clock_checkpoint import encode_known_time
from ottla.storage.formats.layout import CLOCK_FILE, REDO_LOG_FILE, parse_partition_directory
from ottla.storage.formats.redo_format import head_of, pack_entry, records_of
from ottla.storage.tools.explain import Explanation, NoSuchPartition, explain_offset, explain_timestamp
from ottla.storage.tools.repair import DirectoryInUse, Repair
from ottla.storage.tools.verify import NothingToVerify, Verification

Edits = dict[str, bytes | None]
"""New content by path below the data directory; None takes the file away."""

MOST_EDITS = 3
HEADER_FIELDS = (
    (">q", 0), (">i", 12), (">h", 21), (">i", 23), (">q", 27), (">q", 35), (">q", 43), (">h", 51), (">i", 53),
    (">i", 57),
)  # fmt: skip
"""What is in a batch's header, and where."""
OFFSETS = (0, 1, 7, (1 << 63) - 1)
TIMES = (0, 1_700_000_000_000, (1 << 63) - 1)
NOW_MS = 1_700_000_100_000
_templates: dict[str, dict[str, bytes]] = {}


@dataclass
class Looked:
    """What became of a directory."""

    has_started: bool = False
    refusal: str = ""
    seconds: float = 0.0


def live(chance: random.Random) -> tuple[str, Edits]:
    """A directory's ending ("stop" or "kill") and what was changed in it."""
    ending = chance.choice(("stop", "kill"))
    content = template(ending)
    paths = sorted(content)
    edits: Edits = {}
    for _ in range(chance.randrange(1, MOST_EDITS + 1)):
        groups = sorted({_kind(path) for path in paths})
        kind = chance.choice(groups)
        path = chance.choice([path for path in paths if _kind(path) == kind])
        before = edits.get(path) or content[path]
        edits[path] = _bend(chance, path, before, content)
    return ending, edits


def run(ending: str, edits: Edits) -> Looked:
    """Look at the directory with every tool, then start a broker on it. Raises Finding."""
    looked = Looked()
    with Watch() as watch:
        files = _directory(ending, edits)
        started = time.thread_time()
        _use_tools(files)
        watch.check()
        _repair(ending, edits)
        watch.check()
        node, clock = _start(files, ManualClock(), looked)
        watch.check()
        if node is not None:
            looked.has_started = True
            _serve(node, clock)
            watch.check()
            try:
                node.stop()
                again, _ = _start(files.kill(), clock, looked)
                if again is None:
                    raise Finding(f"a broker that stopped does not start again: {looked.refusal}")
                again.stop()
            except Finding:
                raise
            except Exception as error:
                raise Finding(f"stop and start again: {describe(error)}") from error
            watch.check()
        looked.seconds = time.thread_time() - started
    return looked


def _directory(ending: str, edits: Edits) -> SimulatedFiles:
    files = SimulatedFiles()
    for name, data in (template(ending) | edits).items():
        if data is not None:
            path = DATA / name
            files.make_directory(path.parent, parents=True)
            file = files.open(path, create=True)
            file.pwritev([data], 0)
            file.close()
    return files


def _repair(ending: str, edits: Edits) -> None:
    """Mend another directory of the same content, and look at what is left."""
    files = _directory(ending, edits)

    def mend() -> None:
        metadata = MetadataRebuild(files, DATA, NOW_MS, ())
        for _ in Repair(files, DATA, NOW_MS, None, metadata, lambda question: True).run():
            pass
        going = Repair(files, DATA, NOW_MS, None, MetadataRebuild(files, DATA, NOW_MS, ()))
        list(going.look())
        going.plan()

    _reported("repair", mend)


def template(ending: str) -> dict[str, bytes]:
    """The files of a broker that has lived a little, by path below the data directory."""
    if ending not in _templates:
        life = Life(with_kio=False)
        with life:
            for number in range(12):
                for topic in ("plain", "compacted"):
                    life.ask(produce_request(topic, batch(5, value=b"v%d" % number * 40)), 8)
                once = batch(2, producer_id=5, producer_epoch=0, base_sequence=2 * number)
                life.ask(produce_request("plain", once, partition=1), 8)
            pass_time(life.node, life.clock, 20_000)
            life.step({"clean": True})
            life.step({"restart": "stop"})  # producers' snapshots
            life.ask(produce_request("plain", batch(5)), 8)
            if ending == "stop":
                life.node.stop()
            written = life.files.written_state()
        front = f"{DATA}/"
        _templates[ending] = {
            path.removeprefix(front): data for path, data in written.items() if path.startswith(front)
        }
    return _templates[ending]


def _kind(path: str) -> str:
    name = Path(path).name
    front = "internal " if path.startswith("__") else ""
    return front + (re.sub(r"[0-9]+", "", name.rpartition(".")[2]) if name[0].isdigit() else name)


# Bending --------------------------------------------------------------------------------------------------------------


def _bend(chance: random.Random, path: str, data: bytes, content: dict[str, bytes]) -> bytes | None:
    how = chance.randrange(14)
    if how == 12 and data:
        return _flipped(chance, data)
    if how == 13 and path.endswith(".log"):
        return _shorter(chance, data)
    if how == 0:
        return None
    if how == 1:
        return b""
    if how == 2:
        return content[chance.choice(sorted(content))]
    if path == REDO_LOG_FILE and how < 11:
        return _bend_redo_log(chance, data)
    if how == 3:
        return data + chance.choice((bytes(4096), b"\xff" * 61, data, chance.randbytes(70)))
    if path.endswith(".log") and how < 6:
        return _lose(chance, data)
    if path.endswith((".log", ".checkpoint")) and how < 10:
        return _bend_log(chance, data)
    if path.endswith((".index", ".timeindex")):
        return _bend_entries(chance, data, 8 if path.endswith(".index") else 12)
    if path.endswith(CLOCK_FILE) and how < 9:
        return _bend_clock(chance)
    if not path.endswith((".log", ".snapshot", ".checkpoint")):
        return _bend_text(chance, data)
    return mutate(chance, data)


def _bend_redo_log(chance: random.Random, data: bytes) -> bytes:
    """Entries with other places, names or bytes, and with right checksums, as no Ottla writes them; or a torn file."""
    if chance.random() < 0.3:
        return data[: chance.randrange(len(data) + 1)]
    written, generation = b"", chance.choice((0, 1, 2, (1 << 63) - 1))
    for sequence, record in enumerate(records_of(data)):
        body = b""
        for entry in record.entries:
            topic_id, name, base_offset, position, end_offset, content = entry
            how = chance.randrange(8)
            if how == 0:
                base_offset = chance.choice(OFFSETS)
            elif how == 1:
                position = chance.choice((0, position + 1, max(position - 1, 0), (1 << 63) - 1))
            elif how == 2:
                end_offset = chance.choice((-1, *OFFSETS))
            elif how == 3:
                name = chance.choice(("plain-0", "plain-9", "../data/plain-0", "__cluster_metadata-0", "", "x" * 300))
            elif how == 4:
                topic_id = bytes(16)
            bytes_of = mutate(chance, bytes(content)) if how == 5 else bytes(content)
            head = pack_entry(topic_id, base_offset, position, end_offset, len(bytes_of), len(name))
            body += head + name.encode("ascii") + bytes_of
        written += head_of(generation, sequence, body) + body
    return written + data[len(written) :]


def _lose(chance: random.Random, data: bytes) -> bytes:
    """What a disk loses: a stretch comes back as zeros, or the end is gone."""
    if chance.random() < 0.5:
        return data[: max(len(data) - chance.choice((1, 100, 300, 4096)), 0)]
    stretch_bytes = chance.choice((61, 100, 512, 4096))
    start = chance.randrange(0, len(data) + 1, chance.choice((1, 16, 512)))
    return data[:start] + bytes(len(data[start : start + stretch_bytes])) + data[start + stretch_bytes :]


def _flipped(chance: random.Random, data: bytes) -> bytes:
    """One bit is another: often a number that makes sense."""
    bent = bytearray(data)
    bent[chance.randrange(len(bent))] ^= 1 << chance.randrange(8)
    return bytes(bent)


def _shorter(chance: random.Random, data: bytes) -> bytes:
    """A log that ends at a batch's end, and lacks the ones behind."""
    try:
        ends = [at for at, _ in iter_any(data, allow_partial_tail=True)]
    except CorruptBatch:
        return b""
    return data[: chance.choice(ends)] if ends else b""


def _bend_log(chance: random.Random, data: bytes) -> bytes:
    """Bytes of a batch changed, its checksum right again: what only a decoder can notice."""
    log = bytearray(data)
    try:
        batches = [(at, header.size_bytes) for at, header in iter_any(data, allow_partial_tail=True)]
    except CorruptBatch:
        return mutate(chance, data)
    for _ in range(chance.choice((1, 1, 2, 5))):
        if not batches:
            break
        start, size = chance.choice(batches)
        kind = chance.randrange(6)
        if kind < 3:
            at = start + chance.randrange(21, size)
            log[at] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, log[at] ^ (1 << chance.randrange(8))))
        elif kind == 3:
            form, where = chance.choice(HEADER_FIELDS)
            bits = 8 * struct.calcsize(form)
            number = chance.choice(INTEGERS) & ((1 << bits) - 1)
            log[start + where : start + where + bits // 8] = number.to_bytes(bits // 8, "big")
        elif kind == 4:
            struct.pack_into(">i", log, start + 8, chance.choice((0, -1, 49, size, (1 << 31) - 1, size - 13)))
        else:
            log[start : start + size] = log[start : start + size] * 2
            return bytes(log)
        struct.pack_into(">I", log, start + 17, compute_crc(bytes(log[start : start + size])))
    return bytes(log)


def _bend_clock(chance: random.Random) -> bytes:
    """Another time that was known, its checksum right."""
    wall_ms, boot_ms, waited_ms = (abs(chance.choice((*INTEGERS, NOW_MS, NOW_MS - 10**10))) for _ in range(3))
    return encode_known_time(KnownTime(wall_ms, boot_ms, chance.choice(("", "boot-1", "x=y")), waited_ms))


def _bend_entries(chance: random.Random, data: bytes, entry_bytes: int) -> bytes:
    entries = bytearray(data or bytes(entry_bytes))
    for _ in range(chance.choice((1, 2, 5))):
        at = chance.randrange(0, len(entries), entry_bytes)
        field = chance.choice((0, 4)) if entry_bytes == 8 else chance.choice((0, 8))
        size = 8 if entry_bytes == 12 and field == 0 else 4
        number = chance.choice(INTEGERS) & ((1 << 8 * size) - 1)
        entries[at + field : at + field + size] = number.to_bytes(size, "big")
    return bytes(entries) + bytes(chance.choice((0, 0, 1, entry_bytes, 800)))


def _bend_text(chance: random.Random, data: bytes) -> bytes:
    """Numbers, lines and words of a small text file."""
    how = chance.randrange(6)
    if how == 0:
        return mutate(chance, data)
    if how == 1:
        lines = data.splitlines(keepends=True)
        chance.shuffle(lines)
        return b"".join(lines[: chance.choice((len(lines), 1, 2))])
    if how == 2:
        return data * chance.choice((2, 3))
    if how == 3:
        return data.replace(b"=", chance.choice((b"", b"==", b":", b"=\\\n"))).replace(
            b" ", chance.choice((b"  ", b"\t", b""))
        )
    if how == 4:
        wrong = (b"\xff\xfe", b"null", b"[]", b"{}", b"9" * 5000, b"\0" * 100, b"[" * 3000, b"NaN", b'{"a":1e999}')
        return chance.choice(wrong)
    spots = list(re.finditer(rb"[0-9]+", data))
    if not spots:
        return mutate(chance, data)
    spot = chance.choice(spots)
    number = chance.choice((*INTEGERS, 10**30, "x", "", "1.5", "+1", " 1", "\uff11"))
    return data[: spot.start()] + str(number).encode() + data[spot.end() :]


# Looking --------------------------------------------------------------------------------------------------------------


def _use_tools(files: SimulatedFiles) -> None:
    for with_records in (False, True):
        _reported("dump", partial(_dumped, files, with_records))
        _reported("dump as text", lambda: list(lines_of(rows_of(files, DATA, with_records=True))))
    _reported("verify", lambda: list(Verification(files, DATA).run()))
    partitions = [
        known for name in files.list_directory(DATA) if (known := parse_partition_directory(name)) is not None
    ]
    for topic, number in partitions:
        where = (files, DATA, topic, number)
        for offset in OFFSETS:
            _reported(f"explain --offset {offset}", partial(_explained, explain_offset, *where, offset))
        for stamp in TIMES:
            _reported(f"explain --timestamp {stamp}", partial(_explained, explain_timestamp, *where, stamp))


def _dumped(files: SimulatedFiles, with_records: bool) -> None:
    for row in rows_of(files, DATA, with_records=with_records):
        json.dumps(row)


def _explained(explain: Callable[..., Explanation], *where: object) -> None:
    reported = explain(*where)
    list(explanation_lines(reported))
    json.dumps(explanation_to_json(reported))


def _reported(what: str, look: Callable[[], object]) -> None:
    try:
        look()
    except (OSError, NothingToVerify, NoSuchPartition, DirectoryInUse):
        return  # each becomes one line
    except Exception as error:
        raise Finding(f"{what}: {describe(error)}") from error


def _start(files: SimulatedFiles, clock: ManualClock, looked: Looked) -> tuple[Node | None, ManualClock]:
    try:
        node, _, _ = start_node(files, clock, **{key.replace(".", "_"): value for key, value in CONFIG.items()})
    except (StorageError, MetadataError, OSError) as error:
        looked.refusal = str(error)
        if len(looked.refusal.splitlines()) != 1:
            raise Finding(f"a start refuses in more than one line: {error!r:.300}") from error
        return None, clock
    except Exception as error:
        raise Finding(f"start: {describe(error)}") from error
    return node, clock


def _serve(node: Node, clock: ManualClock) -> None:
    try:
        node.settle()
        pass_time(node, clock, 3_000)
        for name, topic in list(node.services.catalog.topics.items()):
            for index, partition in enumerate(topic.partitions):
                if partition is not None:
                    _read(node, name, index, partition.log.log_start_offset)
        _ask(node, ListGroupsRequest(), 4)
        _ask(node, DescribeGroupsRequest(groups=[WITNESS, "g"]), 5)
        wanted = OffsetFetchRequest.OffsetFetchRequestTopic(name=WITNESS, partition_indexes=[0])
        _ask(node, OffsetFetchRequest(group_id=WITNESS, topics=[wanted]), 5)
        Exposition(node.services, node.cleaner).render()
        for topic_name, topic in list(node.services.catalog.topics.items()):
            for index in range(len(topic.partitions)):
                explain(node.services, node.cleaner, {"partition": f"{topic_name}-{index}"})
            node.cleaner.ask(topic_name)
        pass_time(node, clock, 15_000)
        pass_time(node, clock, 400_000, step_ms=100_000)
    except Finding:
        raise
    except Exception as error:
        raise Finding(f"serving: {describe(error)}") from error


def _read(node: Node, topic: str, index: int, offset: int) -> None:
    for version in (12, 4, 3, 2):
        partition = FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        topics = [FetchRequest.FetchTopic(topic=topic, partitions=[partition])]
        answer = _ask(node, FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=-1, topics=topics), version)
        assert isinstance(answer, FetchResponse)
        (data,) = answer.responses[0].partitions
        if version == 12:
            has_messages = bool(data.error_code) or _has_messages(bytes(data.records or b""))
        elif version < 4 and not has_messages and not data.records:
            continue  # batches without records, up to the end: an old client is given nothing until something comes
        _check(f"{topic}-{index}, Fetch {version} at {offset}", data, offset)
    for stamp in (-1, -2, -3, 0, 1_700_000_000_000):
        question = ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=stamp)
        named = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[question])
        _ask(node, ListOffsetsRequest(replica_id=-1, topics=[named]), 7)


def _has_messages(records: bytes) -> bool:
    """Whether there is anything for a client that knows no batches; what cannot be read counts as something."""
    try:
        return any(
            header.magic < 2 or (header.record_count and not header.is_control) for _, header in iter_any(records)
        )
    except CorruptBatch:
        return True


def _check(where: str, data: FetchResponse.PartitionData, offset: int) -> None:
    """A reader who is answered nothing, and no error, waits for ever; one that is given damage may believe it."""
    records = bytes(data.records or b"")
    if not records and not data.error_code and offset < data.high_watermark:
        raise Finding(f"{where}: neither records nor an error below {data.high_watermark}")
    try:
        for at, header in iter_any(records):
            if not any_crc_matches(records[at : at + header.size_bytes], header):
                raise Finding(f"{where}: the batch at offset {header.base_offset} has a wrong checksum")
    except CorruptBatch as error:
        raise Finding(f"{where}: {error}") from error


def _ask(node: Node, request: Request, version: int) -> Response:
    answer = ask(node, request, version)
    if ErrorCode.UNKNOWN_SERVER_ERROR in error_codes(answer):
        raise Finding(f"{type(request).__name__} v{version}: UNKNOWN_SERVER_ERROR")
    return answer
