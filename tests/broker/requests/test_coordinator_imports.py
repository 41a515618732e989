"""Requests that need a coordinator whose modules are not imported: one module in each turn, and others in between."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.exchange import Exchange
from kit.nodes import start_node

from ottla.broker.api import HANDLERS
from ottla.broker.node import Node
from ottla.broker.requests.coordinator_imports import (
    COORDINATED,
    GROUP,
    GROUP_APIS,
    TRANSACTION,
    TRANSACTION_APIS,
    not_imported,
)
from ottla.broker.runtime.on_demand import OnDemand
from ottla.broker.telemetry.exposition import Exposition
from ottla.protocol.api import ApiKey
from ottla.protocol.api.api_versions import ApiVersionsRequest
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.api.init_producer_id import InitProducerIdRequest
from ottla.protocol.api.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request

MODULES = ("coordinator_part_1", "coordinator_part_2", "coordinator_part_3")


def imported() -> int:
    """How many of them are in memory."""
    return sum(name in sys.modules for name in MODULES)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    """A node whose group coordinator has modules that nobody has imported."""
    for name in MODULES:
        (tmp_path / f"{name}.py").write_text("")
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    node, _, _ = start_node()
    make = node.services.groups.get
    object.__setattr__(node.services, "groups", OnDemand(make, MODULES))  # they are frozen
    yield node
    for name in MODULES:
        sys.modules.pop(name, None)


def run(node: Node) -> None:
    """One turn of the loop."""
    node.run_due()
    node.settle()


def test_one_module_is_imported_in_each_turn_and_others_are_answered_in_between(node: Node) -> None:
    client, other = Exchange(node), Exchange(node)
    client.send(FindCoordinatorRequest(key="g", key_type=GROUP), 2)
    counts = []
    while not client.transport.written:
        counts.append(imported())
        other.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
        run(node)
    assert counts == [1, 2, 3]
    answer = client.reply()
    assert isinstance(answer, FindCoordinatorResponse)
    assert (answer.error_code, answer.node_id) == (0, node.services.catalog.node_id)


def test_what_the_client_sends_meanwhile_is_answered_after_it(node: Node) -> None:
    client = Exchange(node)
    first = client.send(ListGroupsRequest(), 4)
    second = client.send(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
    for _ in range(10):
        run(node)
    assert [number for number, _ in client.replies()] == [first, second]


def test_requests_of_several_clients_share_the_imports(node: Node) -> None:
    clients = [Exchange(node) for _ in range(3)]
    for client in clients:
        client.send(ListGroupsRequest(), 4)
    for _ in range(10):
        run(node)
    for client in clients:
        answer = client.reply()
        assert isinstance(answer, ListGroupsResponse)
        assert answer.error_code == 0


def test_once_they_are_imported_a_request_is_answered_in_its_turn(node: Node) -> None:
    client = Exchange(node)
    client.ask(ListGroupsRequest(), 4)
    client.send(ListGroupsRequest(), 4)
    node.settle()
    assert len(client.replies()) == 1


def test_an_import_that_fails_is_the_answer_and_the_next_request_tries_again(node: Node, tmp_path: Path) -> None:
    part = tmp_path / f"{MODULES[1]}.py"
    part.write_text("raise OSError(24, 'Too many open files')")
    client = Exchange(node)
    answer = client.ask(ListGroupsRequest(), 4)
    assert isinstance(answer, ListGroupsResponse)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    part.unlink()
    part.write_text("# now it can be read")
    answer = client.ask(ListGroupsRequest(), 4)
    assert isinstance(answer, ListGroupsResponse)
    assert answer.error_code == 0


def test_a_scrape_imports_one_module_in_each_step(node: Node) -> None:
    counts = [imported() for _ in Exposition(node.services, node.cleaner).pieces()]
    assert sorted(set(counts)) == [0, 1, 2, 3]


def test_the_coordinator_that_a_request_needs(node: Node) -> None:
    groups, transactions = node.services.groups, OnDemand(node.services.transactions.get, ("nowhere",))
    object.__setattr__(node.services, "transactions", transactions)

    def needs(request: Request) -> list[object]:
        return list(not_imported(node.services, request))

    assert needs(FindCoordinatorRequest(key="g", key_type=GROUP)) == [groups]
    assert needs(FindCoordinatorRequest(key="g", key_type=TRANSACTION)) == [transactions]
    assert needs(FindCoordinatorRequest(key="g", key_type=7)) == []
    assert needs(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)) == []
    assert needs(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1)) == [transactions]
    assert needs(ListGroupsRequest()) == [groups]
    groups.get()
    assert needs(ListGroupsRequest()) == []


@pytest.mark.parametrize(("name", "apis"), [("groups", GROUP_APIS), ("transactions", TRANSACTION_APIS)])
def test_the_handlers_that_ask_a_coordinator_are_listed(name: str, apis: frozenset[ApiKey]) -> None:
    asking = {
        key
        for key, load in HANDLERS.items()
        if f"services.{name}.get()" in inspect.getsource(sys.modules[load().handle.__module__])
    }
    # A Produce comes after an InitProducerId, as a rule; two look at the request themselves.
    assert asking - {ApiKey.PRODUCE, ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID} == apis
    assert asking - {ApiKey.PRODUCE} <= COORDINATED
