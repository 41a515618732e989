"""A batch on the disk goes bad for as long as a reader asks for it: the reader gets CORRUPT_MESSAGE, and nothing of it.

Only what nobody has looked at since the start: the broker trusts what it has seen or written. The bytes are bent behind
the file system's back, and put back, so that nothing else of the world changes by it.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple, cast

from kit.nodes import ask
from kit.simulated_files import SimulatedFile
from kit.simulator.model import Violation
from kit.simulator.readers import FETCH_VERSION, fetch_request
from kit.simulator.users import SUPER_USER

from ottla.broker.peer import Peer
from ottla.broker.principal import parse_principal
from ottla.protocol.api.fetch import FetchResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import HEADER_BYTES, crc_matches, iter_batches

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.storage.segment.segment import Segment

_CRC_FROM = 21


class _Batch(NamedTuple):
    """One that nobody has looked at."""

    topic: str
    partition: int
    segment: Segment
    position: int
    size: int
    offset: int


def read_rot(node: Node, chance: random.Random) -> None:
    """Bend a batch, if there is one to bend, read at its offset, and put it back. Raises Violation."""
    found = list(_unseen(node))
    if not found:
        return
    one = chance.choice(found)
    data = cast("SimulatedFile", one.segment.file).inode.data
    before = bytes(data)
    start, end = one.position, one.position + one.size
    match chance.randrange(3):
        case 0:
            data[chance.randrange(start + _CRC_FROM, end)] ^= 1 << chance.randrange(8)
        case 1:
            data[start : start + HEADER_BYTES] = bytes(HEADER_BYTES)
        case _:
            del data[chance.randrange(start + 1, end) :]
    try:
        _read(node, one)
    finally:
        data[:] = before


def _unseen(node: Node) -> list[_Batch]:
    found = []
    for name, topic in sorted(node.services.catalog.topics.items()):
        for index, partition in enumerate(topic.partitions):
            if partition is None or name.startswith("__"):
                continue
            for segment in partition.log.segments:
                data = bytes(cast("SimulatedFile", segment.file).inode.data[: segment.size_bytes])
                found += [
                    _Batch(name, index, segment, position, header.size_bytes, header.base_offset)
                    for position, header in iter_batches(data)
                    if partition.log_start_offset <= header.base_offset < partition.high_watermark
                    and segment.sound.end_from(position) == position
                ]
    return found


def _read(node: Node, one: _Batch) -> None:
    peer = Peer(principal=parse_principal(SUPER_USER.principal))
    answer = ask(node, fetch_request({(one.topic, one.partition): one.offset}), FETCH_VERSION, peer=peer)
    assert isinstance(answer, FetchResponse)
    (data,) = answer.responses[0].partitions
    where = f"{one.topic}-{one.partition} at offset {one.offset}"
    records = bytes(data.records or b"")
    for position, header in iter_batches(records, allow_partial_tail=True):
        if not crc_matches(records[position:], header):
            raise Violation(f"{where}: a reader got the damaged batch at offset {header.base_offset}")
    if data.error_code != ErrorCode.CORRUPT_MESSAGE:
        raise Violation(
            f"{where}: the batch is damaged, and a reader was answered {ErrorCode.of(data.error_code).name}"
        )
