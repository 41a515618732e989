"""Templates of Produce requests with a transactional id of a client under a quota. They are charged like those without
one; the time of an answer is charged when everything that it waits for is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.fast.charged_produce_templates import ChargedProduceTemplates
from ottla.broker.fast.charged_run import ChargingRun
from ottla.broker.fast.transactional_templates import TransactionalRun, TransactionalTemplates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.broker.fast.transactional_templates import TransactionalTemplate
    from ottla.broker.security.quotas.template_quota import TemplateQuota
    from ottla.protocol.types import Buffer


class ChargedTransactionalTemplates(ChargedProduceTemplates, TransactionalTemplates):
    """The templates of one connection."""

    __slots__ = ()

    def __init__(self, max_frame_bytes: int, quota: TemplateQuota) -> None:
        super().__init__(max_frame_bytes, quota, ChargedTransactionalRun)

    def answer(self, view: memoryview, end: int, most: int) -> tuple[Sequence[Buffer], int] | None:
        """Always None: as in `TransactionalTemplates.answer`, only `start` asks the coordinator."""
        return None


class ChargedTransactionalRun(TransactionalRun, ChargingRun):
    """A run whose answers are charged when they may be sent."""

    __slots__ = ("_quota",)

    def __init__(
        self,
        quota: TemplateQuota,
        template: TransactionalTemplate,
        correlation_ids: list[int],
        end: int,
        started_ns: int,
    ) -> None:
        super().__init__(template, correlation_ids, end, started_ns)
        self._quota = quota
