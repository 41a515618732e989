"""One run of the audit of transactions, with its report and the line that repeats it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from kit.audit.transaction_audit import TransactionAudit, TransactionTally

REPLAY = (
    "scripts/crash-audit --transactions --group-protocol {group_protocol} --seed {seed} --kills {kills}"
    " --records {records}"
)


def audit_transactions(
    kills: int,
    records: int,
    seed: int,
    root: Path,
    report: Callable[[str], None],
    *,
    group_protocol: str,
    minutes: float = float("inf"),
) -> TransactionTally:
    """Move so many records through so many kills, in a directory below `root`. It is kept after a breach."""
    home = root / f"seed-{seed}"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    audit = TransactionAudit(seed, home, kills, records, group_protocol, time.monotonic() + 60 * minutes)
    tally = audit.run()
    if tally.breaches:
        (home / "broker.log").write_text(audit.output)
        for breach in tally.breaches:
            report(f"  BROKEN: {breach}")
        again = REPLAY.format(group_protocol=group_protocol, seed=seed, kills=kills, records=records)
        report(f"again: {again}    # kept: {home}")
    else:
        shutil.rmtree(home)
    return tally


def transaction_table(tally: TransactionTally) -> list[tuple[str, str]]:
    """What happened, in rows of (what, figure)."""
    return [
        ("kills (SIGKILL)", f"{tally.kills.total():,}"),
        *((f"  {kind}", f"{count:,}") for kind, count in sorted(tally.kills.items())),
        *((kind, f"{count:,}") for kind, count in sorted(tally.events.items())),
        ("movers that ended by themselves", f"{tally.ends.total():,}"),
        *((f"  {kind}", f"{count:,}") for kind, count in sorted(tally.ends.items())),
        *((f"starts of the broker with {kind}", f"{count:,}") for kind, count in sorted(tally.starts.items())),
        ("records moved", f"{tally.records:,}"),
        ("  in transactions", f"{tally.transactions:,}"),
        ("comparisons of offsets with records", f"{tally.comparisons:,}"),
        ("longest time without a record, s", f"{tally.longest_wait_s:.1f}"),
        ("promises broken", f"{len(tally.breaches):,}"),
        ("minutes", f"{tally.seconds / 60:.1f}"),
    ]
