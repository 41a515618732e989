"""The options that Producer, Consumer and Admin share, and how options are read.

An option is one field of a dataclass, with Kafka's name (underscores for dots), its default, its bounds and its
meaning. It may be given as a keyword argument, or in a mapping under Kafka's dotted name, where numbers and booleans
may be text as in a properties file. An unknown name is refused, with the most similar one that exists.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from ottla.address import parse_server
from ottla.client.option_kinds import boolean, integer, wire_text
from ottla.client.security_options import SECURITY_ALIASES, SecurityKeywords, SecurityOptions
from ottla.client_core.retries import SPREAD, Backoff

Servers = str | Iterable[str]
"""`host:port`, with commas or as a list."""

ALIASES = {
    "request_required_acks": "acks",
    "interceptor_classes": "interceptors",
    "partitioner_class": "partitioner",
    "metadata_broker_list": "bootstrap_servers",
    "queue_buffering_max_ms": "linger_ms",
    "message_timeout_ms": "delivery_timeout_ms",
    "message_send_max_retries": "retries",
    "max_in_flight": "max_in_flight_requests_per_connection",
    "compression_codec": "compression_type",
    "fetch_message_max_bytes": "max_partition_fetch_bytes",
    "topic_metadata_refresh_interval_ms": "metadata_max_age_ms",
    **SECURITY_ALIASES,
}
"""Other names of the same options: older ones of Kafka, and those of librdkafka and kafka-python."""
_NOT_OURS_PREFIXES = ("group_", "metrics_", "metric_", "auto_commit_", "share_")
_SECURITY_PREFIXES = ("sasl_", "ssl_")
_NOT_OURS = frozenset(
    {
        "auto_include_jmx_reporter",
        "bootstrap_controllers",
        "client_dns_lookup",
        "client_rack",
        "config_providers",
        "enable_auto_commit",
        "enable_metrics_push",
        "exclude_internal_topics",
        "heartbeat_interval_ms",
        "max_poll_interval_ms",
        "partition_assignment_strategy",
        "partitioner_adaptive_partitioning_enable",
        "partitioner_availability_timeout_ms",
        "security_providers",
        "session_timeout_ms",
        "transaction_timeout_ms",
        "transaction_two_phase_commit_enable",
        "transactional_id",
    }
)


class ClientKeywords(SecurityKeywords, total=False):
    """The shared options as keyword arguments; `ClientOptions` describes them."""

    client_id: str
    request_timeout_ms: int
    metadata_max_age_ms: int
    metadata_max_idle_ms: int
    metadata_cluster_check_enable: bool
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    connections_max_idle_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    receive_message_max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions(SecurityOptions):
    """The shared options, checked. Raises ValueError for an invalid one."""

    client_id: str = wire_text("ottla")
    """The name of this client in the broker's log."""
    request_timeout_ms: int = integer(30_000, 1)
    """How long one request may take before its connection is given up."""
    metadata_max_age_ms: int = integer(300_000)
    """The age at which metadata is requested again, even if nothing has changed."""
    metadata_max_idle_ms: int = integer(300_000)
    """A producer stops requesting the metadata of a topic to which it sent nothing for this time."""
    metadata_cluster_check_enable: bool = boolean(True)
    """Brokers since Kafka 4.4 learn which broker of which cluster is expected at their address. If it is another one,
    the client asks the bootstrap servers again (KIP-1242)."""
    reconnect_backoff_ms: int = integer(50)
    """The pause after a failed connection to a broker; it doubles with each failure."""
    reconnect_backoff_max_ms: int = integer(1_000)
    """The longest such pause."""
    retry_backoff_ms: int = integer(100)
    """The pause after a failed request before it is sent again; it doubles with each failure."""
    retry_backoff_max_ms: int = integer(1_000)
    """The longest such pause."""
    socket_connection_setup_timeout_ms: int = integer(10_000)
    """How long it may take to open a connection."""
    connections_max_idle_ms: int = integer(540_000, -1)
    """A connection without a request for this time is closed, and opened again when it is needed; -1: never."""
    send_buffer_bytes: int = integer(-1, -1)
    """The socket's send buffer; -1: the system chooses its size."""
    receive_buffer_bytes: int = integer(-1, -1)
    """The socket's receive buffer; -1: the system chooses its size, and grows it as needed."""
    receive_message_max_bytes: int = integer(128 * 1024 * 1024, 1)
    """A response that announces more than this ends its connection."""

    def __post_init__(self) -> None:
        for one in fields(self):
            object.__setattr__(self, one.name, _convert(one.name, one.metadata, getattr(self, one.name)))
        self.security()

    def retry_pause_s(self, attempts: int) -> float:
        """Return how long to wait after `attempts` failures, in seconds: exponential, with a random spread of 20 %."""
        return self.retry_backoff.pause_s(attempts, random.random())

    @property
    def retry_backoff(self) -> Backoff:
        """The pauses before a request is sent again."""
        return Backoff(self.retry_backoff_ms, self.retry_backoff_max_ms, SPREAD)

    def reconnect_pause_s(self, attempts: int) -> float:
        """Return how long not to dial a broker after `attempts` failures, in seconds."""
        backoff = Backoff(self.reconnect_backoff_ms, self.reconnect_backoff_max_ms, SPREAD)
        return backoff.pause_s(attempts, random.random())


