"""What the simulator's model lets the cleaner take: no more than compaction may."""

from __future__ import annotations

from uuid import uuid4

import pytest
from kit.simulator.model import Loss, Model, PartitionModel, Shown, Stored, TopicModel, Violation

COMPACTED = {"cleanup.policy": "compact", "ottla.acks.all": "sync"}
VALUE = Stored(b"b", b"1 ")


def partition_with_a_record() -> tuple[Model, TopicModel, PartitionModel]:
    """A compacted topic with one acknowledged record of key b at offset 7."""
    known = PartitionModel(sent={b"1 "}, tombstones={b"b"})
    known.note(7, VALUE, survives_power=True)
    model, topic = Model(), TopicModel("t", uuid4(), COMPACTED, [known])
    return model, topic, known


def audit_without_it(model: Model, topic: TopicModel, loss: Loss) -> None:
    shown = Shown(start=0, end=20, leader_epoch=0, records={}, size_bytes=0)
    model.audit_partition(topic, 0, shown, loss, 0)


def test_the_last_value_of_a_key_stays() -> None:
    model, topic, _ = partition_with_a_record()
    with pytest.raises(Violation, match="was acknowledged, None is there"):
        audit_without_it(model, topic, Loss.KILL)


def test_a_tombstone_that_was_never_answered_may_have_taken_it_and_gone() -> None:
    model, topic, known = partition_with_a_record()
    known.doubtful[b"b"] += 1
    audit_without_it(model, topic, Loss.KILL)
    assert not known.doubtful


def test_a_tombstone_of_another_key_takes_nothing() -> None:
    model, topic, known = partition_with_a_record()
    known.doubtful[b"a"] += 1
    with pytest.raises(Violation, match="was acknowledged, None is there"):
        audit_without_it(model, topic, Loss.KILL)


def test_a_tombstone_that_a_power_cut_may_take_may_have_taken_it_before_and_gone() -> None:
    model, topic, known = partition_with_a_record()
    known.doubtful[b"b"] += 1
    known.note(9, Stored(b"b", None), survives_power=False)
    assert known.doubtful[b"b"] == 0
    audit_without_it(model, topic, Loss.POWER)
