"""What the simulator's model allows: the cleaner takes no more than compaction may; lost records need a new epoch; a
rejected record has a dead letter if the member still had it; locks and epochs last as long as sessions.
"""

from __future__ import annotations

from uuid import uuid4

import pytest
from kit.clock import ManualClock
from kit.simulator.model import Loss, Model, PartitionModel, Shown, Stored, Violation
from kit.simulator.share_model import Acknowledgement, Delivery, GroupModel, Session, SharePartitionModel
from kit.simulator.streams_model import Membership, StreamsGroupModel
from kit.simulator.streams_requests import APPLICATIONS, SESSION_MS
from kit.simulator.topic_model import TopicModel

from ottla.protocol.api.share_fetch import AcknowledgeType

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


def share_partition() -> SharePartitionModel:
    _, topic, _ = partition_with_a_record()
    return SharePartitionModel(GroupModel("g", reset="earliest", committed_only=False), topic, 0, loses_states=False)


@pytest.mark.parametrize(("answered_ms", "letters"), [(29_999, {7}), (30_000, set())])
def test_a_rejection_brings_a_dead_letter_only_while_its_member_has_the_record(
    answered_ms: int, letters: set[int]
) -> None:
    """The simulator's seed 642613948283: the cleaner had removed the record after the lock, the start offset passed it,
    and the late rejection was answered without an error.
    """
    known = share_partition()
    known.group.has_letters = True
    delivery = Delivery(Session(), 0, count=1, sent=1, taken=2, taken_ms=0, until_ms=30_000, changes=0)
    known.deliver(7, delivery, 2)
    rejected = Acknowledgement(known, 0, 3, 10_000, [(7, AcknowledgeType.REJECT, delivery)])
    known.ask(rejected)
    known.answered(rejected, lock_ms=30_000, now_ms=answered_ms)
    assert known.letters == letters
    assert known.offsets[7].done == "answered to be done (reject)"


@pytest.mark.parametrize("when", ["never", "under way", "before the fetch", "after the fetch"])
def test_a_lock_lasts_unless_an_administrator_may_have_ended_all_sessions_of_the_group(when: str) -> None:
    """The simulator's seed 114964621402: offsets of another topic were deleted while no member was in the group, and
    the answer that says so had not reached its last member yet.
    """
    known = share_partition()
    group = known.group
    if when == "before the fetch":
        group.change_asked()
        group.change_answered()
    first = Delivery(Session(), 0, count=1, sent=1, taken=2, taken_ms=0, until_ms=30_000, changes=group.changes)
    known.deliver(7, first, 2)
    if when in ("under way", "after the fetch"):
        group.change_asked()
    if when == "after the fetch":
        group.change_answered()
    second = Delivery(Session(), 0, count=2, sent=3, taken=4, taken_ms=1, until_ms=30_001, changes=group.changes)
    if when in ("never", "before the fetch"):
        with pytest.raises(Violation, match="delivery 2 to another, and delivery 1 has not ended"):
            known.deliver(7, second, 4)
    else:
        known.deliver(7, second, 4)


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_member_of_a_streams_group_joins_at_its_epoch_unless_all_other_sessions_may_have_ended(
    has_ended: bool,
) -> None:
    """The simulator's seed 141802699806: the group was removed between the request and its answer, and is a new one."""
    clock = ManualClock()
    group = StreamsGroupModel(APPLICATIONS[0], Model(), clock)
    other = Membership("other", "p", None, SESSION_MS, epoch=9, alive_ms=clock.monotonic_ms(), is_sure=True)
    new = Membership("new", "q", None, SESSION_MS)
    group.members += [other, new]
    newest = group.newest_epoch()
    assert newest == 9
    clock.advance(SESSION_MS if has_ended else SESSION_MS - 1)
    if has_ended:
        group.epoch_answered(new, 2, newest)
        return
    with pytest.raises(Violation, match="joins at epoch 2, another member has 9"):
        group.epoch_answered(new, 2, newest)
