"""A transaction's record, packed at once: what the encoder of messages makes of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.transactions.packed_record import MOST_PLACES, packed_in_batch, packed_record
from ottla.broker.transactions.state import Transaction, to_record
from ottla.protocol.records.record import encode_record
from ottla.protocol.stored.transaction import TransactionStatus, encode_transaction_key, encode_transaction_value

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
TOPICS = st.sampled_from(["t", "x" * 126, "x" * 127, "y" * 249, "ü"])

transactions = st.builds(
    Transaction,
    transactional_id=st.text(max_size=300),
    producer_id=INT64,
    producer_epoch=INT16,
    timeout_ms=INT32,
    status=st.sampled_from(TransactionStatus),
    partitions=st.frozensets(st.tuples(TOPICS, st.integers(0, 300)), max_size=200) | st.just(frozenset()),
    start_ms=INT64,
    last_update_ms=INT64,
    previous_producer_id=st.just(-1) | INT64,
    next_producer_id=st.just(-1) | INT64,
    last_producer_epoch=INT16,
    client_version=st.just(0) | st.just(2) | INT16,
)


@given(transactions)
def test_a_packed_record_is_the_encoded_one(transaction: Transaction) -> None:
    key, value = to_record(transaction, 1)
    assert packed_record(transaction) == (encode_transaction_key(key), encode_transaction_value(value, 1))


@pytest.mark.parametrize(
    "transaction",
    [
        Transaction("t", 1 << 63),
        Transaction("t", 1, 1 << 15),
        Transaction("t" * (1 << 15), 1),
        Transaction("t", 1, partitions=frozenset({("t", 1 << 31)}), status=TransactionStatus.ONGOING),
    ],
)
def test_what_does_not_fit_is_left_to_the_encoder(transaction: Transaction) -> None:
    assert packed_record(transaction) is None


@given(transactions, st.integers(0, 70))
def test_a_record_packed_for_a_batch_is_the_encoded_one(transaction: Transaction, place: int) -> None:
    packed, encoded = packed_in_batch(transaction, place), packed_record(transaction)
    if packed is None:
        return
    assert encoded is not None
    assert packed == encode_record(0, place, *encoded)


USUAL = Transaction(
    "t",
    1_000,
    3,
    60_000,
    TransactionStatus.ONGOING,
    frozenset({("topic", 7)}),
    1_700_000_000_000,
    1_700_000_000_001,
    previous_producer_id=1_000,
    client_version=2,
)


@pytest.mark.parametrize(
    ("transaction", "place"),
    [
        (USUAL, 0),
        (USUAL, MOST_PLACES - 1),
        (USUAL._replace(status=TransactionStatus.COMPLETE_COMMIT, partitions=frozenset()), 1),
        (USUAL._replace(transactional_id="i" * 255), 0),
    ],
)
def test_the_usual_records_are_packed_for_a_batch(transaction: Transaction, place: int) -> None:
    encoded = packed_record(transaction)
    assert encoded is not None
    assert packed_in_batch(transaction, place) == encode_record(0, place, *encoded)


@pytest.mark.parametrize(
    ("transaction", "place"),
    [
        (USUAL, MOST_PLACES),
        (USUAL._replace(transactional_id="i" * 256), 0),
        (USUAL._replace(partitions=frozenset({("a", 0), ("b", 0)})), 0),
        (USUAL._replace(status=TransactionStatus.EMPTY), 0),
        (USUAL._replace(next_producer_id=5), 0),
        (USUAL._replace(client_version=0), 0),
        (USUAL._replace(producer_epoch=1 << 15), 0),
        (USUAL._replace(transactional_id="\udc00"), 0),
    ],
)
def test_other_records_are_not_packed_for_a_batch(transaction: Transaction, place: int) -> None:
    assert packed_in_batch(transaction, place) is None
