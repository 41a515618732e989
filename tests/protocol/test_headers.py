"""Request and response headers, compared with kio's and with worked examples."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as KioHeader1
from kio.schema.request_header.v2.header import RequestHeader as KioHeader2
from kio.schema.response_header.v0.header import ResponseHeader as KioResponseHeader0
from kio.schema.response_header.v1.header import ResponseHeader as KioResponseHeader1
from kio.serial import entity_writer
from kit.wire_values import TEXT

from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.errors import MalformedMessage, UnencodableMessage
from ottla.protocol.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    has_response_tags,
    response_header,
)

VERSIONS = [(api.key, version) for api in REGISTRY.values() for version in range(api.min_version, api.max_version + 1)]
INT32 = st.integers(-(2**31), 2**31 - 1)


def _kio(header: object) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(header))(buffer, header)  # type: ignore[type-var, arg-type]  # kio's own types are generated
    return buffer.getvalue()


@given(case=st.sampled_from(VERSIONS), correlation_id=INT32, client_id=st.none() | TEXT)
def test_request_headers_are_those_of_kio(case: tuple[ApiKey, int], correlation_id: int, client_id: str | None) -> None:
    key, version = case
    header_class = KioHeader2 if version >= REGISTRY[key].flexible_from else KioHeader1
    theirs = header_class(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    encoded = encode_request_header(key, version, correlation_id, client_id)
    assert encoded == _kio(theirs)
    assert decode_request_header(encoded + b"body") == (
        RequestHeader(key, version, correlation_id, client_id),
        len(encoded),
    )


@given(case=st.sampled_from(VERSIONS), correlation_id=INT32)
def test_response_headers_are_those_of_kio(case: tuple[ApiKey, int], correlation_id: int) -> None:
    key, version = case
    header_class = KioResponseHeader1 if has_response_tags(key, version) else KioResponseHeader0
    encoded = response_header(key, version, correlation_id)
    assert encoded == _kio(header_class(correlation_id=correlation_id))
    assert decode_response_header(key, version, encoded + b"body") == (correlation_id, len(encoded))


@pytest.mark.parametrize("version", range(5))
def test_an_api_versions_response_has_the_short_header_at_every_version(version: int) -> None:
    assert response_header(ApiKey.API_VERSIONS, version, 7) == b"\0\0\0\7"


def test_a_flexible_response_has_a_section_of_tags() -> None:
    assert response_header(ApiKey.METADATA, 8, 7) == b"\0\0\0\7"
    assert response_header(ApiKey.METADATA, 9, 7) == b"\0\0\0\7\0"


def test_tags_in_headers_are_skipped() -> None:
    encoded = encode_request_header(ApiKey.METADATA, 9, 1, "c")[:-1] + b"\1\5\2xy"
    assert decode_request_header(encoded) == (RequestHeader(3, 9, 1, "c"), len(encoded))
    assert decode_response_header(ApiKey.METADATA, 9, b"\0\0\0\7\1\5\2xy") == (7, 9)


@pytest.mark.parametrize(("key", "version"), [(999, 0), (-1, 5), (3, 2000), (18, 77)])
def test_the_header_of_an_unknown_api_or_version_can_be_read(key: int, version: int) -> None:
    data = b"".join(number.to_bytes(2, "big", signed=True) for number in (key, version)) + b"\0\0\0\x2a\0\1c\0"
    header, _ = decode_request_header(data)
    assert header == RequestHeader(key, version, 42, "c")


@pytest.mark.parametrize("version", [8, 9])
def test_a_header_cut_at_any_byte_is_malformed(version: int) -> None:
    encoded = encode_request_header(ApiKey.METADATA, version, 1, "client")
    for length in range(len(encoded)):
        with pytest.raises(MalformedMessage):
            decode_request_header(encoded[:length])
    response = response_header(ApiKey.METADATA, version, 1)
    for length in range(len(response)):
        with pytest.raises(MalformedMessage):
            decode_response_header(ApiKey.METADATA, version, response[:length])


@pytest.mark.parametrize("tail", [b"\xff\xfe", b"\x7f\xff", b"\0\2\xc3\x28"])
def test_a_client_id_that_is_broken_is_malformed(tail: bytes) -> None:
    with pytest.raises(MalformedMessage, match="client_id"):
        decode_request_header(b"\0\3\0\1\0\0\0\1" + tail)


def test_a_header_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UnencodableMessage, match="client_id has 40000 bytes"):
        encode_request_header(3, 1, 1, "c" * 40_000)
    with pytest.raises(UnencodableMessage, match="request header of 3 v1"):
        encode_request_header(3, 1, 2**31, None)
