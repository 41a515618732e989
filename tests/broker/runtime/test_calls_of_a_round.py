"""What a round of syncs costs for each log beside the append, in calls of functions: no busy machine changes it.

`scripts/bench-lines --only "a record to each"` counts instructions.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from kit.exchange import Exchange, batch, make_topic
from kit.nodes import start_node
from kit.simulated_files import SimulatedFiles

import ottla
from ottla.broker.node import Node
from ottla.broker.runtime.queued_syncer import QueuedSyncer
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse

OURS = str(Path(ottla.__file__).parent)
PARTITIONS = 24
FEW, MANY = 8, 24


def to_the_first(count: int) -> ProduceRequest:
    """A batch for each of so many partitions."""
    data = [ProduceRequest.PartitionProduceData(index=index, records=batch()) for index in range(count)]
    return ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=data)]
    )


def calls(node: Node, count: int) -> int:
    """Calls until a Produce to so many partitions is answered."""
    client, syncer, entered = Exchange(node), node.services.syncer, 0
    assert isinstance(syncer, QueuedSyncer)

    def note(frame: Any, event: str, _: object) -> None:
        nonlocal entered
        entered += event == "call" and frame.f_code.co_filename.startswith(OURS)

    sys.setprofile(note)
    try:
        client.send(to_the_first(count), 9)
        node.services.turn.end()
        syncer.run_all()
        node.services.turn.end()
    finally:
        sys.setprofile(None)
    reply = client.reply()
    assert isinstance(reply, ProduceResponse)
    assert [one.error_code for one in reply.responses[0].partition_responses] == [0] * count
    return entered


def calls_of_a_log(acks_all: str) -> float:
    """Calls for each further partition of a Produce."""
    files = SimulatedFiles()
    files.has_volume_sync = True
    node, _, _ = start_node(files, ottla_acks_all=acks_all)
    make_topic(node, "t", PARTITIONS)
    for _ in range(2):
        calls(node, PARTITIONS)  # what only the first ones do
    return (calls(node, MANY) - calls(node, FEW)) / (MANY - FEW)


def test_a_round_of_syncs_adds_at_most_seven_calls_for_each_log() -> None:
    added = calls_of_a_log("sync") - calls_of_a_log("page-cache")
    assert 0 < added <= 7
