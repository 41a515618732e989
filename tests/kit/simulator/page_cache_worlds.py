"""Worlds whose broker has `ottla.acks.all=page-cache`: what it promises there, and what a power cut may take.

Topics that set no promise, `__consumer_offsets` and `__transaction_state` have the broker's; some topics set `sync`.

    death of the process   takes nothing: records, committed offsets, members of groups, transactions and the high
                           watermark that a reader has seen are as they were answered (`Model`)
    power cut              may take the end of each log that was not synced. What is left of one is a beginning of what
                           was written, without a gap, and each record is the one that was acknowledged there.
                           What an earlier start has found was synced by it, and stays. So do topics, settings, quotas,
                           ACLs and producer ids, which are synced in both promises, and what topics with `sync` hold
    both                   a batch of an idempotent producer is stored once and in order; readers of committed records
                           see what the markers in the log say, and no transaction holds them up beyond every timeout;
                           what is known of producers is what the log says (`producer_audit.py`); a start after either
                           begins a new leader epoch

Each log loses an end of its own. So a transaction may be over in one partition and open in another, and a group or a
transactional id may be what it was before. The model lets go of what rests on several logs, at the power cut:

    transactions           those of before may end as they like in partitions that do not sync, and where no client has
                           learnt the end also in the others (`Transactions.note_power_cut`). Two things nobody mends,
                           as in Kafka with one replica: where the coordinator has forgotten a transactional id, an
                           administrator ends what a log has open of it; and a decided end of an older client, whose
                           transactions have one epoch, may end the next transaction of that client
    programs               those with transactional ids were on the machine that lost its power, and begin again
    groups                 members may be forgotten, and offsets are those that the last start has found, or newer
    share groups           so is what was acknowledged, and how often a record was delivered
    streams groups         members begin again; the epoch of a group is the one that the last start has found, or newer
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final

SYNC: Final = "sync"
PAGE_CACHE: Final = "page-cache"
KEY: Final = "ottla.acks.all"
WORLDS: Final = 0.2
"""How many worlds have this promise."""
_OTHER: Final = {SYNC: PAGE_CACHE, PAGE_CACHE: SYNC}


def draw_promise(seed: int, share: float) -> str:
    """The broker's `ottla.acks.all` in the world of a seed."""
    return PAGE_CACHE if random.Random(f"the promise of {seed}").random() < share else SYNC


def kinds_under(promise: str, kinds: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """The kinds of topics, which are written for `sync`: one that sets another promise does so here, too."""
    if promise == SYNC:
        return list(kinds)
    return [{**kind, KEY: _OTHER[kind[KEY]]} if KEY in kind else kind for kind in kinds]