class AdminKeywords(ClientKeywords, total=False):
    """The options of an Admin as keyword arguments; `AdminOptions` describes them."""

    default_api_timeout_ms: int
    retries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminOptions(ClientOptions):
    """The options of an Admin, besides the shared ones."""

    default_api_timeout_ms: int = integer(60_000)
    """How long a method may take with all its retries."""
    retries: int = integer(2**31 - 1)
    """The most retries after transient errors."""


O = TypeVar("O", bound=ClientOptions)  # noqa: E741  # the options of one kind of client


def read_options(
    kind: type[O], servers: Servers | Mapping[str, object] | None, keywords: Mapping[str, object]
) -> tuple[list[tuple[str, int]], O]:
    """Return the addresses and the options that a program gave; a keyword overrides the same name in a mapping.

    Raises ValueError without an address, for an unknown name, a name given twice, and an invalid value.
    """
    given: dict[str, object] = {}
    if isinstance(servers, Mapping):
        given.update(_named(kind, servers))
    elif servers is not None:
        given["bootstrap_servers"] = servers
    given.update(_named(kind, keywords))
    addresses = given.pop("bootstrap_servers", None)
    if addresses is None:
        raise ValueError("bootstrap_servers is missing: which broker shall be asked first?")
    if not isinstance(addresses, Iterable):
        raise ValueError(f"bootstrap_servers must be host:port, not {addresses!r}")
    make: Callable[..., O] = kind  # the values in `given` were converted for the fields of `kind`
    return parse_servers(addresses), make(**given)


def _named(kind: type[ClientOptions], given: Mapping[str, object]) -> dict[str, object]:
    """Return the options by the names of their fields, converted."""
    known = {one.name: one.metadata for one in fields(kind)}
    found: dict[str, object] = {}
    spelled: dict[str, str] = {}
    for given_name, value in given.items():
        name = canonical_name(given_name)
        if name != "bootstrap_servers" and name not in known:
            raise ValueError(_unknown(given_name, known))
        if name in found:
            raise ValueError(f"{spelled[name]} and {given_name} are two names of one option: give one of them")
        spelled[name] = given_name
        found[name] = value if name == "bootstrap_servers" else _convert(given_name, known[name], value)
    return found


def canonical_name(name: str) -> str:
    """Return the field's name of an option that is given by a dotted, older or librdkafka's name."""
    plain = name.replace(".", "_")
    return ALIASES.get(plain, plain)


def problem_of(kind: type[ClientOptions], name: str) -> str:
    """Return the error for an option's name, in one line; an empty text if this kind of client has the option."""
    known = [one.name for one in fields(kind)]
    return "" if canonical_name(name) in (*known, "bootstrap_servers") else _unknown(name, known)


def _unknown(name: str, known: Iterable[str]) -> str:
    plain = name.replace(".", "_")
    if plain in _NOT_OURS or plain.startswith(_NOT_OURS_PREFIXES):
        return f"{name} is an option of Kafka's that this client does not have"
    names = [*known, "bootstrap_servers", *ALIASES]
    is_security = plain.startswith(_SECURITY_PREFIXES)  # many of these are similar
    near = difflib.get_close_matches(plain, names, n=1, cutoff=0.9 if is_security else 0.6)
    if is_security and not near:
        return f"{name} is about TLS or SASL, and no option that this client has"
    meant = ALIASES.get(near[0], near[0]) if near else ""
    shown = meant.replace("_", ".") if "." in name else meant
    return f"unknown option {name}" + (f": did you mean {shown}?" if shown else "")


def _convert(name: str, metadata: Mapping[str, Any], value: object) -> object:
    try:
        converted: object = metadata["convert"](value)
    except ValueError as wrong:
        shown = "" if metadata.get("is_secret") else f", not {value!r:.100}"
        raise ValueError(f"{name} {wrong}{shown}") from None
    return converted


def parse_servers(servers: Servers) -> list[tuple[str, int]]:
    """Return (host, port) of each `host[:port]`, given as a list or with commas; IPv6 addresses are in brackets.

    Raises ValueError for an empty list and for an invalid port.
    """
    texts = servers.split(",") if isinstance(servers, str) else list(servers)
    addresses = []
    for text in (one.strip() for one in texts):
        try:
            addresses += [parse_server(text)] if text else []
        except ValueError:
            raise ValueError(f"{text!r} in bootstrap_servers is not host:port") from None
    if not addresses:
        raise ValueError("bootstrap_servers names no broker")
    return addresses
