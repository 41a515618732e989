"""The pages of the client: their blocks run in order against a broker; their tables match the declarations."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMES = (
    *("client.md", "consumer-groups.md", "client-options.md", "client-columns.md", "client-transactions.md"),
    "client-share-groups.md",
)
PAGES = {name: (ROOT / "docs" / name).read_text() for name in NAMES}
BLOCKS = re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", "".join(PAGES.values()), re.DOTALL)
OPTIONS = PAGES["client-options.md"]


def test_the_blocks_of_the_pages_print_what_they_say(own_broker):
    assert len(BLOCKS) >= 9
    for code, printed in BLOCKS:
        program = code.replace("localhost:9092", own_broker.bootstrap)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, printed, ""), code


def test_the_tables_of_options_are_those_of_the_declarations():
    """If this fails: scripts/client-options."""
    script = ROOT / "scripts" / "client-options"
    made = subprocess.run([sys.executable, str(script), "--print"], capture_output=True, text=True, check=True).stdout
    assert made == OPTIONS


def test_every_metric_is_on_the_page():
    from ottla.client.metrics import ConnectionMetrics, ConsumerMetrics, GroupMetrics, ProducerMetrics

    names = [
        *ConnectionMetrics(0).snapshot(0),
        *ProducerMetrics(0).snapshot(0),
        *ConsumerMetrics(0).snapshot(0, {}),
        *GroupMetrics(0).snapshot(0),
    ]
    rows = OPTIONS[OPTIONS.index("| client | names |") :].split("\n\n")[0]
    shown = set()
    for group in re.split(r", ", rows.replace("|", ",")):
        first, *endings = re.findall(r"`([^`]+)`", group) or [""]
        shown.add(first)
        stem = first
        for ending in endings:
            while stem and stem + ending not in names:
                stem = stem.rpartition("-")[0]
            shown.add(stem + ending)
            stem = first
    assert set(names) <= shown
