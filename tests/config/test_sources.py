from __future__ import annotations

from pathlib import Path

import pytest

from ottla.config.errors import ConfigError
from ottla.config.sources import (
    FILE_MAX_BYTES,
    read_environment,
    read_properties,
    split_override,
    split_overrides,
)


def properties(tmp_path: Path, text: str | bytes) -> dict[str, tuple[str, str]]:
    path = tmp_path / "server.properties"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return {key: (given.text, str(given.origin)) for key, given in read_properties(path).items()}


def test_java_syntax_with_comments_continuations_and_separators(tmp_path: Path) -> None:
    text = "# one\n! two\n\na=1\nb : 2\nc 3\nd=x,\\\n   y\ne=\\u00e9\\t\n   f=6\r\ng\n"
    assert properties(tmp_path, text) == {
        "a": ("1", "server.properties:4"),
        "b": ("2", "server.properties:5"),
        "c": ("3", "server.properties:6"),
        "d": ("x,y", "server.properties:7"),
        "e": ("\u00e9\t", "server.properties:9"),
        "f": ("6", "server.properties:10"),
        "g": ("", "server.properties:11"),
    }


def test_the_last_of_two_lines_counts_as_in_java(tmp_path: Path) -> None:
    assert properties(tmp_path, "a=1\na=2\n") == {"a": ("2", "server.properties:2")}


def test_utf8_and_else_latin1(tmp_path: Path) -> None:
    assert properties(tmp_path, "a=\u00e9\u4e2d")["a"][0] == "\u00e9\u4e2d"
    assert properties(tmp_path, b"a=\xe9")["a"][0] == "\u00e9"


def test_a_missing_file_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.properties: cannot be read: No such file or directory"):
        read_properties(tmp_path / "nothing.properties")


def test_a_directory_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_properties(tmp_path)


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    assert properties(tmp_path, b"#" * FILE_MAX_BYTES) == {}
    with pytest.raises(ConfigError, match=r"is no server\.properties"):
        properties(tmp_path, b"#" * (FILE_MAX_BYTES + 1))


def test_a_broken_escape_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"server\.properties:2: .*is not a .uXXXX escape"):
        properties(tmp_path, "a=1\nb=\\u12\n")


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KAFKA_LOG_RETENTION_MS", "log.retention.ms"),
        ("KAFKA_NODE_ID", "node.id"),
        ("KAFKA_CFG_LOG_RETENTION_MS", "log.retention.ms"),
        ("KAFKA_CFG_A___B", "a-b"),
        ("KAFKA_A__B", "a_b"),
        ("KAFKA_A___B", "a-b"),
        ("KAFKA_LISTENER_NAME_TC___0_SSL_KEYSTORE_TYPE", "listener.name.tc-0.ssl.keystore.type"),
        ("KAFKA_OTTLA_ACKS_ALL", "ottla.acks.all"),
        ("OTTLA_ACKS_ALL", "ottla.acks.all"),
    ],
)
def test_a_variable_names_its_key(variable: str, key: str) -> None:
    (given,) = read_environment({variable: "x"}).items()
    assert given[0] == key
    assert str(given[1].origin) == f"environment {variable}"


@pytest.mark.parametrize(
    "variable",
    [
        "PATH",
        "KAFKA_HEAP_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_PORT",
        "KAFKA_SERVICE_HOST",
        "KAFKA_PORT_9092_TCP_ADDR",
        "XKAFKA_NODE_ID",
        "kafka_node_id",
    ],
)
def test_variables_that_are_no_keys_are_left_alone(variable: str) -> None:
    assert read_environment({variable: "x"}) == {}


def test_an_override_is_split_at_the_first_equals_sign() -> None:
    assert split_override("a=b=c") == ("a", "b=c")
    assert split_overrides(["a=1", "a="]) == {"a": ""}


@pytest.mark.parametrize("text", ["a", "=b", ""])
def test_an_override_without_a_key_or_value_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be key=value"):
        split_override(text)


def test_two_spellings_of_a_key_must_agree() -> None:
    assert len(read_environment({"KAFKA_NODE_ID": "2", "KAFKA_CFG_NODE_ID": "2"})) == 1
    with pytest.raises(ConfigError) as refused:
        read_environment({"KAFKA_NODE_ID": "2", "KAFKA_CFG_NODE_ID": "3"})
    assert str(refused.value) == (
        "KAFKA_NODE_ID: is set to another value by KAFKA_CFG_NODE_ID; remove one of them (environment)"
    )
