"""What cannot work is allowed and said: each line names the key, its value, and what comes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.config.broker import BrokerConfig


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"default.replication.factor": 3},
            "default.replication.factor=3: counts as 1, there is one broker (--",
        ),
        ({"socket.request.max.bytes": 1000}, "message.max.bytes=1048588: no such batch can arrive"),
        (
            {"message.max.bytes": 2 << 20, "log.segment.bytes": 1 << 20},
            "message.max.bytes=2097152: a batch above log.segment.bytes=1048576 is refused",
        ),
        (
            {"offsets.topic.num.partitions": 50, "ottla.max.partitions": 49},
            "offsets.topic.num.partitions=50: consumer groups cannot be used, ottla.max.partitions is 49",
        ),
        (
            {"num.partitions": 50, "ottla.max.partitions": 49},
            "num.partitions=50: a topic that is created without a number of partitions is refused, ottla.max.",
        ),
        (
            {"offsets.topic.num.partitions": 10_001},
            "offsets.topic.num.partitions=10001: consumer groups cannot be used, one request creates 10000 partitions",
        ),
        ({"max.connections": 0}, "max.connections=0: no client can connect"),
        (
            {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"},
            "super.users is empty: where there are no ACLs yet, no client may create the first one",
        ),
        (
            {"super.users": "User:a"},
            "super.users: no effect without authorizer.class.name; every client may do everything",
        ),
    ],
    ids=str,
)
def test_what_cannot_work_is_one_warning(values: dict[str, object], words: str) -> None:
    (warning,) = BrokerConfig.of(values).warnings
    assert warning.startswith(words)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"default.replication.factor": 1},
        {"offsets.topic.num.partitions": 50, "num.partitions": 50, "ottla.max.partitions": 50},
        {"offsets.topic.num.partitions": 10_000},
        {"message.max.bytes": 1 << 20, "log.segment.bytes": 1 << 20},
        {"max.connections": 1},
    ],
    ids=str,
)
def test_what_works_is_none(values: dict[str, object]) -> None:
    assert BrokerConfig.of(values).warnings == []


def test_the_file_of_three_nodes_names_its_replication_factor_once_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        "default.replication.factor=3\noffsets.topic.replication.factor=3\n"
        "transaction.state.log.replication.factor=3\ntransaction.state.log.min.isr=2\nmin.insync.replicas=2\n"
    )
    first, second = sorted(BrokerConfig.load(path).warnings)
    assert first.startswith("accepted without effect")
    assert second == "default.replication.factor=3: counts as 1, there is one broker (server.properties:1)"
