"""`ottla log verify` of `.txnindex` files: what an index does not say of the batches is damage, and is mended."""

from __future__ import annotations

import pytest
from kit.kafka_segments import ONE, TWO, Kafka, aborted_and_committed
from kit.logs import DIRECTORY, NOW_MS, open_test_log

from ottla.storage.formats import layout
from ottla.storage.formats.directory_format import write_clean_shutdown, write_format
from ottla.storage.producers.transaction_index import AbortedTransaction, encode_transaction_index
from ottla.storage.tools.repair import Repair
from ottla.storage.tools.verify import Finding, Severity, Verification

ROOT = DIRECTORY.parent
FIRST = AbortedTransaction(ONE, 0, 3, 2)
SECOND = AbortedTransaction(TWO, 6, 8, 9)


@pytest.fixture
def kafka() -> Kafka:
    """Behind `aborted_and_committed`, 6 and 7 (next segment) of TWO aborted (marker 8)."""
    kafka = aborted_and_committed()
    kafka.records(TWO)
    kafka.roll()
    kafka.records(TWO)
    kafka.abort(TWO)
    kafka.index(0, FIRST)
    kafka.index(7, SECOND)
    kafka.open(was_clean=False).close()
    write_clean_shutdown(kafka.files, ROOT, 1)
    return kafka


def found(kafka: Kafka) -> list[Finding]:
    return [one for one in Verification(kafka.files, ROOT).run() if one.severity is not Severity.NOTE]


def test_indexes_that_say_what_the_batches_say_are_sound(kafka: Kafka) -> None:
    assert found(kafka) == []


@pytest.mark.parametrize(
    ("base_offset", "entries", "problem"),
    [
        (0, [], "the transaction of producer 1000 from offset 0 to 3 was aborted"),
        (7, [], "the transaction of producer 2000 from offset 6 to 8 was aborted"),
        (7, [SECOND._replace(producer_id=ONE)], "the transaction of producer 2000 from offset 6 to 8 was aborted"),
        (7, [SECOND._replace(first_offset=7)], "the transaction of producer 2000 from offset 6 to 8 was aborted"),
        (7, [SECOND._replace(last_offset=6)], "entry 0 is none"),
        (7, [SECOND._replace(last_offset=99)], "entry 0 is none"),
    ],
)
def test_an_index_that_hides_an_abort_is_damage_and_mended(
    kafka: Kafka, base_offset: int, entries: list[AbortedTransaction], problem: str
) -> None:
    kafka.index(base_offset, *entries)
    first = found(kafka)[0]
    assert (first.severity, first.path) == (Severity.DAMAGE, layout.txn_index_file(DIRECTORY, base_offset))
    assert problem in first.problem
    reported = [line for _, line in Repair(kafka.files, ROOT, NOW_MS).run()]
    assert f"{base_offset:020d}.txnindex is rewritten from the batches" in reported
    assert found(kafka) == []
    assert kafka.stored(0) == encode_transaction_index([FIRST])
    assert kafka.stored(7) == encode_transaction_index([SECOND])
    assert open_test_log(kafka.files).transactions.between(0, 9) == [(ONE, 0), (TWO, 6)]


def test_an_index_that_is_gone_is_damage_and_mended(kafka: Kafka) -> None:
    kafka.files.unlink(layout.txn_index_file(DIRECTORY, 0))
    assert [one.severity for one in found(kafka)] == [Severity.DAMAGE]
    list(Repair(kafka.files, ROOT, NOW_MS).run())
    assert found(kafka) == []


def test_what_a_crash_kept_from_an_index_is_for_the_next_start(kafka: Kafka) -> None:
    kafka.files.unlink(ROOT / layout.CLEAN_SHUTDOWN_FILE)
    kafka.index(7)
    assert [one.severity for one in found(kafka)] == [Severity.UNSURE]


def test_what_a_running_broker_will_add_to_an_index_is_a_note(kafka: Kafka) -> None:
    kafka.files.unlink(ROOT / layout.CLEAN_SHUTDOWN_FILE)
    kafka.index(7)
    write_format(kafka.files, ROOT)
    kafka.files.locked_elsewhere.add(ROOT / layout.LOCK_FILE)
    path = layout.txn_index_file(DIRECTORY, 7)

    def of(base_offset: int) -> list[tuple[Severity, str]]:
        where = layout.txn_index_file(DIRECTORY, base_offset)
        return [(one.severity, one.problem) for one in Verification(kafka.files, ROOT).run() if one.path == where]

    words = "1 aborted transaction of the active segment will be added by the running broker"
    ((severity, problem),) = of(7)
    assert (severity, problem[: len(words)]) == (Severity.NOTE, words)
    kafka.files.unlink(path)
    assert [severity for severity, _ in of(7)] == [Severity.NOTE]
    kafka.index(7, SECOND._replace(first_offset=7))
    assert [severity for severity, _ in of(7)] == [Severity.UNSURE]
    kafka.index(0)
    assert Severity.NOTE not in [severity for severity, _ in of(0)], "its segment is closed"


def test_where_batches_cannot_be_read_no_index_is_accused(kafka: Kafka) -> None:
    kafka.files.open(layout.log_file(DIRECTORY, 0), writable=True).pwritev([b"\xff"], 70)
    assert {one.path.suffix for one in found(kafka)} == {".log"}
