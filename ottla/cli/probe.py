"""A check whether a broker answers: one ApiVersions request over a plain socket, its response, and the time it took.

`ottla ping` uses it. Health checks run that every few seconds, so nothing but sockets is imported. The bytes are those
of ApiVersions version 0, which every broker has understood since Kafka 0.10:

    request    length int32 · api_key int16 = 18 · api_version int16 = 0 · correlation_id int32
               client_id length int16 + bytes
    response   length int32 · correlation_id int32 · error_code int16 · count int32, then per API three int16:
               api_key · min_version · max_version
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from contextlib import closing

from ottla.address import DEFAULT_PORT, UNRESOLVED, host_and_port

API_VERSIONS = 18
MAX_RESPONSE_BYTES = 64 * 1024
DEFAULT_SERVER = f"localhost:{DEFAULT_PORT}"
DEFAULT_TIMEOUT_MS = 3_000
CORRELATION_ID = 0x0771A
CLIENT_ID = b"ottla-ping"

_HEADER = struct.Struct(">ihhih")
_ANSWER = struct.Struct(">ihi")


IS_IT_RUNNING = "Is it running? ottla serve"
"""The end of an error line where no broker is running."""


class NoAnswer(Exception):
    """No server answered, or the one that did is not a Kafka broker; the message is one line for people."""


class NobodyListens(NoAnswer):
    """No connection could be opened."""


Wrap = Callable[[socket.socket], socket.socket]
"""Wraps a connection in TLS. Raises OSError."""


def ping(host: str, port: int, timeout_ms: int, wrap: Wrap | None = None) -> tuple[float, int]:
    """Ask once: (milliseconds from connecting to the response, number of the broker's APIs). Raises NoAnswer."""
    started = time.perf_counter()
    deadline = started + timeout_ms / 1000
    try:
        plain = socket.create_connection((host, port), timeout=timeout_ms / 1000)
        with plain, closing(plain if wrap is None else wrap(plain)) as connection:
            connection.sendall(_request())
            size = struct.unpack(">i", _read(connection, 4, deadline))[0]
            if not _ANSWER.size <= size <= MAX_RESPONSE_BYTES:
                raise NoAnswer("what listens there is no Kafka broker")
            answer = _read(connection, size, deadline)
    except TimeoutError:
        raise NoAnswer(f"no answer within {timeout_ms} ms") from None
    except ConnectionRefusedError as error:
        raise NobodyListens(str(error.strerror or error)) from None
    except socket.gaierror as error:
        raise NoAnswer(f"{UNRESOLVED}: {error.strerror or error}") from None
    except OSError as error:
        raise NoAnswer(str(error.strerror or error)) from None
    correlation_id, error_code, count = _ANSWER.unpack_from(answer)
    if correlation_id != CORRELATION_ID or not 0 <= count <= (size - _ANSWER.size) // 6:
        raise NoAnswer("what listens there is no Kafka broker")
    if error_code:
        raise NoAnswer(f"the broker refuses with error {error_code}")
    return (time.perf_counter() - started) * 1000, count


def _request() -> bytes:
    length_bytes = _HEADER.size - 4 + len(CLIENT_ID)
    return _HEADER.pack(length_bytes, API_VERSIONS, 0, CORRELATION_ID, len(CLIENT_ID)) + CLIENT_ID


def _read(connection: socket.socket, length_bytes: int, deadline: float) -> bytes:
    """Return exactly so many bytes, by `deadline` even if they arrive slowly."""
    data = b""
    while len(data) < length_bytes:
        left_s = deadline - time.perf_counter()
        if left_s <= 0:
            raise TimeoutError
        connection.settimeout(left_s)
        piece = connection.recv(length_bytes - len(data))
        if not piece:
            raise NoAnswer(
                "the connection was closed without an answer; what listens there may be no Kafka broker, or want TLS"
            )
        data += piece
    return data


def ping_first(servers: list[tuple[str, int]], timeout_ms: int) -> tuple[str, float, int]:
    """The first of `servers` that answers: (its address, milliseconds, number of APIs). Raises NoAnswer, for all."""
    problems = []
    kind: type[NoAnswer] = NobodyListens
    for host, port in servers:
        address = host_and_port(host, port)
        try:
            elapsed_ms, apis = ping(host, port, timeout_ms)
        except NoAnswer as error:
            problems.append(f"{address}: {error}")
            kind = kind if isinstance(error, NobodyListens) else NoAnswer
        else:
            return address, elapsed_ms, apis
    raise kind("; ".join(problems))


def problem_line(error: NoAnswer) -> str:
    """The line for people; if nothing listens there, with what to do."""
    return f"{error}. {IS_IT_RUNNING}" if isinstance(error, NobodyListens) else str(error)
