"""Delegation tokens: who may have, see, renew and end them, and logging in by one."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import pytest
from kit.clock import ManualClock
from kit.nodes import ask, pass_time, start_node
from kit.sasl_connections import SaslClient, SaslNode
from kit.simulated_files import SimulatedFiles

from ottla.broker.metadata import token_plans
from ottla.broker.node import Node
from ottla.broker.peer import Peer
from ottla.broker.principal import ANONYMOUS, Principal
from ottla.broker.security.tokens import delegation_tokens
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.create_acls import CreateAclsRequest
from ottla.protocol.api.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.api.describe_delegation_token import DescribeDelegationTokenRequest
from ottla.protocol.api.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.api.renew_delegation_token import RenewDelegationTokenRequest
from ottla.protocol.api.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.api.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.errors import ErrorCode
from ottla.scram import client_key, digest_of, salted_password

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
KEYS: dict[str, object] = {"delegation_token_secret_key": "a key"}


def peer(name: str, *, is_by_token: bool = False) -> Peer:
    return Peer(principal=Principal("User", name), is_by_token=is_by_token)


ALICE, BOB, EVE = peer("alice"), peer("bob"), peer("eve")


def create(
    node: Node, by: Peer = ALICE, *, owner: str | None = None, renewers: tuple[str, ...] = (), **more: Any
) -> Any:
    request = CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else "User",
        owner_principal_name=owner,
        renewers=[
            CreateDelegationTokenRequest.CreatableRenewers(principal_type="User", principal_name=name)
            for name in renewers
        ],
        max_lifetime_ms=more.get("lifetime_ms", -1),
    )
    return ask(node, request, 3, peer=by)


def describe(node: Node, by: Peer = ALICE, owners: tuple[str, ...] | None = None) -> Any:
    wanted = None
    if owners is not None:
        make = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
        wanted = [make(principal_type="User", principal_name=name) for name in owners]
    answer: Any = ask(node, DescribeDelegationTokenRequest(owners=wanted), 3, peer=by)
    return answer.tokens


def renew(node: Node, secret: bytes, by: Peer, period_ms: int = -1) -> Any:
    return ask(node, RenewDelegationTokenRequest(hmac=secret, renew_period_ms=period_ms), 2, peer=by)


def expire(node: Node, secret: bytes, by: Peer, period_ms: int = -1) -> Any:
    return ask(node, ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=period_ms), 2, peer=by)


@pytest.fixture
def node() -> Node:
    return start_node(**KEYS)[0]


def test_a_tokens_secret_is_the_hmac_of_its_id_and_its_times_are_those_of_the_configuration() -> None:
    node, _, clock = start_node(**KEYS)
    token = create(node)
    assert token.error_code == 0
    assert token.hmac == hmac.digest(b"a key", token.token_id.encode(), hashlib.sha512)
    now_ms = int(clock.wall_ms())
    times = (token.issue_timestamp_ms, token.expiry_timestamp_ms, token.max_timestamp_ms)
    assert times == (now_ms, now_ms + DAY_MS, now_ms + 7 * DAY_MS)
    assert (token.principal_name, token.token_requester_principal_name) == ("alice", "alice")


def test_a_token_lives_no_longer_than_was_asked_for(node: Node) -> None:
    token = create(node, lifetime_ms=HOUR_MS)
    assert token.expiry_timestamp_ms == token.max_timestamp_ms == token.issue_timestamp_ms + HOUR_MS


@pytest.mark.parametrize(
    "asking", [Peer(principal=ANONYMOUS), peer("alice", is_by_token=True)], ids=["anonymous", "by a token"]
)
def test_tokens_are_only_for_clients_that_have_authenticated_otherwise_than_by_one(node: Node, asking: Peer) -> None:
    secret = create(node).hmac
    answers = [create(node, asking), renew(node, secret, asking), expire(node, secret, asking)]
    assert {answer.error_code for answer in answers} == {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED}
    with pytest.raises(Exception, match="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"):
        describe(node, asking)


def test_without_a_key_there_are_no_tokens() -> None:
    node = start_node()[0]
    answers = [create(node), renew(node, b"x", ALICE), expire(node, b"x", ALICE)]
    assert {answer.error_code for answer in answers} == {ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED}
    with pytest.raises(Exception, match="DELEGATION_TOKEN_AUTH_DISABLED"):
        describe(node)


def test_a_renewer_must_be_a_user(node: Node) -> None:
    renewers = [CreateDelegationTokenRequest.CreatableRenewers(principal_type="Group", principal_name="g")]
    answer: Any = ask(node, CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=-1), 3, peer=ALICE)
    assert answer.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


def test_an_owner_must_be_a_user_for_whom_the_token_could_log_in(node: Node) -> None:
    request = CreateDelegationTokenRequest(
        owner_principal_type="Group", owner_principal_name="alice", renewers=[], max_lifetime_ms=-1
    )
    answer: Any = ask(node, request, 3, peer=ALICE)
    assert answer.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


def test_owners_and_renewers_renew_a_token_up_to_the_end_of_its_life_and_others_do_not() -> None:
    node, _, clock = start_node(**KEYS)
    token = create(node, renewers=("bob",), lifetime_ms=2 * DAY_MS)
    clock.advance(HOUR_MS)
    now_ms = int(clock.wall_ms())
    assert renew(node, token.hmac, ALICE, HOUR_MS).expiry_timestamp_ms == now_ms + HOUR_MS
    assert renew(node, token.hmac, BOB).expiry_timestamp_ms == now_ms + DAY_MS
    clock.advance(DAY_MS)
    assert renew(node, token.hmac, BOB, 9 * DAY_MS).expiry_timestamp_ms == token.max_timestamp_ms
    assert renew(node, token.hmac, EVE).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert renew(node, b"guessed", ALICE).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_an_expired_token_cannot_be_renewed_but_removed_and_is_removed_by_itself_in_the_end() -> None:
    node, _, clock = start_node(**KEYS)
    first, second = create(node), create(node)
    clock.advance(DAY_MS + 1)
    assert renew(node, first.hmac, ALICE).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert expire(node, first.hmac, ALICE, 10).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert expire(node, first.hmac, ALICE).error_code == 0
    assert [token.token_id for token in describe(node)] == [second.token_id]
    node.run_due()
    node.settle()
    assert describe(node) == []


def test_a_clock_that_is_ahead_for_some_time_removes_no_token() -> None:
    """Refused is what it calls expired, and valid again when the clock is right again."""
    node, _, clock = start_node(**KEYS)
    token = create(node)
    right_ms = clock.wall_ms()
    clock.set_wall(right_ms + 30 * DAY_MS)
    pass_time(node, clock, 3 * HOUR_MS, step_ms=HOUR_MS)
    assert renew(node, token.hmac, ALICE).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    clock.set_wall(right_ms + 3 * HOUR_MS)
    assert renew(node, token.hmac, ALICE).error_code == 0


def test_the_removal_of_many_expired_tokens_asks_for_one_change_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one waits for the disk: others would fill the queue of changes, one in each turn of the loop."""
    for module in (token_plans, delegation_tokens):
        monkeypatch.setattr(module, "MOST_EXPIRED", 2)
    node, _, clock = start_node(**KEYS)
    for _ in range(5):
        create(node)
    clock.advance(DAY_MS + 1)
    for _ in range(20):
        node.run_due()
    assert node.services.catalog.waiting_changes == 1
    node.settle()
    assert describe(node) == []


