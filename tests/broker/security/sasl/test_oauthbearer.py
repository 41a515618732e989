"""OAUTHBEARER: which tokens are believed, and what strangers get for others."""

from __future__ import annotations

import base64
import json
from typing import Any

import jwt
import pytest
from kit.clock import ManualClock
from kit.tokens import AUDIENCE, ISSUER, Issuer, jwks_of

from ottla.broker.runtime.pending import Pending
from ottla.broker.runtime.workers import InlineWorkers
from ottla.broker.security.sasl.jwks import Jwks
from ottla.broker.security.sasl.mechanism import SaslFailure, Step
from ottla.broker.security.sasl.oauthbearer import INVALID_TOKEN, Expected, OAuthBearerServer

ONE = Issuer("one")
CLOCK = ManualClock()
NOW_S = CLOCK.wall_ms() / 1000


def first_message(token: str, header: str = "n,,") -> bytes:
    return f"{header}\x01auth=Bearer {token}\x01\x01".encode()


def server(jwks: bytes = ONE.jwks, **expected: Any) -> OAuthBearerServer:
    keys = Jwks("https://issuer.test/jwks", InlineWorkers(), CLOCK, read=lambda _url, _timeout_s: jwks)
    return OAuthBearerServer(keys, Expected(**expected), CLOCK)


def answer(broker: OAuthBearerServer, message: bytes) -> Step:
    step = broker.evaluate(message)
    if isinstance(step, Pending):
        assert step.done
        assert step.response is not None
        return step.response
    return step


def is_refused(broker: OAuthBearerServer, message: bytes) -> str:
    """As RFC 7628 has it: an error, its acknowledgement, a failure; its reason."""
    assert answer(broker, message) == Step(INVALID_TOKEN.encode())
    with pytest.raises(SaslFailure) as failure:
        broker.evaluate(b"\x01")
    assert failure.value.message == INVALID_TOKEN
    return failure.value.detail


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS256", "ES256", "EdDSA"])
def test_a_signed_token_is_its_subject_until_it_expires(algorithm: str) -> None:
    issuer = Issuer("k", algorithm)
    token = issuer.token(NOW_S)
    step = answer(server(issuer.jwks, issuer=ISSUER, audience=(AUDIENCE, "other")), first_message(token))
    assert step == Step(b"", "alice", (int(NOW_S) + 600) * 1000)


def test_a_token_without_a_key_id_is_checked_by_the_only_key() -> None:
    nameless = Issuer(None)
    assert answer(server(nameless.jwks), first_message(nameless.token(NOW_S))).user == "alice"
    is_refused(server(jwks_of(ONE, Issuer("two"))), first_message(nameless.token(NOW_S)))


def test_another_claim_can_be_the_user() -> None:
    token = ONE.token(NOW_S, preferred_username=" carol ")
    assert answer(server(subject_claim="preferred_username"), first_message(token)).user == "carol"


def test_the_first_message_may_have_an_authorization_id_and_extensions() -> None:
    token = ONE.token(NOW_S)
    message = f"n,a=alice,\x01auth=bearer {token}\x01logicalCluster=lkc-1\x01\x01".encode()
    assert answer(server(), message).user == "alice"
    with pytest.raises(SaslFailure, match="authorization id"):
        answer(server(), first_message(token, "n,a=bob,"))


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"lifetime_s": -31}, "has expired"),
        ({"exp": None}, "exp"),
        ({"iat": None}, "iat"),
        ({"exp": "tomorrow"}, "exp"),
        ({"exp": 1e300}, "exp"),
        ({"nbf": NOW_S + 60}, "not valid yet"),
        ({"iss": "https://other.test"}, "ssuer"),
        ({"iss": None}, "iss"),
        ({"aud": "other"}, "udience"),
        ({"aud": None}, "aud"),
        ({"sub": None}, "no claim sub"),
        ({"sub": " "}, "no claim sub"),
        ({"sub": 7}, "no claim sub"),
        ({"scope": 7}, "scope"),
        ({"scope": ["a", ""]}, "scope"),
        ({"key_id": "unknown"}, "not in the JWKS"),
    ],
)
def test_a_token_that_says_something_else_is_refused(claims: dict[str, Any], reason: str) -> None:
    broker = server(issuer=ISSUER, audience=(AUDIENCE,))
    assert reason in is_refused(broker, first_message(ONE.token(NOW_S, **claims)))


