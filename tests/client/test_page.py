"""docs/client.md cannot drift: its blocks run in order against a broker, its tables are the declarations'."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "client.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", PAGE, re.DOTALL)


def test_the_blocks_of_the_page_print_what_it_says(own_broker):
    assert len(BLOCKS) >= 6
    for code, printed in BLOCKS:
        program = code.replace("localhost:9092", own_broker.bootstrap)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, printed, ""), code


def test_the_tables_of_options_are_those_of_the_declarations():
    """If this fails: scripts/client-options."""
    script = ROOT / "scripts" / "client-options"
    made = subprocess.run([sys.executable, str(script), "--print"], capture_output=True, text=True, check=True).stdout
    assert made == PAGE


def test_every_metric_is_on_the_page():
    from ottla.client.metrics import ConnectionMetrics, ConsumerMetrics, GroupMetrics, ProducerMetrics

    names = [
        *ConnectionMetrics(0).snapshot(0),
        *ProducerMetrics(0).snapshot(0),
        *ConsumerMetrics(0).snapshot(0, {}),
        *GroupMetrics(0).snapshot(0),
    ]
    rows = PAGE[PAGE.index("| client | names |") :].split("\n\n")[0]
    told = set()
    for group in re.split(r", ", rows.replace("|", ",")):
        first, *endings = re.findall(r"`([^`]+)`", group) or [""]
        told.add(first)
        stem = first
        for ending in endings:
            while stem and stem + ending not in names:
                stem = stem.rpartition("-")[0]
            told.add(stem + ending)
            stem = first
    assert set(names) <= told
