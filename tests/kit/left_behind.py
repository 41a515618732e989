"""A data directory as a broker leaves it, by a clean stop or a crash, and a hand that changes bytes in it."""

from __future__ import annotations

import random
from pathlib import Path

from kit.logs import NOW_MS, batch, sync, write_snapshot
from kit.nodes import DATA, start_node
from kit.simulated_files import SimulatedFiles

from ottla.broker.catalog.catalog import NewTopic
from ottla.broker.metadata.reading import METADATA_DIRECTORY
from ottla.storage.formats.layout import TopicPartition
from ottla.storage.log.append import AppendEntry

ORDERS = TopicPartition("orders", 0)
PLACE = DATA / "orders-0"
METADATA = DATA / METADATA_DIRECTORY
BATCHES = 12
KEYS: dict[str, object] = {"log_segment_bytes": 1024, "log_index_interval_bytes": 100}
"""For `start_node`, so that twelve batches fill several segments."""


def left_behind(*, clean: bool = True, configs: tuple[tuple[str, str], ...] = ()) -> SimulatedFiles:
    """A data directory with 12 batches of 3 records in `orders-0`, several segments, each with index entries."""
    node, files, _ = start_node(SimulatedFiles(), None, **KEYS)
    node.services.catalog.create_topics([NewTopic("orders", configs=configs)], lambda results: None)
    node.settle()
    log = node.services.log_manager.get("orders", 0)
    assert log is not None
    for number in range(BATCHES):
        stamps = [NOW_MS + number * 10 + n for n in range(3)]
        data = batch(*values_of(number), stamps=stamps, producer_id=77, producer_epoch=0, base_sequence=number * 3)
        (result,) = log.append([AppendEntry(memoryview(data), 9)], NOW_MS)
        assert not result.error_code
        sync(log)
        write_snapshot(log)
    if clean:
        node.stop()
        return files
    node.services.log_manager.checkpoints.write_recovery_points()
    return files.crash(random.Random(1))


def values_of(number: int) -> list[bytes]:
    return [b"value %d of %d" % (n, number) * 5 for n in range(3)]


ALL = {number * 3 + n: value for number in range(BATCHES) for n, value in enumerate(values_of(number))}
"""Each record's value by its offset."""


def change(files: SimulatedFiles, path: Path, position: int, data: bytes) -> None:
    file = files.open(path, writable=True)
    file.pwritev([data], position)
    file.fdatasync()
    file.close()


def flip(files: SimulatedFiles, path: Path, position: int, mask: int = 0xFF) -> None:
    change(files, path, position, bytes([files.read_bytes(path)[position] ^ mask]))


def logs_of(files: SimulatedFiles, place: Path = PLACE) -> list[Path]:
    return [place / name for name in files.list_directory(place) if name.endswith(".log")]
