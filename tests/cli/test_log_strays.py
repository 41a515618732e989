"""`ottla log strays`: what was renamed is listed with what can be known of it, and is removed when a person says so."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

import pytest
from click.testing import CliRunner
from kit.command import Said, run

from ottla.broker.catalog.catalog import NewTopic
from ottla.broker.node import Node
from ottla.cli.main import main
from ottla.config.broker import BrokerConfig
from ottla.storage.files.files import OsFiles
from ottla.storage.formats.kafka_uuid import uuid_to_text
from ottla.storage.formats.layout import parse_partition_directory
from ottla.storage.formats.partition_metadata import write_partition_metadata


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A stopped broker's directory: `orders` is there, `gone` was deleted."""
    directory = tmp_path / "data"
    node = Node(BrokerConfig.of({"log.dirs": str(directory)}))
    node.start()
    node.services.catalog.create_topics([NewTopic("orders"), NewTopic("gone")], lambda _: None)
    node.settle()
    ids = {name: topic.id for name, topic in node.services.catalog.topics.items()}
    node.services.catalog.delete_topics(["gone"], lambda _: None)
    node.settle()
    node.stop()
    rename_to_stray(directory, "gone-0", ids["gone"])
    rename_to_stray(directory, "orders-1", ids["orders"])
    rename_to_stray(directory, "orders-2", UUID(int=77))
    rename_to_stray(directory, "orders-3", None)
    rename_to_stray(directory, "else-0", UUID(int=78))
    rename_to_stray(directory, "__cluster_metadata-0", None)
    return directory


def rename_to_stray(directory: Path, partition: str, topic_id: UUID | None) -> None:
    path = directory / f"{partition}.9e107d9d372bb6826bd81d3542a419d6-stray"
    path.mkdir()
    if topic_id is not None:
        write_partition_metadata(OsFiles(), path, topic_id)
    (path / "00000000000000000000.log").write_bytes(b"x" * 100)
    for file in path.iterdir():
        os.utime(file, (1_700_000_000, 1_700_000_000))


def listed(*arguments: object) -> list[dict[str, Any]]:
    said = run("log", "strays", *arguments, "--json")
    assert said.status == 0, said
    return [json.loads(line) for line in said.out.splitlines()]


def left(directory: Path) -> set[str]:
    return {path.name.partition(".")[0] for path in directory.iterdir() if path.name.endswith("-stray")}


def test_each_is_listed_with_why_it_is_there(data: Path) -> None:
    reported = {(one["topic"], one["partition"]): one for one in listed("--log-dir", data)}
    assert {place: one["reason"] for place, one in reported.items()} == {
        ("gone", 0): "deleted",
        ("orders", 1): "same_topic",
        ("orders", 2): "other_topic",
        ("orders", 3): "name_only",
        ("else", 0): "unknown",
        ("__cluster_metadata", 0): "metadata_log",
    }
    one = reported["else", 0]
    assert (one["topic_id"], one["newest_ms"]) == (uuid_to_text(UUID(int=78)), 1_700_000_000_000)
    assert one["size_bytes"] == 100 + (Path(one["directory"]) / "partition.metadata").stat().st_size
    assert reported["orders", 3]["topic_id"] is None
    said = run("log", "strays", "--log-dir", data)
    assert said.out.splitlines()[0].split("  ")[0] == "topic"
    assert "2023-11-14 22:13:20.000Z" in said.out
    assert said.out.count("its topic was deleted") == 1


def test_nothing_is_listed_where_nothing_was_renamed_to_stray(tmp_path: Path) -> None:
    assert run("log", "strays", "--log-dir", tmp_path).out.endswith("no -stray directories\n")
    assert run("log", "strays", "t", "--log-dir", tmp_path).out.endswith("no -stray directories that match\n")
    assert run("log", "strays", "--deleted", "--log-dir", tmp_path).out.endswith("no -stray directories that match\n")
    assert listed("--log-dir", tmp_path) == []
    assert run("log", "strays", "--log-dir", tmp_path / "nothing").line.endswith("(--log-dir)")


