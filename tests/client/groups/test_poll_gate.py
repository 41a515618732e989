"""The poll gate: what a group changes begins in a poll, and no record is returned before it ends."""

from __future__ import annotations

import asyncio

import pytest

from ottla.client.groups.poll_gate import PollGate


async def turns(count=5):
    """Let everything that can run do so."""
    for _ in range(count):
        await asyncio.sleep(0)


class Work:
    """A section that ends when it is told to."""

    def __init__(self, gate):
        self.gate = gate
        self.steps = []
        self.may_end = asyncio.Event()
        self.task = asyncio.create_task(self.run())

    async def run(self):
        async with self.gate.section():
            self.steps.append("begun")
            await self.may_end.wait()
            self.steps.append("ended")


async def test_a_section_waits_for_a_poll():
    wanted = []
    gate = PollGate(lambda: wanted.append(1))
    work = Work(gate)
    await turns()
    assert wanted == [1]
    assert work.steps == []
    with gate.polling():
        await turns()
        assert work.steps == ["begun"]
        work.may_end.set()
        await gate.passed()
    assert work.steps == ["begun", "ended"]


async def test_a_reader_that_comes_during_a_section_waits_for_its_end():
    gate = PollGate(lambda: None)
    work = Work(gate)
    with gate.polling():
        await turns()
    reader = asyncio.create_task(gate.passed())
    await turns()
    assert not reader.done()
    work.may_end.set()
    await reader
    assert work.steps == ["begun", "ended"]


async def test_a_poll_that_is_cancelled_leaves_the_section_running():
    gate = PollGate(lambda: None)
    work = Work(gate)

    async def poll():
        with gate.polling():
            await gate.passed()

    reader = asyncio.create_task(poll())
    await turns()
    reader.cancel()
    await turns()
    assert not gate.is_polled
    work.may_end.set()
    await work.task
    assert work.steps == ["begun", "ended"]


async def test_sections_come_one_after_the_other_and_a_reader_waits_for_all_that_wait():
    gate = PollGate(lambda: None)
    first, second = Work(gate), Work(gate)
    with gate.polling():
        await turns()
        assert (first.steps, second.steps) == (["begun"], [])
        first.may_end.set()
        second.may_end.set()
        await gate.passed()
        assert (first.steps, second.steps) == (["begun", "ended"],) * 2


async def test_a_section_inside_a_section_of_the_same_task_begins_at_once():
    gate = PollGate(lambda: None)
    with gate.polling():
        async with gate.section(), gate.section():
            assert gate.is_holder


async def test_reading_inside_a_section_is_refused_instead_of_waiting_for_itself():
    gate = PollGate(lambda: None)
    with gate.polling():
        async with gate.section():
            with pytest.raises(RuntimeError, match="inside a rebalance listener"):
                await gate.passed()


async def test_a_section_whose_task_is_cancelled_holds_nobody_back():
    gate = PollGate(lambda: None)
    work = Work(gate)
    with gate.polling():
        await turns()
        work.task.cancel()
        await gate.passed()
    assert not gate.is_wanted
