"""Check that the `Host` of a request names this machine, and not a web page's name that points here (DNS rebinding).

A browser lets a page read the answers of its own host name. A page of `evil.example` whose name is resolved to
127.0.0.1 a moment later could so read `/metrics` of a broker that listens only for this machine, and might bypass the
protection of operations. Such a request names the page's own host. These names cannot be a page's, and are accepted:

- an address: no DNS is asked for it;
- a name without a dot (`localhost`, a container's, one of `/etc/hosts`), or below `.localhost` or `.internal`: these
  cannot be registered;
- the value of `ottla.http.listener`, and this machine's own name;
- no `Host` at all, which no browser omits.

Pages check this if the port is bound to loopback addresses only: a port that is bound to others is meant to be reached
by any name. Operations always check it. See OWASP, "DNS rebinding"; RFC 9110, section 15.5.20 (421).
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from contextlib import suppress

from ottla.address import plain_host

UNREGISTRABLE = (".localhost", ".internal")
"""RFC 6761; ICANN's resolution of 2024-07-29. Docker has `host.docker.internal`, Podman `host.containers.internal`."""


def is_named(host: str, own_names: Collection[str] = ()) -> bool:
    """Whether `host`, the value of a Host header, names this machine. `own_names` are its configured names."""
    name = _without_port(host.strip().lower()).removesuffix(".")
    if not name or "." not in name or name.endswith(UNREGISTRABLE) or _is_address(name):
        return True
    return name in {own.lower() for own in (*own_names, socket.gethostname())}


def is_loopback(host: str) -> bool:
    """Whether a peer's address is on this machine."""
    return host == "::1" or plain_host(host).startswith("127.")


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0].partition("%")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def _is_address(name: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError, ValueError):
            socket.inet_pton(family, name)
            return True
    return False
