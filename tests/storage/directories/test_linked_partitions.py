"""Partitions that a person has moved to another disk, behind a symbolic link, and links that are in their directories.

A broker follows the link of a partition, and removes it with the topic. It follows no other link where it removes.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.log_dirs import World, partition_names

from ottla.storage.directories.delayed_removal import remove_tree
from ottla.storage.files.files import OsFiles
from ottla.storage.formats.layout import TopicPartition

WAITED_MS = 10**9


def linked(tmp_path: Path) -> World:
    """A stopped broker's directory, whose partition `orders-0` is a link to a directory elsewhere."""
    world = World(OsFiles(), str(tmp_path / "one"))
    manager = world.manager()
    manager.open_logs([])
    world.append(world.create(manager))
    manager.close()
    (tmp_path / "one" / "orders-0").rename(tmp_path / "elsewhere")
    (tmp_path / "one" / "orders-0").symlink_to(tmp_path / "elsewhere")
    return world


def test_a_linked_partition_is_deleted_with_its_link(tmp_path: Path) -> None:
    world = linked(tmp_path)
    manager = world.manager()
    assert manager.open_logs([world.wanted()]).failed == {}
    manager.delete_log("orders", 0)()
    assert manager.unlink_due(world.clock.monotonic_ms() + WAITED_MS) == 1
    assert partition_names(world.files, tmp_path / "one") == []
    assert list((tmp_path / "elsewhere").iterdir()) == []
    manager.close()


def test_a_start_removes_the_link_of_a_partition_that_the_last_run_has_deleted(tmp_path: Path) -> None:
    world = linked(tmp_path)
    manager = world.manager()
    manager.open_logs([world.wanted()])
    manager.delete_log("orders", 0)()
    manager.close()
    manager = world.manager()
    assert manager.directories[0].is_online
    assert partition_names(world.files, tmp_path / "one") == []
    manager.open_logs([])
    manager.close()


def test_what_has_the_name_of_a_deleted_partition_and_is_none_keeps_no_broker_from_its_start(tmp_path: Path) -> None:
    world = World(OsFiles(), str(tmp_path))
    (tmp_path / "orders-0.00000000000000000000000000000000-delete").write_text("not a directory")
    (tmp_path / "orders-1.00000000000000000000000000000000-delete").symlink_to(tmp_path / "nowhere")
    manager = world.manager()
    assert manager.directories[0].is_online
    manager.open_logs([])
    manager.close()


def test_a_link_whose_disk_is_away_makes_its_partition_unavailable_and_no_other(tmp_path: Path) -> None:
    world = linked(tmp_path)
    (tmp_path / "elsewhere").rename(tmp_path / "away")
    manager = world.manager()
    loaded = manager.open_logs([world.wanted(), world.wanted(1)])
    assert list(loaded.failed) == [TopicPartition("orders", 0)]
    assert "a link to nothing" in str(loaded.failed[TopicPartition("orders", 0)])
    assert manager.directories[0].is_online
    world.append(loaded.logs[TopicPartition("orders", 1)])
    manager.close()
    (tmp_path / "away").rename(tmp_path / "elsewhere")
    manager = world.manager()
    loaded = manager.open_logs([world.wanted(), world.wanted(1)])
    assert {one.partition: log.log_end_offset for one, log in loaded.logs.items()} == {0: 3, 1: 3}
    manager.close()


def test_a_file_with_the_name_of_a_new_partition_takes_no_directory_offline() -> None:
    world = World()
    manager = world.manager()
    manager.open_logs([])
    world.files.write_new(Path("/one/orders-0"), b"notes")
    with pytest.raises(FileExistsError, match="a file of that name"):
        world.create(manager)
    assert manager.directories[0].is_online
    world.append(world.create(manager, 1))
    assert world.files.read_bytes(Path("/one/orders-0")) == b"notes"


def test_files_behind_a_link_in_a_removed_directory_stay(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").write_text("1")
    (tmp_path / "removed" / "inside").mkdir(parents=True)
    (tmp_path / "removed" / "inside" / "file").write_text("2")
    (tmp_path / "removed" / "link").symlink_to(tmp_path / "mine")
    remove_tree(OsFiles(), tmp_path / "removed")
    assert not (tmp_path / "removed").exists()
    assert (tmp_path / "mine" / "precious").read_text() == "1"
