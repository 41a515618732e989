"""`groups why`: each thing that can stand between a group and its records is found, named, and has a remedy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.diagnosis.group_diagnosis import (
    GroupFacts,
    MemberFacts,
    OpenTransaction,
    PartitionFacts,
    Weight,
    diagnose,
)

M = MemberFacts("m1", frozenset({"orders"}), partitions=1)
AT_END = PartitionFacts("orders-0", "orders", committed=10, start=0, stable_end=10, end=10, owner="m1")
HEALTHY = GroupFacts("billing", "Stable", members=(M,), partition_counts={"orders": 1}, partitions=(AT_END,))


def with_partition(**changes):
    return replace(HEALTHY, partitions=(replace(AT_END, **changes),))


CASES = {
    "no such group": (
        GroupFacts("biling", None, other_groups=("billing", "x"), retention_minutes=10080),
        Weight.CAUSE,
        ["no such group", "7 days"],
        ["did you mean billing?"],
    ),
    "another kind of group": (
        replace(HEALTHY, protocol_type="connect"),
        Weight.PERHAPS,
        ["'connect'"],
        ["ask the program"],
    ),
    "no members": (
        replace(with_partition(committed=4, owner=None), state="Empty", members=()),
        Weight.CAUSE,
        ["no members", "6 records wait"],
        ["start a consumer"],
    ),
    "offsets without a group": (
        replace(with_partition(owner=None), state=None, members=()),
        Weight.CAUSE,
        ["no members"],
        ["start a consumer"],
    ),
    "joining": (replace(HEALTHY, state="PreparingRebalance"), Weight.CAUSE, ["waits for its members"], ["wait"]),
    "syncing": (replace(HEALTHY, state="CompletingRebalance"), Weight.CAUSE, ["of its leader"], ["wait"]),
    "assigning": (replace(HEALTHY, state="Assigning"), Weight.CAUSE, ["computes the assignment"], ["wait"]),
    "a member that holds what it shall give up": (
        replace(HEALTHY, state="Reconciling", members=(replace(M, to_give_up=("orders-0",)),)),
        Weight.CAUSE,
        ["m1 has yet to give up orders-0"],
        ["next asks for records"],
    ),
    "a member that has not taken what it got": (
        replace(HEALTHY, state="Reconciling", members=(replace(M, to_take=("orders-0",)),)),
        Weight.CAUSE,
        ["m1 has yet to take orders-0"],
        ["next asks for records"],
    ),
    "a topic that does not exist": (
        replace(HEALTHY, members=(replace(M, topics=frozenset({"order"})),)),
        Weight.CAUSE,
        ["order: subscribed to", "there is orders"],
        ["topics create order"],
    ),
    "a topic that was deleted": (
        replace(HEALTHY, committed_elsewhere=("old-0",)),
        Weight.PERHAPS,
        ["old-0: committed", "does not exist any more"],
        ["delete them"],
    ),
    "more members than partitions": (
        replace(HEALTHY, members=(M, replace(M, name="m2", partitions=0))),
        Weight.CAUSE,
        ["m2 got no partition: 2 members share 1 partition of orders"],
        ["more partitions"],
    ),
    "an assignor that leaves members idle": (
        replace(
            HEALTHY,
            members=(M, MemberFacts("m2", frozenset({"orders", "more"}))),
            partition_counts={"orders": 1, "more": 1},
        ),
        Weight.CAUSE,
        ["m2 got no partition"],
        ["range", "roundrobin"],
    ),
    "a pattern that matches nothing": (
        replace(HEALTHY, members=(M, MemberFacts("m2", pattern="ordrs.*"))),
        Weight.CAUSE,
        ["m2 got nothing", "'ordrs.*'"],
        ["whole names"],
    ),
    "a member without a subscription": (
        replace(HEALTHY, members=(M, MemberFacts("m2"))),
        Weight.CAUSE,
        ["m2 subscribes to nothing"],
        ["by hand"],
    ),
    "a partition of nobody": (
        with_partition(owner=None),
        Weight.CAUSE,
        ["orders-0: assigned to no member"],
        ["metadata.max.age.ms"],
    ),
    "nothing committed with records before the end": (
        replace(with_partition(committed=None, start=4), retention_minutes=90),
        Weight.PERHAPS,
        ["6 records are there from 4 to 9", "latest", "90 minutes"],
        ["auto.offset.reset=earliest", "groups reset billing --topic orders --to-earliest"],
    ),
    "deleted by retention": (
        with_partition(committed=3, start=5),
        Weight.PERHAPS,
        ["committed at 3, which is deleted (the log begins at 5)"],
        ["--to-earliest", "retention.ms"],
    ),
    "created again": (
        with_partition(committed=30),
        Weight.CAUSE,
        ["committed at 30, past the end (10)", "created again"],
        ["--to-earliest"],
    ),
    "an open transaction": (
        with_partition(committed=6, stable_end=6, open_transactions=(OpenTransaction(4711, 6, 90_000),)),
        Weight.CAUSE,
        ["holds back the records from 6 to 9", "producer 4711", "begun at 6", "silent for 90 s"],
        ["commit or abort", "read_uncommitted"],
    ),
    "an open transaction of a transactional id": (
        with_partition(committed=6, stable_end=6, open_transactions=(OpenTransaction(4711, 6, 90_000, "billing run"),)),
        Weight.CAUSE,
        ["holds back the records from 6 to 9", "transactional id 'billing run', producer 4711", "silent for 90 s"],
        ["ottla transactions abort 'billing run'"],
    ),
    "a transaction that nobody will end": (
        with_partition(committed=6, stable_end=6, open_transactions=(OpenTransaction(4711, 6, None, is_hanging=True),)),
        Weight.CAUSE,
        ["producer 4711, begun at 6", "no coordinator knows"],
        ["ottla transactions abort --topic orders --partition 0"],
    ),
    "an open transaction of nobody knows whom": (
        with_partition(committed=6, stable_end=6),
        Weight.CAUSE,
        ["holds back the records from 6 to 9"],
        ["commit or abort"],
    ),
    "an offset that an open transaction has committed": (
        with_partition(pending_by=("billing run",)),
        Weight.PERHAPS,
        ["orders-0: an open transaction has committed an offset", "a consumer that begins waits", "'billing run'"],
        ["ottla transactions abort 'billing run'"],
    ),
    "an offset that a transaction of one of two has committed": (
        with_partition(pending_by=("a", "b")),
        Weight.PERHAPS,
        ["one of the transactional ids 'a', 'b'"],
        ["ottla transactions abort a"],
    ),
    "an offset that a transaction of nobody knows whom has committed": (
        with_partition(pending_by=()),
        Weight.PERHAPS,
        ["does not count yet"],
        ["commit or abort"],
    ),
    "a member that does not get on": (
        with_partition(committed=4),
        Weight.PERHAPS,
        ["6 records from 4 on wait, and m1 has it"],
        ["ottla consume orders --partition 0 --offset 4 --max-messages 1"],
    ),
    "a static member that does not get on": (
        with_partition(committed=4, is_owner_static=True),
        Weight.PERHAPS,
        ["6 records from 4 on wait"],
        ["has ended and its session has not"],
    ),
    "only ends of transactions and aborted records": (
        with_partition(committed=4, has_only_ends=True),
        Weight.FINE,
        ["read to its end: from 4 on are only ends of transactions and aborted records"],
        [],
    ),
    "only those, and then an open transaction": (
        with_partition(committed=4, stable_end=6, has_only_ends=True),
        Weight.CAUSE,
        ["holds back the records from 6 to 9"],
        ["read_uncommitted"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_stands_in_the_way_is_said_first_with_what_to_do(name):
    facts, weight, text, remedy = CASES[name]
    findings = diagnose(facts)
    fitting = [one for one in findings if all(word in one.text for word in text)]
    assert len(fitting) == 1, findings
    assert fitting[0].weight is weight
    assert all(word in fitting[0].remedy for word in remedy), fitting[0].remedy
    assert [one.weight for one in findings] == sorted((one.weight for one in findings), key=list(Weight).index)


def test_a_group_that_has_read_everything_is_reported_so():
    assert [(one.weight, one.text) for one in diagnose(HEALTHY)] == [
        (Weight.FINE, "orders-0: read to its end"),
        (Weight.FINE, "nothing is in the way: what is written next will be received"),
    ]


@pytest.mark.parametrize(
    ("start", "end", "said"), [(0, 0, "never written to"), (7, 7, "retention has deleted everything")]
)
def test_an_empty_partition_is_in_order(start, end, said):
    findings = diagnose(with_partition(committed=None, start=start, stable_end=end, end=end))
    assert said in findings[0].text
    assert all(one.weight is Weight.FINE for one in findings)


def test_partitions_of_which_the_same_is_to_be_said_share_a_line():
    many = tuple(replace(AT_END, name=f"orders-{index}") for index in range(1000))
    findings = diagnose(replace(HEALTHY, partitions=many))
    assert findings[0].text == "orders-0, orders-1, orders-2 and 997 more: read to its end"


def test_idle_members_share_a_line():
    idle = tuple(replace(M, name=f"m{number}", partitions=0) for number in range(2, 8))
    (finding,) = [one for one in diagnose(replace(HEALTHY, members=(M, *idle))) if one.weight is Weight.CAUSE]
    assert finding.text.startswith("m2, m3, m4 and 3 more got no partition: 7 members")
