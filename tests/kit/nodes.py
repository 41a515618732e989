"""A whole node without sockets, threads, time or a disk: a manual clock, simulated files, syncs that run when asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from kit.clock import ManualClock
from kit.simulated_files import SimulatedFiles

from ottla.broker.api import HANDLERS
from ottla.broker.context import Context
from ottla.broker.node import Node
from ottla.broker.partitions.partition import Partition
from ottla.broker.peer import Peer
from ottla.broker.runtime.pending import Pending
from ottla.broker.runtime.workers import Workers
from ottla.config.broker import BrokerConfig
from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.message import Request, Response, decode, encode

DATA = Path("/data")

Later = Callable[[Callable[[], None]], None]

R = TypeVar("R", bound=Response)


def start_node(
    files: SimulatedFiles | None = None,
    clock: ManualClock | None = None,
    **keys: object,
) -> tuple[Node, SimulatedFiles, ManualClock]:
    """A started node; keys of the configuration with underscores for dots."""
    files = SimulatedFiles() if files is None else files
    clock = ManualClock() if clock is None else clock
    node = Node(_config(keys), clock=clock, files=files)
    node.start()
    return node, files, clock


def start_node_with(
    workers: Workers | None = None, later: Later | None = None, /, **keys: object
) -> tuple[Node, SimulatedFiles, ManualClock]:
    """As `start_node`, on new files, with these workers, and what takes steps that leave turns to others."""
    files, clock = SimulatedFiles(), ManualClock()
    node = Node(_config(keys), clock=clock, files=files, workers=workers, later=later)
    node.start()
    return node, files, clock


def _config(keys: Mapping[str, object]) -> BrokerConfig:
    values: dict[str, object] = {"log.dirs": str(DATA), "num.recovery.threads.per.data.dir": 1}
    return BrokerConfig.of(values | {key.replace("_", "."): value for key, value in keys.items()})


MOST_STEPS = 100
"""Turns in which an answer is made, at most."""


def ask(node: Node, request: Request, version: int, *, peer: Peer | None = None) -> Response:
    """Give a request to its handler as if it came over the wire at `version`, and wait for the answer.

    Request and answer are encoded and decoded on the way, so that only what the version can say arrives.
    """
    api = REGISTRY[request.message_key]
    arrived = decode(type(request), encode(request, version), version)
    context = Context(node.services, api.key, version, connection=peer or Peer())
    answer = HANDLERS[ApiKey(api.key)]().handle(arrived, context)
    if isinstance(answer, Pending):
        for _ in range(MOST_STEPS):
            node.settle()
            if answer.done:
                break
            node.run_due()  # a long answer is made in steps
        assert answer.done, "the answer is still pending after every sync has run"
        if answer.error is not None:
            raise answer.error
        answer = answer.response
    assert isinstance(answer, Response)
    return decode(type(answer), encode(answer, version), version)


def ask_for(answer_class: type[R], node: Node, request: Request, version: int, *, peer: Peer | None = None) -> R:
    """As `ask`, of an answer of this class."""
    answer = ask(node, request, version, peer=peer)
    assert isinstance(answer, answer_class)
    return answer


def partition_of(node: Node, topic: str, index: int = 0) -> Partition:
    """A partition that is there and open."""
    partition = node.services.catalog.partition(topic, index)
    assert partition is not None
    return partition


def pass_time(node: Node, clock: ManualClock, ms: int, *, step_ms: int = 1_000) -> None:
    """Let time pass in steps, running what is due and its syncs after each."""
    while ms > 0:
        clock.advance(min(step_ms, ms))
        ms -= step_ms
        node.run_due()
        node.settle()
