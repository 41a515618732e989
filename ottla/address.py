"""Hosts and ports in the notation of people, logs and Kafka's clients. Imports nothing."""

from __future__ import annotations

IPV4_MAPPED = "::ffff:"


def host_and_port(host: str, port: int) -> str:
    """`localhost:9092`, `[::1]:9092`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


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
