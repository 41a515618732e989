"""Log directories on a disk, and the log managers that come and go on them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path

from kit.clock import ManualClock
from kit.simulated_files import SimulatedFiles

from ottla.config.broker import BrokerConfig
from ottla.config.topic import TopicConfig
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record
from ottla.storage.directories.log_placement import WantedLog
from ottla.storage.directories.manager import LogManager
from ottla.storage.files.files import Files
from ottla.storage.formats.layout import parse_partition_directory
from ottla.storage.log.append import AppendEntry
from ottla.storage.log.log import Log

ONE = Path("/one")
TWO = Path("/two")
ORDERS_ID = uuid.UUID("9e107d9d-372b-b682-6bd8-1d3542a419d6")
OTHER_ID = uuid.UUID("11111111-2222-3333-4444-555555555555")


class World:
    """A disk, a clock and the managers that come and go on them."""

    def __init__(self, files: Files | None = None, log_dirs: str = "/one", **settings: object) -> None:
        self.files = files if files is not None else SimulatedFiles()
        self.clock = ManualClock()
        self.config = BrokerConfig.of(
            {
                "log.dirs": log_dirs,
                "num.recovery.threads.per.data.dir": 1,
                **{key.replace("_", "."): value for key, value in settings.items()},
            }
        )

    def manager(self, cluster_id: str | None = None) -> LogManager:
        manager = LogManager(self.config, self.files, self.clock)
        manager.open_directories(cluster_id)
        return manager

    def topic_config(self, overrides: Mapping[str, str] | None = None) -> TopicConfig:
        return TopicConfig.resolve(overrides or {}, self.config)

    def wanted(
        self, partition: int = 0, topic_id: uuid.UUID = ORDERS_ID, directory_id: uuid.UUID | None = None
    ) -> WantedLog:
        return WantedLog("orders", partition, topic_id, self.topic_config(), directory_id)

    def create(self, manager: LogManager, partition: int = 0, topic_id: uuid.UUID = ORDERS_ID) -> Log:
        return manager.create_log("orders", partition, topic_id, self.topic_config())

    def append(self, log: Log, values: int = 3, sync: bool = True) -> None:
        batch = encode_batch([Record(n, self.clock.wall_ms(), b"k", b"v", ()) for n in range(values)])
        (result,) = log.append([AppendEntry(memoryview(batch), 9)], self.clock.wall_ms())
        assert not result.error_code, result
        ticket = log.begin_sync() if sync else None
        if ticket is not None:
            ticket.run()
            log.end_sync(ticket)


def partition_names(files: Files, path: Path) -> list[str]:
    return [name for name in files.list_directory(path) if parse_partition_directory(name)]
