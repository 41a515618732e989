"""The garbage collector of a broker: how many objects a collection goes through, and when it goes through all."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest

from ottla.broker.runtime.collector import (
    LEAST_GROWTH,
    LOOK_S,
    MOST_WAIT_S,
    QUIET_S,
    YOUNG_OBJECTS,
    Collector,
    GarbageCollector,
)
from ottla.broker.runtime.metrics import ChoreCounters

BLOCKS = 1_000_000


class Recorded:
    """A `gc` that only notes what it is asked for."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[str, dict[str, int]], None]] = []
        self.thresholds: tuple[int, int, int] | None = None
        self.asked: list[str] = []

    def set_threshold(self, young: int, middle: int, old: int, /) -> None:
        self.thresholds = (young, middle, old)

    def enable(self) -> None:
        self.asked.append("enable")

    def freeze(self) -> None:
        self.asked.append("freeze")

    def unfreeze(self) -> None:
        self.asked.append("unfreeze")

    def collect(self, generation: int = 2) -> int:
        self.asked.append(f"collect {generation}")
        return 0


class Process:
    """A collector over a loop whose time stands still, in a process whose memory the test sets."""

    def __init__(self, collector: GarbageCollector | None = None, *, blocks: int = BLOCKS) -> None:
        self.gc = Recorded()
        self.counters = ChoreCounters()
        self.blocks = blocks
        self.received_bytes = 0
        self.now_s = 100.0
        self.planned: list[tuple[float, Callable[[], None]]] = []
        self.collector = Collector(
            self.counters,
            lambda: self.received_bytes,
            self.call_later,
            wall_ms=lambda: 7,
            collector=self.gc if collector is None else collector,
            allocated_blocks=lambda: self.blocks,
            now_s=lambda: self.now_s,
        )
        self.gc.asked.clear()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Process:
        self.planned.append((delay_s, callback))
        return self

    def cancel(self) -> None:
        self.planned.clear()

    def look(self) -> float:
        """Let the next look come; the time that it was planned after."""
        ((delay_s, callback),) = self.planned
        self.planned.clear()
        self.now_s += delay_s
        callback()
        return delay_s


@pytest.fixture
def collector() -> Iterator[Collector]:
    """One of the process in which the tests run."""
    before, was_enabled = gc.get_threshold(), gc.isenabled()
    process = Process(gc)
    yield process.collector
    process.collector.stop()
    gc.set_threshold(*before)
    if not was_enabled:
        gc.disable()


@pytest.mark.usefixtures("collector")
def test_no_collection_goes_through_objects_that_have_been_there_for_long() -> None:
    gone_through: list[int] = []

    def note(phase: str, information: dict[str, int]) -> None:
        if phase == "start":
            generations = range(information["generation"] + 1)
            gone_through.append(sum(len(gc.get_objects(number)) for number in generations))

    gc.callbacks.append(note)
    try:
        kept: list[list[object]] = [[] for _ in range(20 * YOUNG_OBJECTS)]
    finally:
        gc.callbacks.remove(note)
    assert len(gone_through) >= len(kept) // YOUNG_OBJECTS // 2, "the collector runs"
    assert max(gone_through) <= 4 * YOUNG_OBJECTS


def test_all_objects_are_collected_once_memory_has_doubled_and_nothing_comes() -> None:
    process = Process()
    process.blocks = 2 * BLOCKS - 1
    assert (process.look(), process.gc.asked) == (LOOK_S, [])
    process.blocks = 2 * BLOCKS
    process.look()
    assert process.gc.asked == []
    assert (process.look(), process.gc.asked) == (QUIET_S, ["collect 2"])


def test_a_small_process_must_grow_by_more_than_its_double() -> None:
    process = Process(blocks=10)
    process.blocks = 10 + LEAST_GROWTH - 1
    for _ in range(3):
        process.look()
    assert process.gc.asked == []
    process.blocks += 1
    process.look()
    process.look()
    assert process.gc.asked == ["collect 2"]


def test_memory_must_double_again_before_the_next_time() -> None:
    process = Process()
    process.blocks = 2 * BLOCKS
    process.look()
    process.look()
    process.blocks = 4 * BLOCKS - 1
    for _ in range(3):
        assert process.look() == LOOK_S
    assert process.gc.asked == ["collect 2"]


def test_it_waits_while_clients_send() -> None:
    process = Process()
    process.blocks = 2 * BLOCKS
    for _ in range(5):
        process.look()
        process.received_bytes += 1
    assert process.gc.asked == []
    process.look()
    process.look()
    assert process.gc.asked == ["collect 2"]


def test_it_does_not_wait_for_ever() -> None:
    process = Process()
    process.blocks = 2 * BLOCKS
    process.look()
    first_s = process.now_s
    while not process.gc.asked:
        process.received_bytes += 1
        process.look()
    assert process.now_s - first_s == pytest.approx(MOST_WAIT_S, abs=2 * QUIET_S)


def test_memory_that_is_given_back_meanwhile_ends_the_wait() -> None:
    process = Process()
    process.blocks = 2 * BLOCKS
    process.look()
    process.blocks = BLOCKS
    process.look()
    assert (process.look(), process.gc.asked) == (LOOK_S, [])


def test_each_collection_is_a_step_that_is_timed() -> None:
    process = Process()
    (on_collection,) = process.gc.callbacks
    for took_s in (0.002, 0.005):
        on_collection("start", {"generation": 0})
        process.now_s += took_s
        on_collection("stop", {"generation": 0})
    figures = process.counters
    assert (figures.steps, figures.max_us, figures.last_wall_ms) == (2, pytest.approx(5_000, abs=1), 7)


def test_a_stopped_one_asks_for_nothing_more() -> None:
    process = Process()
    process.collector.stop()
    assert (process.planned, process.gc.callbacks) == ([], [])


def test_a_check_for_which_there_was_no_memory_is_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process()
    look = process.planned.pop()[1]

    def fails(delay_s: float, callback: Callable[[], None]) -> Process:
        raise MemoryError

    monkeypatch.setattr(process.collector, "_call_later", fails)
    with pytest.raises(MemoryError):
        look()
    assert not process.planned
    monkeypatch.undo()
    process.collector.plan_again()
    process.collector.plan_again()
    assert len(process.planned) == 1
    assert process.look() == LOOK_S
    process.collector.stop()
    process.collector.plan_again()
    assert not process.planned
