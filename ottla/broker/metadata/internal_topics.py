"""The configuration of internal topics: for a coordinator that creates one, and for one that has lost its own."""

from __future__ import annotations

from typing import Final

OFFSETS_MAX_MESSAGE_BYTES: Final = 10 << 20
"""The record of a classic group contains all of its members: Kafka's default of 1 MiB is full with some hundred."""
OFFSETS_CONFIGURATION: Final = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "max.message.bytes": str(OFFSETS_MAX_MESSAGE_BYTES),
}
"""The configuration of `__consumer_offsets`, except the segment size, which is in the broker's configuration."""