def test_a_token_ends_at_once_or_in_the_time_that_its_owner_says(node: Node) -> None:
    token = create(node)
    assert expire(node, token.hmac, EVE).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert expire(node, token.hmac, ALICE, 5).expiry_timestamp_ms == token.issue_timestamp_ms + 5
    assert expire(node, token.hmac, ALICE).error_code == 0
    assert expire(node, token.hmac, ALICE).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_a_restart_finds_the_tokens_with_their_secrets() -> None:
    files, clock = SimulatedFiles(), ManualClock()
    node, _, _ = start_node(files, clock, **KEYS)
    token = create(node, renewers=("bob",))
    node.stop()
    node, _, _ = start_node(files, clock, **KEYS)
    (found,) = describe(node)
    assert (found.token_id, found.hmac) == (token.token_id, token.hmac)
    assert [one.principal_name for one in found.renewers] == ["bob"]
    assert renew(node, token.hmac, BOB).error_code == 0


def test_the_number_of_tokens_is_bounded(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_plans, "MAX_TOKENS", 1)
    assert create(node).error_code == 0
    assert create(node).error_code == ErrorCode.POLICY_VIOLATION


# --- rights ----------------------------------------------------------------------------------------------------------


def allow(node: Node, principal: str, operation: AclOperation, kind: ResourceType, name: str) -> None:
    acl = CreateAclsRequest.AclCreation(
        resource_type=kind, resource_name=name, principal=principal, host="*", operation=operation, permission_type=3
    )
    answer: Any = ask(node, CreateAclsRequest(creations=[acl]), 3, peer=peer("admin"))
    assert answer.results[0].error_code == 0


