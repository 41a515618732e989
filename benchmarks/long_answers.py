"""The cost of long answers in steps and in one piece: CPU of the whole answer, and of its longest step.

    PYTHONPATH=benchmarks:tests python benchmarks/long_answers.py [--only WORD] [--rounds N] [--in-one-piece]

The broker is a node in this process, on a simulated disk and with one connection, so that only the handler, the
encoding and their turns are counted: the thread's CPU time, the least of the rounds. For instructions, run it under
`valgrind --tool=cachegrind --cache-sim=no` with `--rounds 1` and `--rounds 3`, and take half the difference.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from kit.exchange import Exchange, make_topic
from kit.nodes import ask, start_node

from ottla.broker.api import describe_configs
from ottla.broker.node import Node
from ottla.broker.runtime.steps import Pace
from ottla.protocol import compiler
from ottla.protocol.api.describe_configs import DescribeConfigsRequest
from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.api.offset_commit import OffsetCommitRequest
from ottla.protocol.api.offset_fetch import OffsetFetchRequest
from ottla.protocol.message import Request

ENDLESS = 1 << 40
"""Elements of a step that does not end."""
TOPICS, CONFIGURED, COMMITTED = 3_000, 300, 3_000


def workloads(only: str) -> Iterator[tuple[str, Node, Request, int]]:
    """Name, node, request and version of each."""
    name = f"Metadata of {TOPICS:,} topics"
    if only in name:
        yield name, _node(TOPICS, 1), MetadataRequest(topics=None), 12
    name = f"DescribeConfigs of {CONFIGURED} topics, with synonyms and documentation"
    if only in name:
        resources = [
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=2, resource_name=f"topic-{number}", configuration_keys=None
            )
            for number in range(CONFIGURED)
        ]
        configs = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
        yield name, _node(CONFIGURED, 1), configs, 4
    name = f"OffsetFetch of a group's {COMMITTED:,} partitions"
    if only in name:
        topics, partitions = 30, COMMITTED // 30
        node = _node(topics, partitions)
        _commit(node, topics, partitions)
        yield name, node, OffsetFetchRequest(group_id="group", topics=None, require_stable=False), 7


def _node(topics: int, partitions: int) -> Node:
    node, _, _ = start_node(ottla_max_partitions=str(2 * topics * partitions + 1_000))
    for number in range(topics):
        make_topic(node, f"topic-{number}", partitions)
    return node


def _commit(node: Node, topics: int, partitions: int) -> None:
    committed = [
        OffsetCommitRequest.OffsetCommitRequestTopic(
            name=f"topic-{number}",
            partitions=[
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=1, committed_leader_epoch=-1, committed_metadata=""
                )
                for index in range(partitions)
            ],
        )
        for number in range(topics)
    ]
    coordinator = node.services.groups.get()
    coordinator.prepare("group", lambda _: None)
    node.settle()
    request = OffsetCommitRequest(group_id="group", generation_id_or_member_epoch=-1, member_id="", topics=committed)
    ask(node, request, 8)


def answered(client: Exchange, request: Request, version: int) -> tuple[float, float, int]:
    """CPU seconds of a whole answer and of its longest step, and the number of steps after the first."""
    client.transport.written.clear()
    begun = time.thread_time()
    client.send(request, version)
    client.end_turn()
    longest, steps = time.thread_time() - begun, 0
    while not client.transport.written:
        step = time.thread_time()
        client.node.run_due()
        longest, steps = max(longest, time.thread_time() - step), steps + 1
    return time.thread_time() - begun, longest, steps


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="answers whose name contains this")
    parser.add_argument("--rounds", type=int, default=12, help="the least of so many is printed (default 12)")
    parser.add_argument("--in-one-piece", action="store_true", help="as if steps had no end")
    options = parser.parse_args()
    if options.in_one_piece:
        # The broker has no key for these; both are Final, which mypy reports.
        compiler.ELEMENTS_PER_STEP = ENDLESS  # type: ignore[misc]
        describe_configs.KEYS_PER_STEP = ENDLESS  # type: ignore[misc]
        Pace.__init__.__defaults__ = (ENDLESS,)
    print(f"{'':<65}{'CPU ms':>10}{'longest step':>14}{'steps':>7}")
    for name, node, request, version in workloads(options.only):
        client = Exchange(node)
        results = [answered(client, request, version) for _ in range(options.rounds)]
        whole, longest = (min(column) * 1e3 for column in list(zip(*results, strict=True))[:2])
        print(f"{name:<65}{whole:>10.1f}{longest:>14.1f}{1 + results[-1][2]:>7}", flush=True)


if __name__ == "__main__":
    main()
