"""The cost of an assignment of 10,000 tasks of a streams group, which is made in one piece (docs/limits.md).

    PYTHONPATH=benchmarks python benchmarks/streams_assignment.py

Bytecodes are those of a task. Milliseconds of CPU are those of the whole assignment, and of its records: made, replayed
and encoded in the same step. Each is the least of some runs. All tasks have state.
"""

from __future__ import annotations

import time

from bytecodes import Bytecodes
from tabulate import tabulate

from ottla.broker.groups.streams.configured_topology import MAX_TASKS, ConfiguredSubtopology, InternalTopic
from ottla.broker.groups.streams.records import target_record
from ottla.broker.groups.streams.state import StreamsGroupState
from ottla.broker.groups.streams.sticky_assignor import AssignorMember, assign_sticky
from ottla.broker.groups.streams.tasks import TaskSets
from ottla.protocol.stored.group import encode_group_key, encode_group_value

SUBTOPOLOGIES = 10
GROUPS = ((10, 10), (100, 50), (1_000, 250))
"""Members and processes."""
RUNS = 7
CHANGELOG = InternalTopic("changelog", 1, 0, {})


def measured(members: dict[str, AssignorMember], standby_replicas: int) -> list[str]:
    """The bytecodes of a task, and the milliseconds of the assignment and of its records."""
    tasks = ConfiguredSubtopology(MAX_TASKS // SUBTOPOLOGIES, (), (), (), (CHANGELOG,))
    subtopologies = {str(number): tasks for number in range(SUBTOPOLOGIES)}
    bytecodes, times = Bytecodes(), []
    bytecodes.run(lambda: assign_sticky(members, subtopologies, standby_replicas))
    for _ in range(RUNS):
        began = time.process_time()
        target = assign_sticky(members, subtopologies, standby_replicas)
        times.append(time.process_time() - began)
    records = min(written(target) for _ in range(RUNS))
    for member_id, wanted in target.items():
        members[member_id] = members[member_id]._replace(active=wanted.active, standby=wanted.standby)
    return [f"{bytecodes.count / MAX_TASKS:,.0f}", f"{min(times) * 1000:.0f} + {records * 1000:.0f}"]


def written(target: dict[str, TaskSets]) -> float:
    """The seconds of CPU that the records of all members take."""
    state, began = StreamsGroupState("g"), time.process_time()
    for member_id, wanted in target.items():
        key, value = target_record("g", member_id, wanted)
        state.replay(key, value)
        assert value is not None
        encode_group_key(key)
        encode_group_value(value)
    return time.process_time() - began


def main() -> None:
    rows = []
    for member_count, process_count in GROUPS:
        for standby_replicas in (0, 1, 2):
            members = {f"m{number}": AssignorMember(f"p{number % process_count}") for number in range(member_count)}
            new_group = measured(members, standby_replicas)
            members["new"] = AssignorMember("new")
            one_more = measured(members, standby_replicas)
            rows.append([f"{member_count:,} members of {process_count}", standby_replicas, *new_group, *one_more])
    heads = ["group", "standby tasks", "new group: bytecodes", "ms", "one more member: bytecodes", "ms"]
    print(tabulate(rows, heads, tablefmt="github", disable_numparse=True))


if __name__ == "__main__":
    main()
