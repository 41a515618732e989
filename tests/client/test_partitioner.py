"""Keys go where Java's clients, and librdkafka's, send them."""

from __future__ import annotations

import random
import subprocess
import sys
import zlib

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from confluent_kafka import Producer as ConfluentProducer
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from ottla.client import Admin
from ottla.client.key_hashes import FEWEST_KEYS, LONGEST_KEY_BYTES
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


@pytest.mark.parametrize(
    ("rule", "librdkafkas"),
    [("murmur2", "murmur2_random"), ("consistent", "consistent"), ("consistent_random", "consistent_random")],
)
async def test_keys_land_where_librdkafka_puts_them(broker, topic, rule, librdkafkas):
    """The other implementation is the real one: confluent-kafka writes, and what it chose is read back."""
    partitions = 7
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic(topic, partitions=partitions, replication_factor=1)
    chance = random.Random(2)
    keys = [b"%d" % number for number in range(100)] + [chance.randbytes(length) for length in range(1, 60)]
    if rule == "consistent":
        keys += [b"", None]
    theirs = ConfluentProducer({"bootstrap.servers": broker.bootstrap, "partitioner": librdkafkas})
    chosen = {}
    for key in keys:
        theirs.produce(topic, b"", key, on_delivery=lambda _, message: chosen.update({message.key(): message}))
    assert theirs.flush(30) == 0
    ours = Partitioner(rule)
    wrong = {
        key: (message.partition(), ours.choose(topic, key, partitions))
        for key, message in chosen.items()
        if message.partition() != ours.choose(topic, key, partitions)
    }
    assert not wrong
    assert len(chosen) == len(set(keys))


def test_keys_may_be_ignored():
    partitioner = Partitioner("murmur2", ignores_keys=True)
    assert len({partitioner.choose("t", b"%d" % n, 50) for n in range(20)}) == 1


def test_names_of_rules_are_read_leniently():
    for name in ("round-robin", "ROUNDROBIN", "round_robin"):
        assert [Partitioner(name).choose("t", None, 3)] == [0]
    assert Partitioner("murmur2_random").choose("t", b"21", 10) == (-973932308 & 0x7FFFFFFF) % 10


# Many keys at once --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_numpy", [True, False])
@pytest.mark.parametrize("count", [1, FEWEST_KEYS - 1, FEWEST_KEYS, 3 * FEWEST_KEYS])
def test_many_keys_go_where_each_of_them_goes(monkeypatch, has_numpy, count):
    pytest.importorskip("numpy")
    if not has_numpy:
        monkeypatch.setitem(sys.modules, "numpy", None)
        monkeypatch.delitem(sys.modules, "ottla.arrow.murmur2", raising=False)
    chance = random.Random(count)
    keys = [None if chance.random() < 0.1 else chance.randbytes(chance.randrange(40)) for _ in range(count)]
    for some in (keys, [key or b"" for key in keys], [None] * count, [*keys, bytes(LONGEST_KEY_BYTES + 1)]):
        found = Partitioner("murmur2").choose_many("t", some, len(some), 7)
        assert found == [None if key is None else murmur2(key) % 2**31 % 7 for key in some]
        assert {type(number) for number in found} <= {int, type(None)}


def test_few_keys_import_no_numpy():
    program = (
        "import sys\n"
        "from ottla.client.partitioner import Partitioner\n"
        "keys = [b'%d' % number for number in range(1000)]\n"
        "Partitioner('murmur2').choose_many('t', keys, len(keys), 3)\n"
        "print('numpy' in sys.modules)\n"
        "keys *= 10\n"
        "Partitioner('murmur2').choose_many('t', keys, len(keys), 3)\n"
        "print('numpy' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\nTrue\n"
