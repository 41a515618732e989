"""Hosts and ports in the notation of people, logs and Kafka's clients. Imports nothing."""

from __future__ import annotations

DEFAULT_PORT = 9092
UNRESOLVED = "the name cannot be resolved"
"""An error of getaddrinfo; the reason follows in the words of the system."""

IPV4_MAPPED = "::ffff:"
_HIGHEST_PORT = 65_535
_MOST_DIGITS = 5
_FOREIGN = frozenset("/[]")
"""Characters that no host has."""
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def host_and_port(host: str, port: int) -> str:
    """`localhost:9092`, `[::1]:9092`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_server(text: str, default_port: str = str(DEFAULT_PORT)) -> tuple[str, int]:
    """(host, port) of `host`, `host:port` or `[::1]:port`. Raises ValueError. Without a default a port is needed.

    A protocol before it, as in `PLAINTEXT://host:port`, is ignored, as Kafka's clients do: users copy the addresses of
    listeners. Unlike them, this refuses other schemes.
    """
    rest = text.strip()
    scheme, separator, after = rest.partition("://")
    if separator and scheme.upper() in _PROTOCOLS:
        rest = after
    host, colon, port = rest.rpartition(":")
    if not colon or rest.endswith("]"):
        host, port = rest, default_port
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host.strip(":") or not _FOREIGN.isdisjoint(host) or not port.isdecimal():
        raise ValueError(f"{text.strip()!r} is not HOST:PORT")
    if not (port := port.lstrip("0")) or len(port) > _MOST_DIGITS or int(port) > _HIGHEST_PORT:
        raise ValueError(f"{text.strip()!r} is not HOST:PORT: ports are from 1 to {_HIGHEST_PORT}")
    return host, int(port)


def parse_servers(text: str) -> list[tuple[str, int]]:
    """(host, port) of each address, between commas; empty ones are skipped. Raises ValueError, also for none."""
    addresses = [parse_server(one) for one in text.split(",") if one.strip()]
    if not addresses:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return addresses


def plain_host(host: str) -> str:
    """The IPv4 address of `::ffff:192.0.2.1`, which is how a socket for both families reports an IPv4 peer; any other
    host unchanged.
    """
    if not host.startswith("::"):
        return host
    lower = host.lower()
    if lower.startswith(IPV4_MAPPED) and "." in host:
        return host[len(IPV4_MAPPED) :]
    if "ffff" not in lower:
        return host
    import ipaddress  # for `::ffff:c000:201`, which only a person writes; the import takes two milliseconds

    mapped = ipaddress.IPv6Address(host.partition("%")[0]).ipv4_mapped
    return host if mapped is None else str(mapped)
