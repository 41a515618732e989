"""A real broker under real clients, killed and damaged: nothing acknowledged is lost, nothing is doubled.

A short form of `scripts/crash-audit`, which makes hundreds of kills and flips; and tests of the auditor itself: what it
is there to notice, it notices.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kit.audit import audit as audit_module
from kit.audit.audit import Audit
from kit.audit.damage import LostEnd, lose_end
from kit.audit.flip_audit import FlipAudit
from kit.audit.greedy import BOUND_BYTES, OTHER_BYTES, GreedyReaders
from kit.audit.ledger import Ledger, PartitionLedger, Place, Shown, TopicLedger
from kit.audit.reading import read_with_confluent, shown
from kit.audit.specimen import SETTINGS, Specimen, make_specimen
from kit.audit.values import Mark, NotSent, key_of, mark_of, value_of
from kit.broker import BrokerProcess
from kit.seeds import seed_of

KILLS = 3
PLACE: Place = ("kept", 0)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [2, seed_of("kills")], ids=["known", "of-the-run"])
def test_nothing_acknowledged_is_lost_and_nothing_is_doubled_by_kills_and_damage(tmp_path: Path, seed: int) -> None:
    tally = Audit(seed, tmp_path / "data", KILLS).run()
    assert tally.breaches == [], f"scripts/crash-audit --seed {seed} --kills {KILLS}"
    assert tally.kills.total() >= KILLS
    assert tally.counts["acknowledged"] >= tally.rounds * 40
    assert tally.counts["read"] > 0


@pytest.fixture(scope="module")
def specimen(tmp_path_factory: pytest.TempPathFactory) -> Specimen:
    return make_specimen(tmp_path_factory.mktemp("specimen") / "data")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [1, seed_of("flips")], ids=["known", "of-the-run"])
def test_a_flipped_bit_is_found_refused_and_mended_and_nothing_else_is_lost(
    specimen: Specimen, tmp_path: Path, seed: int
) -> None:
    audit = FlipAudit(specimen, tmp_path / "flipped", seed)
    try:
        audit.group()
    finally:
        audit.end()
    assert audit.tally.breaches == [], f"scripts/crash-audit --seed {seed} --flips 1"
    assert audit.tally.flips.total() >= 6


# -- the auditor notices


@pytest.fixture
def ledger() -> Ledger:
    made = Ledger()
    made.topics["kept"] = TopicLedger("kept", [PartitionLedger()], counts_asked=1)
    made.enlist("once", is_once=True)
    made.enlist("plain", is_once=False)
    for _ in range(10):
        made.next_mark(0)
        made.next_mark(1)
    return made


def audited(ledger: Ledger, records: dict[int, Mark], start: int = 0, end: int | None = None) -> list[str]:
    ledger.audit_partition(PLACE, Shown(start, len(records) + start if end is None else end, records))
    return ledger.breaches


def test_what_is_there_as_it_was_acknowledged_breaks_nothing(ledger: Ledger) -> None:
    for number in range(3):
        ledger.acknowledged(PLACE, number, Mark(0, number))
    assert audited(ledger, {number: Mark(0, number) for number in range(4)}) == []


@pytest.mark.parametrize("is_all", [True, False])
def test_a_lost_record_is_noticed(ledger: Ledger, is_all: bool) -> None:
    ledger.acknowledged(PLACE, 1, Mark(0, 1), is_all=is_all)
    assert "1 acknowledged records lost" in audited(ledger, {0: Mark(0, 0)})[0]
    assert ledger.counts["lost"] == 1


def test_a_record_that_another_took_the_place_of_is_noticed(ledger: Ledger) -> None:
    ledger.acknowledged(PLACE, 0, Mark(0, 0))
    assert "lost" in audited(ledger, {0: Mark(1, 0)})[0]


def test_what_a_power_cut_may_take_is_not_missed_and_what_it_may_not_take_is(ledger: Ledger) -> None:
    ledger.acknowledged(PLACE, 0, Mark(0, 0))
    ledger.acknowledged(PLACE, 1, Mark(1, 0), is_all=False)
    assert ledger.must_reach(PLACE) == 1
    ledger.lose_from(PLACE, 1)
    assert audited(ledger, {0: Mark(0, 0)}) == []
    assert "lost" in audited(ledger, {})[-1]


def test_in_page_cache_an_acknowledgement_survives_a_kill_only(ledger: Ledger) -> None:
    ledger.is_sync = False
    ledger.acknowledged(PLACE, 0, Mark(0, 0))
    assert ledger.must_reach(PLACE) == 0
    assert "lost" in audited(ledger, {})[0]


def test_a_doubled_record_is_noticed_of_an_idempotent_producer_only(ledger: Ledger) -> None:
    assert audited(ledger, {0: Mark(1, 0), 1: Mark(1, 1), 2: Mark(1, 0), 3: Mark(1, 1)}) == []
    assert "stored twice" in audited(ledger, {0: Mark(1, 0), 1: Mark(0, 3), 2: Mark(0, 3), 3: Mark(1, 1)})[-1]
    assert (ledger.counts["doubled"], ledger.counts["repeated"]) == (1, 2)


def test_records_out_of_order_are_noticed(ledger: Ledger) -> None:
    assert "comes after" in audited(ledger, {0: Mark(0, 2), 1: Mark(0, 1)})[0]


def test_of_a_plain_producer_a_repeat_may_be_all_that_is_left(ledger: Ledger) -> None:
    ledger.topics["kept"].partitions[0].start = 5
    assert audited(ledger, {5: Mark(1, 2), 6: Mark(1, 1), 7: Mark(1, 2)}, start=5) == []
    assert "comes after" in audited(ledger, {8: Mark(0, 2), 9: Mark(0, 1)}, start=8)[-1]


def test_a_gap_between_offsets_is_noticed(ledger: Ledger) -> None:
    assert "1 gaps" in audited(ledger, {0: Mark(0, 1), 2: Mark(0, 2)}, end=3)[0]


def test_a_log_that_became_shorter_than_it_was_shown_is_noticed(ledger: Ledger) -> None:
    ledger.seen(PLACE, 5)
    assert "5 had been shown" in audited(ledger, {number: Mark(0, number) for number in range(4)})[0]


def test_deleted_records_that_come_back_are_noticed(ledger: Ledger) -> None:
    ledger.topics["kept"].partitions[0].start = 2
    assert "had been deleted" in audited(ledger, {number: Mark(0, number) for number in range(4)})[0]


def test_a_record_that_nobody_sent_is_noticed(ledger: Ledger) -> None:
    assert "was never sent" in audited(ledger, {0: Mark(0, 10)})[0]
    with pytest.raises(NotSent):
        mark_of(b"0 1 kept-0 other bytes", *PLACE)
    with pytest.raises(NotSent):
        mark_of(value_of(Mark(0, 1), "kept", 1), *PLACE)
    assert mark_of(value_of(Mark(3, 77), *PLACE), *PLACE) == Mark(3, 77)


def test_a_reader_that_gets_wrong_bytes_or_an_old_offset_again_says_so(ledger: Ledger) -> None:
    value = value_of(Mark(0, 0), *PLACE)
    assert shown(ledger, PLACE, 0, 1, [(0, None, value)]).wrong == []
    assert len(shown(ledger, PLACE, 0, 2, [(0, None, value), (0, None, value)]).wrong) == 1
    assert len(shown(ledger, PLACE, 0, 1, [(0, b"key", value)]).wrong) == 1


def test_of_a_compacted_topic_a_later_record_of_the_key_stands_for_an_earlier_one(ledger: Ledger) -> None:
    ledger.topics["kept"].settings["cleanup.policy"] = "compact"
    for _ in range(100):
        ledger.next_mark(0)
    assert key_of(Mark(0, 0)) == key_of(Mark(0, 40))
    ledger.acknowledged(PLACE, 0, Mark(0, 0))
    assert audited(ledger, {40: Mark(0, 40)}, end=41) == []
    assert "lost" in audited(ledger, {45: Mark(0, 45)}, end=46)[-1]


def test_topics_that_are_gone_come_back_or_change_are_noticed(ledger: Ledger) -> None:
    ledger.audit_topics({"kept": (1, {}), "deleted": (1, {})})
    assert "deleted, or never created" in ledger.breaches[-1]
    ledger.audit_topics({"kept": (1, {"retention.ms": "5"}), "deleted": (1, {})})
    assert "acknowledged was" in ledger.breaches[-1]
    ledger.audit_topics({"kept": (2, {"retention.ms": "5"}), "deleted": (1, {})})
    assert "2 partitions" in ledger.breaches[-1]
    ledger.audit_topics({"kept": (2, {"retention.ms": "5"})})
    assert "nobody deleted it" in ledger.breaches[-1]
    assert len(ledger.breaches) == 4


def test_what_was_not_answered_may_have_happened_or_not(ledger: Ledger) -> None:
    ledger.creating["new"] = (1, {})
    ledger.deleting.add("kept")
    ledger.audit_topics({"new": (1, {})})
    ledger.topics["new"].settings_asked.append({"a": "b"})
    ledger.audit_topics({"new": (1, {"a": "b"})})
    assert ledger.breaches == []


def test_a_committed_offset_that_goes_back_or_was_never_asked_for_is_noticed(ledger: Ledger) -> None:
    ledger.committing("group", PLACE, 7)
    ledger.committed("group", PLACE, 7)
    ledger.committing("group", PLACE, 9)
    ledger.audit_commit("group", PLACE, 9)
    assert ledger.breaches == []
    ledger.audit_commit("group", PLACE, 7)
    assert "went back" in ledger.breaches[-1]
    ledger.audit_commit("group", PLACE, 10)
    assert "nothing above 9" in ledger.breaches[-1]


# -- what the audit itself has done to a broker


def test_an_offset_that_is_given_out_again_after_its_record_was_taken_away_is_noticed(ledger: Ledger) -> None:
    for number in range(6):
        ledger.acknowledged(PLACE, number, Mark(0, number))
    ledger.destroy(PLACE, 2, 6)
    left = {0: Mark(0, 0), 1: Mark(0, 1)}
    assert audited(ledger, {**left, 6: Mark(0, 6)}, end=7) == []
    assert audited(ledger, {**left, 6: Mark(0, 6), 7: Mark(0, 7)}, end=8) == []  # the gap is known for ever
    assert "1 offsets were given out twice: [3]" in audited(ledger, {**left, 3: Mark(0, 6)}, end=8)[0]


def test_a_log_that_goes_back_behind_what_its_checkpoints_said_is_noticed(ledger: Ledger) -> None:
    ledger.acknowledged(PLACE, 0, Mark(0, 0))
    ledger.destroy(PLACE, 0, 1)
    assert "ends at 0; 1 had been shown" in audited(ledger, {}, end=0)[0]


def test_a_start_that_does_not_say_that_a_log_lost_its_end_is_noticed(tmp_path: Path) -> None:
    audit = Audit(1, tmp_path / "data", 0)
    lost = LostEnd("cut", 3, 7)
    line = "ottla.recovery: shortened-0: the log ends at offset 3, and had reached 7 when that was last written down"
    audit.hear_of(lost, f"2026-11-22 ERROR {line}")
    audit.hear_of(lost._replace(reached=3), "")  # nobody knew of more: no offset was lost
    assert audit.ledger.breaches == []
    audit.hear_of(lost, f"2026-11-22 WARNING {line}")
    audit.hear_of(lost, "")
    assert len(audit.ledger.breaches) == 2


def test_ends_of_logs_are_taken_away_and_the_broker_keeps_what_the_checkpoints_say(
    specimen: Specimen, tmp_path: Path
) -> None:
    """The audit's damage is the one that the broker answers with an ERROR and a gap."""
    specimen.copy(tmp_path / "shortened")
    partition = tmp_path / "shortened" / "plain-1"
    lost = lose_end(partition, random.Random(3))
    assert lost is not None
    assert lost.reached > lost.first_lost
    with BrokerProcess(tmp_path / "shortened", SETTINGS) as broker:
        assert (
            f"plain-1: the log ends at offset {lost.first_lost}, and had reached {lost.reached} when" in broker.output
        )
        found = read_with_confluent(broker.bootstrap, [("plain", 1)])["plain", 1]
        assert found[1] == lost.reached
        assert max(row[0] for row in found[2]) == lost.first_lost - 1


