"""Request and response headers.

Request header::

    version 1:  api_key int16 · api_version int16 · correlation_id int32 · client_id int16 length + bytes, or -1
    version 2:  the same, then a section of tagged fields; client_id keeps its old encoding (KIP-482)

Response header::

    version 0:  correlation_id int32
    version 1:  the same, then a section of tagged fields

Flexible versions of an API use request header 2 and response header 1. ApiVersions is the exception: its response has
header 0 at every version, because the client reads it before it knows the broker's versions (KIP-511).

The four fixed fields come first at every version, so that a request of an unknown API or version can still be
answered: `decode_request_header` reads header 1 if the API is not declared, and the body is not read.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.errors import MalformedMessage, UnencodableMessage
from ottla.protocol.primitives import skip_tags
from ottla.protocol.types import MAX_STRING_BYTES, Buffer

_REQUEST = struct.Struct(">hhih")
_CORRELATION_ID = struct.Struct(">i")


class RequestHeader(NamedTuple):
    """The header that precedes each request. A few tools send a null `client_id`."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def is_flexible(api_key: int, api_version: int) -> bool:
    """Whether requests of this version have header 2. False for an API that is not declared."""
    api = REGISTRY.get(api_key)
    return api is not None and api_version >= api.flexible_from


def decode_request_header(data: Buffer, position: int = 0) -> tuple[RequestHeader, int]:
    """Read the header of the request that begins at `position`; returns it and the position of the body.

    An ApiVersions request of a version above Ottla's newest is read as a flexible one. Raises MalformedMessage.
    """
    end = len(data)
    try:
        api_key, api_version, correlation_id, length_bytes = _REQUEST.unpack_from(data, position)
        position += _REQUEST.size
        client_id = None
        if length_bytes >= 0:
            if position + length_bytes > end:
                raise MalformedMessage(f"client_id of {length_bytes} bytes reaches beyond the request")
            client_id = str(data[position : position + length_bytes], "utf-8")
            position += length_bytes
        elif length_bytes != -1:
            raise MalformedMessage(f"client_id has a negative length ({length_bytes})")
        if is_flexible(api_key, api_version):
            position = skip_tags(data, position + 1, end, data[position])
    except (struct.error, IndexError) as error:
        raise MalformedMessage(f"the request header ends early: {end} bytes") from error
    except UnicodeDecodeError as error:
        raise MalformedMessage(f"client_id is not UTF-8: {error}") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def encode_request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Write the header that belongs to this API and version. Raises UnencodableMessage."""
    encoded = b"" if client_id is None else client_id.encode()
    if len(encoded) > MAX_STRING_BYTES:
        raise UnencodableMessage(f"client_id has {len(encoded)} bytes, above {MAX_STRING_BYTES}")
    length_bytes = -1 if client_id is None else len(encoded)
    try:
        fixed = _REQUEST.pack(api_key, api_version, correlation_id, length_bytes)
    except struct.error as error:
        raise UnencodableMessage(f"request header of {api_key} v{api_version}: {error}") from error
    return fixed + encoded + (b"\0" if is_flexible(api_key, api_version) else b"")


def response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """Write the header of the response to a request of this API and version."""
    encoded = _CORRELATION_ID.pack(correlation_id)
    return encoded + b"\0" if has_response_tags(api_key, api_version) else encoded


def decode_response_header(api_key: int, api_version: int, data: Buffer, position: int = 0) -> tuple[int, int]:
    """Read the header of a response; returns the correlation id and the body's position. Raises MalformedMessage."""
    try:
        correlation_id: int = _CORRELATION_ID.unpack_from(data, position)[0]
        position += _CORRELATION_ID.size
        if has_response_tags(api_key, api_version):
            position = skip_tags(data, position + 1, len(data), data[position])
    except (struct.error, IndexError) as error:
        raise MalformedMessage(f"the response header ends early: {len(data)} bytes") from error
    return correlation_id, position


def has_response_tags(api_key: int, api_version: int) -> bool:
    """Whether responses of this version have header 1."""
    return api_key != ApiKey.API_VERSIONS and is_flexible(api_key, api_version)
