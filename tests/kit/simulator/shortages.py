"""Worlds in which the process has no descriptor left for a while, when clients have taken them all: nothing can be
opened, a file that was let go cannot be used, no directory can be synced, and nothing can be mapped.

Files with writes that no sync has covered keep their descriptors, as `OsFile` does. What needs one is refused or waits;
nothing is lost, no disk has failed, and once there are descriptors again every partition takes records.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kit.nodes import pass_time
from kit.simulator.clients import settle
from kit.simulator.model import Model, Violation
from kit.simulator.producers import PRODUCE_VERSION, Values, note_acknowledged, note_sent, produce_request

from ottla.protocol.api.produce import ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Response
from ottla.protocol.records.batch import encode_batch

if TYPE_CHECKING:
    from kit.simulator.clients import Line
    from kit.simulator.machine import Machine
    from kit.simulator.topic_model import TopicModel

WORLDS: Final = 0.15
"""How many there are."""
LET_GO: Final = 0.7
"""How many of the files that can be are let go when a shortage begins."""
GIVEN: Final = (0.0, 0.0, 0.2, 0.6)
"""How often another descriptor is there all the same: a connection has ended, another file was let go."""
AFTER_MS: Final = 15_000
"""In which all that had to wait is tried again."""
REFUSALS: Final = (ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
"""What a batch may be answered: a topic may have a small `max.message.bytes`, or small segments."""


class Shortages:
    """See the module. `line` is given anew for each life of the broker."""

    def __init__(self, seed: int, machine: Machine, model: Model, values: Values) -> None:
        self._chance = random.Random(f"the descriptors of {seed}")
        self._machine = machine
        self._model = model
        self._values = values
        self._given = 0.0
        self.is_on = False
        self.line: Line

    def operations(self) -> list[tuple[float, Callable[[], None]]]:
        """What may happen, and how often."""
        return [(4, self._begin_or_end)]

    def _begin_or_end(self) -> None:
        if self.is_on:
            self.end()
            self._require_service()
        else:
            self._begin()

    def reconnect(self) -> None:
        """The broker has restarted, and so it has all its descriptors."""
        self.is_on = False

    def _begin(self) -> None:
        self.is_on = True
        self._given = self._chance.choice(GIVEN)
        files = self._machine.files
        files.has_descriptor = lambda: self._chance.random() < self._given
        for file in files.open_files():
            if file.may_be_let_go and self._chance.random() < LET_GO:
                file.was_let_go = True

    def end(self) -> None:
        """There are descriptors again."""
        self.is_on = False
        self._machine.files.has_descriptor = lambda: True

    def end_for_good(self) -> None:
        """As `end`, and all that had to wait is tried again."""
        self.end()
        pass_time(self._machine.node, self._machine.clock, AFTER_MS)

    def _require_service(self) -> None:
        """No directory is offline, and each partition takes a batch, after a while. Not where the disk may be bad."""
        machine = self._machine
        if machine.has_bad_disk:
            return
        node = machine.node
        for directory in node.services.log_manager.directories:
            if not directory.is_online:
                raise Violation(f"{directory.path} is {directory.state.name} after a want of descriptors")
        pass_time(node, machine.clock, AFTER_MS)
        settle(node, self.line)
        for name in sorted(self._model.topics.keys() - self._model.deleting):
            topic = self._model.topics[name]
            for index in range(len(topic.partitions)):
                self._produce(topic, index)

    def _produce(self, topic: TopicModel, index: int) -> None:
        records = self._values.records(topic, self._machine.clock.wall_ms())
        note_sent(topic, index, records)
        codes: list[int] = []

        def answered(response: Response) -> None:
            assert isinstance(response, ProduceResponse)
            answer = response.responses[0].partition_responses[0]
            codes.append(answer.error_code)
            if answer.error_code == ErrorCode.NONE:
                note_acknowledged(self._model, topic.name, topic.id, answer, records, -1)

        request = produce_request(topic.name, index, encode_batch(records), -1)
        self.line.send(request, PRODUCE_VERSION, answered)
        settle(self._machine.node, self.line)
        if not codes or codes[0] not in REFUSALS:
            said = "not answered" if not codes else f"answered {ErrorCode.of(codes[0]).name}"
            raise Violation(f"{topic.name}-{index}: a batch is {said} though there are descriptors again")
