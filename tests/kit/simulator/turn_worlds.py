"""Worlds in which things take turns: workers take their time, long work is done in steps that are soon full, requests
name several partitions, topics are created again while they are deleted, and at times nothing of a log is in memory.

In the others every answer of a worker is there at once, and nothing is ever so long that it leaves a turn to others.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kit.nodes import DATA, pass_time
from kit.simulator.slow_workers import SlowNode
from kit.simulator.step_limits import StepLimits
from kit.simulator.wide_producers import WideProducer

if TYPE_CHECKING:
    from kit.clock import ManualClock
    from kit.simulated_files import SimulatedFiles
    from kit.simulator.admin import Administrator
    from kit.simulator.clients import Line
    from kit.simulator.model import Model
    from kit.simulator.producers import Values

    from ottla.config.broker import BrokerConfig

WORLDS: Final = 0.25
"""How many there are."""
TURNS_OF_A_SECOND: Final = 10
"""That are enough while all clients are silent."""
MOST_STEPS: Final = 4
MOST_STEPS_OF_A_LOAD: Final = 2000
MARKERS_WITHIN_MS: Final = 3_000
"""Of a transaction that was decided before the start: its markers wait for the coordinator of groups."""
NAME: Final = "wide producer"
"""Of its line."""

Operation = tuple[float, Callable[[], None]]


class TurnWorld:
    """See the module. The lines are given anew for each life of the broker."""

    def __init__(
        self, seed: int, model: Model, values: Values, clock: ManualClock, administrator: Administrator
    ) -> None:
        model.may_wait = True
        self._administrator = administrator
        self._chance = random.Random(f"the turns of {seed}")
        self._clock = clock
        self._wide = WideProducer(model, values, self._chance)
        self.limits = StepLimits(self._chance)
        self._files: SimulatedFiles
        self.node: SlowNode
        self.line: Line
        self.admin_line: Line

    def operations(self) -> list[Operation]:
        """What may happen, and how often."""
        return [(16, self._work), (10, self._produce), (2, self._forget_pages), (1, self._replace_topic)]

    def make_node(self, config: BrokerConfig, files: SimulatedFiles) -> SlowNode:
        """The broker of the next life."""
        self._files = files
        self.node = SlowNode(config, self._clock, files)
        return self.node

    def load(self) -> None:
        """Let the coordinators load what they have, in steps, and end in the partitions what they have decided."""
        services = self.node.services
        for number in range(MOST_STEPS_OF_A_LOAD):
            made = [one for one in (services.groups.if_made, services.transactions.if_made) if one is not None]
            if not any(one.shards.loads_under_way for one in made):
                if number:
                    pass_time(self.node, self._clock, MARKERS_WITHIN_MS)
                return
            pass_time(self.node, self._clock, 1)
        raise RuntimeError(f"coordinators have not loaded after {MOST_STEPS_OF_A_LOAD} steps")

    def _work(self) -> None:
        for _ in range(self._chance.randint(1, MOST_STEPS)):
            self.node.workers.step(self._chance)

    def _produce(self) -> None:
        self._wide.send(self.line, self._clock.wall_ms())

    def _replace_topic(self) -> None:
        self._administrator.replace_topic(self.admin_line, self.line)

    def _forget_pages(self) -> None:
        """The kernel needs the memory for something else; or it has read the logs again."""
        self._files.cold = [] if self._files.cold else [str(DATA / "*.log")]