@pytest.mark.parametrize("lifetime_s", [-29, 0, 1])
def test_clocks_may_differ_by_the_skew(lifetime_s: int) -> None:
    assert answer(server(), first_message(ONE.token(NOW_S, lifetime_s=lifetime_s))).user == "alice"


def unsigned(algorithm: str) -> str:
    parts = [{"alg": algorithm, "kid": "one"}, {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 600}]
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", "HS256", "RS256", "ES256"])
def test_an_unsigned_token_is_refused(algorithm: str) -> None:
    is_refused(server(), first_message(unsigned(algorithm)))


def test_a_token_that_is_signed_with_the_public_key_as_a_secret_is_refused() -> None:
    """The old confusion of HS256 and RS256."""
    content = {"sub": "alice", "iat": int(NOW_S), "exp": int(NOW_S) + 600}
    token = jwt.encode(content, json.dumps(ONE.entry) * 2, algorithm="HS256", headers={"kid": "one"})
    assert "HS256" in is_refused(server(), first_message(token))


def test_a_symmetric_key_of_the_jwks_signs_nothing() -> None:
    secret = b"s" * 32
    entry = {"kty": "oct", "kid": "sym", "k": base64.urlsafe_b64encode(secret).decode().rstrip("="), "alg": "HS256"}
    both = json.dumps({"keys": [entry, ONE.entry]}).encode()
    token = jwt.encode({"sub": "a", "iat": 1, "exp": 2**32}, secret, algorithm="HS256", headers={"kid": "sym"})
    is_refused(server(both), first_message(token))
    assert answer(server(both), first_message(ONE.token(NOW_S))).user == "alice"


def test_a_signature_of_somebody_else_under_the_same_key_id_is_refused() -> None:
    is_refused(server(), first_message(Issuer("one").token(NOW_S)))


def test_a_changed_token_is_refused() -> None:
    head, body, signature = ONE.token(NOW_S).split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    forged = base64.urlsafe_b64encode(json.dumps(claims | {"sub": "admin"}).encode()).decode().rstrip("=")
    is_refused(server(), first_message(f"{head}.{forged}.{signature}"))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic YTpi\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"y,,\x01auth=Bearer a.b.c\x01\x01",
        b"n,,\x01auth=Bearer a.b.c\x01",
        b"n,,\x01Bearer a.b.c\x01\x01",
        b"n,,\x01auth=Bearer " + b"a" * 70_000 + b"\x01\x01",
        b"\xff\xfe\x00",
    ],
)
def test_a_first_message_that_is_none_is_a_failure(message: bytes) -> None:
    with pytest.raises(SaslFailure):
        server().evaluate(message)


@pytest.mark.parametrize("token", ["a", "a.b.c", "a.b.c.d.e", "....", "e30.e30.", "bnVsbA.bnVsbA.YQ", "W10.e30.YQ"])
def test_what_is_no_token_is_refused(token: str) -> None:
    is_refused(server(), first_message(token))


def test_what_is_nested_without_end_is_refused() -> None:
    deep = base64.urlsafe_b64encode(b"[" * 40_000).decode().rstrip("=")
    is_refused(server(), first_message(f"{deep}.e30.YQ"))


def test_the_reason_has_nothing_of_the_token() -> None:
    token = Issuer("one").token(NOW_S)
    assert token.split(".")[2] not in is_refused(server(), first_message(token))
