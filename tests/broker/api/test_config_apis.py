"""AlterConfigs, IncrementalAlterConfigs and DescribeConfigs: what Apache Kafka 4.1 answered to the same requests."""

from __future__ import annotations

import logging
import random

import pytest
from kit.nodes import ask, start_node
from kit.settings import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    SET,
    SUBTRACT,
    TOPIC,
    Change,
    alter,
    create_topic,
    described,
    replace,
    synonyms_of,
    value_of,
)

from ottla.broker.metadata import config_plans
from ottla.broker.node import Node
from ottla.protocol.api.describe_configs import DescribeConfigsRequest
from ottla.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from ottla.protocol.errors import ErrorCode, KafkaError

TOPIC_CONFIG, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT, LOGGER, METRICS_CONFIG, GROUP_CONFIG = range(1, 9)
OK = (ErrorCode.NONE, None)


def node_with_topic(**keys: object) -> Node:
    node, _, _ = start_node(**keys)
    create_topic(node)
    return node


# --- topics


@pytest.mark.parametrize("version", [0, 1])
def test_a_key_of_a_topic_is_set_and_deleted(version: int) -> None:
    node = node_with_topic()
    assert alter(node, TOPIC, "orders", ("retention.ms", SET, "1000"), version=version) == OK
    assert value_of(node, TOPIC, "orders", "retention.ms") == ("1000", TOPIC_CONFIG)
    assert alter(node, TOPIC, "orders", ("retention.ms", DELETE, None), version=version) == OK
    assert value_of(node, TOPIC, "orders", "retention.ms") == ("604800000", DEFAULT)


def test_lists_grow_and_shrink_from_what_counts_at_present() -> None:
    node = node_with_topic()
    assert alter(node, TOPIC, "orders", ("cleanup.policy", APPEND, "compact")) == OK
    assert value_of(node, TOPIC, "orders", "cleanup.policy") == ("delete,compact", TOPIC_CONFIG)
    assert alter(node, TOPIC, "orders", ("cleanup.policy", APPEND, "compact, delete")) == OK
    assert alter(node, TOPIC, "orders", ("cleanup.policy", SUBTRACT, "delete")) == OK
    assert value_of(node, TOPIC, "orders", "cleanup.policy") == ("compact", TOPIC_CONFIG)


def test_the_last_cleanup_policy_may_be_taken_away_as_in_kafka() -> None:
    node = node_with_topic()
    assert alter(node, TOPIC, "orders", ("cleanup.policy", SUBTRACT, "delete")) == OK
    assert value_of(node, TOPIC, "orders", "cleanup.policy") == ("", TOPIC_CONFIG)
    assert alter(node, TOPIC, "orders", ("cleanup.policy", APPEND, "compact")) == OK
    assert value_of(node, TOPIC, "orders", "cleanup.policy") == ("compact", TOPIC_CONFIG)


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ([("retention.ms", SET, "abc")], ErrorCode.INVALID_CONFIG, "Invalid value abc for configuration retention.ms"),
        ([("retention.ms", SET, "-2")], ErrorCode.INVALID_CONFIG, "Invalid value -2 for configuration retention.ms"),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST, "Null value not supported for : retention.ms"),
        ([("nope", SET, "1")], ErrorCode.INVALID_CONFIG, "Unknown topic config name: nope"),
        (
            [("retention.ms", APPEND, "1")],
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type",
        ),
        ([("nope", SUBTRACT, "1")], ErrorCode.INVALID_CONFIG, "Can't SUBTRACT to key nope because its"),
        ([("cleanup.policy", APPEND, "x")], ErrorCode.INVALID_CONFIG, "Invalid value delete,x for configuration"),
        ([("cleanup.policy", 9, "x")], ErrorCode.INVALID_REQUEST, "Unknown operation 9"),
        ([("retention.ms", SET, "5"), ("retention.ms", DELETE, None)], ErrorCode.INVALID_REQUEST, "Error due to dupl"),
        ([("retention.ms", SET, "5"), ("segment.bytes", SET, "x")], ErrorCode.INVALID_CONFIG, "Invalid value x for"),
        (
            [("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "5")],
            ErrorCode.INVALID_CONFIG,
            "Invalid value 9 for configuration min.compaction.lag.ms",
        ),
    ],
)
def test_what_a_topic_cannot_have_is_refused_and_changes_nothing(
    changes: list[Change], code: ErrorCode, message: str
) -> None:
    node = node_with_topic()
    before, end_offset = described(node, TOPIC, "orders"), node.services.catalog.metadata_end_offset
    answer = alter(node, TOPIC, "orders", *changes)
    assert answer[0] == code
    assert (answer[1] or "").startswith(message)
    assert described(node, TOPIC, "orders") == before
    assert node.services.catalog.metadata_end_offset == end_offset


