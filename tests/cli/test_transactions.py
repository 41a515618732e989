"""`transactions` and `consume --isolation` against a real broker: what they show, what they end, what they refuse."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from kit.broker import BrokerProcess
from kit.wire import Wire

from ottla.cli.main import main
from ottla.client import FatalTransactionError
from ottla.client.blocking import Producer
from ottla.protocol.api.produce import ProduceRequest
from ottla.protocol.records.builder import BatchBuilder


def run(broker: BrokerProcess, *arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(main, [*arguments, "--bootstrap-server", broker.bootstrap])
    assert result.exit_code == status, result.output
    return result


def lines(broker: BrokerProcess, *arguments: str) -> list[str]:
    return run(broker, *arguments).stdout.splitlines()


@pytest.fixture
def transactional_id(topic: str) -> str:
    """An id of the test's own."""
    return f"id-{topic}"


@pytest.fixture
def producer(broker: BrokerProcess, transactional_id: str) -> Iterator[Producer]:
    with Producer(broker.bootstrap, transactional_id=transactional_id, transaction_timeout_ms=61_000) as running:
        yield running


def test_an_open_transaction_is_listed_and_described(
    broker: BrokerProcess, topic: str, producer: Producer, transactional_id: str
) -> None:
    producer.begin_transaction()
    producer.send_and_wait(topic, b"open")
    (heading, *listed) = lines(broker, "transactions", "list", "--state", "ongoing", "--pattern", f"{transactional_id}")
    assert heading.split() == ["transactional", "id", "state", "producer", "id"]
    assert [line.split()[:2] for line in listed] == [[transactional_id, "Ongoing"]]
    producer_id = listed[0].split()[2]
    assert lines(broker, "transactions", "list", "--producer-id", producer_id, "-q") == [transactional_id]
    assert lines(broker, "transactions", "list", "--producer-id", producer_id, "--open-for-ms", "900000", "-q") == []
    (described,) = lines(broker, "transactions", "describe", transactional_id, "--json")
    found = json.loads(described)
    assert (found["state"], found["timeout_ms"], found["partitions"]) == ("Ongoing", 61_000, [[topic, 0]])
    text = lines(broker, "transactions", "describe", transactional_id)
    assert text[0].startswith(f"{transactional_id}   Ongoing   coordinator ")
    assert text[1] == f"  producer id {producer_id}, epoch 0, timeout 61,000 ms"
    assert text[2].startswith("  open since 20")
    assert text[-1].split() == [topic, "0"]
    assert lines(broker, "transactions", "find-hanging", "--topic", topic, "--older-than-ms", "0") == []
    producer.commit_transaction()
    (described,) = lines(broker, "transactions", "describe", transactional_id, "--json")
    found = json.loads(described)
    assert (found["state"], found["start_ms"]) == ("CompleteCommit", None)
    assert "open since" not in "\n".join(lines(broker, "transactions", "describe", transactional_id))


def test_abort_ends_the_transaction_and_fences_its_producer(
    broker: BrokerProcess, topic: str, producer: Producer, transactional_id: str
) -> None:
    with producer.transaction():
        producer.send(topic, b"committed")
    producer.begin_transaction()
    producer.send_and_wait(topic, b"aborted")
    (line,) = lines(broker, "transactions", "abort", transactional_id)
    assert line.startswith(f"{transactional_id}: aborted its transaction; its producer is fenced (producer id ")
    with pytest.raises(FatalTransactionError):
        producer.commit_transaction()
    (line,) = lines(broker, "transactions", "abort", transactional_id)
    assert line.startswith(f"{transactional_id}: had no open transaction; its producer is fenced (producer id ")
    read = ("consume", topic, "--from-beginning", "--exit-at-end", "--quiet")
    assert lines(broker, *read, "--isolation", "read_committed") == ["committed"]
    assert lines(broker, *read, "--isolation", "read_uncommitted") == ["committed", "aborted"]
    assert lines(broker, *read) == ["committed", "aborted"]


def test_what_a_coordinator_knows_does_not_hang(broker: BrokerProcess, topic: str, producer: Producer) -> None:
    producer.begin_transaction()
    producer.send_and_wait(topic, b"open")
    refused = run(broker, "transactions", "abort", "--topic", topic, "--partition", "0", status=1)
    assert refused.stderr == f"ottla: no transaction hangs in {topic}-0\n"
    refused = run(broker, "transactions", "abort", "-t", topic, "-p", "0", "--producer-id", "99999", status=1)
    assert refused.stderr == f"ottla: no transaction of producer id 99999 hangs in {topic}-0\n"
    refused = run(broker, "transactions", "abort", "-t", topic, "-p", "7", status=1)
    assert refused.stderr == f"ottla: {topic} has no partition 7; it has 0 to 0\n"
    producer.commit_transaction()


