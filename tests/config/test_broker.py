from __future__ import annotations

from pathlib import Path

import pytest

from ottla.config.accepted import REMOVED_KEYS
from ottla.config.broker import ALL_BROKER_KEYS, BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.options import ConfigSource, ConfigType

# Every key of Kafka's that the project promises to know, whether or not it has an effect on one node.
PROMISED = """
node.id broker.id process.roles controller.quorum.voters controller.quorum.bootstrap.servers controller.listener.names
listeners advertised.listeners listener.security.protocol.map inter.broker.listener.name log.dirs log.dir num.partitions
default.replication.factor auto.create.topics.enable delete.topic.enable log.segment.bytes log.roll.ms log.roll.hours
log.roll.jitter.ms log.roll.jitter.hours log.retention.ms log.retention.minutes log.retention.hours log.retention.bytes
log.retention.check.interval.ms log.cleanup.policy log.segment.delete.delay.ms log.index.interval.bytes
log.index.size.max.bytes log.flush.interval.messages log.flush.interval.ms log.flush.scheduler.interval.ms
log.flush.offset.checkpoint.interval.ms log.flush.start.offset.checkpoint.interval.ms
replica.high.watermark.checkpoint.interval.ms log.preallocate log.message.timestamp.type
log.message.timestamp.before.max.ms log.message.timestamp.after.max.ms message.max.bytes socket.request.max.bytes
fetch.max.bytes max.incremental.fetch.session.cache.slots compression.type compression.gzip.level compression.lz4.level
compression.zstd.level min.insync.replicas unclean.leader.election.enable num.network.threads num.io.threads
background.threads num.recovery.threads.per.data.dir queued.max.requests connections.max.idle.ms max.connections
max.connections.per.ip max.connection.creation.rate connection.failed.authentication.delay.ms
group.initial.rebalance.delay.ms group.min.session.timeout.ms group.max.session.timeout.ms group.max.size
group.coordinator.rebalance.protocols group.coordinator.append.linger.ms group.consumer.session.timeout.ms
group.consumer.heartbeat.interval.ms group.consumer.assignors group.share.record.lock.duration.ms
offsets.topic.num.partitions offsets.topic.replication.factor offsets.retention.minutes
offsets.retention.check.interval.ms offset.metadata.max.bytes transaction.state.log.num.partitions
transaction.state.log.replication.factor transaction.state.log.min.isr transaction.max.timeout.ms
transactional.id.expiration.ms producer.id.expiration.ms transaction.abort.timed.out.transaction.cleanup.interval.ms
log.cleaner.enable log.cleaner.threads log.cleaner.dedupe.buffer.size log.cleaner.backoff.ms
log.cleaner.min.cleanable.ratio log.cleaner.delete.retention.ms log.cleaner.io.max.bytes.per.second
sasl.enabled.mechanisms connections.max.reauth.ms ssl.keystore.location ssl.keystore.type ssl.truststore.location
ssl.client.auth ssl.principal.mapping.rules authorizer.class.name super.users allow.everyone.if.no.acl.found
quota.window.num quota.window.size.seconds metric.reporters broker.rack socket.send.buffer.bytes
socket.receive.buffer.bytes queued.max.request.bytes
"""


@pytest.mark.parametrize("key", PROMISED.split())
def test_every_promised_key_is_known(key: str) -> None:
    assert key in ALL_BROKER_KEYS


def test_every_default_reads_back_as_itself() -> None:
    texts = {
        entry.name: entry.value
        for entry in BrokerConfig.of().describe()
        if entry.value is not None and entry.value != "" and entry.name != "broker.id"
    }
    again = BrokerConfig.load(overrides=texts)
    for option in BrokerConfig.by_key.values():
        if option.key not in ("listeners",):
            assert getattr(again, option.attribute) == getattr(BrokerConfig.of(), option.attribute), option.key


def test_keys_of_our_own_begin_with_our_name() -> None:
    ours = [option for option in BrokerConfig.by_key.values() if option.section.startswith("Ottla")]
    assert ours
    assert all(option.key.startswith("ottla.") for option in ours)


