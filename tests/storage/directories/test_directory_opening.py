"""A first start, starts that are refused and change nothing, and directories that others have made."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest
from kit.log_dirs import ONE, TWO, World, partition_names
from kit.simulated_files import SimulatedFiles

from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record
from ottla.storage.directories.directory_status import DirectoryState
from ottla.storage.errors import StorageError
from ottla.storage.files.files import OsFiles
from ottla.storage.formats.kafka_uuid import uuid_to_text
from ottla.storage.formats.layout import TopicPartition


def test_a_new_directory_is_created_with_an_identity_in_kafkas_format(world: World) -> None:
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


def test_a_wanted_cluster_id_is_taken(world: World) -> None:
    assert world.manager("4L6g3nShT-eMCtK--X86sw").cluster_id == "4L6g3nShT-eMCtK--X86sw"


# -- refusals


def refusal(world: World, cluster_id: str | None = None) -> str:
    with pytest.raises(StorageError) as caught:
        world.manager(cluster_id)
    message = str(caught.value)
    assert "\n" not in message
    return message


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


@pytest.mark.parametrize("again", ["/one/", "/./one", "/one/."])
def test_a_directory_named_twice_is_refused(again: str) -> None:
    assert refusal(World(log_dirs=f"/one,{again}")) == "log.dirs names /one twice"


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


def test_the_cleaners_checkpoint_may_be_empty_as_kafka_leaves_it(world: World) -> None:
    world.files.make_directory(ONE)
    world.files.write_atomically(ONE / "cleaner-offset-checkpoint", b"")
    assert world.manager().directories[0].is_online


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
