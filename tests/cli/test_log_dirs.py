"""`log dirs` against a real broker with two log directories, one of which goes offline."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.broker import BrokerProcess
from kit.command import run

from ottla.cli.log_dirs import _lines
from ottla.client import ErrorCode, KafkaError, LogDirDescription, ReplicaDescription, TopicPartition
from ottla.client.blocking import Admin, Producer


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with the directories one and two, and two partitions of `large` and one of `small` in them."""
    place = tmp_path_factory.mktemp("dirs")
    with BrokerProcess(place, overrides={"log.dirs": f"{place / 'one'},{place / 'two'}"}) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("large", partitions=2, replication_factor=1)
            admin.create_topic("small", partitions=1, replication_factor=1)
        with Producer(broker.bootstrap) as producer:
            for topic, partition, count in (("large", 0, 300), ("large", 1, 100), ("small", 0, 1)):
                for _ in range(count):
                    producer.send(topic, b"x" * 1000, partition=partition)
        yield broker


def directories(broker: BrokerProcess, *arguments: str) -> list[dict[str, object]]:
    said = run("log", "dirs", *arguments, "--json", "-b", broker.bootstrap)
    assert said.status == 0, said.err
    return [json.loads(line) for line in said.out.splitlines()]


def test_directories_are_shown_with_their_room_and_their_topics(two: BrokerProcess) -> None:
    said = run("log", "dirs", "-b", two.bootstrap).out
    blocks = said.split("\n\n")
    assert [block.splitlines()[0] for block in blocks] == [str(two.directory / name) for name in ("one", "two")]
    for block in blocks:
        lines = block.splitlines()
        assert re.fullmatch(
            r"  \S+ (KiB|MiB|GiB|TiB) of \S+ (MiB|GiB|TiB) free; \d partitions? of \d topics?, \S+ (bytes|KiB)",
            lines[1],
        )
        assert lines[2].split() == ["topic", "partitions", "bytes"]
        sizes = [int(line.split()[-1].replace(",", "")) for line in lines[3:]]
        assert sizes == sorted(sizes, reverse=True)


def test_json_has_every_partition_once_with_its_size(two: BrokerProcess) -> None:
    found = directories(two)
    assert [(one["broker"], one["error"]) for one in found] == [(1, None), (1, None)]
    assert all(one["total_bytes"] >= one["usable_bytes"] > 0 for one in found)  # type: ignore[operator]  # what JSON gives
    partitions = [each for one in found for each in one["partitions"]]  # type: ignore[attr-defined]  # what JSON gives
    sizes = {(one["topic"], one["partition"]): one["size_bytes"] for one in partitions}
    assert len(partitions) == len(sizes) == 3
    assert sizes["large", 0] > sizes["large", 1] > sizes["small", 0] > 1000
    assert [one["size_bytes"] for one in found] == [
        sum(each["size_bytes"] for each in one["partitions"])  # type: ignore[attr-defined]  # what JSON gives
        for one in found
    ]


def test_partitions_are_listed_by_size(two: BrokerProcess) -> None:
    lines = run("log", "dirs", "--long", "large", "small", "-b", two.bootstrap).out.splitlines()
    assert len([line for line in lines if line.split() == ["topic", "partition", "bytes"]]) == 2
    assert {tuple(line.split()[:2]) for line in lines} >= {("large", "0"), ("large", "1"), ("small", "0")}


def test_some_topics_alone_are_shown(two: BrokerProcess) -> None:
    partitions = [each for one in directories(two, "small") for each in one["partitions"]]  # type: ignore[attr-defined]
    assert [one["topic"] for one in partitions] == ["small"]
    said = run("log", "dirs", "nothing", "-b", two.bootstrap)
    assert said.status == 1
    assert said.line.startswith("ottla: nothing: ")


def test_a_directory_that_is_offline_is_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "two").write_text("a file where a directory has to be")
    overrides = {"log.dirs": f"{tmp_path / 'one'},{tmp_path / 'two'}"}
    with BrokerProcess(tmp_path / "one", overrides=overrides) as broker:
        lines = run("log", "dirs", "-b", broker.bootstrap).out.splitlines()
        assert lines[-2] == str(tmp_path / "two")
        assert re.fullmatch(r"  offline: .+ \(KAFKA_STORAGE_ERROR\)", lines[-1])
        row = directories(broker)[-1]
    assert (row["error"], row["usable_bytes"], row["partitions"]) == ("KAFKA_STORAGE_ERROR", None, [])


def test_a_cordoned_directory_is_said_to_be(two: BrokerProcess) -> None:
    path = str(two.directory / "two")
    assert (
        run("configs", "alter", "--broker", "1", "--set", f"cordoned.log.dirs={path}", "-b", two.bootstrap).status == 0
    )
    assert [(one["directory"], one["is_cordoned"]) for one in directories(two)] == [
        (str(two.directory / "one"), False),
        (path, True),
    ]
    said = run("log", "dirs", "-b", two.bootstrap).out
    assert said.count("cordoned: it takes no new partitions") == 1
    assert run("topics", "create", "new", "--partitions", "3", "-b", two.bootstrap).status == 0
    held = [{each["topic"] for each in one["partitions"]} for one in directories(two, "new")]  # type: ignore[attr-defined]
    assert held == [{"new"}, set()]
    assert run("configs", "alter", "--broker", "1", "--delete", "cordoned.log.dirs", "-b", two.bootstrap).status == 0
    assert not any(one["is_cordoned"] for one in directories(two))


def test_a_replica_that_is_moved_is_said_to_be_and_unknown_room_too() -> None:
    """As an Apache Kafka shows both; Ottla moves no replicas."""
    replicas = {
        TopicPartition("t", 0): ReplicaDescription(2_000, 0, is_future=False),
        TopicPartition("t", 1): ReplicaDescription(3_000, 17, is_future=True),
    }
    assert list(_lines(LogDirDescription("/d", -1, -1, replicas), is_long=True)) == [
        "the free space is not known; 2 partitions of 1 topic, 4.9 KiB",
        "topic  partition  bytes",
        "t              1  3,000  moving here, 17 offsets left",
        "t              0  2,000",
    ]
    failed = LogDirDescription("/d", -1, -1, {}, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "gone"))
    assert [re.sub(r"\x1b\[\d+m", "", line) for line in _lines(failed, is_long=False)] == [
        "offline: gone (KAFKA_STORAGE_ERROR)"
    ]