def test_the_defaults_are_ours_where_they_differ_from_kafkas() -> None:
    config = BrokerConfig.of()
    assert config.node_id == 1
    assert config.log_dirs == ("./data",)
    assert config.group_initial_rebalance_delay_ms == 0
    assert config.offsets_topic_num_partitions == 1
    assert config.queued_max_request_bytes == 256 << 20
    assert config.ottla_acks_all == "sync"
    assert config.warnings == []
    for key in ("node.id", "log.dir", "group.initial.rebalance.delay.ms", "offsets.topic.num.partitions"):
        assert ALL_BROKER_KEYS[key].kafka is not None


def test_each_source_wins_over_the_one_before_and_only_for_its_keys(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=2\nlog.segment.bytes=2000000\nlog.dirs=/file\n")
    config = BrokerConfig.load(
        path,
        environ={"KAFKA_LOG_SEGMENT_BYTES": "3000000", "KAFKA_LOG_DIRS": "/environment"},
        overrides={"log.dirs": "/override"},
    )
    assert (config.num_partitions, config.log_segment_bytes, config.log_dirs) == (2, 3000000, ("/override",))
    assert str(config.origin_of("num.partitions")) == "server.properties:1"
    assert str(config.origin_of("log.segment.bytes")) == "environment KAFKA_LOG_SEGMENT_BYTES"
    assert str(config.origin_of("log.dirs")) == "--override"
    assert str(config.origin_of("message.max.bytes")) == "default"


def test_an_unknown_key_warns_and_suggests(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("log.retention.msec=5\nmy.own=1\n")
    assert BrokerConfig.load(path).warnings == [
        "log.retention.msec: not a key that Ottla knows, no effect; "
        "did you mean log.retention.ms? (server.properties:1)",
        "my.own: not a key that Ottla knows, no effect (server.properties:2)",
    ]


def test_zookeeper_keys_are_one_warning() -> None:
    overrides = {"zookeeper.connect": "localhost:2181", "zookeeper.connection.timeout.ms": "18000"}
    (warning,) = BrokerConfig.load(overrides=overrides).warnings
    assert "there is no ZooKeeper" in warning


def test_keys_without_effect_are_one_warning_and_only_when_changed() -> None:
    config = BrokerConfig.of({"num.io.threads": 8, "num.network.threads": 9, "offsets.load.buffer.size": 5})
    (warning,) = config.warnings
    assert warning.endswith(": num.network.threads, offsets.load.buffer.size")


def test_kafkas_own_example_file_needs_no_change(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
    )
    config = BrokerConfig.load(path)
    assert [str(one) for one in config.listeners] == ["PLAINTEXT://:9092"]
    assert [str(one) for one in config.controller_listeners] == ["CONTROLLER://:9093"]
    assert str(config.advertised("PLAINTEXT")) == "PLAINTEXT://localhost:9092"
    assert len(config.warnings) == 1


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"log.segment.bytes": "1023"}, "log.segment.bytes=1023: must be an integer of at least 1024 (--override)"),
        ({"log.retention.ms": "0"}, "log.retention.ms=0: must not be 0; -1 keeps records for ever (--override)"),
        ({"node.id": "2", "broker.id": "3"}, "broker.id=3: must be the same as node.id, which is 2 (--override)"),
        ({"log.dirs": ""}, "log.dirs=: must not be empty (--override)"),
        ({"log.dirs": "a,b,c", "log.cleanup.policy": "remove"}, "log.cleanup.policy=remove: must be a list of "),
        ({"listeners": "CONTROLLER://:9093"}, "listeners=CONTROLLER://:9093: names only controller listeners; "),
        ({"listeners": "A://:9093"}, "listeners=A://:9093: A has no protocol"),
        ({"advertised.listeners": "B://h:1"}, "advertised.listeners=B://h:1: B has no protocol"),
        ({"advertised.listeners": "SSL://h:1"}, "advertised.listeners=SSL://h:1: SSL is not among the listeners"),
        ({"authorizer.class.name": "x"}, "authorizer.class.name=x: must be org.apache.kafka.metadata.authorizer.Stan"),
        (
            {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"},
            "authorizer.class.name=kafka.security.authorizer.AclAuthorizer: kept its ACLs in ZooKeeper; "
            "the authorizer now is org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        ),
        ({"super.users": "User:a;bob"}, "super.users=User:a;bob: 'bob' must be a principal, as User:alice"),
        ({"ottla.acks.all": "maybe"}, "ottla.acks.all=maybe: must be one of sync, page-cache (--override)"),
        ({"ottla.http.listener": "x"}, "ottla.http.listener=x: 'x' must be host:port (--override)"),
        (
            {"max.connections.per.ip.overrides": "::1:x"},
            "max.connections.per.ip.overrides=::1:x: '::1:x' must be ADDRESS",
        ),
        ({"num.io.threads": "many"}, "num.io.threads=many: must be an integer (--override)"),
        ({"num.io.threads": "2147483648"}, "num.io.threads=2147483648: must be an integer"),
        ({"num.io.threads": "1_000"}, "num.io.threads=1_000: must be an integer (--override)"),
        ({"num.io.threads": ""}, "num.io.threads=: must be an integer (--override)"),
        ({"log.cleaner.io.max.bytes.per.second": "1_000"}, "log.cleaner.io.max.bytes.per.second=1_000: must be a num"),
        ({"compression.gzip.level": "0"}, "compression.gzip.level=0: must be an integer from -1 to 9 and not 0"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip=0: must not be 0 without max.connections.per.ip.ov"),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "group.coordinator.rebalance.protocols=consumer: must"),
        (
            {"group.consumer.session.timeout.ms": "60001"},
            "group.consumer.session.timeout.ms=60001: must be from 100 (group.consumer.min.session.timeout.ms) to 6000",
        ),
        (
            {"group.consumer.min.heartbeat.interval.ms": "20000"},
            "group.consumer.max.heartbeat.interval.ms=15000: must be at least group.consumer.min.heartbeat.interval.ms",
        ),
        (
            {"group.consumer.session.timeout.ms": "5000"},
            "group.consumer.heartbeat.interval.ms=5000: must be less than group.consumer.session.timeout.ms, which is",
        ),
        ({"queued.max.request.bytes": "1"}, "queued.max.request.bytes=1: must be -1 or at least socket.request.max"),
    ],
)
def test_a_wrong_value_is_one_line(values: dict[str, str], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(overrides=values)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "kind", "value"),
    [
        ("offsets.topic.replication.factor", ConfigType.SHORT, "1"),
        ("sasl.login.refresh.min.period.seconds", ConfigType.SHORT, "60"),
        ("sasl.login.class", ConfigType.CLASS, None),
        ("listeners", ConfigType.LIST, "PLAINTEXT://:9092"),
        ("log.dirs", ConfigType.LIST, "./data"),
        ("metadata.log.dir", ConfigType.STRING, None),
        ("broker.rack", ConfigType.STRING, None),
        ("ssl.truststore.location", ConfigType.STRING, None),
        ("kafka.metrics.reporters", ConfigType.LIST, ""),
        ("super.users", ConfigType.STRING, ""),
    ],
)
def test_types_and_what_is_not_set_are_described_as_by_kafka(key: str, kind: ConfigType, value: str | None) -> None:
    (entry,) = BrokerConfig.of().describe([key])
    assert (entry.type, entry.value) == (kind, value)
    assert all(synonym.value is not None for synonym in entry.synonyms)


