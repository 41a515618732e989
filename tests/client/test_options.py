"""Options by Kafka's names, as keywords and in mappings; what does not exist or makes no sense is refused by name."""

from __future__ import annotations

from dataclasses import fields

import pytest

from ottla.client import Admin, Consumer, Producer
from ottla.client.consumer_options import ConsumerKeywords, ConsumerOptions
from ottla.client.options import AdminKeywords, AdminOptions, ClientOptions, read_options
from ottla.client.producer_options import ProducerKeywords, ProducerOptions
from ottla.client.share_consumer_options import ShareConsumerKeywords, ShareConsumerOptions

DESERIALIZERS = {"key_deserializer", "value_deserializer"}
"""Named in the signature of Consumer itself, for they give the records their type."""


def producer_options(given=None, /, **keywords):
    return read_options(ProducerOptions, given if given is not None else "localhost", keywords)[1]


@pytest.mark.parametrize(
    ("keywords", "options"),
    [
        (ProducerKeywords, ProducerOptions),
        (ConsumerKeywords, ConsumerOptions),
        (ShareConsumerKeywords, ShareConsumerOptions),
        (AdminKeywords, AdminOptions),
    ],
)
def test_the_keywords_that_an_ide_shows_are_the_options_that_exist(keywords, options):
    named = set(keywords.__annotations__) - {"request_required_acks"}
    assert named == {one.name for one in fields(options)} - DESERIALIZERS


def test_a_mapping_of_dotted_names_says_the_same_as_keywords():
    dotted = {
        "bootstrap.servers": "one:1,two:2",
        "acks": "1",
        "linger.ms": "2.5",
        "batch.size": "1000",
        "retry.backoff.ms": 7,
        "enable.idempotence": "false",
        "compression.type": "zstd",
        "compression.zstd.level": "3",
        "compression.gzip.level": "9",
        "max.in.flight.requests.per.connection": "9",
        "partitioner": "round-robin",
        "partitioner.ignore.keys": "true",
    }
    addresses, options = read_options(ProducerOptions, dotted, {})
    assert addresses == [("one", 1), ("two", 2)]
    assert options == ProducerOptions(
        acks=1,
        linger_ms=2.5,
        batch_size=1000,
        retry_backoff_ms=7,
        enable_idempotence=False,
        compression_type="zstd",
        compression_zstd_level=3,
        compression_gzip_level=9,
        max_in_flight_requests_per_connection=9,
        partitioner="roundrobin",
        partitioner_ignore_keys=True,
    )
    assert options.compression_level == 3


def test_a_keyword_goes_before_the_mapping():
    assert producer_options({"bootstrap.servers": "x", "linger.ms": 1}, linger_ms=2).linger_ms == 2


@pytest.mark.parametrize("name", ["request.required.acks", "request_required_acks"])
def test_request_required_acks_is_acks(name):
    assert producer_options({"bootstrap.servers": "x", name: "all"}).acks == -1
    assert producer_options({"bootstrap.servers": "x", name: 1}).acks == 1
    assert Producer("localhost", request_required_acks=0) is not None


def test_two_names_of_one_option_are_refused():
    with pytest.raises(ValueError, match=r"acks and request\.required\.acks are two names"):
        producer_options({"bootstrap.servers": "x", "acks": 1, "request.required.acks": 0})


@pytest.mark.parametrize(
    ("client", "given", "said"),
    [
        (Producer, {"linger.mss": 1}, r"unknown option linger\.mss: did you mean linger\.ms\?"),
        (Producer, {"linger_mss": 1}, r"unknown option linger_mss: did you mean linger_ms\?"),
        (Producer, {"request.required.ack": 1}, r"did you mean acks\?"),
        (Consumer, {"fetch.max.byte": 1}, r"did you mean fetch\.max\.bytes\?"),
        (Admin, {"default.api.timeout": 1}, r"did you mean default\.api\.timeout\.ms\?"),
        (Producer, {"qqqq": 1}, r"^unknown option qqqq$"),
        (Consumer, {"transactional.id": "x"}, r"transactional\.id is an option of Kafka's"),
        (Producer, {"group.id": "x"}, r"group\.id is an option of Kafka's"),
        (Producer, {"sasl.kerberos.service.name": "x"}, r"sasl\.kerberos\.service\.name is about TLS or SASL"),
        (Producer, {"sasl.pasword": "x"}, r"unknown option sasl\.pasword: did you mean sasl\.password\?"),
        (Producer, {"fetch.min.bytes": 1}, "unknown option"),
    ],
    ids=str,
)
def test_an_option_that_does_not_exist_is_refused_by_name(client, given, said):
    with pytest.raises(ValueError, match=said):
        client({"bootstrap.servers": "localhost:1", **given})
    with pytest.raises(ValueError, match=said):
        client("localhost:1", **given)


