"""Batches of idempotent producers in one call do what a call for each would: answers, files, and what is known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kit.logs import append, batch, disk, open_test_log, sync
from kit.simulated_files import SimulatedFiles

from ottla.storage.log.append import AppendResult
from ottla.storage.log.log import Log
from ottla.storage.producers.snapshot_format import parse_snapshot

SEGMENT = {"segment.bytes": "1024", "index.interval.bytes": "100"}
"""Two to five of these batches."""

sent = st.tuples(
    st.sampled_from([-1, 1, 2]),  # producer
    st.integers(0, 1),  # epoch
    st.sampled_from(["next", "next", "next", "again", "older", "gap", "first"]),
    st.integers(1, 3),  # records
)


def of_producers(choices: list[tuple[int, int, str, int]]) -> list[bytearray]:
    """Batches that go on mostly where their producers are, and sometimes repeat or leave out something."""
    newest: dict[tuple[int, int], list[tuple[int, int]]] = {}
    made = []
    for number, (producer_id, epoch, what, count) in enumerate(choices):
        value = b"%03d" % number * 50
        if producer_id < 0:
            made.append(batch(*[value] * count))
            continue
        earlier = newest.setdefault((producer_id, epoch), [])
        due = earlier[-1][0] + earlier[-1][1] if earlier else 0
        one = {"gap": due + 1, "first": 0}.get(what, due), count
        if what == "again" and earlier:
            one = earlier[-1]
        elif what == "older" and len(earlier) > 1:
            one = earlier[-2]
        else:
            earlier.append(one)
        sequence, records = one
        made.append(batch(*[value] * records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))
    return made


def outcome(files: SimulatedFiles, log: Log, results: list[AppendResult]) -> tuple[object, ...]:
    sync(log)
    reported = [
        (one.error_code, one.base_offset, one.last_offset, one.is_duplicate, one.error_message) for one in results
    ]
    return reported, {entry.producer_id: entry for entry in log.producers}, files.synced_state()


@given(st.lists(sent, min_size=1, max_size=5), st.lists(sent, min_size=2, max_size=14))
def test_a_call_of_many_batches_does_what_a_call_for_each_would(
    before: list[tuple[int, int, str, int]], together: list[tuple[int, int, str, int]]
) -> None:
    batches = of_producers([*before, *together])
    outcomes = []
    for size in (len(together), 1):
        files = disk()
        log = open_test_log(files, SEGMENT)
        results = [result for one in batches[: len(before)] for result in append(log, one)]
        rest = batches[len(before) :]
        for at in range(0, len(rest), size):
            results += append(log, *rest[at : at + size])
        outcomes.append(outcome(files, log, results))
    assert outcomes[0] == outcomes[1]


def test_more_batches_of_a_producer_in_a_call_than_are_remembered_leave_the_last_five() -> None:
    log = open_test_log(disk())
    append(log, *(batch(b"v", producer_id=7, producer_epoch=0, base_sequence=number) for number in range(8)))
    (known,) = log.producers
    assert [one.last_sequence for one in known.batches] == [3, 4, 5, 6, 7]
    assert [one.base_offset for one in known.batches] == [3, 4, 5, 6, 7]
    repeats = append(log, *(batch(b"v", producer_id=7, producer_epoch=0, base_sequence=number) for number in (3, 7)))
    assert [(one.is_duplicate, one.base_offset) for one in repeats] == [(True, 3), (True, 7)]


def test_a_snapshot_between_two_segments_of_a_call_has_what_the_first_holds() -> None:
    files = disk()
    log = open_test_log(files, SEGMENT)
    append(log, *(batch(b"v" * 300, producer_id=7, producer_epoch=0, base_sequence=number) for number in range(6)))
    sync(log)
    second = log.segment_list[1].base_offset
    assert 0 < second < 6
    write = log.producer_snapshots.begin(second)
    assert write is not None
    write.run()
    path = next(path for path in files.synced_state() if path.endswith(f"{second:020}.snapshot"))
    (known,) = parse_snapshot(files.synced_state()[path])
    assert known.last_sequence == second - 1
