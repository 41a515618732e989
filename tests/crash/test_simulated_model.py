"""What the simulator's model allows: the cleaner takes no more than compaction may; lost records need a new epoch."""

from __future__ import annotations

from uuid import uuid4

import pytest
from kit.simulator.model import Loss, Model, PartitionModel, Shown, Stored, Violation
from kit.simulator.topic_model import TopicModel

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


@pytest.mark.parametrize(("deleted_before", "needs_new_epoch"), [(3, True), (5, True), (6, False)])
def test_a_lost_end_needs_a_new_epoch_unless_all_of_it_had_been_deleted(
    deleted_before: int, needs_new_epoch: bool
) -> None:
    known = PartitionModel(start=deleted_before, start_asked=deleted_before, leader_epoch=3, was_audited=True)
    known.lose_from(0, 6)
    model, topic = Model(), TopicModel("t", uuid4(), {"ottla.acks.all": "sync"}, [known])
    shown = Shown(start=deleted_before, end=6, leader_epoch=3, records={}, size_bytes=0)
    if needs_new_epoch:
        with pytest.raises(Violation, match="has leader epoch 3, not 4 or more"):
            model.audit_partition(topic, 0, shown, Loss.STOP, 0)
        shown = shown._replace(leader_epoch=4)
    model.audit_partition(topic, 0, shown, Loss.STOP, 0)


def test_no_offset_of_a_lost_end_is_given_out_again_even_if_it_had_been_deleted() -> None:
    known = PartitionModel(start=6, start_asked=6)
    known.lose_from(0, 6)
    model, topic = Model(), TopicModel("t", uuid4(), {"ottla.acks.all": "sync"}, [known])
    with pytest.raises(Violation, match="ends at 5; 6 had been shown"):
        model.audit_partition(topic, 0, Shown(start=5, end=5, leader_epoch=9, records={}, size_bytes=0), Loss.STOP, 0)


def test_an_end_may_be_lost_that_has_a_gap_of_an_earlier_loss() -> None:
    """The simulator's seed 445, had it promised `page-cache` to half of its worlds."""
    known = PartitionModel(gone={2, 3}, leader_epoch=1)
    known.lose_from(0, 6)
    model, topic = Model(), TopicModel("t", uuid4(), {"ottla.acks.all": "sync"}, [known])
    model.audit_partition(topic, 0, Shown(start=0, end=6, leader_epoch=2, records={}, size_bytes=0), Loss.STOP, 0)
    assert known.gone == set(range(6))
