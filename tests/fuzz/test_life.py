"""What a life under hostile input is there to notice, it notices."""

from __future__ import annotations

import random
import struct

import pytest
from kit.fuzz import logins
from kit.fuzz.life import Life, Step
from kit.fuzz.tls import FIRST_TLS_LINE, TlsLife
from kit.fuzz.watch import Finding

from ottla.broker.net.connections import Connections
from ottla.broker.net.tls_layer import TlsLayer
from ottla.broker.requests import authenticating
from ottla.broker.runtime.disk import GroupSyncer
from ottla.broker.runtime.queued_syncer import QueuedSyncer
from ottla.broker.runtime.threads import NoThread
from ottla.broker.security.sasl import plain
from ottla.broker.security.sasl.oauthbearer import OAuthBearerServer
from ottla.protocol.api.api_versions import ApiVersionsRequest
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import encode


def test_who_waits_for_a_sync_that_finds_no_thread_is_answered() -> None:
    with Life() as life:
        life.live([{"threads": False}, {"threads": True}, {"threads": False}])


def test_a_sync_that_strands_who_waits_where_there_is_no_thread_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def submit(self: QueuedSyncer, queue: object, sync_round: object) -> None:
        try:
            self._hand_over(queue, sync_round)  # type: ignore[arg-type]
        except NoThread:
            return

    monkeypatch.setattr(GroupSyncer, "_submit", submit)
    with Life() as life, pytest.raises(Finding, match="the witness got no answer to OffsetCommitRequest"):
        life.step({"threads": False})


def logins_find(promise: str) -> None:
    """Some life of hostile logins says that this is broken."""
    said = []
    for seed in range(40):
        try:
            with Life(with_kio=False) as life:
                logins.live(random.Random(seed), life)
        except Finding as finding:
            said.append(str(finding))
            if promise in said[-1]:
                return
    raise AssertionError(f"not found in 40 lives: {promise}; but {said}")


def test_a_request_that_is_served_before_a_login_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authenticating, "_BEFORE", range(100))
    logins_find("is answered before a login")


def test_a_login_without_its_password_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain.PlainUsers, "is_right", lambda *_: True)
    logins_find("has logged in")


def tls_finds(promise: str, steps: list[Step]) -> None:
    """A life of these steps says that this is broken."""
    with pytest.raises(Finding, match=promise), TlsLife(with_kio=False) as life:
        life.live(steps)


SHAKE: Step = {"line": FIRST_TLS_LINE, "tls": "shake"}


def test_what_the_layer_of_tls_raises_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("broken on purpose")

    monkeypatch.setattr(TlsLayer, "_flush", broken)
    tls_finds("raised to the loop: KeyError", [SHAKE])


def test_a_handshake_that_is_not_ended_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connections, "sweep", lambda _: None)
    tls_finds("a handshake that does not end is not ended", [SHAKE])


def test_a_changed_record_that_ends_nothing_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TlsLayer, "_decipher", lambda _: None)
    flipped: Step = {"line": FIRST_TLS_LINE, "tls": "talk", "send": b"\0" * 20, "how": "flip", "at": 80}
    tls_finds("a record that was changed", [flipped])


@pytest.mark.parametrize("version", ["1.3", "1.2"])
@pytest.mark.parametrize("how", ["whole", "bytes"])
def test_a_client_of_tls_whose_records_are_left_alone_is_answered(version: str, how: str) -> None:
    line = FIRST_TLS_LINE + (version == "1.2")
    with TlsLife() as life:
        for what in ("keys", "talk", "talk"):
            step: Step = {"line": line, "tls": what, "send": api_versions(), "how": how, "at": 3}  # type: ignore[typeddict-item]
            answers = life.step(step)
        assert len(answers) == 1
        assert life.client(line).tls.version() == f"TLSv{version}"


def api_versions() -> bytes:
    body = encode_request_header(ApiVersionsRequest.message_key, 0, 1, "t") + encode(ApiVersionsRequest(), 0)
    return struct.pack(">i", len(body)) + body


def test_a_login_by_a_token_that_is_not_verified_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OAuthBearerServer, "_claims", lambda *_: ("dora", 1e12))
    logins_find("dora has logged in")
