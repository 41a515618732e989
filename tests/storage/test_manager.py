"""Directories and logs through whole lives: first start, restart, crash at any call, damage, full and failing disks."""

from __future__ import annotations

import errno
import logging
import random
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest
from kit.clock import ManualClock
from kit.simulated_files import CrashPoint, SimulatedFiles

from ottla.config.broker import BrokerConfig
from ottla.config.topic import TopicConfig
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record
from ottla.storage.append import AppendEntry
from ottla.storage.checkpoint import read_offsets
from ottla.storage.directory_status import DirectoryState
from ottla.storage.errors import StorageError
from ottla.storage.files import Files, OsFiles
from ottla.storage.kafka_uuid import uuid_to_text
from ottla.storage.layout import TopicPartition, parse_partition_directory
from ottla.storage.log import Log
from ottla.storage.log_homes import WantedLog
from ottla.storage.manager import LogManager

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
        batch = encode_batch([Record(n, self.clock.wall_ms(), None, b"v", ()) for n in range(values)])
        (result,) = log.append([AppendEntry(memoryview(batch), 9)], self.clock.wall_ms())
        assert not result.error_code, result
        ticket = log.begin_sync() if sync else None
        if ticket is not None:
            ticket.run()
            log.end_sync(ticket)


@pytest.fixture
def world() -> World:
    return World()


def partition_names(files: Files, path: Path) -> list[str]:
    return [name for name in files.list_directory(path) if parse_partition_directory(name)]


# -- a first start


def test_a_new_directory_is_made_with_an_identity_in_kafkas_form(world: World) -> None:
    manager = world.manager()
    (directory,) = manager.directories
    assert directory.state is DirectoryState.ONLINE
    assert not directory.was_clean
    assert directory.id is not None
    text = world.files.read_bytes(ONE / "meta.properties").decode()
    assert "version=1\n" in text
    assert f"cluster.id={manager.cluster_id}\n" in text
    assert "node.id=1\n" in text
    assert f"directory.id={uuid_to_text(directory.id)}\n" in text
    assert world.files.read_bytes(ONE / "ottla.format") == b"version=1\n"


def test_identity_and_clean_mark_live_through_a_restart(world: World) -> None:
    first = world.manager()
    first.open_logs([])
    first.close(broker_epoch=5)
    assert world.files.read_bytes(ONE / ".kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":5}'
    second = world.manager()
    assert (second.cluster_id, second.directories[0].id) == (first.cluster_id, first.directories[0].id)
    assert second.was_clean
    assert second.directories[0].clean_broker_epoch == 5
    assert not world.files.exists(ONE / ".kafka_cleanshutdown")


def test_a_wanted_cluster_id_is_taken(world: World) -> None:
    assert world.manager("4L6g3nShT-eMCtK--X86sw").cluster_id == "4L6g3nShT-eMCtK--X86sw"


def test_a_start_that_never_opened_its_logs_does_not_call_an_unclean_directory_clean(world: World) -> None:
    world.manager().close(clean=False)
    world.manager().close(clean=True)
    assert not world.manager().was_clean


# -- refusals


def refusal(world: World, cluster_id: str | None = None) -> str:
    with pytest.raises(StorageError) as caught:
        world.manager(cluster_id)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_the_cleaners_checkpoint_may_be_empty_as_kafka_leaves_it(world: World) -> None:
    world.files.make_directory(ONE)
    world.files.write_atomically(ONE / "cleaner-offset-checkpoint", b"")
    assert world.manager().directories[0].is_online


def test_a_directory_in_use_is_refused(world: World) -> None:
    manager = world.manager()
    assert "/one is in use by another broker" in refusal(world)
    manager.close()
    world.manager()


