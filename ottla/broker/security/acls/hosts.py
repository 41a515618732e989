"""One spelling for each address, so that the host of an ACL and that of a client can be compared.

Java writes IPv6 addresses in full (`0:0:0:0:0:0:0:1`), other programs short (`::1`): ACLs from Kafka have the long one.
An IPv4 address that arrives at an IPv6 socket (`::ffff:10.0.0.1`) is the IPv4 address, as in Java.
"""

from __future__ import annotations


def plain_address(host: str) -> str:
    """The address in its short spelling; anything that is no IPv6 address, such as `*`, is returned unchanged."""
    if ":" not in host:
        return host
    import ipaddress  # costs two milliseconds of a start, and is rarely needed

    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or address)
