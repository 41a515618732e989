"""Processes that consume, transform and produce are killed together with a real broker: all is moved exactly once.

A short form of `scripts/crash-audit --transactions`; and tests of the auditor itself: what it is there to notice, it
notices.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kit.audit import transaction_audit
from kit.audit.mover import TICK_S, Watch
from kit.audit.movers import MoverProcess
from kit.audit.moving import INPUT, OUTPUT, PARTITIONS, Moved, input_value, number_at, transformed
from kit.audit.output_reader import OutputReader
from kit.audit.transaction_audit import TransactionAudit
from kit.audit.transaction_run import audit_transactions, transaction_table
from kit.audit.transactions_seen import what_is_open
from kit.broker import BrokerProcess
from kit.seeds import seed_of

KILLS = 3
RECORDS = 2_000
SYNC_FIRST, PAGE_CACHE_FIRST = 2, seed_of("transactions") | 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("seed", "group_protocol"),
    [(SYNC_FIRST, "classic"), (PAGE_CACHE_FIRST, "consumer")],
    ids=["sync-first-classic", "page-cache-first-consumer"],
)
def test_records_are_moved_exactly_once_through_kills_of_movers_and_broker(
    tmp_path: Path, seed: int, group_protocol: str
) -> None:
    reports: list[str] = []
    tally = audit_transactions(KILLS, RECORDS, seed, tmp_path, reports.append, group_protocol=group_protocol)
    assert tally.breaches == [], reports[-1]
    assert tally.kills.total() >= KILLS
    assert tally.records == RECORDS
    assert tally.comparisons == 1
    assert ("records moved", f"{RECORDS:,}") in transaction_table(tally)


# -- the auditor notices


def moved(partition: int, places: list[int]) -> Moved:
    """What a reader has seen that was shown what becomes of the numbers at these places of a partition."""
    made = Moved()
    for offset, place in enumerate(places):
        made.take(partition, offset, b"mover-0 1 1", transformed(input_value(number_at(partition, place))))
    return made


def test_what_comes_in_order_breaks_nothing() -> None:
    seen = moved(3, [0, 1, 2])
    assert (seen.breaches, seen.seen, seen.total) == ([], [0, 0, 0, 3, 0], 3)


@pytest.mark.parametrize("places", [[0, 0], [0, 2], [1, 0], [0, 1, 2, 1]], ids=["twice", "lost", "overtaken", "again"])
def test_a_record_that_is_lost_or_comes_twice_or_too_early_is_noticed(places: list[int]) -> None:
    breaches = moved(1, places).breaches
    assert "moved-1" in breaches[0]


def test_a_record_that_was_not_transformed_is_noticed() -> None:
    seen = Moved()
    seen.take(0, 0, None, input_value(number_at(0, 0)))
    assert len(seen.breaches) == 1


def test_offsets_that_moved_without_their_records_are_noticed() -> None:
    seen = moved(2, [0, 1])
    seen.compare({2: 2}, "now")
    assert seen.breaches == []
    seen.compare({2: 3}, "now")
    seen.compare({0: 1, 2: 2}, "now")
    assert [breach.split(": ")[1].split()[0] for breach in seen.breaches] == [f"{INPUT}-2", f"{INPUT}-0"]


def test_breaches_do_not_fill_the_memory() -> None:
    seen = moved(0, [7] * 1000)
    assert len(seen.breaches) == 20


def test_an_open_transaction_and_an_aborted_record_that_a_reader_sees_are_noticed(tmp_path: Path) -> None:
    """A reader of uncommitted records is what a broker would make of the auditor's that ignores the isolation level."""
    with BrokerProcess(tmp_path / "data", {"ottla.acks.all": "page-cache"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for created in admin.create_topics([NewTopic(OUTPUT, PARTITIONS, 1)]).values():
            created.result(60)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "mover-0", "linger.ms": 0})
        producer.init_transactions(60)
        assert what_is_open(broker.bootstrap) == []
        producer.begin_transaction()
        producer.produce(OUTPUT, transformed(input_value(0)), partition=0)
        producer.flush(60)
        found = what_is_open(broker.bootstrap)
        assert [line.split(": ")[0] for line in found] == ["mover-0", f"{OUTPUT}-0", f"{OUTPUT}-0"]
        producer.abort_transaction(60)
        assert what_is_open(broker.bootstrap) == []
        producer.begin_transaction()
        producer.produce(OUTPUT, transformed(input_value(0)), partition=0)
        producer.commit_transaction(60)
        committed, uncommitted = Moved(), Moved()
        for seen, level in ((committed, "read_committed"), (uncommitted, "read_uncommitted")):
            reader = OutputReader(seen, broker.bootstrap, level)
            assert reader.reach_end(60)
            reader.end()
    assert (committed.seen[0], committed.breaches) == (1, [])
    assert (uncommitted.seen[0], len(uncommitted.breaches)) == (2, 1)


def test_movers_that_come_to_a_stop_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_audit, "PATIENCE_S", 0.0)
    audit = TransactionAudit(SYNC_FIRST, tmp_path, 0, RECORDS, "classic")
    audit.movers.clear()
    audit.victim.start(is_sync=True)
    audit.work_until(lambda: False)
    audit.victim.kill()
    assert "nothing was moved for 0 s, after 0 records" in audit.moved.breaches[0]


def test_a_mover_that_ends_by_itself_is_counted_and_started_again(tmp_path: Path) -> None:
    mover = MoverProcess("kafka-python", "mover-0", tmp_path, random.Random(1))
    deadline = time.monotonic() + 120
    while mover.ends.total() < 2 and time.monotonic() < deadline:
        mover.tend("127.0.0.1:no-port")
        time.sleep(0.02)
    mover.kill()
    assert mover.ends == {"ValueError": 2}, [path.read_text() for path in tmp_path.iterdir()]


def test_a_mover_that_does_nothing_hangs_unless_there_is_no_broker() -> None:
    ticks = 240
    is_there = False
    watch = Watch(ticks * TICK_S, lambda: is_there)
    assert not any(watch.tick() for _ in range(10 * ticks))
    is_there = True
    assert any(watch.tick() for _ in range(ticks))
