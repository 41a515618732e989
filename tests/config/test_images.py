from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError

PAGE = Path(__file__).parents[2] / "docs" / "image.md"
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"


def load(**environ: str) -> BrokerConfig:
    return BrokerConfig.load(environ=environ)


# --- applied


@pytest.mark.parametrize("variable", ["CLUSTER_ID", "KAFKA_KRAFT_CLUSTER_ID", "KAFKA_CLUSTER_ID"])
def test_the_cluster_id_of_each_image_is_applied(variable: str) -> None:
    config = load(**{variable: CLUSTER})
    assert config.ottla_cluster_id == CLUSTER
    assert str(config.origin_of("ottla.cluster.id")) == f"environment {variable}"
    assert load(**{variable: ""}).ottla_cluster_id == load().ottla_cluster_id


def test_two_cluster_ids_are_refused() -> None:
    assert load(CLUSTER_ID=CLUSTER, KAFKA_CLUSTER_ID=CLUSTER).ottla_cluster_id == CLUSTER
    with pytest.raises(ConfigError, match="KAFKA_CLUSTER_ID=other: is another cluster than CLUSTER_ID says"):
        load(CLUSTER_ID=CLUSTER, KAFKA_CLUSTER_ID="other")


def test_bitnamis_spelling_is_the_key() -> None:
    config = load(KAFKA_CFG_NODE_ID="7", KAFKA_CFG_NUM_PARTITIONS="3")
    assert (config.node_id, config.num_partitions, config.warnings) == (7, 3, [])
    assert str(config.origin_of("node.id")) == "environment KAFKA_CFG_NODE_ID"
    (warning,) = load(KAFKA_CFG_NUM_PARTITION="3").warnings
    assert warning.startswith("num.partition: not a key that Ottla knows, no effect; did you mean num.partitions?")


def test_an_advertised_address_without_a_host_is_the_one_that_the_client_has_connected_to() -> None:
    """Bitnami's published compose file has `PLAINTEXT://:9092`."""
    config = load(KAFKA_CFG_ADVERTISED_LISTENERS="PLAINTEXT://:9092", KAFKA_CFG_LISTENERS="PLAINTEXT://:9092")
    assert config.advertised("PLAINTEXT") is None
    with pytest.raises(ConfigError, match="SSL is not among the listeners"):
        load(KAFKA_ADVERTISED_LISTENERS="PLAINTEXT://:9092,SSL://:1", KAFKA_LISTENERS="PLAINTEXT://:9092")


MAP = "PLAINTEXT:PLAINTEXT,PLAINTEXT_INTERNAL:PLAINTEXT"
SENT = "PLAINTEXT://localhost:9092,PLAINTEXT_INTERNAL://broker:29092"


@pytest.mark.parametrize(
    ("text", "separator", "names"),
    [
        ("orders:3:1,users:1:1:compact", None, ["orders", "users"]),
        ("orders:3:1\nusers:1:1:compact,delete", "$'\\n'", ["orders", "users"]),
        ("orders:3:1\nusers:1:1:compact,delete", "\n", ["orders", "users"]),
        ("orders:3:1 | users:1:1:compact,delete", "|", ["orders", "users"]),
    ],
)
def test_the_topics_of_wurstmeisters_image(text: str, separator: str | None, names: list[str]) -> None:
    environ = {} if separator is None else {"KAFKA_CREATE_TOPICS_SEPARATOR": separator}
    config = load(KAFKA_CREATE_TOPICS=text, **environ)
    assert [topic.name for topic in config.ottla_create_topics] == names
    assert str(config.origin_of("ottla.create.topics")) == "environment KAFKA_CREATE_TOPICS"
    assert config.warnings == []


def test_a_topic_that_cannot_be_created_is_named_with_its_variable() -> None:
    with pytest.raises(ConfigError, match=r"Topic1:1:3: there is one broker.*\(environment KAFKA_CREATE_TOPICS\)"):
        load(KAFKA_CREATE_TOPICS="Topic1:1:3,Topic2:1:1:compact")


@pytest.mark.parametrize("prefix", ["KAFKA_", "KAFKA_CFG_"])
def test_listeners_that_are_only_advertised_are_listened_to_as_in_confluents_image(prefix: str) -> None:
    config = load(**{f"{prefix}ADVERTISED_LISTENERS": SENT, f"{prefix}LISTENER_SECURITY_PROTOCOL_MAP": MAP})
    assert [str(one) for one in config.listeners] == ["PLAINTEXT://:9092", "PLAINTEXT_INTERNAL://:29092"]
    assert str(config.advertised("PLAINTEXT_INTERNAL")) == "PLAINTEXT_INTERNAL://broker:29092"
    (remark,) = config.warnings
    assert remark.startswith(
        "listeners are not set: listening where clients are sent to, PLAINTEXT://:9092,PLAINTEXT_IN"
    )


