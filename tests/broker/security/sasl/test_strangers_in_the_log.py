"""What a client that has not logged in may write into the log is short."""

from __future__ import annotations

import struct

import pytest
from kit.sasl_connections import SaslNode

from ottla.protocol.api import ApiKey

LONGEST_ID = b"\x01" * 32_767
NO_TAGS = b"\0"
MALFORMED = b"\xff"


@pytest.mark.parametrize(
    ("key", "version", "rest"),
    [
        (ApiKey.SASL_HANDSHAKE, 99, b""),
        (ApiKey.SASL_HANDSHAKE, 1, MALFORMED),
        (ApiKey.SASL_AUTHENTICATE, 2, NO_TAGS + MALFORMED),
        (ApiKey.API_VERSIONS, 3, NO_TAGS + MALFORMED),
    ],
)
def test_a_long_client_id_is_cut_off(key: ApiKey, version: int, rest: bytes, caplog: pytest.LogCaptureFixture) -> None:
    client = SaslNode().connect()
    caplog.clear()
    client.send_frame(struct.pack(">hhih", key, version, 1, len(LONGEST_ID)) + LONGEST_ID + rest)
    assert client.is_closed
    assert [len(record.getMessage()) < 1_000 for record in caplog.records] == [True]