@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (TOPIC, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'nowhere' does not exist."),
        (TOPIC, "bad topic!", ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid"),
        (TOPIC, "", ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."),
        (TOPIC, "__cluster_metadata", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic"),
        (BROKER, "2", ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1, but received 2"),
        (BROKER, "01", ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1, but received 01"),
        (BROKER, "x", ErrorCode.INVALID_REQUEST, "Node id must be an integer, but it is: x"),
        (GROUP, "", ErrorCode.INVALID_REQUEST, "Default group resources are not allowed."),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST, "Subscription name can't be empty"),
        (99, "m", ErrorCode.INVALID_REQUEST, "Unknown resource type 99"),
        (0, "m", ErrorCode.INVALID_REQUEST, "Unknown resource type 0"),
    ],
)
def test_a_resource_that_is_not_there_says_so(kind: int, name: str, code: ErrorCode, message: str) -> None:
    node = node_with_topic()
    for answer in (
        alter(node, kind, name, ("retention.ms", SET, "5")),
        replace(node, kind, name, ("retention.ms", "5")),
    ):
        assert answer[0] == code
        assert (answer[1] or "").startswith(message)


@pytest.mark.parametrize("name", ["nowhere", "bad topic!", ""])
def test_an_operation_that_the_key_does_not_have_is_reported_before_the_topic_is_looked_for(name: str) -> None:
    node, _, _ = start_node()
    assert alter(node, TOPIC, name, ("retention.ms", APPEND, "5"))[0] == ErrorCode.INVALID_CONFIG


def test_a_value_that_cannot_be_is_reported_before_the_topic_is_looked_for() -> None:
    node, _, _ = start_node()
    assert alter(node, TOPIC, "nowhere", ("retention.ms", SET, "x"))[0] == ErrorCode.INVALID_CONFIG
    assert alter(node, TOPIC, "bad topic!", ("retention.ms", SET, "x"))[0] == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("kind", [0, 1, 64, -1])
def test_a_type_of_resource_that_nobody_knows_makes_all_of_a_description_invalid(kind: int) -> None:
    node = node_with_topic()
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(resource_type=one, resource_name=name, configuration_keys=None)
        for one, name in ((TOPIC, "orders"), (kind, "x"))
    ]
    with pytest.raises(KafkaError) as caught:
        ask(node, DescribeConfigsRequest(resources=resources), 4)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_a_check_changes_nothing() -> None:
    node = node_with_topic()
    end_offset = node.services.catalog.metadata_end_offset
    assert alter(node, TOPIC, "orders", ("retention.ms", SET, "77"), validate_only=True) == OK
    assert replace(node, TOPIC, "orders", ("retention.ms", "77"), validate_only=True) == OK
    assert alter(node, TOPIC, "orders", ("retention.ms", SET, "x"), validate_only=True)[0] == ErrorCode.INVALID_CONFIG
    assert value_of(node, TOPIC, "orders", "retention.ms")[1] == DEFAULT
    assert node.services.catalog.metadata_end_offset == end_offset


def test_deleting_what_nobody_set_and_setting_what_is_set_write_nothing() -> None:
    node = node_with_topic()
    assert alter(node, TOPIC, "orders", ("retention.ms", SET, "7")) == OK
    end_offset = node.services.catalog.metadata_end_offset
    assert alter(node, TOPIC, "orders", ("nope", DELETE, None), ("segment.ms", DELETE, None)) == OK
    assert alter(node, TOPIC, "orders", ("retention.ms", SET, "7")) == OK
    assert alter(node, TOPIC, "orders") == OK
    assert node.services.catalog.metadata_end_offset == end_offset


@pytest.mark.parametrize("version", range(3))
def test_the_old_request_replaces_all(version: int) -> None:
    node = node_with_topic()
    alter(node, TOPIC, "orders", ("retention.ms", SET, "5"), ("segment.ms", SET, "6"))
    assert replace(node, TOPIC, "orders", ("retention.ms", "9"), version=version) == OK
    assert value_of(node, TOPIC, "orders", "retention.ms") == ("9", TOPIC_CONFIG)
    assert value_of(node, TOPIC, "orders", "segment.ms") == ("604800000", DEFAULT)
    assert replace(node, TOPIC, "orders", ("retention.ms", None))[0] == ErrorCode.INVALID_REQUEST
    assert replace(node, TOPIC, "orders", ("retention.ms", "x"))[0] == ErrorCode.INVALID_CONFIG
    assert replace(node, TOPIC, "orders", ("retention.ms", "5"), ("retention.ms", "6"))[0] == ErrorCode.INVALID_REQUEST
    assert replace(node, TOPIC, "orders", version=version) == OK
    assert value_of(node, TOPIC, "orders", "retention.ms")[1] == DEFAULT


def test_a_resource_that_is_named_twice_is_refused_twice_and_others_are_not() -> None:
    node = node_with_topic()
    create_topic(node, "other")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = IncrementalAlterConfigsRequest.AlterableConfig(name="retention.ms", config_operation=SET, value="1")
    names = ["orders", "orders", "other"]
    resources = [resource(resource_type=TOPIC, resource_name=name, configs=[config]) for name in names]
    response = ask(node, IncrementalAlterConfigsRequest(resources=resources, validate_only=False), 1)
    assert isinstance(response, IncrementalAlterConfigsResponse)
    twice = (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    assert [(one.error_code, one.error_message) for one in response.responses] == [twice, twice, (0, None)]
    assert value_of(node, TOPIC, "orders", "retention.ms")[1] == DEFAULT


# --- this broker


def test_a_topic_follows_the_broker_and_says_who_had_a_say() -> None:
    node = node_with_topic(log_retention_hours=24)
    assert alter(node, BROKER, "", ("log.retention.ms", SET, "654321")) == OK
    assert value_of(node, TOPIC, "orders", "retention.ms") == ("654321", DYNAMIC_DEFAULT)
    assert alter(node, BROKER, "1", ("log.retention.ms", SET, "123456")) == OK
    assert value_of(node, TOPIC, "orders", "retention.ms") == ("123456", DYNAMIC_BROKER)
    assert synonyms_of(node, TOPIC, "orders", "retention.ms") == [
        ("log.retention.ms", "123456", DYNAMIC_BROKER),
        ("log.retention.ms", "654321", DYNAMIC_DEFAULT),
        ("log.retention.hours", "24", STATIC),
        ("log.retention.hours", "168", DEFAULT),
    ]
    assert alter(node, BROKER, "1", ("log.retention.ms", DELETE, None)) == OK
    assert value_of(node, BROKER, "1", "log.retention.ms") == ("654321", DYNAMIC_DEFAULT)
    assert replace(node, BROKER, "") == OK
    assert value_of(node, TOPIC, "orders", "retention.ms") == ("86400000", STATIC)


def test_the_broker_of_no_name_is_described_by_what_was_set_for_all() -> None:
    node = node_with_topic()
    alter(node, BROKER, "", ("log.cleanup.policy", APPEND, "compact"))
    alter(node, BROKER, "1", ("log.retention.ms", SET, "5"))
    entries = described(node, BROKER, "")
    assert {name: (entry.value, entry.config_source) for name, entry in entries.items()} == {
        "log.cleanup.policy": ("delete,compact", DYNAMIC_DEFAULT)
    }


@pytest.mark.parametrize("name", ["1", ""])
@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("node.id", "5", "Cannot update these configs dynamically: Set(node.id)"),
        ("log.dirs", "/tmp/x", "Cannot update these configs dynamically: Set(log.dirs)"),
        ("log.retention.hours", "5", "Cannot update these configs dynamically: Set(log.retention.hours)"),
        ("listeners", "PLAINTEXT://:9", "Cannot update these configs dynamically: Set(listeners)"),
        ("nope.nope", "5", "Cannot update these configs dynamically: Set(nope.nope)"),
        ("listener.name.a.ssl.key.password", "s3cret", "Cannot update these configs dynamically: Set(listener.name."),
        ("log.retention.ms", "abc", "Invalid value abc for configuration log.retention.ms"),
        ("max.connections", "-5", "Invalid value -5 for configuration max.connections"),
        ("ottla.acks.all", "maybe", "Invalid value maybe for configuration ottla.acks.all"),
    ],
)
def test_what_cannot_change_while_the_broker_runs_is_refused(name: str, key: str, value: str, message: str) -> None:
    node = node_with_topic()
    code, said = alter(node, BROKER, name, ("log.segment.bytes", SET, "2000000"), (key, SET, value))
    assert code == ErrorCode.INVALID_REQUEST
    assert (said or "").startswith(message)
    assert "s3cret" not in (said or "")
    assert described(node, BROKER, "") == {}
    assert node.services.config.log_segment_bytes == 1 << 30


def test_kafkas_keys_without_effect_may_be_changed_too() -> None:
    node = node_with_topic()
    assert alter(node, BROKER, "", ("remote.log.reader.threads", SET, "12")) == OK
    assert alter(node, BROKER, "1", ("num.io.threads", SET, "12")) == OK
    entry = described(node, BROKER, "1", ["num.io.threads"])["num.io.threads"]
    assert (entry.value, entry.config_source, entry.read_only) == ("12", DYNAMIC_BROKER, False)
    assert "No effect" in (entry.documentation or "")


@pytest.mark.parametrize(
    ("key", "value"),
    [("sasl.kerberos.min.time.before.relogin", "58000"), ("sasl.login.refresh.window.factor", "0.7")],
)
def test_how_often_a_login_is_renewed_may_be_changed_for_one_broker_and_not_for_all_as_in_kafka(
    key: str, value: str
) -> None:
    node = node_with_topic()
    assert alter(node, BROKER, "1", (key, SET, value)) == OK
    assert value_of(node, BROKER, "1", key) == (value, DYNAMIC_BROKER)
    code, said = alter(node, BROKER, "", (key, SET, value))
    assert code == ErrorCode.INVALID_REQUEST
    assert said == (f"Cannot update these configs at default cluster level, broker id must be specified: Set({key})")


# --- groups and client metrics


def test_a_group_has_its_own_timeouts_within_the_brokers_bounds() -> None:
    node = node_with_topic(group_consumer_min_session_timeout_ms=1000)
    assert value_of(node, GROUP, "g", "consumer.session.timeout.ms") == ("45000", DEFAULT)
    assert alter(node, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")) == OK
    assert value_of(node, GROUP, "g", "consumer.session.timeout.ms") == ("50000", GROUP_CONFIG)
    assert node.services.catalog.settings.group_configs("g") == {"consumer.session.timeout.ms": "50000"}
    assert node.services.catalog.settings.group_configs("h") == {}
    code, message = alter(node, GROUP, "g", ("consumer.session.timeout.ms", SET, "5"))
    assert code == ErrorCode.INVALID_CONFIG
    bound = "must be greater than or equal to group.consumer.min.session.timeout.ms"
    assert message == f"consumer.session.timeout.ms {bound}"
    code, message = alter(node, GROUP, "g", ("consumer.heartbeat.interval.ms", SET, "60000"))
    assert code == ErrorCode.INVALID_CONFIG
    assert "less than or equal to group.consumer.max.heartbeat.interval.ms" in (message or "")
    assert alter(node, GROUP, "g", ("nope", SET, "5")) == (ErrorCode.INVALID_CONFIG, "Unknown group config name: nope")
    assert replace(node, GROUP, "g") == OK
    assert node.services.catalog.settings.group_configs("g") == {}


@pytest.mark.parametrize(
    ("key", "inside", "outside"),
    [
        ("share.session.timeout.ms", ("100", "60000"), ("99", "60001")),
        ("share.heartbeat.interval.ms", ("10", "15000"), ("9", "15001")),
        ("share.record.lock.duration.ms", ("100", "60000"), ("99", "60001")),
        ("consumer.assignment.interval.ms", ("0", "15000"), ("-1", "15001")),
        ("share.assignment.interval.ms", ("0", "15000"), ("-1", "15001")),
        ("share.assignor.offload.enable", ("true", "false"), ("", "1")),
        ("streams.session.timeout.ms", ("5001", "60000"), ("99", "60001")),
        ("streams.heartbeat.interval.ms", ("10", "15000"), ("9", "15001")),
        ("streams.num.standby.replicas", ("0", "2"), ("-1", "3")),
        ("streams.assignment.interval.ms", ("0", "15000"), ("-1", "15001")),
        ("streams.task.offset.interval.ms", ("15000", "2147483647"), ("14999", "2147483648")),
        ("streams.num.warmup.replicas", ("0", "20"), ("-1", "21")),
        ("streams.rack.aware.assignment.tags", ("", "zone,cluster"), ("zone,zone", "zone,,rack")),
        ("streams.assignor.name", ("sticky", "sticky"), ("", "range")),
    ],
)
def test_what_share_and_streams_groups_set_keeps_within_the_brokers_bounds(
    key: str, inside: tuple[str, str], outside: tuple[str, str]
) -> None:
    node, _, _ = start_node()
    assert [alter(node, GROUP, "g", (key, SET, value)) for value in inside] == [OK, OK]
    codes = [alter(node, GROUP, "g", (key, SET, value))[0] for value in outside]
    assert codes == [ErrorCode.INVALID_CONFIG] * 2


def test_client_metrics_are_kept() -> None:
    node = node_with_topic()
    assert alter(node, CLIENT_METRICS, "m", ("interval.ms", SET, "1000"), ("metrics", SET, "*")) == OK
    assert value_of(node, CLIENT_METRICS, "m", "interval.ms") == ("1000", METRICS_CONFIG)
    assert value_of(node, CLIENT_METRICS, "m", "match") == ("", DEFAULT)
    for key, value in (("interval.ms", "1"), ("interval.ms", "-5"), ("nope", "1")):
        assert alter(node, CLIENT_METRICS, "m", (key, SET, value))[0] == ErrorCode.INVALID_REQUEST
    for key, value in (("interval.ms", "soon"), ("match", "client_shoe_size=9"), ("match", "client_id=a,client_id=(")):
        assert alter(node, CLIENT_METRICS, "m", (key, SET, value))[0] == ErrorCode.INVALID_CONFIG


def test_the_number_of_configured_groups_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_plans, "MAX_CONFIGURED_RESOURCES", 2)
    node = node_with_topic()
    timeout = ("consumer.session.timeout.ms", SET, "50000")
    assert [alter(node, GROUP, name, timeout)[0] for name in "abc"] == [0, 0, ErrorCode.POLICY_VIOLATION]
    assert alter(node, GROUP, "a", ("consumer.session.timeout.ms", SET, "51000")) == OK


# --- loggers


def test_the_level_of_a_logger_changes_at_once_and_goes_back(caplog: pytest.LogCaptureFixture) -> None:
    node = node_with_topic()
    logger = logging.getLogger("ottla.test.levels")
    assert alter(node, BROKER_LOGGER, "1", ("ottla.test.levels", SET, "DEBUG")) == OK
    assert logger.isEnabledFor(logging.DEBUG)
    assert value_of(node, BROKER_LOGGER, "1", "ottla.test.levels") == ("DEBUG", LOGGER)
    assert alter(node, BROKER_LOGGER, "1", ("ottla.test.levels", SET, "ERROR"), validate_only=True) == OK
    assert logger.isEnabledFor(logging.DEBUG)
    assert alter(node, BROKER_LOGGER, "1", ("ottla.test.levels", DELETE, None)) == OK
    assert logger.level == logging.NOTSET


@pytest.mark.parametrize(
    ("name", "change", "code", "message"),
    [
        ("1", ("no.such.logger", SET, "DEBUG"), ErrorCode.INVALID_CONFIG, "Logger no.such.logger does not exist!"),
        ("1", ("root", SET, "LOUD"), ErrorCode.INVALID_CONFIG, "Cannot set the log level of root to LOUD"),
        (
            "1",
            ("root", APPEND, "DEBUG"),
            ErrorCode.INVALID_REQUEST,
            "APPEND operation is not allowed for the BROKER_LO",
        ),
        ("1", ("root", DELETE, None), ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not"),
        ("2", ("root", SET, "INFO"), ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1, but received 2"),
        ("", ("root", SET, "INFO"), ErrorCode.INVALID_REQUEST, "Node id must be an integer, but it is: "),
    ],
)
def test_what_loggers_cannot_do_is_refused(name: str, change: Change, code: ErrorCode, message: str) -> None:
    node = node_with_topic()
    level = logging.getLogger().level
    answer = alter(node, BROKER_LOGGER, name, change)
    assert answer[0] == code
    assert (answer[1] or "").startswith(message)
    assert logging.getLogger().level == level
    assert replace(node, BROKER_LOGGER, "1", ("root", "INFO"))[0] == ErrorCode.INVALID_REQUEST


# --- what survives


def test_what_was_answered_survives_the_loss_of_power() -> None:
    node, files, clock = start_node()
    create_topic(node)
    assert alter(node, TOPIC, "orders", ("retention.ms", SET, "1000"), ("segment.ms", SET, "5")) == OK
    assert alter(node, TOPIC, "orders", ("segment.ms", DELETE, None)) == OK
    assert alter(node, BROKER, "1", ("log.segment.bytes", SET, "2000000")) == OK
    assert alter(node, BROKER, "", ("log.index.interval.bytes", SET, "512")) == OK
    assert alter(node, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")) == OK
    again, _, _ = start_node(files.crash(random.Random(1)), clock)
    assert value_of(again, TOPIC, "orders", "retention.ms") == ("1000", TOPIC_CONFIG)
    assert value_of(again, TOPIC, "orders", "segment.ms")[1] == DEFAULT
    assert value_of(again, TOPIC, "orders", "segment.bytes") == ("2000000", DYNAMIC_BROKER)
    assert value_of(again, TOPIC, "orders", "index.interval.bytes") == ("512", DYNAMIC_DEFAULT)
    assert value_of(again, GROUP, "g", "consumer.session.timeout.ms") == ("50000", GROUP_CONFIG)
    partition = again.services.catalog.partition("orders", 0)
    assert partition is not None
    assert (partition.log.config.retention_ms, partition.log.config.segment_bytes) == (1000, 2_000_000)


def test_a_topic_that_is_created_again_has_nothing_of_the_old_one() -> None:
    node = node_with_topic()
    alter(node, TOPIC, "orders", ("retention.ms", SET, "1000"))
    node.services.catalog.delete_topics(["orders"], lambda outcomes: None)
    node.settle()
    create_topic(node)
    assert value_of(node, TOPIC, "orders", "retention.ms")[1] == DEFAULT


def test_a_disk_that_takes_no_more_refuses_every_change_and_nothing_is_in_effect() -> None:
    node = node_with_topic()
    node.services.catalog.metadata_log.fail(OSError(5, "Input/output error"))
    for kind, name, key in ((TOPIC, "orders", "retention.ms"), (BROKER, "1", "log.retention.ms")):
        assert alter(node, kind, name, (key, SET, "5"))[0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert value_of(node, TOPIC, "orders", "retention.ms")[1] == DEFAULT
    assert alter(node, TOPIC, "orders", ("retention.ms", SET, "5"), validate_only=True) == OK
