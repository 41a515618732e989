"""What the simulator's model allows where the broker promises `page-cache`: a power cut takes ends, a kill nothing."""

from __future__ import annotations

from uuid import uuid4

import pytest
from kit.simulator.commits import CommitModel
from kit.simulator.model import Loss, Model, PartitionModel, Shown, Stored, Violation
from kit.simulator.page_cache_worlds import PAGE_CACHE, kinds_under
from kit.simulator.topic_model import TopicModel

RECORDS = {offset: Stored(b"k", b"%d " % offset) for offset in range(4)}


def audit(found: dict[int, Stored], loss: Loss, *, end: int = 4) -> None:
    known = PartitionModel(sent={record.value or b"" for record in RECORDS.values()}, shown_end=4)
    for offset, record in RECORDS.items():
        known.note(offset, record, survives_power=False)
    topic = TopicModel("t", uuid4(), {}, [known], acks_all=PAGE_CACHE)
    shown = Shown(start=0, end=end, records=found, leader_epoch=0, size_bytes=0)
    Model(PAGE_CACHE).audit_partition(topic, 0, shown, loss, 0)


def first(count: int) -> dict[int, Stored]:
    return dict(list(RECORDS.items())[:count])


@pytest.mark.parametrize("count", range(5))
def test_a_power_cut_may_leave_any_beginning(count: int) -> None:
    audit(first(count), Loss.POWER, end=count)


def test_a_power_cut_leaves_no_record_after_one_that_is_gone() -> None:
    with pytest.raises(Violation, match="gaps"):
        audit({0: RECORDS[0], 3: RECORDS[3]}, Loss.POWER)


def test_a_power_cut_leaves_at_an_offset_what_was_acknowledged_there() -> None:
    with pytest.raises(Violation, match="was acknowledged"):
        audit({0: RECORDS[1]}, Loss.POWER, end=1)


@pytest.mark.parametrize("loss", [Loss.KILL, Loss.STOP])
def test_a_kill_and_a_stop_take_nothing(loss: Loss) -> None:
    audit(RECORDS, loss)
    with pytest.raises(Violation, match="gaps"):
        audit(first(3), loss)


def test_a_high_watermark_that_was_shown_survives_a_kill() -> None:
    with pytest.raises(Violation, match="no power was cut"):
        audit(first(3), Loss.KILL, end=3)


def test_commits_go_back_to_what_the_last_start_has_found_and_no_further() -> None:
    known = CommitModel(sent=9)
    known.note_committed(3)
    known.note_found()
    known.note_committed(9)
    known.note_power_cut()
    assert known.promised == 3


def test_a_commit_may_be_lost_alone_that_came_after_a_deletion() -> None:
    known = CommitModel(sent=3)
    known.note_committed(3)
    known.note_found()
    known.note_deleted(known.ask_to_delete())
    known.sent = 9
    known.note_committed(9)
    known.note_power_cut()
    assert (known.promised, known.deleted) == (-1, -1)


def test_topics_with_a_promise_of_their_own_have_the_other_one() -> None:
    kinds = kinds_under(PAGE_CACHE, [{}, {"ottla.acks.all": "page-cache"}])
    assert [TopicModel("t", uuid4(), dict(kind), [], acks_all=PAGE_CACHE).syncs for kind in kinds] == [False, True]
