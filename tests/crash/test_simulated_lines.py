"""The simulator's connections: what is answered at once, and what needs time to pass."""

from __future__ import annotations

from kit.clock import ManualClock
from kit.exchange import batch, produce_request
from kit.nodes import start_node
from kit.simulated_files import SimulatedFiles
from kit.simulator.clients import Line, settle, settle_postponed
from kit.topics import create

from ottla.broker.catalog.catalog import NewTopic
from ottla.broker.net.connections import Connections
from ottla.protocol.message import Response


def test_an_answer_that_rests_on_a_sync_without_a_descriptor_comes_when_there_are_some_and_time_passes() -> None:
    """The simulator's seed 97561848795: a share group was read empty as soon as there were descriptors."""
    files, clock = SimulatedFiles(), ManualClock()
    node, _, _ = start_node(files, clock, ottla_acks_all="sync")
    create(node, NewTopic("t", partitions=1, replication_factor=1))
    line, answers = Line(node, Connections(node.services, node.dispatcher)), list[Response]()
    files.has_descriptor = lambda: False
    line.send(produce_request("t", batch()), 9, answers.append)
    settle(node, line)
    files.has_descriptor = lambda: True
    settle(node, line)
    assert (line.waiting, answers) == (1, [])
    settle_postponed(node, clock, line)
    assert (line.waiting, len(answers)) == (0, 1)
