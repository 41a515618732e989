"""The broker's side of SCRAM: the examples of the RFCs, a client that is not ours, and what breaks the rules."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import scramp

from ottla.broker.security.sasl import scram as module
from ottla.broker.security.sasl.mechanism import SaslFailure
from ottla.broker.security.sasl.scram import MadeUp, ScramCredential, ScramServer
from ottla.scram import keys_of, salted_password

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MADE_UP = MadeUp()


def credential(mechanism: str, password: str, salt: bytes, iterations: int, user: str = "user") -> ScramCredential:
    keys = keys_of(mechanism, salted_password(mechanism, password, salt, iterations))
    return ScramCredential(salt, keys.stored_key, keys.server_key, iterations, user)


def server(mechanism: str = "SCRAM-SHA-256", salt: bytes = b"some salt that is random") -> ScramServer:
    users = {
        "user": credential(mechanism, "pencil", salt, 4096),
        "a=b,c": credential(mechanism, "x", salt, 4096, "a=b,c"),
    }
    return ScramServer(mechanism, lambda _, name, is_token: None if is_token else users.get(name), MADE_UP)


def client(mechanism: str = "SCRAM-SHA-256", user: str = "user", password: str = "pencil") -> Any:
    return scramp.ScramClient([mechanism], user, password)


def first_step(broker: ScramServer, one: Any) -> bytes:
    step = broker.evaluate(one.get_client_first().encode())
    one.set_server_first(step.token.decode())
    return step.token


def test_the_example_of_rfc_7677(monkeypatch: pytest.MonkeyPatch) -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    known = credential("SCRAM-SHA-256", "pencil", salt, 4096)
    broker = ScramServer("SCRAM-SHA-256", lambda *_: known, MADE_UP)
    nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"

    class Encoded:
        b64encode = staticmethod(lambda value: nonce.encode() if value == b"?" else base64.b64encode(value))
        b64decode = staticmethod(base64.b64decode)

    monkeypatch.setattr(module, "base64", Encoded)
    monkeypatch.setattr(module.os, "urandom", lambda size: b"?" if size == 24 else bytes(size))
    step = broker.evaluate(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert step.token == f"r=rOprNGfwEbeRWgbNEkqO{nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    last = broker.evaluate(f"c=biws,r=rOprNGfwEbeRWgbNEkqO{nonce},p={proof}".encode())
    assert last.token == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert last.user == "user"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_that_is_not_ours_logs_in_and_believes_the_broker(mechanism: str) -> None:
    broker, one = server(mechanism), client(mechanism)
    first_step(broker, one)
    step = broker.evaluate(one.get_client_final().encode())
    one.set_server_final(step.token.decode())
    assert step.user == "user"


def test_a_name_with_commas_and_equals_signs_is_the_one_that_was_meant() -> None:
    broker, one = server(), client(user="a=b,c", password="x")
    first_step(broker, one)
    assert broker.evaluate(one.get_client_final().encode()).user == "a=b,c"


@pytest.mark.parametrize("password", ["Pencil", "pencil ", ""])
def test_a_wrong_password_fails_at_the_proof(password: str) -> None:
    broker, one = server(), client(password=password)
    first_step(broker, one)
    with pytest.raises(SaslFailure) as failure:
        broker.evaluate(one.get_client_final().encode())
    assert failure.value.message is None


def test_a_user_that_does_not_exist_looks_like_one_with_another_password() -> None:
    firsts = []
    for _ in range(2):
        broker, one = server(), client(user="nobody")
        firsts.append(dict(part.split("=", 1) for part in first_step(broker, one).decode().split(",")))
        with pytest.raises(SaslFailure, match="no such user, or a wrong password"):
            broker.evaluate(one.get_client_final().encode())
    assert firsts[0]["s"] == firsts[1]["s"]
    assert firsts[0]["i"] == "4096"
    other = MADE_UP.credential("SCRAM-SHA-256", "somebody").salt
    assert base64.b64decode(firsts[0]["s"]) != other != MADE_UP.credential("SCRAM-SHA-512", "somebody").salt
    assert MadeUp().credential("SCRAM-SHA-256", "somebody").salt != other


def test_a_made_up_credential_cannot_be_guessed_from_the_salt() -> None:
    made = [MADE_UP.credential("SCRAM-SHA-256", "nobody") for _ in range(2)]
    assert made[0].stored_key != made[1].stored_key


def test_a_short_salt_as_kafka_allows_it_works() -> None:
    """scramp refuses salts below 12 bytes, so the client's side is by hand."""
    salted = salted_password("SCRAM-SHA-256", "pencil", b"salt", 4096)
    assert log_in(server(salt=b"salt"), salted) == "user"


def test_extensions_are_part_of_what_is_proved_and_do_nothing() -> None:
    salted = salted_password("SCRAM-SHA-256", "pencil", b"salt", 4096)
    assert log_in(server(salt=b"salt"), salted, first="n=user,r=abc,whatever=1") == "user"


