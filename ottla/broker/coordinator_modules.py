"""The modules of the coordinators, in the order in which they are imported one by one while other clients are served.

Each comes after the modules that it imports, so that few are not in memory then: 1 to 5 ms. `OnDemand.import_some`
imports them.
"""

from __future__ import annotations

from typing import Final

GROUP_COORDINATOR: Final = (
    "ottla.broker.coordination.records",
    "ottla.broker.coordination.shard_log",
    "ottla.broker.coordination.definition",
    "ottla.broker.coordination.runtime",
    "ottla.broker.runtime.regular_expressions",
    "ottla.broker.groups.settings",
    "ottla.broker.groups.classic_member",
    "ottla.broker.groups.classic_stored",
    "ottla.broker.groups.classic_rebalance",
    "ottla.broker.groups.consumer_member",
    "ottla.broker.groups.consumer_heartbeats",
    "ottla.broker.groups.consumer",
    "ottla.broker.groups.share_group",
    "ottla.broker.groups.streams.topology",
    "ottla.broker.groups.streams.heartbeats",
    "ottla.broker.groups.streams.step",
    "ottla.broker.groups.streams.group",
    "ottla.broker.groups.answers",
    "ottla.broker.groups.offset_shard",
    "ottla.broker.groups.coordinator",
)
TRANSACTION_COORDINATOR: Final = (
    "ottla.broker.coordination.records",
    "ottla.broker.coordination.shard_log",
    "ottla.broker.coordination.definition",
    "ottla.broker.coordination.runtime",
    "ottla.protocol.stored.transaction",
    "ottla.broker.transactions.shard_load",
    "ottla.broker.transactions.shard",
    "ottla.broker.transactions.coordinator",
)
SHARE_COORDINATOR: Final = (
    "ottla.broker.coordination.records",
    "ottla.broker.coordination.shard_log",
    "ottla.broker.coordination.definition",
    "ottla.broker.coordination.runtime",
    "ottla.protocol.stored.share_state",
    "ottla.broker.share.share_partition",
    "ottla.broker.share.share_fetch",
    "ottla.broker.share.coordinator",
)
