"""What a client says in SASL, token by token: RFC vectors, and brokers that are not what they say."""

from __future__ import annotations

import base64

import pytest

from ottla.client_core.sasl import MECHANISMS, MOST_ITERATIONS, Login, SaslFailed, converse, one_line, problem_of
from ottla.scram import digest_of, keys_of, proves, salted_password

RFC_7677 = Login("SCRAM-SHA-256", "user", "pencil")
RFC_NONCE = "rOprNGfwEbeRWgbNEkqO"
RFC_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"  # of the server
RFC_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def sent(conversation, *answers):
    """The tokens of a conversation to which the broker answers this."""
    tokens = [next(conversation)]
    for answer in answers:
        try:
            tokens.append(conversation.send(answer))
        except StopIteration:
            return tokens
    raise AssertionError("the conversation goes on")


def test_plain_is_user_and_password_in_utf_8():
    assert sent(converse(Login("PLAIN", "ålice", "a b"), ""), b"") == ["\0ålice\0a b".encode()]


def test_scram_follows_the_example_of_rfc_7677():
    assert sent(converse(RFC_7677, RFC_NONCE), RFC_FIRST, RFC_FINAL) == [
        b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    ]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("is_delegation_token", [False, True])
def test_scram_proves_the_password_to_a_broker_that_keeps_keys_only(mechanism, is_delegation_token):
    login = Login(mechanism, "a,b=c", "p=,ä", is_delegation_token=is_delegation_token)
    conversation = converse(login, "mine")
    extension = ",tokenauth=true" if is_delegation_token else ""
    first = f"n=a=2Cb=3Dc,r=mine{extension}"
    assert next(conversation) == f"n,,{first}".encode()
    salt, iterations = b"0123456789ab", 4096
    keys = keys_of(mechanism, salted_password(mechanism, login.password, salt, iterations))
    server_first = f"r=mineyours,s={base64.b64encode(salt).decode()},i={iterations},x=an extension"
    final, _, proof = conversation.send(server_first.encode()).decode().rpartition(",p=")
    assert final == "c=biws,r=mineyours"
    said = f"{first},{server_first},{final}".encode()
    assert proves(mechanism, keys.stored_key, said, base64.b64decode(proof))
    signature = base64.b64encode(digest_of(mechanism, keys.server_key, said))
    with pytest.raises(StopIteration):
        conversation.send(b"v=" + signature + b",m=more")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "signature is wrong"),
        (b"v=", "signature is wrong"),
        (b"", "signature is wrong"),
        (b"v=%%%", "base64"),
        (b"\xff\xfe", "not text"),
        (b"e=invalid-proof\n\x1b[2Jowned", r"the broker says invalid-proof \[2Jowned$"),
        (RFC_FIRST, "signature is wrong"),
    ],
)
def test_a_broker_that_does_not_know_the_user_is_found_out(answer, said):
    conversation = converse(RFC_7677, RFC_NONCE)
    next(conversation)
    conversation.send(RFC_FIRST)
    with pytest.raises(SaslFailed, match=said):
        conversation.send(answer)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (f"r={RFC_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode(), "nonce"),
        (RFC_FIRST.replace(b"4096", b"1"), "asks for 1 iterations"),
        (RFC_FIRST.replace(b"4096", b"4095"), "asks for 4095 iterations"),
        (RFC_FIRST.replace(b"4096", str(MOST_ITERATIONS + 1).encode()), "asks for 1000001 iterations"),
        (RFC_FIRST.replace(b"4096", b"1000000000"), "iterations"),
        (RFC_FIRST.replace(b"4096", b"9" * 5000), "iterations"),
        (RFC_FIRST.replace(b"4096", "٤٠٩٦".encode()), "iterations"),
        (RFC_FIRST.replace(b"4096", b"-4096"), "iterations"),
        (RFC_FIRST.replace(b"W22", b"*"), "base64"),
        (b"m=mandatory," + RFC_FIRST, "is not r="),
        (b"i=4096", "is not r="),
        (b"", "is not r="),
        (b"e=unknown-user", "unknown-user"),
        (b"\xff", "not text"),
    ],
)
def test_a_first_message_that_is_not_for_this_login_or_asks_too_much_ends_it(answer, said):
    conversation = converse(RFC_7677, RFC_NONCE)
    next(conversation)
    with pytest.raises(SaslFailed, match=said) as failed:
        conversation.send(answer)
    assert len(str(failed.value)) < 200


def test_a_bearer_token_goes_with_its_extensions():
    login = Login("OAUTHBEARER", token="abc.def-_~+/==", extensions={"logicalCluster": "lkc-1"})
    assert sent(converse(login, ""), b"") == [b"n,,\x01auth=Bearer abc.def-_~+/==\x01logicalCluster=lkc-1\x01\x01"]


def test_a_token_that_is_refused_is_acknowledged_and_the_reason_is_shown():
    conversation = converse(Login("OAUTHBEARER", token="abc"), "")
    next(conversation)
    assert conversation.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(SaslFailed, match="invalid_token"):
        conversation.send(b"")


@pytest.mark.parametrize(
    ("login", "said"),
    [
        (Login("PLAIN", "", "x"), "no name"),
        (Login("PLAIN", "x", ""), "password is empty"),
        (Login("PLAIN", "a\0b", "x"), "NUL"),
        (Login("OAUTHBEARER", token=""), "no bearer token"),
        (Login("OAUTHBEARER", token="a b"), "no bearer token"),
        (Login("OAUTHBEARER", token="a\x01auth=Bearer b"), "no bearer token"),
        (Login("OAUTHBEARER", token="a", extensions={"auth": "x"}), "extension"),
        (Login("OAUTHBEARER", token="a", extensions={"x": "a\x01b"}), "extension"),
    ],
)
def test_what_no_login_can_be_is_said_beforehand(login, said):
    assert said in problem_of(login)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_login_shows_no_secret(mechanism):
    login = Login(mechanism, "alice", "s3cret", "s3cret", {"x": "s3cret"})
    assert "s3cret" not in repr(login) + str(login) + login.who


def test_what_a_broker_says_is_one_bounded_line():
    assert one_line("a\r\nb\t\x07c" + "d" * 10_000).startswith("a b cddd")
    assert len(one_line("d" * 10_000)) == 500
