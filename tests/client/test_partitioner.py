"""Keys go where Java's clients, and librdkafka's, send them."""

from __future__ import annotations

import random
import zlib

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from ottla.client.partitioner import Partitioner, murmur2, positive_murmur2


def test_murmur2_equals_two_independent_implementations_for_thousands_of_keys():
    chance = random.Random(1)
    keys = [chance.randbytes(length) for length in range(120) for _ in range(20)]
    keys += [b"%d" % number for number in range(2000)]
    assert len(keys) > 4000
    for key in keys:
        assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF == aiokafka_murmur2(key) & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("key", "java"),  # Kafka's own UtilsTest
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_equals_java(key, java):
    assert murmur2(key) == java & 0xFFFFFFFF
    assert positive_murmur2(key) == java & 0x7FFFFFFF


def test_records_with_a_key_go_by_its_hash_and_others_stick_until_their_batch_closes():
    partitioner = Partitioner()
    assert partitioner.choose("t", b"foobar", 10) == (-790332482 & 0x7FFFFFFF) % 10
    first = partitioner.choose("t", None, 10)
    assert {partitioner.choose("t", None, 10) for _ in range(20)} == {first}
    partitioner.on_batch_closed("t", first, 10)
    assert partitioner.choose("t", None, 10) != first
    partitioner.on_batch_closed("t", first, 10)  # another partition's batch changes nothing


def test_a_topic_of_one_partition_has_no_other_to_stick_to():
    partitioner = Partitioner()
    partitioner.choose("t", None, 1)
    partitioner.on_batch_closed("t", 0, 1)
    assert partitioner.choose("t", None, 1) == 0


def test_the_other_rules():
    assert Partitioner("consistent").choose("t", b"key", 7) == zlib.crc32(b"key") % 7
    turns = Partitioner("roundrobin")
    assert [turns.choose("t", b"same", 3) for _ in range(5)] == [0, 1, 2, 0, 1]
    assert {Partitioner("random").choose("t", b"same", 4) for _ in range(200)} == {0, 1, 2, 3}
    sticky = Partitioner("sticky")
    assert len({sticky.choose("t", b"%d" % n, 50) for n in range(20)}) == 1
    assert Partitioner(lambda topic, key, count: len(key or b"") % count).choose("t", b"four", 3) == 1


def test_a_rule_that_does_not_exist_or_misses_the_topic_is_refused():
    with pytest.raises(ValueError, match="murmur3"):
        Partitioner("murmur3")
    with pytest.raises(ValueError, match="chose 9"):
        Partitioner(lambda topic, key, count: 9).choose("t", None, 3)
