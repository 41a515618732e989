"""The options of a Consumer."""

# ruff: noqa: RUF009  # the calls make dataclass fields
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from ottla.client.groups.assignors import Assignor, to_assignors
from ottla.client.interceptors import ConsumerInterceptor, to_interceptors
from ottla.client.offsets import EARLIEST, LATEST
from ottla.client.option_kinds import (
    boolean,
    choice,
    integer,
    option_of,
    optional,
    to_boolean,
    to_function,
    to_integer,
    to_name,
)
from ottla.client.options import ClientKeywords, ClientOptions

AutoOffsetReset = Literal["latest", "earliest", "none"]
IsolationLevel = Literal["read_uncommitted", "read_committed"]
GroupProtocol = Literal["classic", "consumer"]

RESETS: dict[str, int | None] = {"latest": LATEST, "earliest": EARLIEST, "none": None}
ISOLATION_LEVELS = {"read_uncommitted": 0, "read_committed": 1}

_SET_BY_THE_BROKER = ("session_timeout_ms", "heartbeat_interval_ms", "partition_assignment_strategy")
"""In the consumer protocol these belong to the group's configuration; Kafka's client refuses them, too."""


class ConsumerKeywords(ClientKeywords, total=False):
    """The options of a Consumer as keyword arguments; `ConsumerOptions` describes them."""

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
    group_id: str | None
    group_instance_id: str | None
    group_protocol: GroupProtocol
    group_remote_assignor: str | None
    partition_assignment_strategy: str | Sequence[str | Assignor | type[Assignor]]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    rebalance_timeout_ms: int | None
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    exclude_internal_topics: bool
    leave_group_on_close: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions(ClientOptions):
    """The options of a Consumer, besides the shared ones."""

    auto_offset_reset: str = choice("latest", tuple(RESETS))
    """Where to read when no position was chosen or it is out of range: "latest" (the end), "earliest", or "none",
    which raises an error instead."""
    isolation_level: str = choice("read_uncommitted", tuple(ISOLATION_LEVELS))
    """Whether records of open and aborted transactions are hidden ("read_committed")."""
    check_crcs: bool = boolean(True)
    """Whether each batch's checksum is verified."""
    fetch_min_bytes: int = integer(1)
    """How many bytes the broker gathers before it answers."""
    fetch_max_wait_ms: int = integer(500)
    """The longest time for which it gathers them."""
    fetch_max_bytes: int = integer(50 * 1024 * 1024)
    """The bound of one answer; a single batch may be larger."""
    max_partition_fetch_bytes: int = integer(1024 * 1024, 1)
    """The bound of one partition's part of an answer, and of its data that is fetched ahead of the reader."""
    max_poll_records: int | None = optional(None, to_integer(1))
    """The most records that `getmany` returns; None: all that were fetched. Kafka's default is 500."""
    default_api_timeout_ms: int = integer(60_000)
    """How long looking up offsets and topics may take."""
    allow_auto_create_topics: bool = boolean(False)
    """Whether the broker may create a topic that is assigned and does not exist. Kafka's default is true."""
    key_deserializer: Any = optional(None, to_function)
    """Converts bytes to a key. It is not called for None, which stays None."""
    value_deserializer: Any = optional(None, to_function)
    """Converts bytes to a value. It is not called for None, which stays None."""
    interceptors: Sequence[ConsumerInterceptor] = option_of((), to_interceptors(ConsumerInterceptor))
    """Objects that get records before the program does, in this order."""
    group_id: str | None = optional(None, to_name)
    """The group whose committed offsets are used, and that `subscribe` joins."""
    group_instance_id: str | None = optional(None, to_name)
    """Makes a static member (KIP-345): if it restarts under this name within the session timeout, it gets its
    partitions back without a rebalance."""
    group_protocol: str = choice("classic", ("classic", "consumer"))
    """How the group assigns partitions: "classic", where a member computes the assignment, or "consumer" (KIP-848),
    where the broker does, and no member stops for a rebalance."""
    group_remote_assignor: str | None = optional(None, to_name)
    """The broker's assignor in the consumer protocol, "uniform" or "range"; None: the broker chooses."""
    partition_assignment_strategy: Any = option_of("range,cooperative-sticky", to_assignors)
    """The assignors in the classic protocol, the preferred one first: range, roundrobin, sticky, cooperative-sticky, or
    your own `Assignor`s. Members give up all partitions for a rebalance unless every assignor is cooperative."""
    session_timeout_ms: int = integer(45_000, 1)
    """After this time without a heartbeat the broker removes the member; classic protocol."""
    heartbeat_interval_ms: int = integer(3_000, 1)
    """How often the member sends a heartbeat; classic protocol."""
    max_poll_interval_ms: int = integer(300_000, 1)
    """After this time without a poll the program counts as stuck: its consumer leaves the group until the next poll."""
    rebalance_timeout_ms: int | None = optional(None, to_integer(1))
    """How long a rebalance waits for this member; None: `max_poll_interval_ms`, as in Kafka's client."""
    enable_auto_commit: bool = boolean(True)
    """Whether offsets are committed automatically, with a `group_id`: in polls, before partitions are given up, and in
    `close`. Records count as read when the program asks for the next ones."""
    auto_commit_interval_ms: int = integer(5_000, 1)
    """The interval of automatic commits."""
    exclude_internal_topics: bool = boolean(True)
    """Whether a pattern leaves out internal topics, such as `__consumer_offsets`."""
    leave_group_on_close: bool | None = optional(None, to_boolean)
    """Whether `close` leaves the group, so that other members take over immediately; None: only if it is not a static
    member."""

    def __post_init__(self) -> None:
        ClientOptions.__post_init__(self)
        if self.heartbeat_interval_ms >= self.session_timeout_ms and self.group_protocol == "classic":
            raise ValueError("heartbeat_interval_ms must be less than session_timeout_ms")
        if self.group_protocol == "consumer":
            for one in fields(self):
                if one.name in _SET_BY_THE_BROKER and not self._is_default(one.name):
                    raise ValueError(f"{one.name} is set by the broker where group_protocol is consumer")
        elif self.group_remote_assignor is not None:
            raise ValueError("group_remote_assignor needs group_protocol consumer")

    def _is_default(self, name: str) -> bool:
        """Whether an option has its default, as its declaration converts it."""
        (found,) = (one for one in fields(self) if one.name == name)
        default = found.metadata["convert"](found.default)
        value = getattr(self, name)
        if name == "partition_assignment_strategy":
            return [type(one) for one in value] == [type(one) for one in default]
        return bool(value == default)
