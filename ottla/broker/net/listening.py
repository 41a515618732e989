"""The listening sockets: a bound socket for each listener, and readable errors when it cannot be bound.

Differences from Apache Kafka: a listener with an empty host is one dual-stack socket, so that port 0 is one port.
"""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.config.broker import BrokerConfig
    from ottla.config.listeners import Listener


class StartError(Exception):
    """The broker cannot start; the message is one line for the user."""


def bind(listener: Listener, config: BrokerConfig) -> socket.socket:
    """A bound socket for a listener. Raises StartError."""
    sizes = {
        socket.SO_SNDBUF: config.socket_send_buffer_bytes,
        socket.SO_RCVBUF: config.socket_receive_buffer_bytes,
    }
    try:
        return bind_address(listener.host, listener.port, {key: size for key, size in sizes.items() if size > 0})
    except OSError as error:
        raise refusal(listener, error) from error


def refusal(listener: Listener, error: OSError) -> StartError:
    """The error of a listener that cannot be bound: what is wrong, and what to do."""
    hints = {
        errno.EADDRINUSE: "; end that process, or give this listener another port",
        errno.EACCES: "; give this listener a port from 1024 on",
        errno.EADDRNOTAVAIL: "; a listener without a host, such as PLAINTEXT://:9092, is at all of its addresses",
    }
    return StartError(f"listeners={listener}: {explain(error)}{hints.get(error.errno or 0, '')}")


def bind_address(host: str, port: int, socket_options: Mapping[int, int] | None = None) -> socket.socket:
    """A bound socket that does not block; an empty host means every address. Raises OSError."""
    family, address = _resolve(host, port)
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setblocking(False)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if host == "" else 1)
        for option, value in (socket_options or {}).items():
            bound.setsockopt(socket.SOL_SOCKET, option, value)
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    return bound


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    if host == "":
        if socket.has_dualstack_ipv6():
            return socket.AF_INET6, ("::", port)
        return socket.AF_INET, ("0.0.0.0", port)  # an empty host means every address
    # As bytes: for text, Python first imports the codec of international names, which takes a hundredth of a start.
    found = socket.getaddrinfo(host.encode() if host.isascii() else host, port, type=socket.SOCK_STREAM)
    family, _, _, _, address = found[0]
    return family, (str(address[0]), int(address[1]))


def explain(error: OSError) -> str:
    """The meaning of a failed bind, for the user."""
    if error.errno == errno.EADDRINUSE:
        return "another process uses this port"
    if error.errno == errno.EACCES:
        return "this user may not use this port"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine has no such address"
    return str(error.strerror or error)
