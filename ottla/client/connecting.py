"""Opening a connection to a broker, within a time limit, and the reasons in words why there is none.

`connection.py` has the connection itself, which agrees on versions and logs in. Here is what fails before there is one:
addresses, TCP and the handshake of TLS.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from typing import TYPE_CHECKING

from ottla.address import UNRESOLVED, host_and_port
from ottla.client.connection import Connection, final_problem
from ottla.client.errors import AuthenticationFailed, ClientTimeout, ConnectionLost, KafkaError, WrongBroker
from ottla.client.secured import Secured
from ottla.client_core.handshake import Place
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.metrics import ConnectionMetrics
    from ottla.client.options import ClientOptions

_ERRNO = re.compile(r"\[Errno (\d+)\]")


async def connect(
    host: str,
    port: int,
    options: ClientOptions,
    metrics: ConnectionMetrics | None = None,
    secured: Secured | None = None,
    place: Place | None = None,
) -> Connection:
    """Connect, agree on versions, log in where `secured` says so, and return the open connection.

    `place` is the broker that is expected at the address. Raises ConnectionLost, ClientTimeout, AuthenticationFailed,
    WrongBroker when another broker is there, or KafkaError when the broker refuses.
    """
    address = host_and_port(host, port)
    loop = asyncio.get_running_loop()
    limit_ms = options.socket_connection_setup_timeout_ms
    secured = secured or Secured(options)
    context = secured.context()
    try:
        async with asyncio.timeout(limit_ms / 1000):
            login = await secured.login()
            _, connection = await loop.create_connection(
                lambda: Connection(address, options, metrics, secured, login, place), host, port, ssl=context
            )
    except TimeoutError:
        awaited = "accept a connection" if context is None else "finish a TLS handshake (security.protocol)"
        raise ClientTimeout(f"{address} did not {awaited} within {limit_ms} ms") from None
    except socket.gaierror as failed:
        raise ConnectionLost(f"{address}: {UNRESOLVED}: {failed.strerror or failed}") from None
    except OSError as failed:
        problem = final_problem(failed)
        if problem:
            raise AuthenticationFailed(f"{address}: {problem}") from None
        if context is not None and _is_cut_short(failed):
            reason = "it closed the connection in the TLS handshake; is its listener one with TLS (security.protocol)?"
            raise ConnectionLost(f"{address}: {reason}") from None
        raise ConnectionLost(f"cannot connect to {address}: {_reason(failed)}") from None
    except (ValueError, OverflowError) as failed:  # a broker may advertise what is no address
        raise ConnectionLost(f"{address!r} is no address: {failed}") from None
    try:
        await connection.ready
    except KafkaError as refused:
        connection.close()
        if refused.code is not ErrorCode.REBOOTSTRAP_REQUIRED or place is None:
            raise
        raise WrongBroker(f"{address} is not broker {place.node_id} of this cluster any more") from None
    except BaseException:
        connection.close()
        raise
    return connection


def _is_cut_short(failed: OSError) -> bool:
    """Whether the other side ended the connection in the middle of the TLS handshake."""
    return isinstance(failed, (ssl.SSLError, ConnectionResetError, ConnectionAbortedError))


def _reason(failed: OSError) -> str:
    """Why there is no connection, in the system's words: asyncio has its own, and strings those of a name's several
    addresses together.
    """
    numbers = [failed.errno] if failed.errno else [int(number) for number in _ERRNO.findall(str(failed))]
    return ", ".join(dict.fromkeys(os.strerror(number) for number in numbers)) or str(failed)
