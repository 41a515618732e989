"""Hand out units of tests to the workers of pytest-xdist, at a cost that does not grow with the number of all tests.

pytest-xdist's own `LoadScopeScheduling` does the rest. It searches the list of all tests for each that it hands out,
and after each test it counts all that the worker ever had.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from kit.together import units_of
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # it has no py.typed

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController  # type: ignore[import-untyped]  # as above


class UnitScheduling(LoadScopeScheduling):  # type: ignore[misc]  # as a class without types
    """Hands out the units with the most tests first; the many small ones keep all workers busy to the end."""

    @cached_property
    def _tests(self) -> Sequence[str]:
        return next(iter(self.registered_collections.values()))  # the same of all workers, which was checked

    @cached_property
    def _units(self) -> dict[str, str]:
        return units_of(self._tests)

    @cached_property
    def _indexes(self) -> dict[str, int]:
        return {test: index for index, test in enumerate(self._tests)}

    def _split_scope(self, nodeid: str) -> str:
        return self._units[nodeid]

    def _assign_work_unit(self, node: WorkerController) -> None:
        unit, tests = self.workqueue.popitem(last=False)
        self.assigned_work[node][unit] = tests
        node.send_runtest_some([self._indexes[test] for test in tests])

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Forget a test that has run, and hand out more to its worker if that has few left."""
        test = self._tests[item_index]
        unit, assigned = self._units[test], self.assigned_work[node]
        del assigned[unit][test]
        if not assigned[unit]:
            del assigned[unit]
        self._reschedule(node)
