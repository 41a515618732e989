"""A request of many users: some in each change of the metadata, others in between, and a result for each user."""

from __future__ import annotations

import errno

import pytest
from kit.exchange import Exchange
from kit.nodes import start_node

from ottla.broker.api.alter_user_scram_credentials import USERS_PER_CHANGE
from ottla.broker.node import Node
from ottla.protocol.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from ottla.protocol.api.api_versions import ApiVersionsRequest
from ottla.protocol.errors import ErrorCode

MANY = 2 * USERS_PER_CHANGE + 10
Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion


def setting(users: list[str], removed: list[str] | None = None) -> AlterUserScramCredentialsRequest:
    upsertions = [
        Upsertion(name=name, mechanism=1, iterations=4096, salt=b"salt", salted_password=b"s" * 32) for name in users
    ]
    deletions = [Deletion(name=name, mechanism=1) for name in removed or ()]
    return AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)


def names(count: int) -> list[str]:
    return [f"u{number:05}" for number in range(count)]


def count_of(node: Node) -> int:
    return len(node.services.catalog.image.scram_credentials)


def step(node: Node) -> None:
    """A turn and its syncs, then what is due in the next one."""
    node.settle()
    node.run_due()


def codes(client: Exchange) -> dict[str, int]:
    """The results of the only answer; each user has one."""
    answer = client.reply()
    assert isinstance(answer, AlterUserScramCredentialsResponse)
    found = {result.user: result.error_code for result in answer.results}
    assert len(found) == len(answer.results)
    return found


@pytest.fixture
def node() -> Node:
    node, _, _ = start_node()
    return node


def test_many_users_are_changed_some_at_a_time_and_answered_together(node: Node) -> None:
    client, other = Exchange(node), Exchange(node)
    client.send(setting(names(MANY)), 0)
    counts = []
    for _ in range(3):
        other.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)  # in between
        counts.append(count_of(node))
        node.run_due()
    assert counts == [USERS_PER_CHANGE, 2 * USERS_PER_CHANGE, MANY]
    assert codes(client) == dict.fromkeys(names(MANY), 0)


@pytest.mark.parametrize("count", [USERS_PER_CHANGE, USERS_PER_CHANGE + 1])
def test_so_many_users_are_one_change_and_more_are_not(node: Node, count: int) -> None:
    client = Exchange(node)
    client.send(setting(names(count)), 0)
    node.settle()
    assert count_of(node) == USERS_PER_CHANGE
    assert len(client.replies()) == (count == USERS_PER_CHANGE)


def test_users_that_are_named_twice_are_refused_wherever_the_request_names_them(node: Node) -> None:
    Exchange(node).ask(setting(["first"]), 0)
    client = Exchange(node)
    users = ["twice", *names(MANY), "twice", "first"]
    client.send(setting(users, removed=["first"]), 0)
    for _ in range(6):
        step(node)
    found = codes(client)
    assert {user for user, code in found.items() if code} == {"twice", "first"}
    assert found["twice"] == found["first"] == ErrorCode.DUPLICATE_RESOURCE
    assert (1, "twice") not in node.services.catalog.image.scram_credentials
    assert (1, "first") in node.services.catalog.image.scram_credentials


def test_what_its_client_sends_after_it_waits_for_all_of_it(node: Node) -> None:
    client = Exchange(node)
    client.send(setting(names(MANY)), 0)
    client.send(setting(["later"]), 0)
    step(node)
    assert (1, "later") not in node.services.catalog.image.scram_credentials
    for _ in range(6):
        step(node)
    assert list(node.services.catalog.image.scram_credentials)[-1] == (1, "later")
    assert len(client.replies()) == 2


def test_all_of_it_is_changed_where_its_client_has_gone(node: Node) -> None:
    client = Exchange(node)
    client.send(setting(names(MANY)), 0)
    node.settle()
    client.connection.connection_lost(None)
    for _ in range(6):
        step(node)
    assert count_of(node) == MANY


def test_users_whose_change_finds_no_room_are_refused_and_the_others_are_changed() -> None:
    node, files, clock = start_node()
    client = Exchange(node)
    client.send(setting(names(MANY)), 0)
    node.settle()
    full = files.fail("pwritev", error=errno.ENOSPC, times=None)
    node.run_due()
    files.heal(full)
    for _ in range(6):
        step(node)
    found = codes(client)
    refused = {user for user, code in found.items() if code}
    assert refused == set(names(MANY)[USERS_PER_CHANGE : 2 * USERS_PER_CHANGE])
    assert {found[user] for user in refused} == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert count_of(node) == MANY - USERS_PER_CHANGE
    node.stop()
    node, _, _ = start_node(files, clock)
    assert {name for _, name in node.services.catalog.image.scram_credentials} == set(names(MANY)) - refused
