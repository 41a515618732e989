"""Templates of Produce requests of a client under a quota. A frame is answered only if its bytes are within the quota,
and the client pays its share of the append. The time of the answers is charged by their runs (`charged_run.py`).
"""

from __future__ import annotations

from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING

from ottla.broker.fast.charged_run import ChargedRun
from ottla.broker.fast.produce_templates import LENGTH_BYTES, ProduceTemplates

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.broker.fast.produce_run import ProduceRun
    from ottla.broker.fast.produce_templates import Frames
    from ottla.broker.runtime.in_flight_request import InFlightRequest
    from ottla.broker.security.quotas.template_quota import TemplateQuota
    from ottla.protocol.types import Buffer


class ChargedProduceTemplates(ProduceTemplates):
    """The templates of one connection."""

    __slots__ = ("_quota", "_run_bytes")

    def __init__(
        self, max_frame_bytes: int, quota: TemplateQuota, make_run: Callable[..., ProduceRun] = ChargedRun
    ) -> None:
        super().__init__(max_frame_bytes, partial(make_run, quota))
        self._quota = quota
        self._run_bytes = 0
        """The bytes of the batches of the newest run."""

    def start(
        self, view: memoryview, start: int, end: int, most: int, newest: InFlightRequest | None
    ) -> ProduceRun | None:
        """As `ProduceTemplates.start`."""
        run, quota = super().start(view, start, end, most, newest), self._quota
        if run is None:
            quota.take_back()
        elif quota.is_timed:
            run.charge_append(quota, self._run_bytes)
        return run

    def answer(self, view: memoryview, end: int, most: int) -> tuple[Sequence[Buffer], int] | None:
        """As `ProduceTemplates.answer`; a single request is charged in the same way as several."""
        template = self._template
        if template is None or not template.partition.visible_on_append():
            return None
        return self._answer_run(view, end, most, perf_counter_ns())

    def _look(self, view: memoryview, start: int, end: int, most: int) -> Frames | None:
        """As `ProduceTemplates._look`, but charges the frames to the quota; None also where they exceed it."""
        frames = super()._look(view, start, end, most)
        if frames is None:
            return None
        _, entries, _, self._run_bytes, following = frames
        return frames if self._quota.may_produce(following - start - LENGTH_BYTES * len(entries)) else None
