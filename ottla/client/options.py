"""The options that Producer, Consumer and Admin share, by Kafka's names with underscores, and what they default to."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypedDict

DEFAULT_PORT = 9092


class ClientKeywords(TypedDict, total=False):
    """The shared options as keyword arguments; `ClientOptions` says what each means."""

    client_id: str
    request_timeout_ms: int
    metadata_max_age_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    receive_message_max_bytes: int


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """The shared options, checked. Raises ValueError for one that makes no sense."""

    client_id: str = "ottla"
    """What the broker's log calls this client."""
    request_timeout_ms: int = 30_000
    """How long one request may take before its connection is given up."""
    metadata_max_age_ms: int = 300_000
    """After this time metadata is asked for again, even without a reason."""
    reconnect_backoff_ms: int = 50
    """The pause before a broker that failed is dialled again; doubles with each failure."""
    reconnect_backoff_max_ms: int = 1_000
    """The longest such pause."""
    retry_backoff_ms: int = 100
    """The pause before a request that failed is sent again; doubles with each failure."""
    retry_backoff_max_ms: int = 1_000
    """The longest such pause."""
    socket_connection_setup_timeout_ms: int = 10_000
    """How long the making of a connection may take."""
    receive_message_max_bytes: int = 128 * 1024 * 1024
    """A response that announces more than this ends its connection."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if name != "client_id" and (not isinstance(value, int) or value < 0):
                raise ValueError(f"{name} must be a number of 0 or more, not {value!r}")

    def retry_pause_s(self, attempts: int) -> float:
        """Return how long to wait after `attempts` failures, in seconds: exponential, with 20 % of chance."""
        return _pause_s(self.retry_backoff_ms, self.retry_backoff_max_ms, attempts)

    def reconnect_pause_s(self, attempts: int) -> float:
        """Return how long not to dial a broker after `attempts` failures, in seconds."""
        return _pause_s(self.reconnect_backoff_ms, self.reconnect_backoff_max_ms, attempts)


def _pause_s(first_ms: int, largest_ms: int, attempts: int) -> float:
    pause_ms: float = min(largest_ms, first_ms * 2 ** min(max(attempts, 1) - 1, 30))
    return pause_ms * random.uniform(0.8, 1.2) / 1000


def parse_servers(servers: str | Iterable[str]) -> list[tuple[str, int]]:
    """Return (host, port) of each `host[:port]`, given as a list or with commas; IPv6 addresses stand in brackets.

    Raises ValueError for an empty list and for a port that is none.
    """
    texts = servers.split(",") if isinstance(servers, str) else list(servers)
    addresses = [_parse_server(text.strip()) for text in texts if text.strip()]
    if not addresses:
        raise ValueError("bootstrap_servers names no broker")
    return addresses


def _parse_server(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} in bootstrap_servers is not host:port")
    return host, int(port)
