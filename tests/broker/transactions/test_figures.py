"""What a scrape and the log say of transactions."""

from __future__ import annotations

import logging
import re

import pytest
from kit.settings import BROKER, SET, alter
from kit.transaction_life import TIMEOUT_MS, TransactionalProducer, TransactionLife, stored_at

from ottla.broker.start_summary import log_start_summary
from ottla.broker.telemetry.exposition import Exposition
from ottla.protocol.api.produce import ProduceResponse
from ottla.protocol.errors import ErrorCode, KafkaError


def figures(life: TransactionLife) -> dict[str, float]:
    """The samples of transactions, by name with labels."""
    text = Exposition(life.node.services, life.node.cleaner).render().decode()
    return {name: float(value) for name, value in re.findall(r"^(ottla_transaction\S+) (\S+)$", text, re.MULTILINE)}


def begun(life: TransactionLife, transactional_id: str) -> TransactionalProducer:
    """A producer with an open transaction."""
    producer = TransactionalProducer(life, transactional_id)
    producer.init()
    producer.produce()
    return producer


def test_a_scrape_shows_what_is_open_and_how_transactions_ended() -> None:
    life = TransactionLife()
    begun(life, "committed").end()
    begun(life, "aborted").end(commit=False)
    begun(life, "fenced")
    with pytest.raises(KafkaError):
        TransactionalProducer(life, "fenced").init()
    begun(life, "late")
    life.pass_ms(TIMEOUT_MS + 20_000)
    begun(life, "open")
    life.pass_ms(5_000)
    shown = figures(life)
    assert {
        "ottla_transactional_ids": 5,
        "ottla_transactions_open": 1,
        "ottla_transactions_oldest_open_seconds": 5,
        "ottla_transactions_begun_total": 5,
        "ottla_transactions_committed_total": 1,
        'ottla_transactions_aborted_total{reason="client"}': 1,
        'ottla_transactions_aborted_total{reason="fenced"}': 1,
        'ottla_transactions_aborted_total{reason="timeout"}': 1,
        "ottla_transactional_ids_expired_total": 0,
        "ottla_transaction_loads_under_way": 0,
    }.items() <= shown.items()


def test_a_scrape_shows_ids_that_expired_and_what_loading_brought() -> None:
    life = TransactionLife(
        transactional_id_expiration_ms=60_000, transaction_remove_expired_transaction_cleanup_interval_ms=60_000
    )
    begun(life, "idle").end()
    life.pass_ms(130_000)
    assert figures(life)["ottla_transactional_ids_expired_total"] == 1
    assert figures(life)["ottla_transactional_ids"] == 0
    shown = figures(life.restarted())
    assert (shown["ottla_transaction_loads_total"], shown["ottla_transaction_load_skipped_records_total"]) == (1, 0)
    assert shown["ottla_transaction_load_records_total"] > 0


def test_the_oldest_open_transaction_is_the_oldest_after_a_restart_too() -> None:
    life = TransactionLife()
    old = begun(life, "old")
    life.pass_ms(3_000)
    begun(life, "new")
    old.produce(index=1)  # its record is the newest one
    life = life.restarted()
    life.pass_ms(2_000)
    assert figures(life)["ottla_transactions_oldest_open_seconds"] == 5.01  # a start is 10 ms


def test_a_scrape_makes_no_coordinator() -> None:
    life = TransactionLife()
    shown = figures(life)
    assert shown["ottla_transactions_open"] == 0
    assert shown["ottla_transactions_begun_total"] == 0
    assert life.node.services.transactions.if_made is None


# --- the start -------------------------------------------------------------------------------------------------------


async def _start_lines(life: TransactionLife, caplog: pytest.LogCaptureFixture) -> str:
    with caplog.at_level(logging.INFO, logger="ottla.server"):
        log_start_summary(life.node.services.config, life.node.services, 1)
    return caplog.text


async def test_a_start_says_how_many_transactional_ids_there_are(caplog: pytest.LogCaptureFixture) -> None:
    life = TransactionLife()
    begun(life, "a")
    begun(life, "b").end()
    assert "2 transactional ids with 1 open transaction" in await _start_lines(life.restarted(), caplog)


async def test_a_start_says_nothing_of_transactions_that_nobody_uses(caplog: pytest.LogCaptureFixture) -> None:
    assert "transactional id" not in await _start_lines(TransactionLife(), caplog)


# --- limits ----------------------------------------------------------------------------------------------------------


def test_the_number_of_transactional_ids_is_bounded_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    life = TransactionLife(ottla_transactional_ids_max=2, transaction_state_log_num_partitions=3)
    known = begun(life, "a")
    begun(life, "b")
    for _ in range(3):
        with pytest.raises(KafkaError, match=r"ottla\.transactional\.ids\.max") as refusal:
            TransactionalProducer(life, "c").init()
        assert refusal.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    (line,) = [record.message for record in caplog.records if "ids.max" in record.message]
    assert "'c' is refused, but no ACL is missing" in line
    assert life.describe("c").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    known.end()
    known.init()  # an id that is known has its place


def changed(life: TransactionLife, key: str, value: str) -> ErrorCode:
    """Change a key of all brokers, as an administrator does."""
    return alter(life.node, BROKER, "", (key, SET, value))[0]


def test_limits_change_while_the_broker_runs() -> None:
    life = TransactionLife(ottla_transactional_ids_max=1, ottla_transactions_max_open=1)
    first = begun(life, "a")
    assert changed(life, "ottla.transactional.ids.max", "2") is ErrorCode.NONE
    assert changed(life, "ottla.transactions.max.open", "2") is ErrorCode.NONE
    begun(life, "b").end()
    assert changed(life, "ottla.transaction.max.partitions", "1") is ErrorCode.NONE
    with pytest.raises(KafkaError, match=r"ottla\.transaction\.max\.partitions"):
        first.produce(index=1)


def test_verification_can_be_turned_off_while_the_broker_runs() -> None:
    life = TransactionLife()
    producer = TransactionalProducer(life, version=0)
    producer.init()
    assert changed(life, "transaction.partition.verification.enable", "false") is ErrorCode.NONE
    assert stored_at(life.ask(ProduceResponse, producer.produce_request(), 10)) == 0


def test_how_long_ids_are_kept_cannot_be_changed_while_the_broker_runs_as_in_kafka() -> None:
    assert changed(TransactionLife(), "transactional.id.expiration.ms", "1") is ErrorCode.INVALID_REQUEST


def test_ids_expire_after_a_restart_too_though_no_producer_begins() -> None:
    life = TransactionLife(
        transactional_id_expiration_ms=60_000, transaction_remove_expired_transaction_cleanup_interval_ms=60_000
    )
    begun(life, "idle").end()
    life = life.restarted()
    life.pass_ms(130_000)
    assert figures(life)["ottla_transactional_ids"] == 0
