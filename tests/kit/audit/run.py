"""Many rounds over several directories, one after the other, and what they add up to in a table."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from kit.audit.audit import Audit, Tally

KILLS_PER_DIRECTORY = 25
"""Then a new directory and new clients: what is read back stays small, and a seed that fails is short to run again."""
MOST_BROKEN = 3
"""Directories in which something was broken, and then it is enough."""
MOST_SHOWN = 10
REPLAY = "scripts/crash-audit --seed {seed} --kills {kills}"


def audit_kills(
    kills: int, seed: int, root: Path, report: Callable[[str], None], *, minutes: float = float("inf")
) -> tuple[Tally, list[str]]:
    """Make so many kills, in directories below `root`; what was found, and a line to run each failed seed again.

    A directory with a breach is kept, with what its broker said.
    """
    total = Tally()
    replays: list[str] = []
    deadline = time.monotonic() + 60 * minutes
    while total.kills.total() < kills and time.monotonic() < deadline and len(replays) < MOST_BROKEN:
        wanted = min(KILLS_PER_DIRECTORY, kills - total.kills.total())
        home = root / f"seed-{seed}"
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        audit = Audit(seed, home / "data", wanted, deadline)
        tally = audit.run()
        total.add(tally)
        report(
            f"seed {seed}: {tally.kills.total()} kills in {tally.seconds:.0f} s,"
            f" {tally.counts['acknowledged']:,} acknowledged,"
            f" {tally.counts['lost']} lost, {tally.counts['doubled']} doubled"
        )
        if tally.breaches:
            (home / "broker.log").write_text(audit.output)
            replays.append(f"{REPLAY.format(seed=seed, kills=wanted)}    # kept: {home}")
            for breach in tally.breaches[:MOST_SHOWN]:
                report(f"  BROKEN: {breach}")
        else:
            shutil.rmtree(home)
        seed += 1
    return total, replays


def table(tally: Tally) -> list[tuple[str, str]]:
    """What happened, in rows of (what, figure)."""
    counts = tally.counts
    rows = [
        ("rounds", f"{tally.rounds:,}"),
        ("kills (SIGKILL)", f"{tally.kills.total():,}"),
        *((f"  {kind}", f"{count:,}") for kind, count in sorted(tally.kills.items())),
        ("clean stops between", f"{counts['clean stops']:,}"),
        ("files damaged", f"{tally.damages.total():,}"),
        *((f"  {kind}", f"{count:,}") for kind, count in sorted(tally.damages.items())),
        ("refused starts mended by `log verify --repair`", f"{counts['repairs']:,}"),
        ("records acknowledged", f"{counts['acknowledged']:,}"),
        ("records read back", f"{counts['read']:,}"),
        ("  lost", f"{counts['lost']:,}"),
        ("  doubled, of idempotent producers", f"{counts['doubled']:,}"),
        ("  out of order", f"{counts['disordered']:,}"),
        ("  repeated, of plain producers (allowed)", f"{counts['repeated']:,}"),
        ("offsets committed", f"{counts['commits']:,}"),
    ]
    for what in ("topics created", "topics deleted", "topics grown", "configurations altered", "deletions of records"):
        rows.append((f"{what}, acknowledged", f"{counts[what]:,}"))
    if tally.ready_ms:
        rows.append(("recovery and loading, ms (median, most)", _spread(tally.ready_ms)))
        rows.append(("start of the process, s (median, most)", _spread(tally.start_s, 1)))
    rows.append(("promises broken", f"{len(tally.breaches):,}"))
    rows.append(("minutes", f"{tally.seconds / 60:.1f}"))
    return rows


def _spread(values: list[int] | list[float], digits: int = 0) -> str:
    return f"{statistics.median(values):.{digits}f}, {max(values):.{digits}f}"
