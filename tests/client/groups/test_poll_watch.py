"""The watch over polls: a program that asks for records, or takes them, is alive; one that does neither is not."""

from __future__ import annotations

import asyncio

from ottla.client.groups.membership import PollWatch
from ottla.client.groups.poll_gate import PollGate


class Program:
    """What the watch sees of it, at times that the test chooses."""

    def __init__(self):
        self.gate = PollGate(lambda: None)
        self.taken = 0
        self.watch = PollWatch(self.gate, lambda: self.taken, limit_ms=10_000, now=100.0)


def test_time_runs_from_the_beginning_and_from_every_poll():
    program = Program()
    assert program.watch.left_s(103.0) == 10.0, "the first look sees a program that has just begun"
    assert program.watch.left_s(109.0) == 4.0
    with program.gate.polling():
        pass
    assert program.watch.left_s(112.0) == 10.0
    assert program.watch.left_s(122.0) == 0.0
    assert program.watch.left_s(130.0) == -8.0


def test_time_stands_still_inside_a_poll():
    program = Program()
    with program.gate.polling():
        assert [program.watch.left_s(now) for now in (100.0, 150.0, 900.0)] == [10.0] * 3
    assert program.watch.left_s(905.0) == 5.0


def test_taking_records_one_by_one_without_a_poll_is_asking_for_them():
    program = Program()
    program.watch.left_s(100.0)
    for now in (109.0, 118.0, 127.0):
        program.taken += 1
        assert program.watch.left_s(now) == 10.0
    assert program.watch.left_s(128.0) == 9.0


async def test_a_consumer_shows_its_progress_record_by_record(group, consumer_of):
    async with consumer_of(enable_auto_commit=False) as consumer:
        consumer.assign([("t", 0)])
        seen = []
        for _ in range(10):
            await consumer.getone()
            seen.append(consumer._participation._partitions.progress())
            await asyncio.sleep(0)
    assert len(set(seen)) == 10
