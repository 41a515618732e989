"""`scripts/bench-peers`: what `--check` says of a broker that takes less CPU than Ottla, and the picture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

FIGURES = Path(__file__).parents[2] / "docs" / "peers" / "figures.json"


def test_a_broker_that_takes_less_is_named_with_its_row() -> None:
    from peers import Row, cheaper

    rows = [
        Row("round trip", broker, ratio, {"cpu_us": cpu_us})
        for broker, ratio, cpu_us in (
            ("ottla page-cache", 1.0, 40),
            ("kafka page-cache", 12.5, 500),
            ("ottla sync", 1.0, 100),
            ("klite sync", 0.8, 80),
        )
    ]
    rows += [Row("fetch", "ottla page-cache", 1.0, {"cpu_us": 40}), Row("fetch", "tansu memory", 1.0, {"cpu_us": 40})]
    assert cheaper(rows) == [
        'round trip: klite sync takes 80.00 us, Ottla 25 % more. This row alone: --only "round trip"'
    ]


def test_the_picture_has_a_bar_for_each_row_that_is_kept(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="it comes with the extra `demo`")
    from peers_plot import save_plot

    figures = json.loads(FIGURES.read_text())
    text = save_plot(figures, tmp_path).read_text()
    assert text.count(" µs") == len(figures["rows"])
    for name in ("Ottla", "Apache Kafka", *{row["workload"].split(",")[0] for row in figures["rows"]}):
        assert f">{name}<" in text, name
