"""A port of 127.0.0.1 that the kernel gives to nobody else, for a server that is to be found there again.

A socket that is bound and does not listen holds it: a server that says SO_REUSEADDR, as brokers do, may listen there
all the same, and while it does not, clients are refused.
"""

from __future__ import annotations

import os
import socket
import sys
import weakref

HOST = "127.0.0.1"


class ReservedPort:
    """Held until this object is closed, or forgotten. `number` is 0 where a port cannot be held: any is right then."""

    def __init__(self) -> None:
        holder = _bound(0)
        self.number: int = holder.getsockname()[1]
        self.close = weakref.finalize(self, os.close, holder.detach())
        if not _may_be_listened_to(self.number):
            self.close()
            self.number = 0


def _bound(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((HOST, port))
    return bound


def _may_be_listened_to(port: int) -> bool:
    """Whether SO_REUSEADDR means on this system what it means on Linux."""
    if sys.platform != "linux":
        return False
    try:
        with _bound(port) as server:
            server.listen()
    except OSError:
        return False
    return True