def test_ids_that_are_not_there_are_named(broker: BrokerProcess) -> None:
    for command in ("describe", "abort"):
        refused = run(broker, "transactions", command, "nobody-has-it", status=1)
        assert refused.stderr == "ottla: there is no transactional id nobody-has-it\n"
    assert "nobody-has-it" not in lines(broker, "transactions", "list", "-q")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["id", "--topic", "t", "--partition", "0"],
        ["--topic", "t"],
        ["--partition", "0"],
        ["id", "--producer-id", "1"],
    ],
)
def test_abort_takes_ids_or_a_partition(broker: BrokerProcess, arguments: list[str]) -> None:
    refused = run(broker, "transactions", "abort", *arguments, status=2)
    assert "--topic and --partition" in refused.stderr


def test_a_partition_that_does_not_exist_is_one_line_at_once(broker: BrokerProcess, topic: str) -> None:
    """It was waited for, 30 s, and then had no leader."""
    abort = ("transactions", "abort", "--topic", topic, "--partition")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in run(broker, *abort, "0", status=1).stderr
    run(broker, "topics", "create", topic, "--partitions", "2")
    assert run(broker, *abort, "2", status=1).stderr == f"ottla: {topic} has no partition 2; it has 0 to 1\n"


def test_all_lines_are_produced_or_none(broker: BrokerProcess, topic: str, transactional_id: str) -> None:
    run(broker, "topics", "create", topic)
    produce = ["produce", topic, "-b", broker.bootstrap, "--producer-property", f"transactional.id={transactional_id}"]
    produce += ["--key-separator", ":", "--quiet"]
    done = CliRunner().invoke(main, produce, input="a:1\nb:2\n")
    assert done.exit_code == 0, done.output
    failed = CliRunner().invoke(main, produce, input="c:3\nno separator\n")
    assert (failed.exit_code, failed.stderr) == (1, "ottla: line 2 was not sent: it has no separator ':'\n")
    read = ("consume", topic, "--from-beginning", "--exit-at-end", "--quiet", "--isolation", "read_committed")
    assert lines(broker, *read) == ["1", "2"]
    (described,) = lines(broker, "transactions", "describe", transactional_id, "--json")
    assert json.loads(described)["state"] in ("CompleteAbort", "Empty", "CompleteCommit")


def test_a_transaction_that_no_coordinator_knows_is_found_and_ended(tmp_path: Path) -> None:
    trusting = {"transaction.partition.verification.enable": "false"}  # as brokers before Kafka 3.6 are
    with BrokerProcess(tmp_path / "data", trusting) as broker:
        run(broker, "topics", "create", "t")
        with Producer(broker.bootstrap, transactional_id="known") as known:
            with known.transaction():
                known.send("t", b"committed")
            put_hanging(broker, "t", producer_id=4711)
            with known.transaction():
                known.send("t", b"held up")
            read = ("consume", "t", "--from-beginning", "--exit-at-end", "--quiet", "--isolation", "read_committed")
            assert lines(broker, *read) == ["committed"]
            assert lines(broker, "transactions", "find-hanging") == []  # it is not old enough
            (found,) = lines(broker, "transactions", "find-hanging", "--older-than-ms", "0", "--json")
            hanging = json.loads(found)
            assert (hanging["topic"], hanging["partition"], hanging["producer_id"]) == ("t", 0, 4711)
            assert (hanging["start_offset"], hanging["transactional_id"]) == (2, None)
            (heading, row) = lines(broker, "transactions", "find-hanging", "--topic", "t", "--older-than-ms", "0")
            assert heading.split()[:4] == ["topic", "partition", "start", "offset"]
            assert row.split()[:4] == ["t", "0", "2", "4711"]
            ended = lines(broker, "transactions", "abort", "--topic", "t", "--partition", "0")
            assert ended == ["aborted the transaction of producer id 4711 at offset 2"]
            assert lines(broker, *read) == ["committed", "held up"]
            assert lines(broker, "transactions", "find-hanging", "--older-than-ms", "0") == []


def put_hanging(broker: BrokerProcess, topic: str, producer_id: int) -> None:
    """Write to a partition for a transaction that was never begun."""
    builder = BatchBuilder()
    builder.append(int(time.time() * 1000), None, b"hanging", ())
    batch = builder.seal(producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
    request = ProduceRequest(
        transactional_id="lost",
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic, partition_data=[ProduceRequest.PartitionProduceData(index=0, records=batch)]
            )
        ],
    )
    with Wire(broker.port) as wire:
        answer = wire.call(request, 11)
    assert answer.responses[0].partition_responses[0].error_code == 0