@pytest.fixture
def closed() -> Node:
    """A node with an authorizer."""
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    return start_node(authorizer_class_name=authorizer, super_users="User:admin", **KEYS)[0]


def test_a_token_for_somebody_else_takes_the_right_to_create_tokens_for_them(closed: Node) -> None:
    assert create(closed, BOB, owner="alice").error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    allow(closed, "User:bob", AclOperation.CREATE_TOKENS, ResourceType.USER, "User:alice")
    token = create(closed, BOB, owner="alice")
    assert token.error_code == 0
    assert (token.principal_name, token.token_requester_principal_name) == ("alice", "bob")
    assert renew(closed, token.hmac, BOB).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert create(closed, BOB).error_code == 0


def test_tokens_of_others_are_seen_by_those_with_a_right_to_the_token_or_to_its_owner(closed: Node) -> None:
    first, second = create(closed, ALICE, renewers=("bob",)), create(closed, ALICE)
    assert [token.token_id for token in describe(closed, BOB)] == [first.token_id]
    assert describe(closed, EVE) == []
    allow(closed, "User:eve", AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, second.token_id)
    assert [token.token_id for token in describe(closed, EVE)] == [second.token_id]
    allow(closed, "User:eve", AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "User:alice")
    assert len(describe(closed, EVE)) == 2
    assert len(describe(closed, EVE, ("bob",))) == 1
    assert describe(closed, EVE, ()) == []


# --- logging in ------------------------------------------------------------------------------------------------------


def log_in(client: SaslClient, name: str, password: str, extension: str = ",tokenauth=true") -> Any:
    """The last answer of a login by SCRAM-SHA-256."""
    mechanism = "SCRAM-SHA-256"
    client.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
    bare = f"n={name},r=abc{extension}"
    first = client.ask(SaslAuthenticateRequest(auth_bytes=f"n,,{bare}".encode()), 2).auth_bytes.decode()
    nonce, salt, count = (part.partition("=")[2] for part in first.split(","))
    salted = salted_password(mechanism, password, base64.b64decode(salt), int(count))
    without_proof = f"c=biws,r={nonce}"
    key = client_key(mechanism, salted)
    signature = digest_of(mechanism, hashlib.sha256(key).digest(), f"{bare},{first},{without_proof}".encode())
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    client.send_request(SaslAuthenticateRequest(auth_bytes=f"{without_proof},p={proof}".encode()), 2)


@pytest.fixture
def at() -> SaslNode:
    return SaslNode(**KEYS)


def test_a_token_logs_in_as_its_owner_until_it_expires(at: SaslNode) -> None:
    token = create(at.node, ALICE, lifetime_ms=HOUR_MS)
    client = at.connect()
    log_in(client, token.token_id, base64.b64encode(token.hmac).decode())
    answer = client.answer(36, 2)
    assert (answer.error_code, answer.session_lifetime_ms) == (0, HOUR_MS)
    assert (client.peer.principal, client.peer.is_by_token) == (Principal("User", "alice"), True)
    refused = client.ask(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    at.pass_time(HOUR_MS + 1)
    client.send_request(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
    assert client.is_closed


@pytest.mark.parametrize("wrong", ["secret", "extension", "expired", "removed"])
def test_a_login_by_a_token_that_is_not_right_fails(at: SaslNode, wrong: str) -> None:
    token = create(at.node, ALICE, lifetime_ms=HOUR_MS)
    password = base64.b64encode(token.hmac).decode()
    if wrong == "expired":
        at.clock.advance(HOUR_MS + 1)
    if wrong == "removed":
        expire(at.node, token.hmac, ALICE)
    client = at.connect()
    log_in(
        client,
        token.token_id,
        "x" if wrong == "secret" else password,
        "" if wrong == "extension" else ",tokenauth=true",
    )
    at.pass_time(100)
    assert client.answer(36, 2).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.is_closed


def test_a_password_does_not_log_in_where_a_token_is_said_to(at: SaslNode) -> None:
    client = at.connect()
    log_in(client, "carol", "c")
    at.pass_time(100)
    assert client.answer(36, 2).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
