"""How members of share groups are compared with a Consumer."""

from __future__ import annotations

from pathlib import Path

import pytest


def test_a_member_is_compared_with_the_consumer_of_the_same_round() -> None:
    from share_consumers import ratios

    base = [{"rate": 100.0, "broker_us": 1.0, "client_us": 1.0}, {"rate": 10.0, "broker_us": 5.0, "client_us": 5.0}]
    member = [{"rate": 50.0, "broker_us": 3.0, "client_us": 1.0}, {"rate": 5.0, "broker_us": 10.0, "client_us": 10.0}]

    assert ratios(member, base) == pytest.approx((0.5, 2.0))


def test_the_members_of_a_group_count_their_records_together(tmp_path: Path) -> None:
    from share_member import COUNT, Counts

    path = tmp_path / "counts"
    path.write_bytes(bytes(2 * COUNT.size))
    one, other = Counts(path, 0), Counts(path, 1)
    one.add(3)
    other.add(4)
    one.add(1)

    assert one.total == other.total == 8


def test_records_before_the_measured_ones_are_not_counted(tmp_path: Path) -> None:
    import os

    from share_member import COUNT, Counts, read

    path = tmp_path / "counts"
    path.write_bytes(bytes(COUNT.size))

    found = read(lambda: 30, Counts(path, 0), warm=50, records=100, broker=os.getpid())

    assert found["records"] == 90  # from the 60th to the 150th