def test_a_name_without_a_protocol_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"add PLAINTEXT_INTERNAL:PLAINTEXT to listener\.security\.protocol\.map"):
        load(KAFKA_ADVERTISED_LISTENERS=SENT)


def test_listeners_that_are_set_anywhere_stay_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=A://:1\nlistener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT\n")
    environ = {"KAFKA_ADVERTISED_LISTENERS": "A://host:5"}
    config = BrokerConfig.load(file, environ=environ)
    assert [str(one) for one in config.listeners] == ["A://:1"]
    config = BrokerConfig.load(file, environ=environ, overrides={"listeners": "A://:2"})
    assert ([str(one) for one in config.listeners], config.warnings) == (["A://:2"], [])


def test_the_default_listener_stays_where_it_is_with_a_line_about_another_port() -> None:
    """`-p 19092:9092` is as likely as Confluent's way, so neither is guessed."""
    (remark,) = load(KAFKA_ADVERTISED_LISTENERS="PLAINTEXT://kafka:29092").warnings
    assert "set KAFKA_LISTENERS=PLAINTEXT://:29092 (environment KAFKA_ADVERTISED_LISTENERS)" in remark
    assert load(KAFKA_ADVERTISED_LISTENERS="PLAINTEXT://kafka:9092").warnings == []
    assert load(KAFKA_ADVERTISED_LISTENERS="auto").warnings == []


def test_the_host_and_port_of_wurstmeisters_image(tmp_path: Path) -> None:
    config = load(KAFKA_ADVERTISED_HOST_NAME="192.168.99.100", KAFKA_ZOOKEEPER_CONNECT="zookeeper:2181")
    assert str(config.advertised("PLAINTEXT")) == "PLAINTEXT://192.168.99.100:9092"
    assert config.warnings == [
        "zookeeper.connect: no effect, there is no ZooKeeper (environment KAFKA_ZOOKEEPER_CONNECT)"
    ]
    config = load(KAFKA_ADVERTISED_HOST_NAME="h", KAFKA_ADVERTISED_PORT="9094", KAFKA_PORT="9093")
    assert str(config.advertised("PLAINTEXT")) == "PLAINTEXT://h:9094"
    assert [str(one) for one in config.listeners] == ["PLAINTEXT://:9093"]
    file = tmp_path / "server.properties"
    file.write_text("advertised.listeners=PLAINTEXT://localhost:9092\n")
    config = BrokerConfig.load(file, environ={"KAFKA_ADVERTISED_HOST_NAME": "h"})
    assert str(config.advertised("PLAINTEXT")) == "PLAINTEXT://h:9092"


def test_kafkas_own_keys_win_over_the_old_address_with_a_line() -> None:
    config = load(KAFKA_ADVERTISED_HOST_NAME="h", KAFKA_ADVERTISED_LISTENERS="PLAINTEXT://new:9092")
    assert str(config.advertised("PLAINTEXT")) == "PLAINTEXT://new:9092"
    assert config.warnings == ["KAFKA_ADVERTISED_HOST_NAME: no effect, advertised.listeners is set (environment)"]
    config = load(KAFKA_PORT="9999", KAFKA_LISTENERS="PLAINTEXT://:9092")
    assert config.warnings == ["KAFKA_PORT: no effect, listeners says where to listen (environment)"]


def test_what_kubernetes_sets_for_a_service_named_kafka_is_no_port() -> None:
    config = load(KAFKA_PORT="tcp://10.0.0.1:9092", KAFKA_SERVICE_HOST="10.0.0.1", KAFKA_PORT_9092_TCP_ADDR="10.0.0.1")
    assert (config.warnings, [str(one) for one in config.listeners]) == ([], ["PLAINTEXT://:9092"])


# --- named


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        ("KAFKA_HEAP_OPTS", "there is no JVM"),
        ("KAFKA_OPTS", "there is no JVM"),
        ("KAFKA_JMX_PORT", "metrics are served at ottla.http.listener"),
        ("KAFKA_JMX_HOSTNAME", "there is no JVM"),
        ("KAFKA_LOG4J_ROOT_LOGLEVEL", "`ottla serve --log-level`"),
        ("KAFKA_LOG4J_LOGGERS", "`ottla serve --log-level`"),
        ("KAFKA_TOOLS_LOG4J_LOGLEVEL", "`ottla serve --log-level`"),
        ("BITNAMI_DEBUG", "`ottla serve --log-level`"),
        ("KAFKA_ENABLE_KRAFT", "the broker is its own controller"),
        ("ALLOW_PLAINTEXT_LISTENER", "PLAINTEXT needs no permission"),
        ("KAFKA_CONFLUENT_SUPPORT_METRICS_ENABLE", "Confluent's own additions"),
        ("CONFLUENT_METRICS_ENABLE", "Confluent's own additions"),
        ("KAFKA_MOUNTED_CONF_DIR", "Bitnami's image"),
        ("KAFKA_ZOOKEEPER_CONNECT", "there is no ZooKeeper"),
    ],
)
def test_what_means_nothing_here_is_accepted_in_one_line_that_says_so(variable: str, says: str) -> None:
    (warning,) = load(**{variable: "yes"}).warnings
    assert "no effect" in warning
    assert variable in warning
    assert says in warning
    assert load(**{variable: ""}).warnings == [] or variable == "KAFKA_ZOOKEEPER_CONNECT"