def test_a_secret_that_nobody_has_set_has_no_synonym() -> None:
    (entry,) = BrokerConfig.of().describe(["ssl.key.password"])
    assert (entry.value, entry.synonyms) == (None, ())


def test_larger_requests_make_room_for_themselves_unless_the_room_is_set() -> None:
    assert BrokerConfig.of({"socket.request.max.bytes": 500_000_000}).queued_max_request_bytes == 500_000_000
    assert BrokerConfig.of({"socket.request.max.bytes": 1_000_000}).queued_max_request_bytes == 268_435_456
    with pytest.raises(ConfigError):
        BrokerConfig.of({"socket.request.max.bytes": 500_000_000, "queued.max.request.bytes": 268_435_456})


def test_a_small_segment_is_allowed_with_a_warning() -> None:
    (warning,) = BrokerConfig.of({"log.segment.bytes": 1024}).warnings
    assert warning.startswith("log.segment.bytes=1024: Apache Kafka 4 refuses")
    assert BrokerConfig.of({"log.segment.bytes": 1 << 20}).warnings == []


def test_an_override_that_another_key_hides_warns(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("log.dirs=/a\n")
    config = BrokerConfig.load(path, overrides={"log.dir": "/b"})
    assert config.log_dirs == ("/a",)
    assert config.warnings == ["log.dir: no effect, log.dirs wins (server.properties:1)"]


def test_broker_id_is_node_id() -> None:
    assert BrokerConfig.of({"broker.id": 7}).node_id == 7


@pytest.mark.parametrize("given", ["node.id", "broker.id"])
def test_whichever_of_both_ids_is_set_both_are_described(given: str) -> None:
    reported = BrokerConfig.of({given: 7}).describe(["node.id", "broker.id"])
    assert [(entry.name, entry.value, entry.source) for entry in reported] == [
        ("broker.id", "7", ConfigSource.STATIC_BROKER_CONFIG),
        ("node.id", "7", ConfigSource.STATIC_BROKER_CONFIG),
    ]


def test_listener_keys_are_kept_by_listener() -> None:
    config = BrokerConfig.of({"listener.name.internal.plain.sasl.jaas.config": "secret"})
    assert config.listener_overrides == {"INTERNAL": {"plain.sasl.jaas.config": "secret"}}
    assert "secret" not in "".join(config.warnings)


def test_an_unknown_key_is_a_mistake_in_a_test() -> None:
    with pytest.raises(ConfigError, match=r"is not a key; did you mean log\.segment\.bytes\?$"):
        BrokerConfig.of({"log.segment.byte": 1})


def test_advertised_is_auto_for_listeners_that_are_not_named() -> None:
    config = BrokerConfig.of(
        {
            "listeners": "IN://:0,OUT://[::1]:0",
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
            "advertised.listeners": "OUT://example.org:443",
        }
    )
    assert config.advertised("IN") is None
    assert str(config.advertised("OUT")) == "OUT://example.org:443"


def test_describe_reports_source_type_and_synonyms() -> None:
    config = BrokerConfig.of({"log.retention.minutes": 5})
    (entry,) = config.describe(["log.retention.ms", "no.such.key"])
    assert entry.value == "300000"
    assert entry.source is ConfigSource.STATIC_BROKER_CONFIG
    assert entry.type is ConfigType.LONG
    assert [(one.name, one.value, one.source.name) for one in entry.synonyms] == [
        ("log.retention.minutes", "5", "STATIC_BROKER_CONFIG"),
        ("log.retention.hours", "168", "DEFAULT_CONFIG"),
    ]


def test_describe_answers_every_key_with_documentation() -> None:
    entries = BrokerConfig.of().describe()
    assert [entry.name for entry in entries] == sorted(ALL_BROKER_KEYS.keys() - REMOVED_KEYS)
    assert all(entry.documentation for entry in entries)
    assert {entry.source for entry in entries} == {ConfigSource.DEFAULT_CONFIG}


def test_describe_never_shows_a_secret() -> None:
    config = BrokerConfig.of({"ssl.keystore.password": "hunter2"})
    (entry,) = config.describe(["ssl.keystore.password"])
    assert entry.is_sensitive
    assert "hunter2" not in repr(config.describe())
    assert "hunter2" not in "".join(config.warnings)


@pytest.mark.parametrize(
    ("key", "text"), [("advertised.listeners", "auto"), ("ottla.http.listener", "[::1]:0"), ("log.dirs", "/a,/b")]
)
def test_describe_shows_values_as_they_are_written(key: str, text: str) -> None:
    (entry,) = BrokerConfig.of({key: text}).describe([key])
    assert entry.value == text


@pytest.mark.parametrize(
    ("key", "remark"),
    [
        ("listener.name.out.ssl.client.atuh", "not a key that Ottla knows, no effect; did you mean ssl.client.auth?"),
        ("listener.name.outt.ssl.client.auth", "there is no listener OUTT, no effect"),
        ("listener.name.out.plain.sasl.jaas.confg", "not a key that Ottla knows, no effect"),
    ],
)
def test_a_mistake_in_a_key_of_a_listener_is_named(key: str, remark: str) -> None:
    listeners = {"listeners": "OUT://:9093", "listener.security.protocol.map": "OUT:SSL"}
    config = BrokerConfig.load(overrides={**listeners, key: "required"})
    assert config.warnings == [f"{key}: {remark} (--override)"]


@pytest.mark.parametrize("key", ["controller.ssl.client.auth", "out.sasl.login.class"])
def test_keys_of_listeners_that_kafka_knows_are_accepted_without_effect(key: str) -> None:
    given = {
        "listeners": "OUT://:9093",
        "listener.security.protocol.map": "OUT:SSL,CONTROLLER:SSL",
        "controller.listener.names": "CONTROLLER",
    }
    (warning,) = BrokerConfig.load(overrides={**given, f"listener.name.{key}": "none"}).warnings
    assert warning.startswith("accepted without effect")