def test_a_directory_in_use_by_another_process_is_refused(tmp_path: Path) -> None:
    hold = (
        "import fcntl, sys\n"
        "with open(sys.argv[1], 'w') as file:\n"
        "    fcntl.lockf(file, fcntl.LOCK_EX)\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    world = World(OsFiles(), str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert "is in use by another broker (locked by another process)" in refusal(world)
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
        other.communicate("")
    world.manager().close()


def test_another_nodes_directory_is_refused_and_left_alone(world: World) -> None:
    world.manager().close()
    before = world.files.written_state() if isinstance(world.files, SimulatedFiles) else {}
    other = World(world.files, node_id=2)
    assert "/one/meta.properties belongs to node.id 1, this broker is node.id 2" in refusal(other)
    assert isinstance(world.files, SimulatedFiles)
    assert world.files.written_state() == before


def test_directories_of_two_clusters_are_refused_and_nothing_is_changed() -> None:
    files = SimulatedFiles()
    World(files, "/one").manager("first").close()
    two = World(files, "/two").manager("second")
    two.open_logs([])
    two.close()
    before = files.written_state()
    message = refusal(World(files, "/one,/two"))
    assert message == "/two/meta.properties says cluster.id second, /one/meta.properties says first"
    assert files.written_state() == before


def test_a_cluster_id_that_the_directory_does_not_have_is_refused(world: World) -> None:
    world.manager("first").close()
    assert "says cluster.id first, the configuration says second" in refusal(world, "second")


def test_a_directory_of_a_newer_ottla_is_refused(world: World) -> None:
    world.manager().close()
    world.files.write_atomically(ONE / "ottla.format", b"version=2\n")
    assert "/one/ottla.format says version 2, this Ottla knows 1" in refusal(world)


def test_a_copied_directory_is_refused() -> None:
    files = SimulatedFiles()
    World(files, "/one").manager().close()
    files.make_directory(TWO)
    files.write_atomically(TWO / "meta.properties", files.read_bytes(ONE / "meta.properties"))
    assert "/one and /two have the same directory.id" in refusal(World(files, "/one,/two"))


def test_a_directory_named_twice_is_refused() -> None:
    assert "twice" in refusal(World(log_dirs="/one,/one/"))


@pytest.mark.parametrize("name", ["meta.properties", "recovery-point-offset-checkpoint", "ottla.format"])
def test_a_broken_file_is_named(world: World, name: str) -> None:
    world.manager().close()
    world.files.write_atomically(ONE / name, b"\x00?")
    assert f"/one/{name}: line 1: " in refusal(world)


def test_one_directory_that_cannot_be_used_stops_the_start() -> None:
    files = SimulatedFiles()
    files.fail("lock", "/one/*", errno.EACCES, times=None)
    assert refusal(World(files)).startswith("no log directory can be used: /one: ")


def test_of_two_directories_the_other_goes_on() -> None:
    files = SimulatedFiles()
    files.fail("lock", "/one/*", errno.EACCES, times=None)
    world = World(files, "/one,/two")
    manager = world.manager()
    assert [one.state for one in manager.directories] == [DirectoryState.OFFLINE, DirectoryState.ONLINE]
    world.create(manager)
    assert partition_names(files, TWO) == ["orders-0"]


def test_a_refused_start_gives_its_locks_back() -> None:
    files = SimulatedFiles()
    World(files, "/one").manager("first").close()
    World(files, "/two").manager("second").close()
    refusal(World(files, "/one,/two"))
    World(files, "/one").manager()
    World(files, "/two").manager()


# -- directories made by others


def test_a_directory_of_zookeepers_time_is_taken_over(world: World) -> None:
    world.files.make_directory(ONE)
    world.files.write_atomically(ONE / "meta.properties", b"#\nbroker.id=1\nversion=0\ncluster.id=abc\nrack=a\n")
    manager = world.manager()
    assert manager.cluster_id == "abc"
    text = world.files.read_bytes(ONE / "meta.properties").decode()
    for line in ("version=1", "node.id=1", "cluster.id=abc", "rack=a", "directory.id="):
        assert line in text


def test_a_directory_that_kafka_left_is_opened_as_it_is(tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    directory.mkdir(parents=True)
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "meta.properties").write_bytes(
        b"#\n#Thu Jul 04 10:00:00 UTC 2025\nnode.id=1\ndirectory.id=4kCDYg5FQ4Cl4NjE0pOq6w\nversion=1\n"
        b"cluster.id=4L6g3nShT-eMCtK--X86sw\n"
    )
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":12}')
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(b"0\n1\norders 0 2\n")
    (tmp_path / "replication-offset-checkpoint").write_bytes(b"0\n1\norders 0 2\n")
    (tmp_path / "log-start-offset-checkpoint").write_bytes(b"0\n0\n")
    (directory / "partition.metadata").write_bytes(b"version: 0\ntopic_id: nhB9nTcrtoJr2B01QqQZ1g")
    (directory / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
    batch = encode_batch([Record(n, 1_700_000_000_000, None, b"v", ()) for n in range(2)], leader_epoch=0)
    (directory / "00000000000000000000.log").write_bytes(batch)
    (directory / "00000000000000000000.index").write_bytes(b"")
    (directory / "00000000000000000000.timeindex").write_bytes(bytes.fromhex("0000018bcfe5680000000001"))
    world = World(OsFiles(), str(tmp_path))
    manager = world.manager()
    loaded = manager.open_logs([world.wanted()])
    assert (loaded.failed, loaded.made, loaded.strays) == ({}, [], [])
    log = loaded.logs[TopicPartition("orders", 0)]
    assert (log.log_end_offset, log.leader_epoch) == (2, 0)
    assert manager.cluster_id == "4L6g3nShT-eMCtK--X86sw"
    assert manager.directories[0].clean_broker_epoch == 12
    manager.close()
    assert (directory / "00000000000000000000.log").read_bytes() == batch
    assert (tmp_path / "lost+found").is_dir()


# -- creating


def test_creating_a_log_waits_for_no_disk(world: World) -> None:
    assert isinstance(world.files, SimulatedFiles)
    manager = world.manager()
    for call in ("fdatasync", "sync_directory"):
        world.files.fail(call, "*", errno.EIO, times=None)
    log = world.create(manager)
    assert manager.get("orders", 0) is log
    assert manager.directory_of("orders", 0) is manager.directories[0]
    assert manager.directories[0].is_online


def test_a_created_log_is_durable_with_its_topic_id_and_epoch_when_its_first_records_are(world: World) -> None:
    assert isinstance(world.files, SimulatedFiles)
    manager = world.manager()
    logs = [world.create(manager, partition) for partition in range(2)]
    logs[0].start_leader_epoch(3)
    world.append(logs[0])
    synced = world.files.synced_state()
    assert synced["/one/orders-0/partition.metadata"] == b"version: 0\ntopic_id: nhB9nTcrtoJr2B01QqQZ1g"
    assert synced["/one/orders-0/leader-epoch-checkpoint"] == b"0\n1\n3 0\n"
    assert "/one/orders-0/00000000000000000000.log" in synced


def test_a_crash_before_the_first_sync_of_a_created_log_leaves_what_a_start_completes(world: World) -> None:
    assert isinstance(world.files, SimulatedFiles)
    manager = world.manager()
    log = world.create(manager)
    world.append(log, sync=False)
    for seed in range(20):
        later = World(world.files.crash(random.Random(seed)))
        loaded = later.manager().open_logs([later.wanted()])
        assert loaded.failed == {}
        assert loaded.strays == []
        log = loaded.logs[TopicPartition("orders", 0)]
        assert (log.log_start_offset, log.topic_id) == (0, later.wanted().topic_id)


def test_partitions_go_where_the_fewest_are() -> None:
    world = World(log_dirs="/one,/two")
    manager = world.manager()
    for partition in range(5):
        world.create(manager, partition)
    assert partition_names(world.files, ONE) == ["orders-0", "orders-2", "orders-4"]
    assert partition_names(world.files, TWO) == ["orders-1", "orders-3"]


def test_a_log_cannot_be_created_twice(world: World) -> None:
    manager = world.manager()
    world.create(manager)
    with pytest.raises(ValueError, match="open already"):
        world.create(manager)


def test_a_creation_that_crashed_anywhere_leaves_nothing_or_what_the_next_start_completes() -> None:
    def prepared() -> tuple[World, LogManager, SimulatedFiles]:
        files = SimulatedFiles()
        world = World(files, "/one,/two")
        manager = world.manager()
        world.create(manager, 7)
        return world, manager, files

    world, manager, files = prepared()
    before = files.calls
    world.create(manager)
    calls = files.calls - before
    assert calls > 5
    for point in range(1, calls + 1):
        for seed in range(4):
            world, manager, files = prepared()
            files.crash_at = files.calls + point
            with pytest.raises(CrashPoint):
                world.create(manager)
            world = World(files.crash(random.Random(seed)), "/one,/two")
            manager = world.manager()
            loaded = manager.open_logs([world.wanted(), world.wanted(7)])
            assert loaded.failed == {}, f"crash at call {point}, seed {seed}"
            assert loaded.strays == []
            log = loaded.logs[TopicPartition("orders", 0)]
            assert (log.topic_id, log.log_end_offset) == (ORDERS_ID, 0)
            world.append(log)
            names = partition_names(world.files, ONE) + partition_names(world.files, TWO)
            assert sorted(names) == ["orders-0", "orders-7"]


def test_after_a_finished_creation_every_crash_keeps_it_and_what_was_synced() -> None:
    for seed in range(20):
        world = World()
        manager = world.manager()
        world.append(world.create(manager))
        assert isinstance(world.files, SimulatedFiles)
        world.files = world.files.crash(random.Random(seed))
        manager = world.manager()
        loaded = manager.open_logs([world.wanted()])
        assert loaded.made == []
        assert loaded.logs[TopicPartition("orders", 0)].log_end_offset == 3


# -- opening


def test_logs_are_opened_again_with_what_they_held(world: World) -> None:
    manager = world.manager()
    world.append(world.create(manager, 0), 3)
    world.append(world.create(manager, 1), 5)
    manager.open_logs([])
    manager.close()
    manager = world.manager()
    loaded = manager.open_logs([world.wanted(0), world.wanted(1)])
    assert [log.log_end_offset for log in loaded.logs.values()] == [3, 5]
    assert manager.logs == loaded.logs


def test_logs_are_loaded_in_parallel_threads(tmp_path: Path) -> None:
    world = World(OsFiles(), f"{tmp_path}/one,{tmp_path}/two", **{"num.recovery.threads.per.data.dir": 3})
    manager = world.manager()
    for partition in range(12):
        world.append(world.create(manager, partition), partition + 1)
    manager.close(clean=False)
    manager = world.manager()
    loaded = manager.open_logs([world.wanted(partition) for partition in range(12)])
    assert loaded.failed == {}
    assert {one.partition: log.log_end_offset for one, log in loaded.logs.items()} == {n: n + 1 for n in range(12)}
    loading = manager.loading
    assert (loading.logs, loading.logs_done) == (12, 12)
    assert loading.done_bytes == loading.all_bytes > 0
    manager.close()


def test_a_directory_that_is_missing_is_made(world: World) -> None:
    loaded = world.manager().open_logs([world.wanted(0), world.wanted(1)])
    assert loaded.made == [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    assert partition_names(world.files, ONE) == ["orders-0", "orders-1"]


def test_an_unknown_directory_is_set_aside_with_all_it_holds(world: World, caplog: pytest.LogCaptureFixture) -> None:
    manager = world.manager()
    world.append(world.create(manager))
    content = world.files.read_bytes(ONE / "orders-0" / "00000000000000000000.log")
    manager.open_logs([])
    manager.close()
    with caplog.at_level(logging.WARNING):
        loaded = world.manager().open_logs([])
    (stray,) = loaded.strays
    assert stray.name.startswith("orders-0.")
    assert stray.name.endswith("-stray")
    assert world.files.read_bytes(stray / "00000000000000000000.log") == content
    assert "is set aside" in caplog.text
    assert read_offsets(world.files, ONE / "recovery-point-offset-checkpoint") == {}


def test_a_stray_stays_a_stray(world: World) -> None:
    world.manager().close()
    stray = ONE / "orders-0.9e107d9d372bb6826bd81d3542a419d6-stray"
    world.files.make_directory(stray)
    assert world.manager().open_logs([]).strays == []
    assert world.files.exists(stray)


def test_a_directory_of_another_topic_id_is_set_aside_and_a_new_one_made(world: World) -> None:
    manager = world.manager()
    world.append(world.create(manager))
    manager.open_logs([])
    manager.close()
    loaded = world.manager().open_logs([world.wanted(topic_id=OTHER_ID)])
    assert len(loaded.strays) == 1
    assert loaded.made == [TopicPartition("orders", 0)]
    log = loaded.logs[TopicPartition("orders", 0)]
    assert (log.topic_id, log.log_end_offset, log.recovery_point) == (OTHER_ID, 0, 0)


def test_a_directory_without_a_topic_id_gets_the_catalogs(world: World) -> None:
    manager = world.manager()
    world.append(world.create(manager))
    manager.close(clean=False)
    world.files.unlink(ONE / "orders-0" / "partition.metadata")
    loaded = world.manager().open_logs([world.wanted()])
    assert loaded.logs[TopicPartition("orders", 0)].log_end_offset == 3
    assert b"nhB9nTcrtoJr2B01QqQZ1g" in world.files.read_bytes(ONE / "orders-0" / "partition.metadata")


def test_foreign_files_and_directories_are_left_alone(world: World) -> None:
    world.manager().close()
    for name in ("lost+found", "backup", "orders-1.9e107d9d372bb6826bd81d3542a419d6-future"):
        world.files.make_directory(ONE / name)
    world.files.write_atomically(ONE / "notes-1", b"mine")
    loaded = world.manager().open_logs([])
    assert loaded.strays == []
    assert world.files.read_bytes(ONE / "notes-1") == b"mine"
    assert world.files.is_directory(ONE / "backup")


def test_the_metadata_log_is_made_in_the_first_directory_and_is_no_stray() -> None:
    world = World(log_dirs="/one,/two")
    manager = world.manager()
    manager.open_log("__cluster_metadata", 0, OTHER_ID, world.topic_config())
    assert manager.open_logs([world.wanted()]).strays == []
    assert partition_names(world.files, ONE) == ["__cluster_metadata-0"]
    assert partition_names(world.files, TWO) == ["orders-0"]
    manager.close()
    manager = world.manager()
    assert manager.open_logs([world.wanted()]).strays == []


def test_a_partition_in_two_places_is_served_where_the_catalog_says_it_is() -> None:
    files = SimulatedFiles()
    first = World(files, "/one")
    manager = first.manager("c")
    first.append(first.create(manager))
    manager.close(clean=False)
    second = World(files, "/two")
    manager = second.manager("c")
    second.append(second.create(manager), 9)
    manager.close(clean=False)
    world = World(files, "/one,/two")
    manager = world.manager()
    loaded = manager.open_logs([world.wanted()])
    assert "is in /one/orders-0 and /two/orders-0" in str(loaded.failed[TopicPartition("orders", 0)])
    assert loaded.strays == []
    manager.close(clean=False)
    manager = world.manager()
    loaded = manager.open_logs([world.wanted(directory_id=manager.directories[1].id)])
    assert loaded.logs[TopicPartition("orders", 0)].log_end_offset == 9
    assert [stray.parent for stray in loaded.strays] == [ONE]


def test_a_partition_that_may_be_on_an_offline_disk_is_not_made_anew() -> None:
    files = SimulatedFiles()
    world = World(files, "/one,/two")
    manager = world.manager()
    world.append(world.create(manager))
    one_id, two_id = (directory.id for directory in manager.directories)
    manager.close(clean=False)
    files.fail("lock", "/one/*", errno.EIO, times=None)
    manager = world.manager()
    loaded = manager.open_logs(
        [world.wanted(0, directory_id=one_id), world.wanted(1), world.wanted(2, directory_id=two_id)]
    )
    assert [one.partition for one in loaded.failed] == [0, 1]
    assert [one.partition for one in loaded.made] == [2]
    with pytest.raises(StorageError, match="may be in /one, which is offline"):
        manager.open_log("__cluster_metadata", 0, OTHER_ID, world.topic_config())


def test_a_disk_that_fails_while_loading_takes_its_directory_offline_and_no_other() -> None:
    files = SimulatedFiles()
    world = World(files, "/one,/two")
    manager = world.manager()
    world.append(world.create(manager, 0))
    world.append(world.create(manager, 1))
    manager.close(clean=False)
    files.fail("pread*", "/one/orders-0/*.log", errno.EIO, times=None)
    manager = world.manager()
    loaded = manager.open_logs([world.wanted(0), world.wanted(1)])
    assert list(loaded.logs) == [TopicPartition("orders", 1)]
    assert list(loaded.failed) == [TopicPartition("orders", 0)]
    assert [one.state for one in manager.directories] == [DirectoryState.OFFLINE, DirectoryState.ONLINE]
    manager.close()
    assert not files.exists(ONE / ".kafka_cleanshutdown")
    assert files.exists(TWO / ".kafka_cleanshutdown")
    # What was said of the log that could not be opened still holds.
    assert b"orders 0" not in files.read_bytes(TWO / "recovery-point-offset-checkpoint")


def test_a_log_whose_owner_cannot_be_read_is_left_alone_and_its_directory_is_not_called_clean(world: World) -> None:
    manager = world.manager()
    world.append(world.create(manager, 0))
    world.append(world.create(manager, 1))
    manager.checkpoints.write_recovery_points()
    manager.close(clean=False)
    world.files.write_atomically(ONE / "orders-0" / "partition.metadata", b"version: 9")
    manager = world.manager()
    loaded = manager.open_logs([world.wanted(0), world.wanted(1)])
    assert "/one/orders-0/partition.metadata: line 1: " in str(loaded.failed[TopicPartition("orders", 0)])
    assert loaded.strays == []
    assert manager.directories[0].state is DirectoryState.ONLINE
    manager.close()
    assert not world.files.exists(ONE / ".kafka_cleanshutdown")
    assert read_offsets(world.files, ONE / "recovery-point-offset-checkpoint")[TopicPartition("orders", 0)] == 3


# -- deleting


def test_a_deleted_log_waits_for_its_delay_and_goes(world: World) -> None:
    manager = world.manager()
    log = manager.create_log("orders", 0, ORDERS_ID, world.topic_config({"file.delete.delay.ms": "1000"}))
    world.append(log)
    manager.delete_log("orders", 0)()
    assert manager.get("orders", 0) is None
    (name,) = partition_names(world.files, ONE)
    assert name.startswith("orders-0.")
    assert name.endswith("-delete")
    due = manager.next_unlink_ms()
    assert due == world.clock.monotonic_ms() + 1000
    assert manager.unlink_due(due - 1) == 0
    assert manager.unlink_due(due) == 1
    assert partition_names(world.files, ONE) == []
    assert manager.next_unlink_ms() is None


def test_a_deletion_does_not_come_back_after_a_crash(world: World) -> None:
    manager = world.manager()
    world.append(world.create(manager))
    manager.delete_log("orders", 0)()
    assert isinstance(world.files, SimulatedFiles)
    assert not any(path.startswith("/one/orders-0/") for path in world.files.synced_state())


def test_leftovers_of_deletions_are_removed_at_the_start(world: World) -> None:
    manager = world.manager()
    world.append(world.create(manager))
    manager.delete_log("orders", 0)()
    manager.close()
    manager = world.manager()
    assert partition_names(world.files, ONE) == []
    assert manager.open_logs([]).strays == []


def test_a_log_that_is_not_open_is_deleted_in_silence(world: World) -> None:
    world.manager().delete_log("orders", 0)


def test_a_new_topic_of_an_old_name_does_not_inherit_its_recovery_point(world: World) -> None:
    manager = world.manager()
    manager.open_logs([])
    world.append(world.create(manager), 100)
    manager.checkpoints.write_recovery_points()
    manager.checkpoints.write_high_watermarks()
    manager.delete_log("orders", 0)()
    log = world.create(manager, topic_id=OTHER_ID)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert read_offsets(world.files, ONE / name) == {}
    assert log.recovery_point == 0


# -- checkpoints


def test_checkpoints_say_what_the_logs_say(world: World) -> None:
    manager = world.manager()
    manager.open_logs([])
    log = world.create(manager)
    world.append(log, 3)
    world.append(log, 4, sync=False)
    manager.checkpoints.write_recovery_points()
    manager.checkpoints.write_log_start_offsets()
    manager.checkpoints.write_high_watermarks({TopicPartition("orders", 0): 2})
    one = TopicPartition("orders", 0)
    assert read_offsets(world.files, ONE / "recovery-point-offset-checkpoint") == {one: 3}
    assert read_offsets(world.files, ONE / "replication-offset-checkpoint") == {one: 2}
    assert not read_offsets(world.files, ONE / "log-start-offset-checkpoint")
    log.delete_records(2)
    assert manager.checkpoints.write_log_start_offsets_of([TopicPartition("orders", 0)]) == set()
    assert isinstance(world.files, SimulatedFiles)
    assert world.files.synced_state()["/one/log-start-offset-checkpoint"] == b"0\n1\norders 0 2\n"


def test_rows_of_logs_that_are_not_loaded_are_kept(world: World) -> None:
    manager = world.manager()
    world.append(world.create(manager, 0))
    world.append(world.create(manager, 1))
    manager.checkpoints.write_recovery_points()
    manager.close(clean=False)
    manager = world.manager()
    manager.open_log("orders", 0, ORDERS_ID, world.topic_config())
    manager.checkpoints.write_recovery_points()
    assert read_offsets(world.files, ONE / "recovery-point-offset-checkpoint") == {
        TopicPartition("orders", 0): 3,
        TopicPartition("orders", 1): 3,
    }


def test_a_log_that_is_cut_is_not_vouched_for_beyond_the_cut(world: World) -> None:
    """With the old recovery point a crash would let what was appended behind the cut pass unchecked."""
    manager = world.manager()
    manager.open_logs([])
    log = world.create(manager)
    for _ in range(4):
        world.append(log)
    manager.checkpoints.write_recovery_points()
    manager.checkpoints.write_clean_offset("orders", 0, 9)
    log.truncate_to(6, world.clock.wall_ms())
    for name in ("recovery-point-offset-checkpoint", "cleaner-offset-checkpoint"):
        assert read_offsets(world.files, ONE / name) == {TopicPartition("orders", 0): 6}
    assert manager.checkpoints.clean_offset_of("orders", 0) == 6


def test_where_a_log_is_clean_is_remembered_as_long_as_it_lives(world: World) -> None:
    manager = world.manager()
    manager.open_logs([])
    for partition in range(2):
        world.append(world.create(manager, partition))
    assert manager.checkpoints.clean_offset_of("orders", 0) is None
    manager.checkpoints.write_clean_offset("orders", 0, 2)
    manager.checkpoints.write_clean_offset("orders", 1, 3)
    manager.close()
    manager = world.manager()
    manager.open_logs([world.wanted(0), world.wanted(1)])
    assert manager.checkpoints.clean_offset_of("orders", 0) == 2
    manager.delete_log("orders", 1)()
    manager.checkpoints.write_clean_offset("orders", 1, 3)
    manager.checkpoints.write_clean_offset("orders", 0, 3)
    assert read_offsets(world.files, ONE / "cleaner-offset-checkpoint") == {TopicPartition("orders", 0): 3}
    assert manager.checkpoints.clean_offset_of("orders", 1) is None


def test_an_unchanged_checkpoint_is_not_written_again(world: World) -> None:
    manager = world.manager()
    world.append(world.create(manager))
    manager.checkpoints.write_recovery_points()
    assert isinstance(world.files, SimulatedFiles)
    calls = world.files.calls
    manager.checkpoints.write_recovery_points()
    assert world.files.calls == calls


def test_deleted_records_stay_deleted_after_a_crash(world: World) -> None:
    manager = world.manager()
    log = world.create(manager)
    world.append(log, 10)
    log.delete_records(4)
    assert manager.checkpoints.write_log_start_offsets_of([TopicPartition("orders", 0)]) == set()
    assert isinstance(world.files, SimulatedFiles)
    world.files = world.files.crash(random.Random(3))
    loaded = world.manager().open_logs([world.wanted()])
    assert loaded.logs[TopicPartition("orders", 0)].log_start_offset == 4


# -- full and failing disks


def test_a_full_directory_takes_no_new_partition_and_recovers_by_itself(world: World) -> None:
    assert isinstance(world.files, SimulatedFiles)
    manager = world.manager()
    changes: list[DirectoryState] = []
    manager.directories[0].on_change = lambda directory: changes.append(directory.state)
    manager.directories[0].mark_full(OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(OSError, match="no log directory takes writes") as caught:
        world.create(manager)
    assert caught.value.errno == errno.ENOSPC
    world.files.capacity_bytes = sum(map(len, world.files.written_state().values())) + 100
    assert manager.probe_full(0) == []
    assert manager.directories[0].state is DirectoryState.FULL
    world.files.capacity_bytes = None
    assert manager.probe_full(0) == manager.directories
    assert changes == [DirectoryState.FULL, DirectoryState.ONLINE]
    world.create(manager)
    assert not any(name.endswith(".tmp") for name in world.files.list_directory(ONE))


def test_a_probe_that_meets_another_error_takes_the_directory_offline(world: World) -> None:
    assert isinstance(world.files, SimulatedFiles)
    manager = world.manager()
    manager.directories[0].mark_full(OSError(errno.ENOSPC, "No space left on device"))
    world.files.fail("fdatasync", error=errno.EIO)
    assert manager.probe_full(0) == []
    assert manager.directories[0].state is DirectoryState.OFFLINE


def test_an_offline_directory_stays_so_until_restart_and_is_never_marked_clean(world: World) -> None:
    assert isinstance(world.files, SimulatedFiles)
    manager = world.manager()
    log = world.create(manager)
    world.append(log)
    manager.open_logs([])
    manager.directories[0].mark_offline(OSError(errno.EIO, "Input/output error"))
    assert manager.probe_full(0) == []
    manager.directories[0].mark_full(OSError(errno.ENOSPC, "No space left on device"))
    assert manager.directories[0].state is DirectoryState.OFFLINE
    place = TopicPartition("orders", 0)
    assert manager.checkpoints.write_log_start_offsets_of([place]) == {place}
    before = world.files.written_state()
    manager.delete_log("orders", 0)()
    manager.close(clean=True)
    assert world.files.written_state() == before
    assert not world.manager().was_clean


def test_a_creation_without_room_makes_the_directory_full_and_is_made_good_later(world: World) -> None:
    assert isinstance(world.files, SimulatedFiles)
    manager = world.manager()
    world.files.fail("pwritev", "*/partition.metadata", errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        world.create(manager)
    assert manager.directories[0].state is DirectoryState.FULL
    assert manager.get("orders", 0) is None
    manager.probe_full(0)
    assert world.create(manager).log_end_offset == 0


def test_a_failing_checkpoint_takes_the_directory_offline(world: World, caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(world.files, SimulatedFiles)
    manager = world.manager()
    world.append(world.create(manager))
    world.files.fail("rename", "*/recovery-point*", errno.EIO)
    manager.checkpoints.write_recovery_points()
    assert manager.directories[0].is_offline
    assert "cannot write /one/recovery-point-offset-checkpoint" in caplog.text


def test_a_close_that_cannot_sync_leaves_no_clean_mark(world: World) -> None:
    assert isinstance(world.files, SimulatedFiles)
    manager = world.manager()
    log = world.create(manager)
    manager.open_logs([])
    world.append(log, sync=False)
    world.files.fail("fdatasync", "*.log", errno.EIO)
    manager.close()
    assert not world.files.exists(ONE / ".kafka_cleanshutdown")


# -- the clean mark


def test_the_clean_mark_is_the_last_thing_written(world: World) -> None:
    assert isinstance(world.files, SimulatedFiles)
    manager = world.manager()
    world.append(world.create(manager), sync=False)
    manager.open_logs([])
    manager.close()
    changing = {"pwritev", "rename", "truncate", "unlink", "make_directory"}
    changes = [path for call, path in world.files.history if call in changing]
    assert changes[-1] == ONE / ".kafka_cleanshutdown.tmp"


def test_a_clean_mark_never_survives_beside_unsynced_work() -> None:
    def live() -> tuple[World, SimulatedFiles]:
        files = SimulatedFiles()
        world = World(files)
        manager = world.manager()
        manager.open_logs([world.wanted()])
        manager.close()
        return world, files

    def work(world: World) -> None:
        manager = world.manager()
        loaded = manager.open_logs([world.wanted()])
        world.append(loaded.logs[TopicPartition("orders", 0)], 50, sync=False)
        manager.close()

    world, files = live()
    before = files.calls
    work(world)
    calls = files.calls - before
    for point in range(1, calls + 1):
        world, files = live()
        files.crash_at = files.calls + point
        with pytest.raises(CrashPoint):
            work(world)
        world.files = files.crash(random.Random(point))
        manager = world.manager()
        loaded = manager.open_logs([world.wanted()])
        assert loaded.failed == {}
        log = loaded.logs[TopicPartition("orders", 0)]
        # Either the mark is true, then all or (before the append) nothing is there, or the log was looked at again.
        if manager.was_clean:
            assert log.log_end_offset in {0, 50}
        slice_ = log.read(0, 10_000, end_offset=log.log_end_offset)
        assert (slice_.length > 0) == (log.log_end_offset > 0)