def test_a_directory_or_pipe_with_a_files_name_hides_nothing(data: Path) -> None:
    """A start does not care what is in such a directory, and it may be removed."""
    stray = next(data.glob("orders-3.*"))
    (stray / "partition.metadata").mkdir()
    os.mkfifo(stray / "00000000000000000100.log")
    (row,) = listed("orders-3", "--log-dir", data)
    assert (row["topic_id"], row["size_bytes"], row["reason"]) == (None, 100, "name_only")
    assert run("log", "strays", "orders-3", "--log-dir", data, "--remove", "--yes").status == 0
    assert not list(data.glob("orders-3.*"))


def test_another_log_directory_may_have_the_metadata(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (stray,) = data.glob("gone-0*-stray")
    shutil.copytree(stray, other / stray.name)
    assert [one["reason"] for one in listed("--log-dir", other)] == ["no_metadata"]
    assert [one["reason"] for one in listed("--log-dir", other, "--also", data)] == ["deleted"]


def asked(answer: str, *arguments: object) -> Said:
    """With somebody at the terminal."""
    with mock.patch("ottla.cli.questions.is_terminal", return_value=True):
        result = CliRunner().invoke(main, ["log", "strays", *map(str, arguments)], input=answer)
    return Said(result.exit_code, result.stdout, result.stderr)


def test_nothing_goes_before_a_person_has_said_so(data: Path) -> None:
    everything = left(data)
    said = run("log", "strays", "--remove", "--log-dir", data)
    assert said.status == 1
    assert said.line == ("ottla: nothing is removed: there is no terminal to ask at; --yes does it without a question")
    assert asked("n\n", "--remove", "--log-dir", data).status == 1
    assert left(data) == everything
    said = asked("y\n", "--remove", "--log-dir", data)
    assert "Remove these 6 directories with" in said.err
    assert said.status == 0
    assert left(data) == set()


@pytest.mark.parametrize(
    ("names", "gone"),
    [
        (["--deleted"], {"gone-0"}),
        (["orders"], {"orders-1", "orders-2", "orders-3"}),
        (["orders-2", "else"], {"orders-2", "else-0"}),
        (["else-0.9e107d9d372bb6826bd81d3542a419d6-stray"], {"else-0"}),
        (["nothing"], set()),
    ],
)
def test_only_those_that_are_meant_go(data: Path, names: list[str], gone: set[str]) -> None:
    everything = left(data)
    before = {path.name for path in data.iterdir()}
    said = run("log", "strays", *names, "--remove", "--yes", "--log-dir", data)
    assert said.status == 0
    assert everything - left(data) == gone
    assert {path.name for path in data.iterdir()} == {
        name for name in before if not (name.endswith("-stray") and name.partition(".")[0] in gone)
    }
    assert said.out.count("removed") == len(gone)


def test_a_directory_whose_broker_runs_is_listed_and_not_touched(data: Path) -> None:
    lock = OsFiles().lock(data / ".lock")
    try:
        said = run("log", "strays", "--remove", "--yes", "--log-dir", data)
        assert said.status == 1
        assert "is in use by a broker" in said.line
        assert len(listed("--log-dir", data)) == 6
    finally:
        lock.release()


def test_a_removal_that_is_cut_short_is_finished_by_the_next_start(data: Path) -> None:
    (stray,) = data.glob("else-0*")
    with mock.patch("ottla.storage.tools.strays.remove_tree", side_effect=OSError(5, "Input/output error")):
        said = run("log", "strays", "else", "--remove", "--yes", "--log-dir", data)
    assert said.status == 1
    assert "else-0" not in left(data)
    (doomed,) = data.glob("else-0*")
    parsed = parse_partition_directory(doomed.name)
    assert parsed is not None
    assert parsed.kind.value == "-delete"
    assert stray.name != doomed.name
    node = Node(BrokerConfig.of({"log.dirs": str(data)}))
    node.start()
    node.stop()
    assert not list(data.glob("else-0*"))
