"""A port that the kernel gives to no other program, for a server that is to be found there again after a restart.

A socket that is bound and does not listen holds it. A server that sets SO_REUSEADDR, as brokers do, may listen there
nevertheless; while none does, clients are refused.
"""

from __future__ import annotations

import os
import socket
import sys
import weakref

from ottla.broker.net.listening import bind_address

HOST = "127.0.0.1"


class ReservedPort:
    """A port of `host`, held until this object is closed or forgotten. `number` is 0 where a port cannot be held: then
    any port is right. Raises OSError if no port of the host can be bound.
    """

    def __init__(self, host: str = HOST) -> None:
        holder = bind_address(host, 0)
        self.number: int = holder.getsockname()[1]
        self.close = weakref.finalize(self, os.close, holder.detach())
        if not _may_be_listened_to(host, self.number):
            self.close()
            self.number = 0


def _may_be_listened_to(host: str, port: int) -> bool:
    """Whether SO_REUSEADDR means on this system what it means on Linux."""
    if sys.platform != "linux":
        return False
    try:
        with _listening(host, port):
            return True
    except OSError:
        return False


def _listening(host: str, port: int) -> socket.socket:
    bound = bind_address(host, port)
    try:
        bound.listen()
    except OSError:
        bound.close()
        raise
    return bound
