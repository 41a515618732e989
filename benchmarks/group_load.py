"""The time that a start needs to load committed offsets: a million commits, replayed from a log without compaction.

    python benchmarks/group_load.py                      a million commits of 100 partitions, ten in each request
    python benchmarks/group_load.py --partitions 1000000 each of another partition, in 100,000 groups

Prints when the broker was ready for clients (it answers COORDINATOR_LOAD_IN_PROGRESS from then on), when its groups
were, the processor time, and the longest step, for which all clients had to wait. The log is in the page cache.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from ottla.broker.catalog.catalog import NewTopic
from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record
from ottla.protocol.stored.group import OffsetCommitKey, OffsetCommitValue, encode_group_key, encode_group_value
from ottla.storage.formats.layout import OFFSETS_TOPIC
from ottla.storage.log.append import AppendEntry

TOPIC = "orders"
PARTITIONS_OF_A_GROUP = 10
STAMP_MS = 1_700_000_000_000
PRODUCE_VERSION = 13


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=1_000_000, help="offsets committed (default %(default)s)")
    parser.add_argument("--partitions", type=int, default=100, help="of so many partitions (default %(default)s)")
    parser.add_argument("--batch", type=int, default=10, help="offsets in one commit (default %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="group-load-") as directory:
        size_bytes = fill(Path(directory), options.commits, options.partitions, options.batch)
        print(f"{options.commits:,} commits of {options.partitions:,} partitions: {size_bytes / 1e6:.0f} MB")
        load(Path(directory))


def start(directory: Path) -> Node:
    """A broker without sockets and threads: its steps run one after another."""
    node = Node(BrokerConfig.of({"log.dirs": str(directory), "ottla.acks.all": "page-cache"}))
    node.start()
    return node


def fill(directory: Path, commits: int, partitions: int, batch: int) -> int:
    """Write the log as commits would, and return its size."""
    node = start(directory)
    # Offsets of topics that do not exist are removed as soon as they are loaded.
    node.services.catalog.create_topics([NewTopic(TOPIC, partitions=PARTITIONS_OF_A_GROUP)], lambda results: None)
    node.settle()
    node.services.groups.get().prepare("", lambda error: None)
    node.settle()
    partition = node.services.catalog.partition(OFFSETS_TOPIC, 0)
    assert partition is not None
    keys = [
        encode_group_key(
            OffsetCommitKey(
                group=f"group-{place // PARTITIONS_OF_A_GROUP}", topic=TOPIC, partition=place % PARTITIONS_OF_A_GROUP
            )
        )
        for place in range(partitions)
    ]
    value = encode_group_value(OffsetCommitValue(offset=123_456, metadata="", commit_timestamp=STAMP_MS))
    for first in range(0, commits, batch):
        records = [Record(place, STAMP_MS, keys[(first + place) % partitions], value, ()) for place in range(batch)]
        partition.log.append([AppendEntry(memoryview(encode_batch(records)), PRODUCE_VERSION)], STAMP_MS)
    size_bytes = partition.log.size_bytes
    node.stop()
    return size_bytes


def load(directory: Path) -> None:
    """Start, and run the steps of the load as the loop would."""
    began_s, used_s = time.perf_counter(), time.process_time()
    node = start(directory)
    ready_s = time.perf_counter() - began_s
    longest_s = 0.0
    while node.services.groups.get().loads_under_way:
        step_s = time.perf_counter()
        node.run_due()
        longest_s = max(longest_s, time.perf_counter() - step_s)
    loaded_s, used_s = time.perf_counter() - began_s, time.process_time() - used_s
    print(f"ready for clients after {ready_s:.2f} s, groups after {loaded_s:.2f} s ({used_s:.2f} s of processor time)")
    print(f"longest step {longest_s * 1e3:.0f} ms; {node.services.groups.get().offset_count:,} offsets")
    node.stop()


if __name__ == "__main__":
    main()
