"""Acknowledgements become ascending batches that say the same of every offset."""

from __future__ import annotations

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ottla.client import AcknowledgeType
from ottla.client.share.acknowledgements import Run, batches_of, runs_of, split_expired

KINDS = [AcknowledgeType.GAP, AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT]


@given(st.dictionaries(st.integers(0, 60), st.sampled_from(KINDS)))
def test_batches_say_of_every_offset_what_was_said(said):
    runs = [
        run
        for kind in KINDS
        for run in runs_of(sorted(offset for offset, its in said.items() if its is kind), kind, math.inf)
    ]
    batches = batches_of(runs)
    found = {}
    for first, last, types in batches:
        assert len(types) in (1, last - first + 1)
        for offset in range(first, last + 1):
            found[offset] = types[offset - first if len(types) > 1 else 0]
    assert found == said
    ends = [end for first, last, _ in batches for end in (first, last)]
    assert ends == sorted(ends)
    assert all(before[1] + 1 < after[0] for before, after in pairwise(batches))


def test_one_type_for_a_batch_of_one_kind_else_one_for_each_offset():
    accepted, rejected = Run(3, 5, AcknowledgeType.ACCEPT, 1.0), Run(6, 6, AcknowledgeType.REJECT, 1.0)
    assert batches_of([accepted]) == [(3, 5, [1])]
    assert batches_of([rejected, accepted]) == [(3, 6, [1, 1, 1, 3])]


def test_a_lock_that_ends_now_has_ended():
    runs = [Run(offset, offset, AcknowledgeType.ACCEPT, float(offset)) for offset in (1, 2, 3)]
    lasting, ended = split_expired(runs, 2.0)
    assert [run.first_offset for run in lasting] == [3]
    assert [run.first_offset for run in ended] == [1, 2]
