"""Back-pressure without a socket: any reason pauses, only the last one to go resumes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.transport import FakeTransport

from ottla.broker.net.read_pauses import DRAIN, ENOUGH, LATER, MEMORY, OUTPUT, PARKED, QUEUE, READ, ReadPauses

REASONS = [QUEUE, OUTPUT, MEMORY, PARKED, DRAIN, ENOUGH, LATER, READ]


def test_every_reason_is_a_bit_of_its_own() -> None:
    assert sum(REASONS) == (1 << len(REASONS)) - 1
    assert all(reason.bit_count() == 1 for reason in REASONS)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(REASONS))))
def test_reading_goes_on_exactly_while_no_reason_holds(steps: list[tuple[bool, int]]) -> None:
    """`FakeTransport` refuses to be paused or resumed twice."""
    pauses, transport = ReadPauses(), FakeTransport()
    pauses.transport = transport
    held: set[int] = set()
    for holds, reason in steps:
        if holds:
            pauses.pause_reading(reason)
            held.add(reason)
        else:
            pauses.resume_reading(reason)
            held.discard(reason)
        assert transport.is_paused == bool(held)
        assert pauses.pause_reasons == sum(held)


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_transport_that_closes_is_neither_paused_nor_resumed(is_paused: bool) -> None:
    pauses, transport = ReadPauses(), FakeTransport()
    pauses.transport = transport
    if is_paused:
        pauses.pause_reading(QUEUE)
    transport.close()
    pauses.pause_reading(OUTPUT)
    pauses.resume_reading(OUTPUT)
    pauses.resume_reading(QUEUE)
    assert transport.is_paused == is_paused


def test_reasons_are_kept_where_there_is_no_transport() -> None:
    pauses = ReadPauses()
    pauses.pause_reading(DRAIN)
    pauses.resume_reading(QUEUE)
    assert pauses.pause_reasons == DRAIN
