"""Whether the host of an ACL is that of a client: one spelling for each address, and ranges of addresses (CIDR).

Java writes IPv6 addresses in full (`0:0:0:0:0:0:0:1`), other programs short (`::1`): ACLs from Kafka have the long one.
An IPv4 address that arrives at an IPv6 socket (`::ffff:10.0.0.1`) is the IPv4 address, as in Java. A range is
`10.1.0.0/16` or `2001:db8::/32`, as in Kafka 4.4.
"""

from __future__ import annotations

from functools import lru_cache

from ottla.protocol.acls import WILDCARD, parse_range


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


def is_of_host(acl_host: str, host: str) -> bool:
    """Whether an ACL for `acl_host` is about a client at `host`; both in the spelling of `plain_address`."""
    if acl_host in (WILDCARD, host):
        return True
    return "/" in acl_host and _is_in_range(acl_host, host)


@lru_cache(maxsize=1000)
def _is_in_range(acl_host: str, host: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host) in parse_range(acl_host)
    except ValueError:  # a directory may have any text as the host of an ACL
        return False
