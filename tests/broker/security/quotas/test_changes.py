"""Quotas that change while the broker runs: a change hands over what it changes, and a start comes to the same."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
from kit.clock import ManualClock
from kit.exchange import Exchange
from kit.nodes import start_node

from ottla.broker.metadata.image import QuotaEntity
from ottla.broker.node import Node
from ottla.broker.peer import Peer
from ottla.broker.principal import Principal
from ottla.broker.runtime.validity import Validity
from ottla.broker.security.quotas.limits import CONNECTION_RATE, FETCH
from ottla.broker.security.quotas.quotas import Quotas
from ottla.config.broker import BrokerConfig
from ottla.protocol.api.alter_client_quotas import AlterClientQuotasRequest

FETCH_KEY, FETCH_VERSION = 1, 12
USERS: list[str | None] = ["u", "v", None]
CLIENTS: list[str | None] = ["c", None]
ADDRESSES: list[str | None] = ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1", "2001:DB8:0::1", None]
ENTITIES: list[QuotaEntity] = [
    *((("user", name),) for name in USERS),
    *((("client-id", name),) for name in CLIENTS),
    *((("client-id", client), ("user", name)) for name in USERS for client in CLIENTS),
    *((("ip", address),) for address in ADDRESSES),
]


def alter(node: Node, changes: Mapping[QuotaEntity, float | None]) -> None:
    """Set or remove the one quota of each entity, as a client does."""
    request = AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequest.EntryData(
                entity=[AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name)
                        for kind, name in entity],
                ops=[AlterClientQuotasRequest.OpData(
                    key=CONNECTION_RATE if entity[0][0] == "ip" else FETCH, value=value or 0, remove=value is None
                )],
            )
            for entity, value in changes.items()
        ],
        validate_only=False,
    )  # fmt: skip
    answer: Any = Exchange(node).ask(request, 1)
    assert {entry.error_code for entry in answer.entries} == {0}


def in_effect(quotas: Quotas) -> tuple[dict[str | None, float], dict[tuple[str, str], int]]:
    """The rates of addresses, and what some clients may fetch at once, those without a quota left out."""
    fetched = {}
    for name in ("u", "v", "w"):
        for client_id in ("c", "d"):
            peer = Peer(principal=Principal("User", name))
            clients = quotas.clients
            charged = clients and clients.request(peer, client_id, FETCH_KEY, FETCH_VERSION)
            if charged:
                fetched[name, client_id] = charged.fetch_bytes(1 << 60)
    return dict(quotas.address_rates), fetched


@pytest.fixture
def node() -> Node:
    node, _, _ = start_node()
    return node


def test_after_any_changes_the_quotas_are_those_that_a_start_finds(node: Node) -> None:
    for _ in range(60):
        chosen = random.sample(ENTITIES, random.choice((1, 1, 2, 5)))
        alter(node, {entity: random.choice((None, float(random.randrange(1, 1_000)))) for entity in chosen})
        fresh = Quotas(BrokerConfig.of({}), Validity(), ManualClock().monotonic_ms)
        fresh.change(node.services.catalog.image.quotas)
        assert in_effect(node.services.quotas) == in_effect(fresh)
    alter(node, dict.fromkeys(ENTITIES))
    assert in_effect(node.services.quotas) == ({}, {})
    assert node.services.quotas.clients is None


def test_a_change_hands_over_the_entities_that_it_changes_and_no_others(node: Node) -> None:
    alter(node, {(("user", f"u{number}"),): 1.0 for number in range(100)})
    settings = node.services.catalog.settings
    seen: list[dict[QuotaEntity, dict[str, float]]] = []
    settings.on_quotas = lambda quotas: seen.append({entity: dict(values) for entity, values in quotas.items()})
    changed, removed, same = (("user", "u1"),), (("user", "u2"),), (("user", "u3"),)
    alter(node, {changed: 5.0, removed: None, same: 1.0})
    assert seen == [{changed: {FETCH: 5.0}, removed: {}}]
    alter(node, {same: 1.0})
    assert len(seen) == 1, "nothing has changed"
