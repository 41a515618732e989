"""Worlds with client quotas: some below what the clients take, so that they have to wait, and some far above, which the
templates charge.

Each connection of producers, readers and transactional clients is a client of its own, with quotas of some kinds, which
an administrator changes. In some of these worlds several connections are one client. The time that requests take is
counted in ticks, one for each look at the clock: by a real clock no world could be replayed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from kit.simulator.quota_administrator import Entity, QuotaAdministrator, Values
from kit.simulator.quota_meter import KINDS, PLENTY, TICK_NS, QuotaAccount, QuotaMeter

from ottla.broker.security.quotas.client_quotas import ClientQuotas
from ottla.broker.security.quotas.limits import FETCH, PRODUCE, REQUEST

if TYPE_CHECKING:
    from kit.clock import ManualClock
    from kit.simulator.clients import Line

WORLDS: Final = 0.2
"""How many worlds have quotas."""
SHARED: Final = 0.5
"""In how many of them connections share a client id."""
MOST_SHARING: Final = 4
CHANGES: Final = 2
"""How often they change, beside the weights of other operations."""
FREE: Final = 0.25
"""How many clients are under no quota of a kind."""
KEEPER: Final = "nobody else"
"""Always has a quota: where nobody had one, the broker would forget what was taken."""
_LOW: Final = {PRODUCE: (150.0, 600.0, 3_000.0), FETCH: (150.0, 600.0, 3_000.0), REQUEST: (0.002, 0.01, 0.05)}


class QuotaWorld:
    """See the module. `clients`: their ids, where none is shared; `shared`: in how many worlds some are."""

    def __init__(self, seed: int, clients: list[str], clock: ManualClock, shared: float) -> None:
        chance = random.Random(f"what the quotas of {seed} are")
        self._kinds = {name: [kind for kind in KINDS if chance.random() >= FREE] for name in clients}
        entities: list[Entity] = [("client-id", name) for name in (*clients, KEEPER)]
        self.administrator = QuotaAdministrator(chance, entities, self._draw)
        accounts = {name: self._made(name) for name in clients}
        # Of its own: worlds in which none is shared are what they were.
        of_shared = random.Random(f"which clients of {seed} are one")
        if of_shared.random() < shared:
            one, *others = of_shared.sample(clients, of_shared.randint(2, MOST_SHARING))
            accounts |= dict.fromkeys(others, accounts[one])
        self._meters = {name: QuotaMeter(accounts[name], clock) for name in clients}
        self._ticks = 0
        self.admin_line: Line

    def operations(self) -> list[tuple[float, Callable[[], None]]]:
        """What may happen, and how often."""
        return [(CHANGES, lambda: self.administrator.change(self.admin_line))]

    def meter(self, name: str) -> QuotaMeter:
        """Who is at a connection."""
        return self._meters[name]

    def reconnect(self) -> None:
        """The broker has restarted."""
        self.administrator.reconnect()
        for meter in self._meters.values():
            meter.reconnect()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """The broker counts the time of requests in ticks."""
        made = ClientQuotas.__init__

        def init(quotas: ClientQuotas, *given: Any, **more: Any) -> None:
            made(quotas, *given, **more)
            quotas.now_ns = self._tick

        with mock.patch.object(ClientQuotas, "__init__", init):
            yield

    def _tick(self) -> int:
        self._ticks += 1
        return self._ticks * TICK_NS

    def _made(self, name: str) -> QuotaAccount:
        entity = "client-id", name
        return QuotaAccount(name, lambda kind: self.administrator.possible(entity, kind))

    def _draw(self, chance: random.Random, name: str) -> Values:
        if name == KEEPER:
            return {PRODUCE: PLENTY}
        return {
            kind: chance.choice((*_LOW[kind], PLENTY, PLENTY, None)) if kind in self._kinds[name] else None
            for kind in KINDS
        }
