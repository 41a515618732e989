"""`groups why` of a share group: each thing that can stand between it and its records is found, and has a remedy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.diagnosis.group_diagnosis import MemberFacts, OpenTransaction, Weight
from ottla.diagnosis.share_diagnosis import ShareFacts, SharePartitionFacts, ShareSettings, diagnose_share

M = MemberFacts("m1", frozenset({"orders"}), partitions=1)
AT_END = SharePartitionFacts("orders-0", "orders", start_offset=10, lag=0, log_start=0, stable_end=10, end=10)
HEALTHY = ShareFacts("billing", members=(M,), existing=frozenset({"orders"}), partitions=(AT_END,))
COMMITTED = ShareSettings(is_read_committed=True)


def with_partition(**changes):
    return replace(HEALTHY, partitions=(replace(AT_END, **changes),))


CASES = {
    "no members": (
        replace(with_partition(start_offset=4, lag=5, readers=0), members=()),
        Weight.CAUSE,
        ["no members; 5 records wait for it"],
        ["start a share consumer"],
    ),
    "no members of a group that begins with the first record": (
        replace(
            with_partition(start_offset=None, lag=None, log_start=9, readers=0),
            members=(),
            settings=ShareSettings(begins_at="earliest"),
        ),
        Weight.CAUSE,
        ["no members; 1 record waits for it"],
        ["start a share consumer"],
    ),
    "a member that has not subscribed": (
        replace(HEALTHY, members=(M, MemberFacts("m2"))),
        Weight.CAUSE,
        ["m2 subscribes to nothing"],
        ["not subscribed yet"],
    ),
    "a topic that does not exist": (
        replace(HEALTHY, members=(replace(M, topics=frozenset({"orders", "order"})),)),
        Weight.CAUSE,
        ["order: subscribed to", "there is orders"],
        ["topics create order"],
    ),
    "a member that has not got its partitions": (
        replace(HEALTHY, members=(M, replace(M, name="m2", partitions=0))),
        Weight.PERHAPS,
        ["m2 got no partition yet"],
        ["heartbeats"],
    ),
    "a start offset after the end": (
        with_partition(start_offset=99),
        Weight.CAUSE,
        ["orders-0: the start offset is 99, past the end (10)"],
        ["stop the members", "ottla groups reset billing --topic orders --to-latest --execute"],
    ),
    "a start offset after the end, of which Kafka reports no lag": (
        with_partition(start_offset=99, lag=None),
        Weight.CAUSE,
        ["orders-0: the start offset is 99, past the end (10)"],
        ["stop the members"],
    ),
    "a topic that the group reads no more": (
        replace(with_partition(start_offset=4, lag=6, readers=0), members=(replace(M, topics=frozenset({"mails"})),)),
        Weight.CAUSE,
        ["orders: no member subscribes to it any more; 6 records wait"],
        ["subscribe to it", "groups delete billing --topic orders"],
    ),
    "a partition of no member": (
        with_partition(readers=0),
        Weight.CAUSE,
        ["orders-0: assigned to no member"],
        ["not noticed"],
    ),
    "not read yet, and the group begins at the end": (
        with_partition(start_offset=None, lag=None, log_start=4),
        Weight.PERHAPS,
        [
            "orders-0: nothing is acknowledged yet",
            "6 records are there from 4 to 9",
            "=latest, the default, those from",
        ],
        ["configs alter --group billing --set share.auto.offset.reset=earliest"],
    ),
    "not read yet, and the group begins with the first record": (
        replace(with_partition(start_offset=None, lag=None), settings=ShareSettings(begins_at="earliest")),
        Weight.PERHAPS,
        ["nothing is acknowledged yet, and 10 records are there from 0 to 9"],
        ["poll"],
    ),
    "records that members have": (
        with_partition(start_offset=4, lag=2),
        Weight.PERHAPS,
        ["orders-0: 2 records from 4 on are not acknowledged (4 are)", "locked"],
        ["after 30 s", "5 times in all"],
    ),
    "one record that a member has": (
        with_partition(start_offset=9, lag=1),
        Weight.PERHAPS,
        ["1 record from 9 on is not acknowledged: members have it locked, or have not asked for it"],
        ["poll"],
    ),
    "as many locked records as the group may have": (
        replace(with_partition(start_offset=2, lag=8), settings=ShareSettings(most_locks=5, lock_ms=1500)),
        Weight.PERHAPS,
        ["8 records from 2 on are not acknowledged: 5 may be in flight, so later ones wait while 2 is not"],
        ["raise share.partition.max.record.locks", "after 1.5 s"],
    ),
    "a broker that does not know the lag": (
        with_partition(start_offset=4, lag=None),
        Weight.PERHAPS,
        ["6 records from 4 on are not acknowledged"],
        ["poll"],
    ),
    "an open transaction": (
        replace(
            with_partition(
                start_offset=6, lag=4, stable_end=6, open_transactions=(OpenTransaction(7, 6, 5000, "tx", False),)
            ),
            settings=COMMITTED,
        ),
        Weight.CAUSE,
        ["an open transaction holds back the records from 6 to 9", "transactional id 'tx'"],
        ["transactions abort tx"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_found_and_has_a_remedy(name):
    facts, weight, texts, remedies = CASES[name]
    findings = [one for one in diagnose_share(facts) if texts[0] in one.text]
    assert len(findings) == 1, diagnose_share(facts)
    (finding,) = findings
    assert finding.weight is weight
    assert all(text in finding.text for text in texts), finding.text
    assert all(text in finding.remedy for text in remedies), finding.remedy


def test_a_group_that_has_done_everything_is_in_order():
    assert [(one.weight, one.text) for one in diagnose_share(HEALTHY)] == [
        (Weight.FINE, "orders-0: read to its end (lag 0)"),
        (Weight.FINE, "nothing is in the way: what is written next will be received"),
    ]


@pytest.mark.parametrize(("end", "why"), [(0, "never written to"), (7, "empty: retention has deleted everything")])
def test_a_partition_without_records_is_in_order(end, why):
    facts = with_partition(start_offset=None, lag=None, log_start=end, stable_end=end, end=end)
    assert diagnose_share(facts)[0] == (Weight.FINE, f"orders-0: {why}, and the group has no start offset yet", "")


def test_an_open_transaction_does_not_hold_back_groups_that_read_everything():
    facts = with_partition(start_offset=6, lag=4, stable_end=6)
    assert not [one for one in diagnose_share(facts) if "transaction" in one.text]


@pytest.mark.parametrize(
    ("lag", "locks"),
    [
        (5, 5),  # all that there is may be in flight
        (2, 3),  # later records are acknowledged: they were delivered
    ],
)
def test_a_limit_of_locks_that_holds_nothing_back_is_not_named(lag, locks):
    facts = replace(with_partition(start_offset=5, lag=lag), settings=ShareSettings(most_locks=locks))
    assert not [one for one in diagnose_share(facts) if "max.record.locks" in one.remedy]


def test_a_limit_of_locks_that_holds_one_record_back_is_named():
    facts = replace(with_partition(start_offset=5, lag=2), settings=ShareSettings(most_locks=4))
    assert "4 may be in flight" in diagnose_share(facts)[0].text
