"""`groups reset`: where each choice leads, and that it never leads out of the log."""

from __future__ import annotations

import pytest

from ottla.cli.offset_reset import Reset, ResetTo, plan_reset
from ottla.client import OffsetAndMetadata, TopicPartition
from ottla.diagnosis.group_facts import Edges

P = TopicPartition("orders", 0)
EDGES = {P: Edges(10, 90, 100)}
COMMITTED = {P: OffsetAndMetadata(50)}


@pytest.mark.parametrize(
    ("wanted", "committed", "at_time", "reset"),
    [
        (ResetTo(is_earliest=True), COMMITTED, {}, Reset(50, 10, 100)),
        (ResetTo(is_latest=True), COMMITTED, {}, Reset(50, 100, 100)),
        (ResetTo(is_latest=True), {}, {}, Reset(None, 100, 100)),
        (ResetTo(offset=10), COMMITTED, {}, Reset(50, 10, 100)),
        (ResetTo(offset=9), COMMITTED, {}, Reset(50, 10, 100, "9 is deleted")),
        (ResetTo(offset=0), COMMITTED, {}, Reset(50, 10, 100, "0 is deleted")),
        (ResetTo(offset=100), COMMITTED, {}, Reset(50, 100, 100)),
        (ResetTo(offset=101), COMMITTED, {}, Reset(50, 100, 100, "101 is past the end")),
        (ResetTo(timestamp_ms=7), COMMITTED, {P: 33}, Reset(50, 33, 100)),
        (ResetTo(timestamp_ms=7), COMMITTED, {P: None}, Reset(50, 100, 100)),
        (ResetTo(shift_by=-5), COMMITTED, {}, Reset(50, 45, 100)),
        (ResetTo(shift_by=0), COMMITTED, {}, Reset(50, 50, 100)),
        (ResetTo(shift_by=-41), COMMITTED, {}, Reset(50, 10, 100, "9 is deleted")),
        (ResetTo(shift_by=-51), COMMITTED, {}, Reset(50, 10, 100, "-1 is before the first offset")),
        (ResetTo(is_current=True), COMMITTED, {}, Reset(50, 50, 100)),
        (ResetTo(is_current=True), {P: OffsetAndMetadata(3)}, {}, Reset(3, 10, 100, "3 is deleted")),
    ],
)
def test_each_choice_leads_into_the_log(wanted, committed, at_time, reset):
    assert wanted.choices == 1
    assert plan_reset(wanted, EDGES, committed, at_time) == ({P: reset}, [])


@pytest.mark.parametrize("wanted", [ResetTo(shift_by=1), ResetTo(is_current=True)])
def test_what_starts_from_the_committed_offset_needs_one(wanted):
    assert plan_reset(wanted, EDGES, {}, {}) == ({}, [P])
