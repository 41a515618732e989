"""How internal topics are configured: by the coordinator that makes one, and where the configuration of one is lost."""

from __future__ import annotations

from typing import Final

OFFSETS_MAX_MESSAGE_BYTES: Final = 10 << 20
"""The record of a classic group holds all of its members: Kafka's default of 1 MiB ends at some hundreds of them."""
OFFSETS_CONFIGURATION: Final = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "max.message.bytes": str(OFFSETS_MAX_MESSAGE_BYTES),
}
"""Of `__consumer_offsets`, but for the size of its segments, which the broker's configuration says."""
