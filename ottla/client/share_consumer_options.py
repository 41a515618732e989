"""The options of a ShareConsumer."""

# ruff: noqa: RUF009  # the calls make dataclass fields
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ottla.client.option_kinds import boolean, choice, integer, optional, to_function, to_name
from ottla.client.options import ClientKeywords, ClientOptions
from ottla.protocol.api.share_fetch import AcquireMode

AcknowledgementMode = Literal["implicit", "explicit"]
ShareAcquireMode = Literal["batch_optimized", "record_limit"]

ACQUIRE_MODES = {"batch_optimized": AcquireMode.BATCH_OPTIMIZED, "record_limit": AcquireMode.RECORD_LIMIT}


class ShareConsumerKeywords(ClientKeywords, total=False):
    """The options of a ShareConsumer as keyword arguments; `ShareConsumerOptions` describes them."""

    group_id: str | None
    share_acknowledgement_mode: AcknowledgementMode
    share_acquire_mode: ShareAcquireMode
    max_poll_records: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    check_crcs: bool
    max_poll_interval_ms: int
    default_api_timeout_ms: int
    client_rack: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerOptions(ClientOptions):
    """The options of a ShareConsumer, besides the shared ones."""

    group_id: str | None = optional(None, to_name)
    """The share group; it must be given."""
    share_acknowledgement_mode: str = choice("implicit", ("implicit", "explicit"))
    """Whether the next poll accepts the records of the one before ("implicit"), or the program calls `acknowledge` for
    each record ("explicit")."""
    share_acquire_mode: str = choice("batch_optimized", tuple(ACQUIRE_MODES))
    """Whether a broker gives whole record batches, which may be more than `max_poll_records` ("batch_optimized"), or
    never more than that ("record_limit", KIP-1206; it needs Kafka 4.2)."""
    max_poll_records: int = integer(500, 1)
    """How many records are requested from each broker in a poll."""
    fetch_min_bytes: int = integer(1)
    """How many bytes the broker gathers before it answers."""
    fetch_max_wait_ms: int = integer(500)
    """The longest time for which it gathers them."""
    fetch_max_bytes: int = integer(50 * 1024 * 1024)
    """The bound of one answer; a single batch may be larger."""
    check_crcs: bool = boolean(True)
    """Whether each batch's checksum is verified."""
    key_deserializer: Any = optional(None, to_function)
    """Converts bytes to a key. It is not called for None, which stays None."""
    value_deserializer: Any = optional(None, to_function)
    """Converts bytes to a value. It is not called for None, which stays None."""
    max_poll_interval_ms: int = integer(300_000, 1)
    """After this time without a poll the program counts as stuck: its consumer leaves the group until the next poll."""
    default_api_timeout_ms: int = integer(60_000)
    """How long `commit` may take."""
    client_rack: str | None = optional(None, to_name)
    """The rack of this client, for brokers that assign partitions by racks."""

    def __post_init__(self) -> None:
        ClientOptions.__post_init__(self)
        if self.group_id is None:
            raise ValueError("group_id is missing: a share consumer is a member of a share group")
