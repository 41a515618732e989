"""Hosts and ports as people, logs and Kafka's clients write them; imports nothing."""

from __future__ import annotations

IPV4_MAPPED = "::ffff:"


def host_and_port(host: str, port: int) -> str:
    """`localhost:9092`, `[::1]:9092`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def plain_host(host: str) -> str:
    """`::ffff:192.0.2.1`, as a socket for both families reports an IPv4 peer, as the IPv4 address that it is; any other
    host as it stands.
    """
    if not host.startswith("::"):
        return host
    lower = host.lower()
    if lower.startswith(IPV4_MAPPED) and "." in host:
        return host[len(IPV4_MAPPED) :]
    if "ffff" not in lower:
        return host
    import ipaddress  # for `::ffff:c000:201`, which only a person writes; two milliseconds of a start

    mapped = ipaddress.IPv6Address(host.partition("%")[0]).ipv4_mapped
    return host if mapped is None else str(mapped)
