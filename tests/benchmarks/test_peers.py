"""What `scripts/bench-peers --check` says of a broker that takes less CPU than Ottla."""

from __future__ import annotations


def test_a_broker_that_takes_less_is_named_with_its_row() -> None:
    from peers import cheaper

    rows = [
        ["round trip", "ottla page-cache", "40", "1.00"],
        ["", "kafka page-cache", "500", "12.50"],
        ["", "ottla sync", "100", "1.00"],
        ["", "klite sync", "80", "0.80"],
        ["fetch", "ottla page-cache", "40", "1.00"],
        ["", "tansu memory", "40", "1.00"],
    ]
    assert cheaper(rows) == ['round trip: klite sync takes 80 us, Ottla 25 % more. This row alone: --only "round trip"']
