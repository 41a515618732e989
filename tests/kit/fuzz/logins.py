"""Hostile logins: SASL out of order, tokens that are changed, right ones in between, and all else that frames can be.

They come in by the listener of `life.py` that asks for a login. `Life` holds that nothing but the three requests of a
login is answered before one, and that nobody gets in who has no password.
"""

from __future__ import annotations

import base64
import random
import struct
from itertools import pairwise

from kit.fuzz.framing import GARBAGE
from kit.fuzz.life import FIRST_SASL_LINE, SALTED_PASSWORDS, TOKEN_USER, TOKENS_ISSUER, Life
from kit.fuzz.requests import one_request
from kit.fuzz.values import MessageMaker, mutate
from kit.fuzz.vocabulary import Vocabulary

from ottla.protocol.api import ApiKey
from ottla.protocol.api.api_versions import ApiVersionsRequest
from ottla.protocol.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.api.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import Request, encode
from ottla.scram import client_key, digest_of, keys_of

LINES = 3
TALKS = 10
MECHANISMS = ("PLAIN", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER", "", "plain")
PLAIN_TOKENS: tuple[bytes, ...] = (
    b"\0alice\0a secret",
    b"alice\0alice\0a secret",
    b"\0alice\0wrong",
    b"\0alice\0a secre",
    b"\0nobody\0a\0secret",
)
TOKENS: tuple[bytes, ...] = (
    *PLAIN_TOKENS,
    b"\0" * 5,
    b"n,,n=carol,r=abc",
    b"y,,n=carol,r=abc,tokenauth=true",
    b"n,a=carol,n=carol,r=abc,x=1",
    b"p=tls-unique,,n=carol,r=abc",
    b"n,,n=nobody,r=abc",
    b"c=biws,r=abc,p=AAAA",
    b"n,,\x01auth=Bearer a.b.c\x01\x01",
    b"\x01",
    b"",
)
OTHER_HEADS: tuple[bytes, ...] = (b'{"alg":"none"}', b'{"alg":"HS256"}', b"{}", b"[]", b"[" * 5000)
AFTER = (ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.DESCRIBE_CLUSTER)


def live(chance: random.Random, life: Life) -> int:
    """One life of logins; how many frames were sent. Raises Finding."""
    maker = MessageMaker(chance, Vocabulary())
    sent = 0
    for number in range(TALKS):
        line = FIRST_SASL_LINE + chance.randrange(LINES)
        what = chance.random()
        if what < 0.1 or not life.is_open(line):
            life.step({"wait_ms": chance.choice((50, 100, 1_000, 31_000, 70_000))})
        elif what < 0.15:
            life.step({"line": line, "drop": True})
        elif what < 0.45:
            sent += _log_in(chance, life, line, number)
        elif what < 0.6:
            sent += _log_in_by_token(chance, life, line, number)
        else:
            stream = b"".join(_frames(chance, maker, number))
            for piece in _pieces(chance, stream):
                if life.is_open(line):
                    life.step({"line": line, "send": piece})
                    sent += 1
    life.end()
    return sent


def _log_in(chance: random.Random, life: Life, line: int, number: int) -> int:
    """A login by SCRAM that is right, or almost."""
    mechanism, version = chance.choice(list(SALTED_PASSWORDS)), chance.choice((0, 1, 1, 1))
    life.step({"line": line, "send": _frame(SaslHandshakeRequest(mechanism=mechanism), version, number)})
    first = b"n=carol,r=fuzz" if chance.random() < 0.8 else mutate(chance, b"n=carol,r=fuzz")
    life_answers = life.step({"line": line, "send": _token(b"n,," + first, version, number)})
    answers = [one for one in life_answers if isinstance(one, SaslAuthenticateResponse)]
    if not answers or not answers[0].auth_bytes:
        return 2
    server_first = bytes(answers[0].auth_bytes)
    without_proof = b"c=" + base64.b64encode(b"n,,") + b"," + server_first.split(b",")[0]
    message = b",".join((first, server_first, without_proof))
    salted = SALTED_PASSWORDS[mechanism]
    stored_key = keys_of(mechanism, salted).stored_key
    signature = digest_of(mechanism, stored_key, message)
    proof = bytes(a ^ b for a, b in zip(client_key(mechanism, salted), signature, strict=True))
    final = without_proof + b",p=" + base64.b64encode(proof)
    life.step(
        {"line": line, "send": _token(final if chance.random() < 0.6 else mutate(chance, final), version, number)}
    )
    life.step({"wait_ms": chance.choice((1, 100))})
    return 3


def _log_in_by_token(chance: random.Random, life: Life, line: int, number: int) -> int:
    """A login by a token (OAUTHBEARER) that is right, or almost."""
    version, now_s = chance.choice((0, 1, 1, 1)), life.clock.wall_ms() / 1000
    lifetime_s = chance.choice((600, 600, 600, 5, -100, 1e12))
    token = TOKENS_ISSUER.token(now_s, lifetime_s=lifetime_s, sub=TOKEN_USER).encode()
    what = chance.random()
    if what < 0.3:
        token = mutate(chance, token)
    elif what < 0.45:
        head, content, signature = token.split(b".")
        other = base64.urlsafe_b64encode(chance.choice(OTHER_HEADS))
        parts = (other, content, b""), (other, content, signature), (head, other, signature), (head, content)
        token = b".".join(chance.choice(parts))
    life.step({"line": line, "send": _frame(SaslHandshakeRequest(mechanism="OAUTHBEARER"), version, number)})
    message = b"n,,\x01auth=Bearer " + token + b"\x01\x01"
    message = message if chance.random() < 0.8 else mutate(chance, message)
    if message:
        life.step({"line": line, "send": _token(message, version, number)})
    life.step({"line": line, "send": _token(b"\x01", version, number)})
    return 3


def _frames(chance: random.Random, maker: MessageMaker, number: int) -> list[bytes]:
    """What a client says, in an order that may make sense."""
    version = chance.choice((0, 1, 1))
    frames: list[bytes] = []
    tokens = TOKENS
    if chance.random() < 0.5:
        frames.append(_frame(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3, number))
    if chance.random() < 0.8:
        mechanism = chance.choice(MECHANISMS)
        frames.append(_frame(SaslHandshakeRequest(mechanism=mechanism), version, number))
        tokens = PLAIN_TOKENS if mechanism == "PLAIN" and chance.random() < 0.7 else TOKENS
    for _ in range(chance.choice((0, 1, 1, 2))):
        token = chance.choice(tokens)
        frames.append(_token(mutate(chance, token) if token and chance.random() < 0.3 else token, version, number))
    for _ in range(chance.choice((0, 0, 1, 3))):
        frame = one_request(chance, maker, chance.choice(AFTER), number)
        if frame is not None and len(frame) < 100_000:
            frames.append(frame)
    wrong = chance.random()
    if wrong < 0.15:
        frames.append(chance.choice(GARBAGE))
    elif wrong < 0.3 and frames:
        at = chance.randrange(len(frames))
        frames[at] = mutate(chance, frames[at])
    elif wrong < 0.4:
        chance.shuffle(frames)
    elif wrong < 0.45:
        frames.append(struct.pack(">i", chance.choice((524_288, 524_289, 1 << 22, 0, -1))) + b"x" * 100)
    return frames


def _frame(request: Request, version: int, number: int) -> bytes:
    body = encode_request_header(request.message_key, version, number, "fuzz") + encode(request, version)
    return struct.pack(">i", len(body)) + body


def _token(token: bytes, handshake_version: int, number: int) -> bytes:
    """Bare after SaslHandshake 0."""
    if handshake_version == 0:
        return struct.pack(">i", len(token)) + token
    return _frame(SaslAuthenticateRequest(auth_bytes=token), 2, number)


def _pieces(chance: random.Random, stream: bytes) -> list[bytes]:
    if not stream or chance.random() < 0.6:
        return [stream] if stream else []
    cuts = sorted({chance.randrange(len(stream) + 1) for _ in range(3)} | {0, len(stream)})
    return [stream[start:end] for start, end in pairwise(cuts)]
