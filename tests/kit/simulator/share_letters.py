"""Dead letters of share groups (KIP-1191) in simulated worlds: two groups have them, one with copies of the records.

A member that was answered that its rejection counts, while it had the record, or its release after the last delivery
that is allowed, may rely on a letter: it is written at some time, whatever crashes. Letters may be there twice or more.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from kit.nodes import pass_time
from kit.simulator.model import Violation

from ottla.broker.metadata.change_requests import NewTopic
from ottla.protocol.api.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Response
from ottla.protocol.records.batch import decode_batch, iter_batches

if TYPE_CHECKING:
    from kit.clock import ManualClock
    from kit.simulator.machine import Machine
    from kit.simulator.share_administrator import ShareAdministrator
    from kit.simulator.share_model import ShareModel

WORLDS: Final = 0.6
"""How many of the worlds with share groups have dead letters."""
TOPIC: Final = "dlq.letters"
GROUPS: Final = {"share-0": "false", "share-1": "true"}
"""Whether letters of these groups have copies."""
PARTITIONS: Final = 2
UPGRADE: Final = 1
LONGER_THAN_RETRIES_MS: Final = 70_000
MOST_STEPS: Final = 2_000
"""A batch of letters is written in one or two."""
MOST_BYTES: Final = 1 << 20

Letter = tuple[str, str, int, int]
"""Group, topic, partition, offset."""


class DeadLetterWorld:
    """See the module."""

    def __init__(self, seed: int, machine: Machine, clock: ManualClock, known: ShareModel, letters: float) -> None:
        """`letters`: how many worlds have some."""
        self.has_letters = random.Random(f"the dead letters of {seed}").random() < letters
        self._machine = machine
        self._clock = clock
        self._known = known

    def begin(self, administrator: ShareAdministrator) -> None:
        """The first start: all that the letters need."""
        if not self.has_letters:
            return
        update = UpdateFeaturesRequest.FeatureUpdateKey(
            feature="share.version", max_version_level=2, upgrade_type=UPGRADE
        )

        def answered(response: Response) -> None:
            assert isinstance(response, UpdateFeaturesResponse)
            assert response.error_code == ErrorCode.NONE, response

        administrator.line.send(UpdateFeaturesRequest(feature_updates=[update]), 1, answered)
        configs = (("errors.deadletterqueue.group.enable", "true"), ("retention.ms", "-1"), ("retention.bytes", "-1"))
        new = NewTopic(TOPIC, partitions=PARTITIONS, configs=configs)
        self._machine.node.services.catalog.create_topics([new], lambda results: None)
        for group, copies in GROUPS.items():
            administrator.set(
                group,
                {
                    "errors.deadletterqueue.topic.name": TOPIC,
                    "errors.deadletterqueue.copy.record.enable": copies,
                },
            )
            self._known.groups[group].has_letters = True

    def require(self, group: str) -> None:
        """All is quiet: the letters on which members rely are there. Raises Violation."""
        if not self._known.groups[group].has_letters:
            return
        node = self._machine.node
        pass_time(node, self._clock, LONGER_THAN_RETRIES_MS, step_ms=5_000)
        for _ in range(MOST_STEPS):
            if not node.services.share_groups.get().used.dead_letters.letter_count:
                break
            pass_time(node, self._clock, 1)
        found = self._read()
        for one in self._known.of_group(group):
            if not one.is_certain:
                continue
            missing = sorted(
                offset for offset in one.letters if (group, one.topic.name, one.index, offset) not in found
            )
            if missing:
                raise Violation(f"{one}: {missing} were archived, and have no dead letter")

    def _read(self) -> set[Letter]:
        found: set[Letter] = set()
        for index in range(PARTITIONS):
            partition = self._machine.node.services.catalog.partition(TOPIC, index)
            assert partition is not None
            offset = partition.log_start_offset
            while offset < partition.high_watermark:
                data = partition.read(offset, MOST_BYTES, at_least_one=True, allow_map=False).read_blocking()
                for position, header in iter_batches(data):
                    offset = header.next_offset
                    for record in decode_batch(memoryview(data)[position:]):
                        said = {name.removeprefix("__dlq.errors."): value or b"" for name, value in record.headers}
                        found.add(
                            (
                                said["group"].decode(),
                                said["topic"].decode(),
                                int(said["partition"]),
                                int(said["offset"]),
                            )
                        )
        return found
