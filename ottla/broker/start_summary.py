"""The lines that a start logs: version, configuration, directories, topics, groups, transactional ids, and recovery."""

from __future__ import annotations

import asyncio
import logging
import platform
from typing import TYPE_CHECKING

from ottla.broker.metadata.features import (
    NEWEST_TRANSACTION_VERSION,
    SUPPORTED_FEATURES,
    TRANSACTION_VERSION_FEATURE,
)
from ottla.broker.runtime.descriptors import descriptor_limit, shortage
from ottla.protocol.records import checksum, compression
from ottla.shown import counted, shown_bytes
from ottla.version import __version__

if TYPE_CHECKING:
    from ottla.broker.context import ApiServices
    from ottla.config.broker import BrokerConfig
    from ottla.config.listeners import Listener

LOG = logging.getLogger("ottla.server")


def log_configuration_warnings(config: BrokerConfig) -> None:
    """Log what has no effect or contradicts itself: before the start, which may fail for the same reason."""
    for warning in config.warnings:
        LOG.warning("configuration: %s", warning)


def log_start_summary(config: BrokerConfig, services: ApiServices, elapsed_ms: int) -> None:
    """Log version, directories, topics, groups and transactional ids, and the work of a recovery.

    `elapsed_ms`: since the start began. Called on the loop.
    """
    loop = type(asyncio.get_running_loop()).__module__.partition(".")[0]
    python = f"{platform.python_implementation()} {platform.python_version()}"
    identity = f"node {services.catalog.node_id} of cluster {services.catalog.cluster_id}"
    serves = "".join(f"; {listener} serves every client, without a login" for listener in open_listeners(config))
    LOG.info("Ottla %s, %s (%s, %s)%s", __version__, identity, python, loop, serves)
    if fitted := config.fitted:
        LOG.info("little memory, so not set and smaller than usual: %s (docs/limits.md)", ", ".join(fitted))
    if checksum.slow_because is not None:
        LOG.warning(
            "checksums are computed by crcmod, some 45 times slower than by the processor, because %s:"
            " `pip install --force-reinstall crc32c` with a Python and on a system that it has a wheel for"
            " (docs/platforms.md)",
            checksum.slow_because,
        )
    for codec, package in compression.missing().items():
        LOG.warning("batches compressed with %s can be stored and not read: `pip install %s`", codec, package)
    if few := shortage(config, descriptor_limit()):
        LOG.warning("%s", few)
    for directory in services.log_manager.directories:
        state = ", ".join(filter(None, (directory.state.value, directory.left_as)))
        LOG.info("log directory %s: %s; %s", directory.path, state, directory.room)
    if line := lower_transaction_version(services):
        LOG.info("%s", line)
    logs = list(services.log_manager.logs.values())
    size_bytes = sum(log.size_bytes for log in logs)
    partition_count = sum(len(topic.partitions) for topic in services.catalog.topics.values())
    LOG.info(
        "%s, %s, %s in logs, ready after %d ms",
        counted(len(services.catalog.topics), "topic"),
        counted(partition_count, "partition"),
        shown_bytes(size_bytes),
        elapsed_ms,
    )
    _log_groups(services)
    _log_transactions(services)
    recovered = [log for log in logs if log.recovery.scanned_bytes or log.recovery.truncated_bytes]
    if recovered:
        LOG.info(
            "recovered %s: %s checked, %s of torn tails truncated",
            counted(len(recovered), "log"),
            shown_bytes(sum(log.recovery.scanned_bytes for log in recovered)),
            shown_bytes(sum(log.recovery.truncated_bytes for log in recovered)),
        )


def open_listeners(config: BrokerConfig) -> list[Listener]:
    """The listeners that other machines can reach and that serve clients without authentication."""
    return [
        listener
        for listener in config.listeners
        if not (listener.host in ("localhost", "::1") or listener.host.startswith("127."))
        and not listener.protocol.has_sasl
        and not (listener.protocol.is_encrypted and config.on_listener(listener.name).ssl_client_auth == "required")
    ]


def _log_groups(services: ApiServices) -> None:
    groups = services.groups.if_made
    if groups is None:
        return
    if group_count := groups.count_by_state().total():
        LOG.info("%s with %s", counted(group_count, "group"), counted(groups.offset_count, "committed offset"))
    if groups.loads_under_way:
        LOG.info("groups: %s to be loaded", counted(groups.loads_under_way, "partition"))


def _log_transactions(services: ApiServices) -> None:
    transactions = services.transactions.if_made
    if transactions is None:
        return
    if id_count := transactions.id_count:
        is_open = counted(transactions.open_count, "open transaction")
        LOG.info("%s with %s", counted(id_count, "transactional id"), is_open)
    if transactions.loads_under_way:
        LOG.info("transactions: %s to be loaded", counted(transactions.loads_under_way, "partition"))


def lower_transaction_version(services: ApiServices) -> str:
    """The line that `transaction.version` can be raised, and how; empty if it is at its highest level, or if the
    profile's release does not have it.
    """
    level = services.catalog.transaction_version
    if level == NEWEST_TRANSACTION_VERSION:
        return ""
    if TRANSACTION_VERSION_FEATURE not in services.profile.supported_features(SUPPORTED_FEATURES):
        return ""
    return (
        f"{TRANSACTION_VERSION_FEATURE} is {level}, as directories keep it that are not new; level"
        f" {NEWEST_TRANSACTION_VERSION} fences old producers better and takes fewer requests:"
        f" `ottla features upgrade {TRANSACTION_VERSION_FEATURE} {NEWEST_TRANSACTION_VERSION} -b HOST:PORT` raises it"
    )
