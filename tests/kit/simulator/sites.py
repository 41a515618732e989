"""Where a crash fell: the call to the disk that the machine did not come to, named by what the broker was doing.

`SITES` is the list that a run of many seeds must cover; `site_of` names one call.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

IN_VOID = ", to make the redo log void"
IN_REPLAY = ", as the redo log says"
"""What `SimulatedFiles.doing` says in there (`redo_worlds.py`)."""
_PATTERNS: list[tuple[str, str, str]] = [
    # (site, call, path)
    ("redo: void", "(pwritev|truncate|fdatasync)" + IN_VOID, r"ottla-redo\.log$"),
    ("redo: replay", ".*" + IN_REPLAY, r""),
    ("redo: write", "pwritev|truncate", r"ottla-redo\.log$"),
    ("redo: sync", "fdatasync", r"ottla-redo\.log$"),
    ("redo: made", "open", r"ottla-redo\.log$"),
    ("redo: removed", "unlink", r"ottla-redo\.log$"),
    ("metadata: append", "pwritev", r"__cluster_metadata-0/\d{20}\.log$"),
    ("metadata: sync", "fdatasync", r"__cluster_metadata-0/\d{20}\.log$"),
    ("metadata: snapshot write", "open|pwritev|fdatasync", r"__cluster_metadata-0/.*\.checkpoint(\.part|\.tmp)?"),
    ("metadata: snapshot rename", "rename", r"__cluster_metadata-0/.*\.checkpoint"),
    ("metadata: quorum-state", "open|pwritev|fdatasync|rename", r"quorum-state"),
    ("groups: append", "pwritev", r"__consumer_offsets-\d+/\d{20}\.log$"),
    ("groups: sync", "fdatasync", r"__consumer_offsets-\d+/\d{20}\.log$"),
    ("transactions: append", "pwritev", r"__transaction_state-\d+/\d{20}\.log$"),
    ("transactions: sync", "fdatasync", r"__transaction_state-\d+/\d{20}\.log$"),
    ("transactions: index", "open|pwritev|fdatasync|truncate|unlink|rename", r"\.txnindex"),
    ("checkpoint: recovery point", "open|pwritev|fdatasync|rename", r"recovery-point-offset-checkpoint"),
    ("checkpoint: high watermark", "open|pwritev|fdatasync|rename", r"replication-offset-checkpoint"),
    ("checkpoint: log start", "open|pwritev|fdatasync|rename", r"log-start-offset-checkpoint"),
    ("checkpoint: cleaner", "open|pwritev|fdatasync|rename", r"cleaner-offset-checkpoint"),
    ("known time", "open|pwritev|fdatasync|rename", r"ottla\.clock"),
    ("leader epochs", "open|pwritev|fdatasync|rename", r"leader-epoch-checkpoint"),
    ("producer snapshot", "open|pwritev|fdatasync|truncate|rename|unlink", r"\.snapshot"),
    ("cleaner: write", "open|pwritev|fdatasync|truncate", r"\.cleaned$"),
    ("cleaner: swap", "rename", r"\.cleaned$"),
    ("cleaner: swapped into place", "rename", r"\.swap$"),
    ("cleaner: swap finished by a start", "open", r"\.swap$"),
    ("cleaner: given up", "unlink", r"\.(cleaned|swap)$"),
    ("segment: delete", "rename", r"\d{20}\.(log|index|timeindex|txnindex)$"),
    ("segment: unlink", "unlink", r"\.deleted$"),
    ("topic: make directory", "make_directory", r"-\d+$"),
    ("topic: partition.metadata", "open|pwritev|fdatasync|rename", r"partition\.metadata"),
    ("topic: rename to delete", "rename", r"/[^/]+-\d+$"),
    ("topic: remove", "unlink|remove_directory", r"-delete(/|$)"),
    ("log: roll", "open", r"\d{20}\.log$"),
    ("log: append", "pwritev", r"\d{20}\.log$"),
    ("log: sync", "fdatasync", r"\d{20}\.log$"),
    ("log: cut", "truncate", r"\d{20}\.log$"),
    ("log: damage kept aside", "open|pwritev|fdatasync", r"\.corrupt-"),
    ("index", "open|pwritev|fdatasync|truncate|unlink", r"\.(index|timeindex|txnindex)$"),
    ("directory: sync", "sync_directory", r""),
    ("directory: identity", "open|pwritev|fdatasync|rename", r"(meta\.properties|ottla\.format|bootstrap\.checkpoint)"),
    ("directory: clean marker", "open|pwritev|fdatasync|rename|unlink", r"\.kafka_cleanshutdown"),
]
_COMPILED = [(site, re.compile(call), re.compile(path)) for site, call, path in _PATTERNS]
SITES = [site for site, _, _ in _PATTERNS]
"""Every site in the order in which a table shows them."""
OTHER = "other"


def site_of(call: str, path: Path) -> str:
    """The name of a call to the disk."""
    return _site_of(call, str(path))


@lru_cache(maxsize=1 << 14)
def _site_of(call: str, text: str) -> str:
    for site, wanted_call, wanted_path in _COMPILED:
        if wanted_call.fullmatch(call) and wanted_path.search(text):
            return site
    return OTHER