@pytest.mark.parametrize(
    "given",
    [
        {"acks": "2"},
        {"acks": True},
        {"linger.ms": "soon"},
        {"linger.ms": "nan"},
        {"batch.size": "1.5"},
        {"batch.size": True},
        {"batch.size": 2**31},
        {"retries": -1},
        {"enable.idempotence": "perhaps"},
        {"client.id": 5},
        {"security.protocol": "TLS"},
        {"sasl.mechanism": "GSSAPI"},
        {"sasl.username": 5},
        {"compression.zstd.level": 23},
        {"partitioner": "murmur3"},
        {"key.serializer": "org.apache.kafka.common.serialization.StringSerializer"},
        {"interceptors": [5]},
        {"interceptor.classes": "mine"},
        {"max.in.flight.requests.per.connection": 0},
    ],
    ids=str,
)
def test_a_value_that_makes_no_sense_is_refused_by_the_name_it_was_given(given):
    (name,) = given
    with pytest.raises(ValueError, match=rf"^{name.replace('.', chr(92) + '.')} must be "):
        Producer({"bootstrap.servers": "localhost:1", **given})


@pytest.mark.parametrize(
    "given",
    [
        {"acks": 1, "enable.idempotence": True},
        {"retries": 0, "enable.idempotence": True},
        {"max.in.flight.requests.per.connection": 6},
        {"delivery.timeout.ms": 30_004},
        {"compression.type": "gzip", "compression_level": 10},
    ],
    ids=str,
)
def test_options_that_contradict_each_other_are_refused(given):
    with pytest.raises(ValueError, match=r"must be|needs"):
        producer_options({"bootstrap.servers": "x", **given})


def test_idempotence_gives_way_to_acks_and_retries_that_exclude_it():
    assert producer_options().enable_idempotence is True
    assert producer_options(acks=1).enable_idempotence is False
    assert producer_options(retries=0).enable_idempotence is False


def test_the_delivery_timeout_grows_with_what_it_has_to_hold():
    assert producer_options().delivery_timeout_ms == 120_000
    assert producer_options(request_timeout_ms=150_000).delivery_timeout_ms == 150_005
    assert producer_options(delivery_timeout_ms=30_005).delivery_timeout_ms == 30_005


def test_a_client_without_an_address_says_so():
    for client in (Producer, Consumer, Admin):
        with pytest.raises(ValueError, match="bootstrap_servers is missing"):
            client()
        with pytest.raises(ValueError, match="bootstrap_servers must be"):
            client(5)


def test_pauses_grow_to_their_limit_and_no_further():
    options = ClientOptions(retry_backoff_ms=100, retry_backoff_max_ms=1000)
    assert 0.08 <= options.retry_pause_s(1) <= 0.12
    assert 0.32 <= options.retry_pause_s(3) <= 0.48
    assert 0.8 <= options.retry_pause_s(1000) <= 1.2


# Groups ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"group_id": ""}, "group_id must be text, and not empty"),
        ({"group_instance_id": 7}, "group_instance_id must be text"),
        ({"group_protocol": "streams"}, "group_protocol must be one of classic, consumer"),
        ({"heartbeat_interval_ms": 6000, "session_timeout_ms": 6000}, "less than session_timeout_ms"),
        ({"group_protocol": "consumer", "session_timeout_ms": 6000}, "session_timeout_ms is set by the broker"),
        ({"group_protocol": "consumer", "heartbeat_interval_ms": 6000}, "heartbeat_interval_ms is set by the broker"),
        (
            {"group_protocol": "consumer", "partition_assignment_strategy": "range"},
            "partition_assignment_strategy is set by the broker",
        ),
        ({"group_remote_assignor": "uniform"}, "needs group_protocol consumer"),
        ({"max_poll_interval_ms": 0}, "max_poll_interval_ms must be a number, 1 or more"),
    ],
    ids=str,
)
def test_options_of_groups_that_make_no_sense_are_refused(given, said):
    with pytest.raises(ValueError, match=said):
        Consumer("localhost", **given)


def test_options_of_groups_have_kafkas_dotted_names_too():
    common = {"bootstrap.servers": "localhost", "group.id": "g", "enable.auto.commit": "false"}
    Consumer({**common, "group.protocol": "consumer", "group.remote.assignor": "range"})
    Consumer({**common, "partition.assignment.strategy": "sticky,range", "session.timeout.ms": "10000"})


@pytest.mark.parametrize(
    ("client", "given", "said"),
    [
        (Producer, {"client.id": "x" * 2**15}, "client.id must be text of at most 32767 bytes, not 'xxx"),
        (Producer, {"client.id": "\udc80"}, r"client.id must be text that is Unicode, not '\udc80'"),
        (Producer, {"transactional.id": "\u00e9" * 2**14}, "transactional.id must be text of at most 32767 bytes"),
        (Consumer, {"group.id": "x" * 2**15}, "group.id must be text of at most 32767 bytes"),
        (Producer, {"linger.ms": 2**31}, "linger.ms must be a number, 0 to 2147483647, not 2147483648"),
        (Producer, {"linger.ms": -1}, "linger.ms must be a number, 0 or more, not -1"),
        (Producer, {"request.timeout.ms": 0}, "request.timeout.ms must be a number, 1 or more, not 0"),
        (Consumer, {"max.partition.fetch.bytes": 0}, "max.partition.fetch.bytes must be a number, 1 or more, not 0"),
    ],
)
def test_what_no_request_could_carry_is_refused_with_its_bound(client, given, said):
    with pytest.raises(ValueError, match="must be") as refused:
        client({"bootstrap.servers": "x", **given})
    assert str(refused.value).startswith(said)
    assert len(str(refused.value)) < 200


def test_the_longest_names_are_accepted():
    assert producer_options({"bootstrap.servers": "x", "client.id": "x" * (2**15 - 1)}).client_id
