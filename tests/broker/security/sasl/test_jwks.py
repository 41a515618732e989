"""The keys that sign tokens: read by workers, kept, read again, and not for every stranger."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.clock import ManualClock
from kit.sasl_connections import SaslNode
from kit.tokens import Issuer, jwks_of

from ottla.broker.security.sasl.jwks import LONGEST_BYTES, Jwks, parse_jwks, read_url
from ottla.protocol.api.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.api.sasl_handshake import SaslHandshakeRequest

ONE, TWO = Issuer("one", "EdDSA"), Issuer("two", "EdDSA")


class Endpoint:
    """A JWKS endpoint whose reads run when the test calls them."""

    def __init__(self, **keys: int) -> None:
        self.clock = ManualClock()
        self.content: bytes | Exception = ONE.jwks
        self.reads = 0
        self._work: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = []
        self.jwks = Jwks("https://u:secret@issuer.test/jwks?k=secret", self, self.clock, read=self._read, **keys)

    def begin(self) -> None: ...

    def close(self) -> None: ...

    def run(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self._work.append((work, done))

    def _read(self, url: str, timeout_s: float) -> bytes:
        self.reads += 1
        if isinstance(self.content, Exception):
            raise self.content
        return self.content

    def work(self) -> None:
        for work, done in self._work:
            try:
                result = work()
            except Exception as error:
                done(None, error)
            else:
                done(result, None)
        self._work.clear()

    def find(self, key_id: str) -> bool:
        """Whether the key is found once workers have done what there is to do."""
        found = self.jwks.find(key_id)
        self.work()
        assert found.done
        return found.response is not None


def test_the_first_logins_wait_for_one_read() -> None:
    at = Endpoint()
    waiting = [at.jwks.find("one"), at.jwks.find("one"), at.jwks.find("other")]
    assert not any(one.done for one in waiting)
    at.work()
    assert [one.response is not None for one in waiting] == [True, True, False]
    assert at.reads == 1
    assert at.jwks.find("one").done


def test_keys_are_read_again_when_they_are_old_and_nobody_waits_for_it() -> None:
    at = Endpoint(refresh_ms=60_000)
    assert at.find("one")
    at.clock.advance(59_999)
    assert at.find("one")
    assert at.reads == 1
    at.clock.advance(1)
    at.content = TWO.jwks
    assert at.jwks.find("one").done
    at.work()
    assert at.reads == 2
    assert at.find("two")
    assert not at.find("one")


def test_a_rotation_is_noticed_by_the_first_token_of_the_new_key() -> None:
    at = Endpoint()
    assert at.find("one")
    at.clock.advance(10_000)
    at.content = jwks_of(ONE, TWO)
    assert at.find("two")
    assert at.reads == 2


def test_strangers_who_name_keys_that_are_not_there_cause_few_reads() -> None:
    at = Endpoint()
    for number in range(100):
        assert not at.find(f"unknown {number}")
        at.clock.advance(500)
    assert at.reads == 5  # 50 s, one in ten seconds


def test_a_read_that_fails_is_repeated_after_pauses_that_double(caplog: pytest.LogCaptureFixture) -> None:
    at = Endpoint(retry_ms=100, retry_max_ms=1_000)
    at.content = OSError("no route to host")
    moments = []
    for now_ms in range(0, 5_000, 50):
        before = at.reads
        assert not at.find("one")
        if at.reads > before:
            moments.append(now_ms)
        at.clock.advance(50)
    assert moments == [0, 100, 300, 700, 1500, 2500, 3500, 4500]
    assert "https://issuer.test/jwks cannot be read: no route to host" in caplog.text
    assert "secret" not in caplog.text
    at.content = ONE.jwks
    at.clock.advance(1_000)
    assert at.find("one")


def test_a_read_that_fails_leaves_the_keys_that_are_there() -> None:
    at = Endpoint(refresh_ms=1_000)
    assert at.find("one")
    at.content = b"<html>"
    at.clock.advance(100_000)
    assert at.find("one")
    assert at.find("one")
    assert at.reads == 2


@pytest.mark.parametrize(
    "document",
    [b"", b"{}", b"[]", b"null", b'{"keys": 1}', b'{"keys": []}', b'{"keys": [1, {}, {"kty": "x"}]}', b"[" * 99_999],
)
def test_what_is_no_jwks_is_refused(document: bytes) -> None:
    with pytest.raises(ValueError, match="it "):
        parse_jwks(document)


def test_keys_that_cannot_be_used_are_passed_over() -> None:
    document = {"keys": [{"kty": "RSA"}, ONE.entry | {"use": "enc", "kid": "enc"}, TWO.entry, {"kty": "new"}]}
    assert set(parse_jwks(json.dumps(document).encode())) == {"two", None}


def test_a_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "jwks with space.json"
    path.write_bytes(ONE.jwks)
    assert read_url(path.as_uri(), 10) == ONE.jwks
    path.write_bytes(b" " * (LONGEST_BYTES + 1))
    with pytest.raises(ValueError, match="longer than"):
        read_url(path.as_uri(), 10)
    with pytest.raises(OSError, match="No such file"):
        read_url((tmp_path / "missing").as_uri(), 10)


def test_a_start_reads_the_keys_and_a_login_does_not_wait() -> None:
    at = Endpoint()
    at.jwks.begin()
    at.work()
    assert at.jwks.find("one").done
    assert at.reads == 1


def test_a_start_says_that_the_keys_cannot_be_read_and_logins_try_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "jwks.json"
    at = SaslNode(sasl_enabled_mechanisms="OAUTHBEARER", sasl_oauthbearer_jwks_endpoint_url=file.as_uri())
    assert (
        f"sasl.oauthbearer.jwks.endpoint.url={file.as_uri()} cannot be read: No such file or directory" in caplog.text
    )
    file.write_bytes(ONE.jwks)
    at.pass_time(100)
    client = at.connect()
    client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    token = ONE.token(at.clock.wall_ms() / 1000)
    answer: Any = client.ask(
        SaslAuthenticateRequest(auth_bytes=b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01"), 2
    )
    assert answer.error_code == 0