def test_a_separator_of_no_topics_has_no_effect() -> None:
    (warning,) = load(KAFKA_CREATE_TOPICS_SEPARATOR="|").warnings
    assert warning.startswith("KAFKA_CREATE_TOPICS_SEPARATOR: no effect without KAFKA_CREATE_TOPICS")


def test_variables_of_one_kind_share_a_line() -> None:
    (warning,) = load(KAFKA_HEAP_OPTS="-Xmx1g", KAFKA_JMX_PORT="9101", KAFKA_JMX_HOSTNAME="localhost").warnings
    assert warning.startswith("KAFKA_HEAP_OPTS, KAFKA_JMX_HOSTNAME, KAFKA_JMX_PORT: no effect, there is no JVM")


def test_several_controllers_are_no_cluster() -> None:
    config = load(KAFKA_CONTROLLER_QUORUM_VOTERS="1@a:9093,2@b:9093,3@c:9093")
    assert any("Ottla has no clusters of brokers: each broker is a cluster" in warning for warning in config.warnings)
    assert not any("clusters" in warning for warning in load(KAFKA_CONTROLLER_QUORUM_VOTERS="1@a:9093").warnings)


# --- refused


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        ("KAFKA_CLIENT_USERS", "logins"),
        ("KAFKA_CLIENT_PASSWORDS", "logins"),
        ("KAFKA_INTER_BROKER_USER", "logins"),
        ("KAFKA_TLS_TYPE", "TLS"),
        ("KAFKA_SSL_KEYSTORE_FILENAME", "TLS"),
        ("KAFKA_DATA_DIR", "KAFKA_LOG_DIRS"),
        ("HOSTNAME_COMMAND", "KAFKA_ADVERTISED_LISTENERS"),
        ("KAFKA_ADVERTISED_PORT", "KAFKA_ADVERTISED_HOST_NAME"),
    ],
)
def test_what_somebody_counts_on_is_refused_by_name(variable: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(**{variable: "9094"})
    line = str(refused.value)
    assert line.startswith(variable)
    assert says in line
    assert "\n" not in line
    load(**{variable: ""})


def test_passwords_are_not_shown() -> None:
    with pytest.raises(ConfigError) as refused:
        load(KAFKA_CLIENT_PASSWORDS="secret")
    assert "secret" not in str(refused.value)


def test_plaintext_that_is_forbidden_is_refused() -> None:
    with pytest.raises(ConfigError, match="ALLOW_PLAINTEXT_LISTENER=no: forbids PLAINTEXT"):
        load(ALLOW_PLAINTEXT_LISTENER="no")
    tls = {"KAFKA_LISTENERS": "SSL://:9093", "KAFKA_SSL_KEYSTORE_LOCATION": "/server.pem"}
    assert load(ALLOW_PLAINTEXT_LISTENER="no", **tls).warnings == []


# --- the page


def test_the_table_of_the_page_names_what_is_read_here() -> None:
    """Each name of the table does what its row says: applied, no effect, or refused."""
    table = PAGE.read_text().partition("### From other images")[2].partition("\n### ")[0]
    verdicts = {"applied": 0, "no effect": 0, "refused": 0}
    for row in re.findall(r"^\| (.*?) \| (applied|no effect|refused)\b", table, re.MULTILINE):
        for name in re.findall(r"`([A-Z][A-Z0-9_]+)(?:=([^`]*))?`", row[0]):
            assert verdict(*name) == row[1], name
            verdicts[row[1]] += 1
    assert min(verdicts.values()) >= 5


def verdict(variable: str, value: str) -> str:
    examples = {"CLUSTER_ID": CLUSTER, "LISTENERS": "PLAINTEXT://:9093", "ADVERTISED_LISTENERS": SENT}
    example = next((text for end, text in examples.items() if variable.endswith(f"_{end}") or variable == end), "9094")
    try:
        config = load(**{variable: value or example, "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": MAP})
    except ConfigError as refused:
        return "refused" if str(refused).startswith(variable) else str(refused)
    if any(variable in warning and "no effect" in warning for warning in config.warnings):
        return "no effect"
    return "applied" if any(variable in str(origin) for origin in config.origins.values()) else "passed over"
