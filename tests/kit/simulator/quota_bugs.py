"""Planted bugs of client quotas: of what templates charge, and of the waiting (`bugs.py`)."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest import mock

from kit.simulator import planting
from kit.simulator.planting import before, nothing, yes

from ottla.broker.fast.charged_produce_templates import ChargedProduceTemplates
from ottla.broker.fast.charged_transactional_templates import ChargedTransactionalTemplates
from ottla.broker.net.pipeline import RequestPipeline
from ottla.broker.security.quotas.accounts import Account
from ottla.broker.security.quotas.client_quotas import ClientQuotas
from ottla.broker.security.quotas.limits import Limit
from ottla.broker.security.quotas.rate import Rate
from ottla.broker.security.quotas.template_quota import TemplateQuota

bug = partial(planting.bug, quotas=True)


@bug(
    "the coordinator is not asked under a quota",
    "a client that sends alone writes without its transaction (the defect that 094056f8 mended)",
    transactions=True,
    page_cache=True,
)
def _coordinator_not_asked() -> Any:
    return mock.patch.object(ChargedTransactionalTemplates, "answer", ChargedProduceTemplates.answer)


@bug("templates charge no bytes", "a Produce that a template answers costs nothing", page_cache=True)
def _no_bytes_of_templates() -> Any:
    return mock.patch.object(TemplateQuota, "may_produce", yes)


@bug("templates charge no records", "a Fetch that a template answers costs nothing")
def _no_records_of_templates() -> Any:
    return mock.patch.object(TemplateQuota, "may_fetch", yes)


@bug("templates charge no time", "a Produce that a template answers takes no time")
def _no_time_of_templates() -> Any:
    return mock.patch.object(TemplateQuota, "end", return_value=0)


@bug("charged twice", "what a template leaves to the slow path is charged there again", page_cache=True)
def _charged_twice() -> Any:
    def add_within(self: Rate, value: float, bound: float, now_ms: int) -> bool:
        self.record(value, now_ms)
        return not self.wait_ms(bound, now_ms)

    return mock.patch.object(Rate, "add_within", add_within)


@bug("muted for good", "a client that was over a quota once is never read again")
def _muted_for_good() -> Any:
    return mock.patch.object(RequestPipeline, "_end_throttle", nothing)


@bug(
    "each connection has a quota of its own",
    "what a client takes on another connection is not counted",
    shared_ids=True,
)
def _quota_of_a_connection() -> Any:
    numbers: dict[Any, int] = {}

    def replace(request: Any) -> Any:
        def patched(self: ClientQuotas, peer: Any, *given: Any) -> Any:
            number = numbers.setdefault(peer, len(numbers))

            def account(kind: str, limit: Limit) -> Account:
                return of_client(self, kind, limit._replace(client_id=f"{limit.client_id}#{number}"))

            with mock.patch.object(self, "account", account):
                return request(self, peer, *given)

        return patched

    of_client = ClientQuotas.account
    return before(ClientQuotas, "request", replace)
