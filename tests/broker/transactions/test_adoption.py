"""What a load makes of the transactions that logs have open."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.transactions.adoption import sort_open
from ottla.broker.transactions.open_transactions import OpenTransaction


def test_a_shard_without_transactions_looks_at_no_log() -> None:
    """A new `__transaction_state` has 50 such shards, all loaded in one step, and there may be 10,000 logs."""

    def logs() -> Iterator[OpenTransaction]:
        raise AssertionError("it looks at the logs")
        yield

    adoption = sort_open({}, logs())
    assert (adoption.current, adoption.next, adoption.stale) == ({}, {}, [])
