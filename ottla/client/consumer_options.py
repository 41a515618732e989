"""What can be set on a Consumer."""

# ruff: noqa: RUF009  # the calls make dataclass fields
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ottla.client.interceptors import ConsumerInterceptor, to_interceptors
from ottla.client.offsets import EARLIEST, LATEST
from ottla.client.option_kinds import (
    boolean,
    choice,
    integer,
    option_of,
    optional,
    to_function,
    to_integer,
)
from ottla.client.options import ClientKeywords, ClientOptions

AutoOffsetReset = Literal["latest", "earliest", "none"]
IsolationLevel = Literal["read_uncommitted", "read_committed"]

RESETS: dict[str, int | None] = {"latest": LATEST, "earliest": EARLIEST, "none": None}
ISOLATION_LEVELS = {"read_uncommitted": 0, "read_committed": 1}


class ConsumerKeywords(ClientKeywords, total=False):
    """The options of a Consumer as keyword arguments; `ConsumerOptions` says what each means."""

    auto_offset_reset: AutoOffsetReset
    isolation_level: IsolationLevel
    check_crcs: bool
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    max_poll_records: int | None
    default_api_timeout_ms: int
    allow_auto_create_topics: bool
    interceptors: Sequence[ConsumerInterceptor]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions(ClientOptions):
    """The options of a Consumer, beside the shared ones."""

    auto_offset_reset: str = choice("latest", tuple(RESETS))
    """Where to read when no position was chosen or it is out of range: "latest" (the end), "earliest", or "none",
    which raises instead."""
    isolation_level: str = choice("read_uncommitted", tuple(ISOLATION_LEVELS))
    """Whether records of open and aborted transactions are hidden: "read_committed" does so."""
    check_crcs: bool = boolean(True)
    """Whether each batch's checksum is verified."""
    fetch_min_bytes: int = integer(1)
    """How many bytes the broker gathers before it answers."""
    fetch_max_wait_ms: int = integer(500)
    """How long it gathers them at most."""
    fetch_max_bytes: int = integer(50 * 1024 * 1024)
    """The bound of one answer; a single batch may be larger."""
    max_partition_fetch_bytes: int = integer(1024 * 1024)
    """The bound of one partition's part of an answer, and of what is fetched ahead of the reader."""
    max_poll_records: int | None = optional(None, to_integer(1))
    """How many records `getmany` returns at most; None for what was fetched. Kafka's default is 500."""
    default_api_timeout_ms: int = integer(60_000)
    """How long looking up offsets and topics may take."""
    allow_auto_create_topics: bool = boolean(False)
    """Whether the broker may create a topic that is assigned and not there. Kafka's default is true."""
    key_deserializer: Any = optional(None, to_function)
    """Makes a key of bytes; None is not asked about and stays None."""
    value_deserializer: Any = optional(None, to_function)
    """Makes a value of bytes; None is not asked about and stays None."""
    interceptors: Sequence[ConsumerInterceptor] = option_of((), to_interceptors(ConsumerInterceptor))
    """Who sees records before the program does, in their order."""
