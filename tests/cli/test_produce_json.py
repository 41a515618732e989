"""`produce --json`: what `consume --json` prints of a topic makes an exact copy of it; what is no record is refused."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from kit.broker import BrokerProcess
from kit.command import run

from ottla.cli.input_records import json_reader
from ottla.cli.main import main
from ottla.cli.record_lines import json_line
from ottla.client import ConsumerRecord, TopicPartition
from ottla.client.blocking import Admin, Consumer, Producer


def produce(broker: BrokerProcess, topic: str, lines: str | bytes, *options: str, status: int = 0) -> Result:
    words = ["produce", topic, "--json", "-b", broker.bootstrap, *options]
    result = CliRunner().invoke(main, words, input=lines)
    assert result.exit_code == status, result.output
    return result


def records(broker: BrokerProcess, topic: str) -> list[ConsumerRecord]:
    """All records, by partition and offset."""
    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(topic, one) for one in consumer.partitions_for(topic)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        found: list[ConsumerRecord] = []
        while len(found) < sum(ends.values()):
            for polled in consumer.getmany(timeout_ms=1000).values():
                found += polled
    return sorted(found, key=lambda one: (one.partition, one.offset))


def content(record: ConsumerRecord) -> tuple[object, ...]:
    return (record.partition, record.offset, record.timestamp_ms, record.key, record.value, tuple(record.headers))


def create(broker: BrokerProcess, topic: str, partitions: int) -> str:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic, partitions=partitions, replication_factor=1, configs={"retention.ms": "-1"})
    return topic


def test_a_topic_is_copied_exactly(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic, 3)
    create(broker, f"{topic}-copy", 3)
    headers = [("name", b"\xff"), ("name", None), ("", b"text"), ("caf\u00e9", b""), ("\udcff", b"no text")]
    with Producer(broker.bootstrap) as producer:
        for number, data in enumerate((b"text", b"", None, b"\xff\x00", b'{"base64": "eA=="}', "\u2028\n".encode())):
            producer.send(topic, data, key=b"k\xfe", partition=2, timestamp_ms=number)
            producer.send(topic, b"v", key=data, headers=headers, partition=number % 2, timestamp_ms=10**12 - number)
    printed = run("consume", topic, "-B", "-e", "--json", "-b", broker.bootstrap).out
    produce(broker, f"{topic}-copy", printed)
    copied = records(broker, f"{topic}-copy")
    assert [content(one) for one in copied] == [content(one) for one in records(broker, topic)]
    assert len(copied) == 12


def test_what_a_line_leaves_out_is_as_without_json(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic, 1)
    produce(broker, topic, '{"value": "a"}\n\n  \r\n{"value": null, "key": null, "headers": null, "timestamp": -1}')
    first, second = records(broker, topic)
    assert (first.key, first.value, first.headers) == (None, b"a", ())
    assert (second.key, second.value, second.headers) == (None, None, ())
    assert abs(first.timestamp_ms - second.timestamp_ms) < 60_000
    assert first.timestamp_ms > 1_700_000_000_000


def test_options_count_before_the_line(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic, 2)
    line = '{"value": "a", "key": "k", "partition": 0, "headers": [["own", "1"]]}\n'
    produce(broker, topic, line, "--partition", "1", "--header", "more=2")
    (record,) = records(broker, topic)
    assert (record.partition, record.headers) == (1, (("own", b"1"), ("more", b"2")))


def test_a_partitioner_chooses_in_place_of_the_line(broker: BrokerProcess, topic: str) -> None:
    """So that a topic may be copied to one with fewer partitions."""
    create(broker, topic, 1)
    line = '{"value": "a", "partition": 7}\n'
    refused = produce(broker, topic, line, status=1)
    assert refused.stderr == f"ottla: line 1 was not sent: {topic} has partitions 0 to 0, not 7\n"
    produce(broker, topic, line, "--partitioner", "murmur2")
    assert [one.partition for one in records(broker, topic)] == [0]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"value": "a"', "is not JSON: Expecting ',' delimiter at column 14"),
        ("plain text", "is not JSON: Expecting value at column 1"),
        (b'{"value": "\xff"}', "is not UTF-8"),
        ("[" * 100_000, "is not JSON that can be read"),
        ('["a"]', 'is JSON, but not an object such as {"key": "text", "value": "text"}'),
        ('{"key": "a"}', 'has no "value"; null is that of a tombstone'),
        ('{"vaule": "a"}', 'has an unknown field "vaule", perhaps for "value"'),
        (
            '{"xyzzy": "a"}',
            'has an unknown field "xyzzy"; there are topic, partition, offset, timestamp, key, value, headers',
        ),
        ('{"value": 5}', 'has a "value" that is neither text, null nor {"base64": "..."}'),
        ('{"value": {"base64": 5}}', 'has a "value" that is neither text, null nor {"base64": "..."}'),
        ('{"value": "a", "key": ["a"]}', 'has a "key" that is neither text, null nor {"base64": "..."}'),
        ('{"value": {"base64": "a"}}', 'has a "value" that is not base64: '),
        ('{"value": {"base64": "\u00e9"}}', 'has a "value" that is not base64: '),
        ('{"value": "\\ud800"}', 'has a "value" with half of a surrogate pair, which is not text'),
        ('{"value": "a", "headers": {"a": "b"}}', 'has "headers" that are not a list of [name, value]'),
        ('{"value": "a", "headers": [["a"]]}', 'has "headers" that are not a list of [name, value]'),
        ('{"value": "a", "headers": [["a", 5]]}', 'has a header "a" that is neither text, null nor {"base64": "..."}'),
        ('{"value": "a", "headers": [["\\ud800", ""]]}', "has a header name with half of a surrogate pair"),
        (
            '{"value": "a", "timestamp": "now"}',
            'has a "timestamp" that is not a whole number of milliseconds since 1970',
        ),
        ('{"value": "a", "timestamp": -2}', 'has a "timestamp" that is not a whole number of milliseconds since 1970'),
        ('{"value": "a", "timestamp": 9223372036854775808}', 'has a "timestamp" that is not a whole number'),
        ('{"value": "a", "timestamp": 1.5}', 'has a "timestamp" that is not a whole number'),
        ('{"value": "a", "partition": -1}', 'has a "partition" that is not a whole number from 0'),
        ('{"value": "a", "partition": true}', 'has a "partition" that is not a whole number from 0'),
        ('{"value": "a", "partition": 2147483648}', 'has a "partition" that is not a whole number from 0'),
    ],
)
def test_a_line_that_is_no_record_is_refused_by_its_reason(line: str | bytes, reason: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011  # the text is what is compared
        json_reader((), None, keeps_partition=True)(line if isinstance(line, bytes) else line.encode())
    assert str(refused.value).startswith(reason)


def test_an_error_names_the_line_and_what_was_before_it_is_sent(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic, 1)
    said = produce(broker, topic, '{"value": "a"}\n\n{"value": "b"}\n{"vaule": "c"}\n{"value": "d"}\n', status=1)
    assert said.stderr == 'ottla: line 4 was not sent: it has an unknown field "vaule", perhaps for "value"\n'
    assert [one.value for one in records(broker, topic)] == [b"a", b"b"]
    large = json.dumps({"value": "x" * 2_000_000})
    said = produce(broker, topic, f'{{"value": "e"}}\n{large}\n', status=1)
    assert said.stderr.startswith(f"ottla: line 2 was not sent: {topic}: a record of up to 2000")
    assert said.stderr.endswith("(MESSAGE_TOO_LARGE)\n")


@pytest.mark.parametrize("option", ["--key-separator", "--null-marker"])
def test_options_for_plain_lines_are_refused(option: str) -> None:
    said = run("produce", "t", "--json", option, "x", "-b", "127.0.0.1:1")
    assert said.status == 2
    assert "--json cannot be used with --key-separator and --null-marker" in said.err


some_bytes = st.one_of(st.none(), st.binary(max_size=20), st.text(max_size=20).map(str.encode))
header_names = st.binary(max_size=8).map(lambda name: name.decode("utf-8", "surrogateescape"))


@given(
    key=some_bytes,
    value=some_bytes,
    headers=st.lists(st.tuples(header_names, some_bytes), max_size=3),
    timestamp_ms=st.integers(0, 2**63 - 1),
    partition=st.integers(0, 2**31 - 1),
)
def test_what_consume_prints_is_read_back(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    timestamp_ms: int,
    partition: int,
) -> None:
    record = ConsumerRecord("t", partition, 5, timestamp_ms, key, value, tuple(headers))
    read = json_reader((), None, keeps_partition=True)(json_line(record).rstrip(b"\n"))
    assert read == (key, value, tuple(headers), timestamp_ms, partition)