def test_an_authorization_id_may_be_the_name_itself() -> None:
    salted = salted_password("SCRAM-SHA-256", "pencil", b"salt", 4096)
    assert log_in(server(salt=b"salt"), salted, header="n,a=user,") == "user"
    with pytest.raises(SaslFailure, match="different from username"):
        log_in(server(salt=b"salt"), salted, header="n,a=other,")


def test_a_delegation_token_is_no_user() -> None:
    salted = salted_password("SCRAM-SHA-256", "pencil", b"salt", 4096)
    with pytest.raises(SaslFailure):
        log_in(server(salt=b"salt"), salted, first="n=user,r=abc,tokenauth=true")


def test_a_client_that_believes_us_without_channel_binding_is_served_and_one_that_asks_for_it_is_not() -> None:
    salted = salted_password("SCRAM-SHA-256", "pencil", b"salt", 4096)
    assert log_in(server(salt=b"salt"), salted, header="y,,") == "user"
    with pytest.raises(SaslFailure, match="channel binding"):
        log_in(server(salt=b"salt"), salted, header="p=tls-unique,,")


def test_a_final_message_of_another_header_is_refused() -> None:
    """Somebody in between took the client's flag away."""
    salted = salted_password("SCRAM-SHA-256", "pencil", b"salt", 4096)
    with pytest.raises(SaslFailure, match="bound to another"):
        log_in(server(salt=b"salt"), salted, header="n,,", bound="y,,")


def test_a_replayed_final_message_is_refused() -> None:
    broker, one = server(), client()
    first_step(broker, one)
    final = one.get_client_final().encode()
    assert broker.evaluate(final).user == "user"
    again, other = server(), client()
    first_step(again, other)
    with pytest.raises(SaslFailure, match="another nonce"):
        again.evaluate(final)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,n=user",
        b"n,,r=abc,n=user",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,n=us=er,r=abc",
        b"n,,m=x,n=user,r=abc",
        b"n,,n=user,r=abc,",
        b"n,,n=user,r=a\x7fbc",
        "n,,n=üser,r=abc".encode(),
        b"x,,n=user,r=abc",
        b"c=biws,r=abc,p=AAAA",
        b"n,,n=user,r=" + b"a" * 9000,
        b"\0user\0pencil",
    ],
)
def test_a_first_message_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(SaslFailure):
        server().evaluate(message)


@pytest.mark.parametrize(
    "final",
    [
        "n,,n=user,r=abc",
        "c=biws,r=NONCE",
        "c=biws,r=NONCE,p=",
        "c=biws,r=NONCE,p=AAAA",
        "c=biws,r=NONCE,p=A",
        "c=biws,r=NONCEx,p=AAAA",
        "c=biws,r=abc,p=AAAA",
        "r=NONCE,c=biws,p=AAAA",
        "c=bi!s,r=NONCE,p=AAAA",
        "",
    ],
)
def test_a_final_message_that_is_none_or_proves_nothing_is_refused(final: str) -> None:
    broker = server()
    nonce = broker.evaluate(b"n,,n=user,r=abc").token.decode().split(",")[0].removeprefix("r=")
    with pytest.raises(SaslFailure):
        broker.evaluate(final.replace("NONCE", nonce).encode())


def test_the_final_nonce_of_old_librdkafka_is_taken() -> None:
    """Releases before 2.6.1 send the client's nonce twice, and sign that."""
    salted = salted_password("SCRAM-SHA-256", "pencil", b"salt", 4096)
    assert log_in(server(salt=b"salt"), salted, nonce_prefix="abc") == "user"


@pytest.mark.parametrize("prefix", ["a", "abcabc", "xyz"])
def test_no_other_nonce_that_ends_with_the_brokers_is_taken(prefix: str) -> None:
    salted = salted_password("SCRAM-SHA-256", "pencil", b"salt", 4096)
    with pytest.raises(SaslFailure, match="another nonce"):
        log_in(server(salt=b"salt"), salted, nonce_prefix=prefix)


def test_nonces_are_not_repeated() -> None:
    assert len({server().evaluate(b"n,,n=user,r=abc").token for _ in range(20)}) == 20


def log_in(
    broker: ScramServer,
    salted: bytes,
    *,
    header: str = "n,,",
    first: str = "n=user,r=abc",
    bound: str = "",
    nonce_prefix: str = "",
) -> str | None:
    """Log in with messages that the test chooses; returns the user that the broker authenticated, if any."""
    import hashlib
    import hmac

    reply = broker.evaluate((header + first).encode()).token.decode()
    nonce = nonce_prefix + reply.split(",")[0].removeprefix("r=")
    without = f"c={base64.b64encode((bound or header).encode()).decode()},r={nonce}"
    message = f"{first},{reply},{without}".encode()
    key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(key).digest(), message, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    return broker.evaluate(f"{without},p={proof}".encode()).user
