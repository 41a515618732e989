"""Listeners: `NAME://host:port`, and the protocol of each name (Kafka's `EndPoint` and `SocketServerConfigs`).

    listeners=PLAINTEXT://:9092,INTERNAL://[::1]:9093,CONTROLLER://:9094
    listener.security.protocol.map=INTERNAL:PLAINTEXT

An empty host means all addresses, port 0 a port that the system chooses; an IPv6 address is in brackets.
Controller listeners are read and never bound: the controller of a single broker is reached by a function call.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.address import host_and_port

_LISTENER = re.compile(r"(?P<name>[A-Za-z0-9._-]+)://(?P<host>\[[^\]/]*\]|[A-Za-z0-9._%-]*):(?P<port>-?[0-9]{1,6})")


class SecurityProtocol(enum.StrEnum):
    """The security under Kafka's own protocol on a listener: TLS, SASL, both or none."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_sasl(self) -> bool:
        """Whether clients authenticate by SASL."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)

    @property
    def is_encrypted(self) -> bool:
        """Whether connections use TLS."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)


class Listener(NamedTuple):
    """A name with its address. `host` is empty for all addresses; `port` 0 lets the system choose (when binding)."""

    name: str
    host: str
    port: int
    protocol: SecurityProtocol

    @property
    def address(self) -> str:
        """`host:port`, an IPv6 host in brackets."""
        return host_and_port(self.host, self.port)

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


def parse_listeners(text: str) -> tuple[Listener, ...]:
    """The listeners of a comma-separated list. Raises ValueError with what is wrong, duplicates and overlaps included.

    The protocol is the one of the same name, else PLAINTEXT until `with_protocols` sets it.
    """
    listeners: list[Listener] = []
    for item in (part.strip() for part in text.split(",")):
        if not item:
            continue
        listener = _parse_one(item)
        for other in listeners:
            if other.name == listener.name:
                raise ValueError(f"listener {listener.name} is named twice")
            if _overlap(other, listener):
                raise ValueError(f"{other} and {listener} want the same port of the same address")
        listeners.append(listener)
    return tuple(listeners)


def parse_bound_listeners(text: str) -> tuple[Listener, ...]:
    """As `parse_listeners`, and at least one."""
    listeners = parse_listeners(text)
    if not listeners:
        raise ValueError("must name at least one listener, as NAME://host:port")
    return listeners


def parse_advertised_listeners(text: str) -> tuple[Listener, ...]:
    """The addresses that clients get. `auto` is the empty list: clients get the one that they connected to.

    So do clients of a listener with an empty host, as in the common `PLAINTEXT://:9092`. (Kafka uses the machine's
    name.)
    """
    if text.lower() in ("", "auto"):
        return ()
    listeners: list[Listener] = []
    for item in (part.strip() for part in text.split(",")):
        if not item:
            continue
        listener = _parse_one(item)
        if listener.host in ("0.0.0.0", "::"):
            raise ValueError(f"{listener} is not an address that a client can connect to; name a host, or use auto")
        if any(other.name == listener.name for other in listeners):
            raise ValueError(f"listener {listener.name} is named twice")
        listeners.append(listener)
    return tuple(listeners)


def parse_address_counts(text: str) -> tuple[str, ...]:
    """`address:count` pairs, kept in this form. Raises ValueError for another form."""
    pairs = tuple(part.strip() for part in text.split(",") if part.strip())
    for pair in pairs:
        address, _, count = pair.rpartition(":")
        if not address or not (count.isascii() and count.isdigit()) or len(count) > 9:
            raise ValueError(f"{pair!r} must be ADDRESS:COUNT")
    return pairs


def parse_protocol_map(text: str) -> tuple[str, ...]:
    """`NAME:PROTOCOL` pairs, kept in this form. Raises ValueError for another form, protocol, or a name given twice."""
    pairs = [part.strip() for part in text.split(",") if part.strip()]
    seen: set[str] = set()
    for pair in pairs:
        name, colon, protocol = pair.partition(":")
        if not colon or not name.strip():
            raise ValueError(f"{pair!r} must be NAME:PROTOCOL")
        if protocol.strip().upper() not in SecurityProtocol.__members__:
            raise ValueError(f"{protocol.strip()!r} must be one of {', '.join(SecurityProtocol)}")
        if name.strip().upper() in seen:
            raise ValueError(f"{name.strip()} is mapped twice")
        seen.add(name.strip().upper())
    return tuple(pairs)


def protocols_by_name(pairs: Iterable[str]) -> dict[str, SecurityProtocol]:
    """The protocols of `NAME:PROTOCOL` pairs that `parse_protocol_map` has checked, and of the names of Kafka's four
    protocols, which mean themselves unless a pair changes that.
    """
    protocols = {protocol.value: protocol for protocol in SecurityProtocol}
    for pair in pairs:
        name, _, protocol = pair.partition(":")
        protocols[name.strip().upper()] = SecurityProtocol[protocol.strip().upper()]
    return protocols


def with_protocols(listeners: Iterable[Listener], protocols: Mapping[str, SecurityProtocol]) -> list[Listener]:
    """The listeners with the protocol of their name. Raises ValueError for a name without a protocol."""
    result = []
    for listener in listeners:
        protocol = protocols.get(listener.name)
        if protocol is None:
            raise ValueError(
                f"{listener.name} has no protocol: add {listener.name}:PLAINTEXT to listener.security.protocol.map"
            )
        result.append(listener._replace(protocol=protocol))
    return result


def parse_address(text: str) -> tuple[str, int]:
    """`host:port`, an IPv6 host in brackets, the host may be empty. Raises ValueError with what is wrong."""
    listener = _parse_one(f"X://{text}", shown=text, form="host:port")
    return listener.host, listener.port


def parse_optional_address(text: str) -> tuple[str, int] | None:
    """As `parse_address`; None for an empty text."""
    return parse_address(text) if text else None


def show_optional_address(value: object) -> str:
    """The text of an address that `parse_optional_address` has returned."""
    if not isinstance(value, tuple):
        return ""
    host, port = value
    return host_and_port(host, port)


def _parse_one(item: str, *, shown: str = "", form: str = "NAME://host:port, an IPv6 address in brackets") -> Listener:
    shown = shown or item
    match = _LISTENER.fullmatch(item)
    if match is None:
        raise ValueError(f"{shown!r} must be {form}")
    host, port = match["host"], int(match["port"])
    if host.startswith("["):
        import ipaddress  # rarely needed, and the import would slow down every start

        host = host[1:-1]
        try:
            ipaddress.IPv6Address(host.partition("%")[0])
        except ValueError:
            raise ValueError(f"{shown!r}: {host!r} in brackets is not an IPv6 address") from None
    if not 0 <= port <= 65535:
        raise ValueError(f"{shown!r}: the port must be from 0 to 65535")
    name = match["name"].upper()
    protocol = SecurityProtocol.__members__.get(name, SecurityProtocol.PLAINTEXT)
    return Listener(name, host, port, protocol)


def _overlap(one: Listener, other: Listener) -> bool:
    if one.port != other.port or one.port == 0:
        return False
    hosts = {one.host, other.host}
    if len(hosts) == 1 or "" in hosts:
        return True
    if hosts == {"0.0.0.0", "::"}:  # an IPv4 and an IPv6 socket may share a port, as in Kafka since 3.6
        return False
    if "0.0.0.0" in hosts:
        return not any(":" in host for host in hosts)
    return "::" in hosts and any(":" in host for host in hosts - {"::"})
