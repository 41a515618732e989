"""What the pool of receive buffers finds, keeps and drops."""

from __future__ import annotations

import pytest

from ottla.broker.net.buffer_pool import BufferPool
from ottla.broker.net.held_bytes import FIRST_BYTES, GRAIN_BYTES, HeldBytes

MIB = 1 << 20


def pool_of(*capacities: int) -> tuple[BufferPool, list[HeldBytes]]:
    pool = BufferPool(4 * MIB)
    kept = [HeldBytes(capacity) for capacity in capacities]
    for held in kept:
        pool.keep(held)
    return pool, kept


def test_a_small_buffer_is_found_for_less_than_it_holds() -> None:
    pool, (kept,) = pool_of(150)
    assert kept.capacity == GRAIN_BYTES
    for capacity in (1, 150, GRAIN_BYTES):
        assert pool.fitting(capacity) is kept
    assert pool.fitting(GRAIN_BYTES + 1) is None


@pytest.mark.parametrize("wanted", [GRAIN_BYTES, 20_000, FIRST_BYTES, FIRST_BYTES + 1, MIB])
def test_what_is_found_is_at_most_twice_as_long(wanted: int) -> None:
    most = 2 * wanted if wanted > FIRST_BYTES else 2 * HeldBytes(wanted).capacity
    for capacity in (wanted - GRAIN_BYTES, wanted, wanted + GRAIN_BYTES, 2 * wanted, 2 * wanted + 2 * GRAIN_BYTES):
        pool, (kept,) = pool_of(max(capacity, 1))
        fits = wanted <= kept.capacity <= most
        assert (pool.fitting(wanted) is kept) is fits, capacity


def test_the_newest_long_buffer_comes_before_one_that_fits_better() -> None:
    pool, (exact, newest) = pool_of(MIB, MIB + 300_000)
    assert pool.fitting(MIB) is newest
    pool.remove(newest)
    assert pool.fitting(MIB) is exact


def test_of_small_buffers_the_shortest_that_fits_is_found() -> None:
    pool, (short, _) = pool_of(3 * GRAIN_BYTES, 4 * GRAIN_BYTES)
    assert pool.fitting(2 * GRAIN_BYTES + 1) is short


def test_more_than_there_is_room_for_is_not_kept() -> None:
    pool, kept = pool_of(MIB, MIB, MIB, MIB, GRAIN_BYTES)
    assert list(pool) == kept[:4]
    assert pool.size_bytes == 4 * MIB
    pool.remove(kept[1])
    assert list(pool) == [kept[0], kept[2], kept[3]]
    pool.keep(kept[4])
    assert pool.size_bytes == 3 * MIB + GRAIN_BYTES


def test_room_is_made_by_the_oldest_of_those_that_take_most() -> None:
    pool, kept = pool_of(*[GRAIN_BYTES] * 300, MIB, MIB)
    pool.make_room(MIB)
    assert list(pool) == [kept[301], *kept[:300]]
    pool.make_room(3 * MIB)
    assert list(pool)[-1] is kept[299]
    assert pool.size_bytes <= MIB


def test_thousands_of_small_buffers_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """500 clients whose requests wait for their turn took 40 % of a rebalance's time with that search."""
    pool, _ = pool_of(*[150] * 1000)
    monkeypatch.setattr("ottla.broker.net.buffer_pool._capacity", lambda _: pytest.fail("the buffers were searched"))
    found = pool.fitting(150)
    assert found is not None
    pool.remove(found)
    assert pool.size_bytes == 999 * GRAIN_BYTES