def test_a_start_that_gets_no_thread_and_begins_or_writes_is_noticed(tmp_path: Path) -> None:
    """Both by a broker that is not refused a thread at all, as if it caught the refusal and went on."""
    audit = Audit(1, tmp_path / "data", 0)
    audit.victim.process.environment["OTTLA_TEST_NO_THREADS"] = str(tmp_path / "another-file")
    audit.refuse_without_threads(is_sync=True)
    assert [breach.split()[:3] for breach in audit.ledger.breaches] == [["a", "start", "came"], ["a", "start", "that"]]


def test_a_broker_that_acknowledges_nothing_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "PATIENCE_S", 0.0)
    audit = Audit(1, tmp_path / "data", 0)
    audit.wait_for_acknowledgements(0, 0.0)
    assert audit.ledger.breaches == ["only 0 records were acknowledged"]


@pytest.mark.parametrize("is_bounded", [True, False])
def test_a_broker_that_reads_for_all_who_take_nothing_is_noticed(tmp_path: Path, is_bounded: bool) -> None:
    bound = BOUND_BYTES if is_bounded else 1 << 40
    with BrokerProcess(tmp_path / "data", {"ottla.connections.max.unsent.bytes": str(bound)}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
        for _ in range(400):
            producer.produce("t", random.Random(1).randbytes(10_000))
        assert producer.flush(60) == 0
        greedy = GreedyReaders(broker.port, broker.pid)
        greedy.begin([("t", 0)])
        for _ in range(10):  # others are served meanwhile
            assert len(read_with_confluent(broker.bootstrap, [("t", 0)])["t", 0][2]) == 400
            if greedy.held() > BOUND_BYTES + OTHER_BYTES:
                break
        wrong = greedy.end()
    assert (wrong is None) is is_bounded, wrong
