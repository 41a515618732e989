"""Partitions without a metadata log: a start refuses them and changes nothing, a repair makes topics, a start serves.

Each shape in which such a directory comes (`kit/old_directories.py`) goes the whole way, with a real process and a real
client.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.audit.reading import read_with_confluent
from kit.broker import BrokerDidNotStart, BrokerProcess
from kit.command import run
from kit.old_directories import PARTITIONS, SHAPES, Shape, make_kafka_0_7, tree

from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig
from ottla.storage.errors import StorageError


def refusal(directory: Path) -> str:
    """The line by which a start is refused."""
    with pytest.raises(BrokerDidNotStart) as caught, BrokerProcess(directory):
        pass
    (line,) = [line for line in str(caught.value).splitlines() if "cannot start: " in line]
    assert "Traceback" not in str(caught.value)
    return line.partition("cannot start: ")[2]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_what_a_start_refuses_is_unchanged_and_what_a_repair_makes_of_it_is_served(
    tmp_path: Path, shape: Shape
) -> None:
    data = tmp_path / "data"
    held = shape.make(data)
    before = tree(data)
    line = refusal(data)
    assert shape.words in line
    assert f"`ottla log verify --repair {data}`" in line
    assert tree(data) == before, "a refusal writes nothing"
    with pytest.raises(StorageError) as caught:
        Node(BrokerConfig.of({"log.dirs": str(data)})).start()
    assert str(caught.value) == line.rstrip(), "the second start ends with the same line"
    assert tree(data) == before

    said = run("log", "verify", data)
    assert ": sound" not in said.out
    assert said.status == (0 if shape.is_plain else 1)
    assert tree(data) == before

    said = run("log", "verify", "--repair", data)
    assert f"(--yes does it): Make a metadata log in {data}, with topics of the 3 partitions" in said.err
    assert not (data / "__cluster_metadata-0").exists()
    assert ": sound" not in said.out

    said = run("log", "verify", "--repair", "--yes", data)
    assert said.status == 0, said
    assert "1 topic with 4 partitions" in said.out
    ids = {(data / f"orders-{index}" / "partition.metadata").read_bytes() for index in PARTITIONS}
    assert len(ids) == 1
    again = run("log", "verify", "--repair", data)
    assert (again.status, "mended" in again.out, again.err) == (0, False, "")

    with BrokerProcess(data) as broker:
        found = read_with_confluent(broker.bootstrap, [("orders", index) for index in range(4)])
        assert broker.output.count("transaction.version is 0, ") == 1, "it is not a new directory"
    assert found.pop(("orders", 2)) == (0, 0, []), "the one that was not there"
    assert {place: rows for place, (_, _, rows) in found.items()} == {
        place: [(one.offset, one.key, one.value) for one in records] for place, records in held.items()
    }
    assert run("log", "verify", data).status == 0


def test_a_directory_of_kafka_0_7_is_called_so(tmp_path: Path) -> None:
    data = tmp_path / "data"
    make_kafka_0_7(data)
    before = tree(data)
    words = f"{data / 'clicks-0' / '00000000000000000000.kafka'} is of Apache Kafka 0.7"
    line = refusal(data)
    assert line.startswith(words)
    assert "KafkaMigrationTool" in line
    for arguments in (
        ("explain", "clicks-0", "--log-dir", data, "--offset", "0"),
        ("verify", data),
        ("verify", "--repair", "--yes", data),
        ("verify", "clicks-0", "--log-dir", data),
    ):
        said = run("log", *arguments)
        assert said.status == 1
        assert said.line == f"ottla: {line}"
    assert "2048.kafka   segment of Kafka 0.7, a format that is not read, 0 bytes\n" in run("log", "dump", data).out
    assert tree(data) == before


def test_the_node_id_can_be_said_where_nothing_in_the_directory_does(tmp_path: Path) -> None:
    data = tmp_path / "data"
    SHAPES[-1].make(data)
    said = run("log", "verify", "--repair", "--yes", "--node-id", "7", data)
    assert said.status == 0, said
    assert "belongs to node.id 7, this broker is node.id 1" in refusal(data)
    with BrokerProcess(data, {"node.id": "7"}) as broker:
        (rows,) = read_with_confluent(broker.bootstrap, [("orders", 3)]).values()
    assert len(rows[2]) == 20


def test_yes_and_the_node_id_belong_to_a_repair() -> None:
    for option in (("--yes",), ("--node-id", "3")):
        said = run("log", "verify", *option)
        assert (said.status, "are for --repair" in said.err) == (2, True)


def test_a_number_that_nobody_can_have_meant_makes_no_partitions(tmp_path: Path) -> None:
    data = tmp_path / "data"
    SHAPES[-1].make(data)
    (data / "orders-1").rename(data / "orders-2000000000")
    said = run("log", "verify", "--repair", "--yes", data)
    assert "orders-2000000000: left out, since too many partitions before it are not there" in said.out
    assert "1 topic with 4 partitions" in said.out
