"""A transaction's record, packed at once: what the encoder of messages makes of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.transactions.packed_record import packed_record
from ottla.broker.transactions.state import Transaction, to_record
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
