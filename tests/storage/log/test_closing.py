"""What a stop brings to the disk: everything, and each thing once."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Final

import hypothesis.strategies as st
from hypothesis import given, settings
from kit.clock import ManualClock
from kit.examples import examples
from kit.exchange import Exchange, batch, make_topic, produce_request
from kit.nodes import partition_of, start_node
from kit.simulated_files import SimulatedFiles

from ottla.broker.node import Node

SYNCS: Final = ("fdatasync", "sync_directory")
MADE_AGAIN: Final = "/partition.metadata"
"""Where a kill came before the first sync: the metadata say the same, and a start writes the file again."""


def produce(node: Node, *, size: int = 1) -> None:
    client = Exchange(node)
    client.send(produce_request("t", batch(value=b"v" * size)), 9)
    node.settle()


def syncs_of_partition(files: SimulatedFiles) -> Counter[str]:
    """The syncs in the partition's directory, by the kind of file."""
    return Counter(
        path.suffix or path.name for call, path in files.history if call in SYNCS and "t-0" in path.as_posix()
    )


def stopped(node: Node, files: SimulatedFiles) -> SimulatedFiles:
    """The files after a clean stop of which nothing is in memory only."""
    files.history.clear()
    node.stop()
    written, synced = files.written_state(), files.synced_state()
    for path in [path for path in written if path.endswith(MADE_AGAIN)]:
        del written[path]
        synced.pop(path, None)
    assert synced == written
    return files


def test_a_log_that_nobody_has_written_to_is_closed_without_a_sync() -> None:
    node, files, clock = start_node()
    make_topic(node, "t")
    produce(node)
    stopped(node, files)
    node, files, _ = start_node(files.kill(), clock)
    stopped(node, files)
    assert syncs_of_partition(files) == {}


def test_of_a_log_that_is_synced_a_stop_syncs_the_time_index_and_the_snapshot() -> None:
    node, files, _ = start_node()
    make_topic(node, "t")
    produce(node)
    stopped(node, files)
    assert syncs_of_partition(files) == {".timeindex": 1, ".tmp": 1, "t-0": 1}


def test_after_a_kill_a_stop_syncs_all_of_the_active_segment() -> None:
    node, files, clock = start_node()
    make_topic(node, "t")
    produce(node)
    node, files, _ = start_node(files.kill(), clock)
    stopped(node, files)
    assert syncs_of_partition(files).keys() >= {".log", ".index", ".timeindex", "t-0"}


LIVES = st.lists(
    st.sampled_from(["produce", "large", "wait", "retain", "make", "stop", "kill", "crash"]), min_size=1, max_size=12
)


@settings(max_examples=examples(60))
@given(steps=LIVES, random=st.randoms(use_true_random=False), acks=st.sampled_from(["sync", "page-cache"]))
def test_a_clean_stop_leaves_nothing_in_memory_only(steps: list[str], random: Random, acks: str) -> None:
    node, files, clock = start_node(ottla_acks_all=acks)
    make_topic(node, "t", segment_bytes="1500", index_interval_bytes="100", file_delete_delay_ms="1000")

    def again(files: SimulatedFiles) -> tuple[Node, SimulatedFiles, ManualClock]:
        return start_node(files, clock, ottla_acks_all=acks)

    for number, step in enumerate(steps):
        if step in ("produce", "large"):
            produce(node, size=1 if step == "produce" else 900)
        elif step == "wait":
            clock.advance(2_000)
            node.run_due()
            node.settle()
        elif step == "retain":
            log = partition_of(node, "t").log
            log.delete_records(min(log.log_start_offset + 2, log.high_watermark))
            clock.advance(400_000)
            node.run_due()
            node.settle()
        elif step == "make":
            make_topic(node, f"u{number}")
        elif step == "stop":
            node, files, _ = again(stopped(node, files).kill())
        elif step == "kill":
            node, files, _ = again(files.kill())
        else:
            node, files, _ = again(files.crash(random))
    stopped(node, files)
