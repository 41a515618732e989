"""All tests are handed out, each once, also those of a worker that has died."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

from kit.handing_out import UnitScheduling

TESTS = [f"tests/storage/log/test_{file}.py::test_{number}" for file in "abc" for number in range(35)]


class Worker:
    """A worker that keeps the tests it gets and runs one when it is asked to."""

    def __init__(self) -> None:
        self.queue: deque[int] = deque()
        self.shutting_down = False
        self.gateway = SimpleNamespace(id="gw")

    def send_runtest_some(self, indexes: list[int]) -> None:
        self.queue += indexes

    def shutdown(self) -> None:
        self.shutting_down = True


def scheduled(workers: list[Worker]) -> Any:  # pytest-xdist's workers have other types
    option = SimpleNamespace(loadscopereorder=True, debug=False)
    config: Any = SimpleNamespace(option=option, getvalue=lambda name: ["popen"] * len(workers))
    scheduling: Any = UnitScheduling(config)
    for worker in workers:
        scheduling.add_node(worker)
        scheduling.add_node_collection(worker, TESTS)
    scheduling.schedule()
    return scheduling


def run(scheduling: Any, workers: list[Worker]) -> list[str]:
    ran = []
    while any(worker.queue for worker in workers):
        for worker in workers:
            if worker.queue and (len(worker.queue) > 1 or worker.shutting_down):  # it knows the next before it runs one
                index = worker.queue.popleft()
                ran.append(TESTS[index])
                scheduling.mark_test_complete(worker, index)
    return ran


def test_every_test_is_handed_out_once() -> None:
    workers = [Worker(), Worker(), Worker()]
    scheduling = scheduled(workers)
    assert sorted(run(scheduling, workers)) == sorted(TESTS)
    assert scheduling.tests_finished
    assert not scheduling.has_pending


def test_a_worker_has_few_tests_in_advance() -> None:
    workers = [Worker(), Worker()]
    scheduled(workers)
    assert [len(worker.queue) for worker in workers] == [10, 10]


def test_what_a_dead_worker_had_is_handed_out_again() -> None:
    dead, other = Worker(), Worker()
    scheduling = scheduled([dead, other])
    first = dead.queue.popleft()
    scheduling.mark_test_complete(dead, first)
    assert scheduling.remove_node(dead) == TESTS[dead.queue[0]]
    assert sorted([TESTS[first], *run(scheduling, [other])]) == sorted(TESTS)
