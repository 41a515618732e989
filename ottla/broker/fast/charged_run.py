"""A run of Produce requests of a client under a quota of time: its answers report how long the connection is muted."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ottla.broker.fast.produce_run import ProduceRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.broker.fast.produce_template import ProduceTemplate
    from ottla.broker.partitions.appending import PartitionAppend
    from ottla.broker.security.quotas.template_quota import TemplateQuota
    from ottla.protocol.types import Buffer
    from ottla.storage.log.append import Appended

FIRST_FLEXIBLE_VERSION = 9
_INT32 = struct.Struct(">i")


class ChargingRun(ProduceRun):
    """What all kinds of such runs have in common. Each kind has a slot for the quota."""

    __slots__ = ()

    _quota: TemplateQuota

    def run_appended(self, appended: Appended, partition: PartitionAppend) -> None:
        """As `ProduceRun.run_appended`."""
        self._quota.begin()
        super().run_appended(appended, partition)
        self._quota.owe()

    def _answered(self, answers: list[bytes]) -> None:
        throttle_ms = self._quota.end()
        if throttle_ms:
            answers = with_throttle_time(answers, self._template.version, throttle_ms)
        super()._answered(answers)


class ChargedRun(ChargingRun):
    """A run without a transactional id."""

    __slots__ = ("_quota",)

    def __init__(
        self, quota: TemplateQuota, template: ProduceTemplate, correlation_ids: list[int], end: int, started_ns: int
    ) -> None:
        super().__init__(template, correlation_ids, end, started_ns)
        self._quota = quota


def with_throttle_time(answers: Sequence[Buffer], version: int, throttle_ms: int) -> list[bytes]:
    """Whole answers to Produce requests with this throttle time, which is their last field before the tags."""
    behind_bytes = 1 if version >= FIRST_FLEXIBLE_VERSION else 0
    changed: list[bytes] = []
    for piece in answers:
        content, start = bytearray(piece), 0
        while start < len(content):
            start += _INT32.size + _INT32.unpack_from(content, start)[0]
            _INT32.pack_into(content, start - behind_bytes - _INT32.size, throttle_ms)
        changed.append(bytes(content))
    return changed
