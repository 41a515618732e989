"""Options of the client by Kafka's names: properties of one command, and a file for all of them."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from kit.broker import BrokerProcess
from kit.command import Said, run

from ottla.cli.client_properties import FILE_KEY, options_of, read_file
from ottla.cli.main import main
from ottla.cli.produce import PARTITIONERS
from ottla.client.options import AdminOptions
from ottla.client.partitioner import RULES, murmur2
from ottla.client.producer_options import ProducerOptions

NOWHERE = "127.0.0.1:1"


def produce(broker: BrokerProcess, topic: str, lines: str, *arguments: object) -> Said:
    given = [str(one) for one in ("produce", topic, "-b", broker.bootstrap, *arguments)]
    result = CliRunner().invoke(main, given, input=lines)
    return Said(result.exit_code, result.stdout, result.stderr)


def placed(broker: BrokerProcess, topic: str) -> dict[int, list[str]]:
    """The values in each partition."""
    said = run("consume", topic, "-B", "-e", "--json", "-b", broker.bootstrap)
    found: dict[int, list[str]] = {}
    for record in map(json.loads, said.out.splitlines()):
        found.setdefault(record["partition"], []).append(record["value"])
    return found


def merged(
    file: dict[str, str], properties: dict[str, str], chosen: dict[str, object], kind: type = ProducerOptions
) -> dict[str, object]:
    """What a client is given, of a file, properties and options of a command."""
    with click.Context(click.Command("x")) as context:
        context.meta[FILE_KEY] = file
        return options_of(
            kind, NOWHERE, {"client_id": "ottla-x"}, properties=properties, option="--producer-property", chosen=chosen
        )


# What counts -------------------------------------------------------------------------------------------------------


def test_an_option_counts_before_a_property_before_the_file_before_the_commands_own() -> None:
    file = {"linger.ms": "1", "acks": "1", "client.id": "mine"}
    assert merged(file, {}, {}) == {"client_id": "mine", "linger_ms": "1", "acks": "1"}
    assert merged(file, {"linger.ms": "2"}, {"acks": None})["linger_ms"] == "2"
    assert merged(file, {"acks": "0"}, {"acks": "all"})["acks"] == "all"


def test_other_names_of_an_option_are_the_same_option() -> None:
    assert merged({"request.required.acks": "0"}, {"acks": "1"}, {}) == {"client_id": "ottla-x", "acks": "1"}
    assert merged({}, {"queue.buffering.max.ms": "7"}, {})["linger_ms"] == "7"


def test_what_the_file_says_for_other_clients_is_left_out() -> None:
    assert merged({"group.id": "g", "linger.ms": "3"}, {}, {}, AdminOptions) == {"client_id": "ottla-x"}


def test_the_rules_that_help_names_are_the_clients() -> None:
    assert PARTITIONERS == RULES


# Properties ----------------------------------------------------------------------------------------------------------


def test_a_partitioner_is_chosen_by_name(broker: BrokerProcess, topic: str) -> None:
    run("topics", "create", topic, "--partitions", "4", "-b", broker.bootstrap)
    assert produce(broker, topic, "k:1\nk:2\nk:3\nk:4\n", "-k", ":", "--partitioner", "roundrobin").status == 0
    assert {index: len(values) for index, values in placed(broker, topic).items()} == {0: 1, 1: 1, 2: 1, 3: 1}


def test_without_one_keys_go_where_javas_clients_send_them(broker: BrokerProcess, topic: str) -> None:
    run("topics", "create", topic, "--partitions", "4", "-b", broker.bootstrap)
    produce(broker, topic, "k:1\nk:2\n", "-k", ":")
    assert placed(broker, topic) == {(murmur2(b"k") & 0x7FFFFFFF) % 4: ["1", "2"]}


def test_properties_reach_the_producer_and_the_consumer(broker: BrokerProcess, topic: str) -> None:
    said = produce(
        broker, topic, "x\n", "--producer-property", "partitioner=random", "--producer-property", "max.request.size=60"
    )
    assert said.status == 1
    assert "above max_request_size" in said.line
    assert produce(broker, topic, "x\n", "--producer-property", "compression.type=zstd").status == 0
    consume = ["consume", topic, "-e", "-b", broker.bootstrap, "--consumer-property"]
    assert run(*consume, "auto.offset.reset=earliest").out == "x\n"
    assert run(*consume, "auto.offset.reset=latest").out == ""


def test_a_group_may_be_a_property(broker: BrokerProcess, topic: str) -> None:
    produce(broker, topic, "x\n")
    consume = ["consume", topic, "-b", broker.bootstrap, "--consumer-property", f"group.id=g-{topic}", "-B", "-e"]
    assert run(*consume).out == "x\n"
    assert run(*consume).out == "", "the group has committed what was printed"
    said = run(*consume, "-p", "0")
    assert said.status == 2
    assert "a group assigns the partitions" in " ".join(said.err.split())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--group-protocol", "consumer"], "--group-protocol needs --group"),
        (["-o", "beginning"], "--from-beginning starts with the first record"),
        (["-o", "latest"], "without --offset the next record is the first"),
        (["-o", "x"], "'x' is not a whole number"),
    ],
)
def test_what_consume_refuses_says_what_to_use(options: list[str], words: str) -> None:
    said = run("consume", "t", *options, "-b", "127.0.0.1:1")
    assert said.status == 2
    assert words in " ".join(said.err.split())


REFUSED = [
    ("produce", "linger.mss=1", "--producer-property: unknown option linger.mss: did you mean linger.ms?"),
    ("produce", "acks=5", "acks must be 'all', 1 or 0, not '5'"),
    ("produce", "linger.ms=x", "linger.ms must be a number, 0 or more, not 'x'"),
    ("produce", "delivery.timeout.ms=1", "delivery.timeout.ms must be at least linger.ms + request.timeout.ms"),
    ("produce", "group.id=g", "--producer-property: group.id is an option of other clients, not of this one"),
    ("produce", "bootstrap.servers=x", "--producer-property: say it with --bootstrap-server"),
    (
        "produce",
        "enable.metrics.push=true",
        "enable.metrics.push is an option of Kafka's that this client does not have",
    ),
    ("produce", "sasl.mechanism=GSSAPI", "sasl.mechanism must be one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTH"),
    ("consume", "sasl.pasword=geheim", "unknown option sasl.pasword: did you mean sasl.password?"),
    ("consume", "ssl.cipher.suites=geheim", "ssl.cipher.suites is about TLS or SASL, and no option that this client"),
    ("consume", "security.protocol=SASL_SSL", "sasl.mechanism must be one of PLAIN, SCRAM-SHA-256"),
    ("consume", "isolation.level=read", "isolation.level must be one of read_uncommitted, read_committed, not 'read'"),
    ("consume", "key.deserializer=org.apache.X", "key.deserializer names code, which has no place here: leave it out"),
    ("consume", "fetch.min.byte=1", "did you mean fetch.min.bytes?"),
]


@pytest.mark.parametrize(("command", "given", "words"), REFUSED)
def test_what_a_client_does_not_have_is_one_line_before_anything_is_dialled(
    command: str, given: str, words: str
) -> None:
    kind = "--producer-property" if command == "produce" else "--consumer-property"
    said = run(command, "t", kind, given, "-b", NOWHERE)
    assert said.status == 2
    assert words in said.line
    assert "geheim" not in said.line


def test_what_is_wrong_in_a_file_is_no_wrong_command_line(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    produce = ["produce", "t", "-b", NOWHERE, "--command-config", str(file)]
    for text in ("linger.mss=1", "linger.ms=x"):
        file.write_text(text)
        assert run(*produce).status == 1
        assert run(*produce, "--producer-property", "retries=1").status == 1
    assert run(*produce, "--producer-property", "linger.ms=y").status == 2


def test_a_property_without_a_value_is_a_wrong_command_line() -> None:
    said = run("produce", "t", "--producer-property", "acks")
    assert said.status == 2
    assert "'acks' is not KEY=VALUE" in said.err


# A file --------------------------------------------------------------------------------------------------------------

COMMANDS = [
    ["topics", "list"],
    ["topics", "describe"],
    ["groups", "list"],
    ["configs", "describe"],
    ["consume", "TOPIC", "-e"],
    ["produce", "TOPIC"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_file_serves_every_client_command(
    broker: BrokerProcess, topic: str, tmp_path: Path, command: list[str]
) -> None:
    run("topics", "create", topic, "-b", broker.bootstrap)
    file = tmp_path / "client.properties"
    file.write_text(
        f"# for all\nbootstrap.servers={broker.bootstrap}\nacks=all\nlinger.ms=1\nauto.offset.reset=earliest\n"
        "security.protocol=PLAINTEXT\nrequest.timeout.ms=20000\n"
    )
    arguments = [topic if one == "TOPIC" else one for one in command]
    said = run(*arguments, "--command-config", file)
    assert (said.status, said.err) == (0, "")
    said = run(*arguments, "--command-config", file, "-b", NOWHERE)
    assert said.status == 1, "--bootstrap-server counts before the file"
    assert NOWHERE in said.line


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("linger.mss=1", "unknown option linger.mss: did you mean linger.ms? (client.properties:2)"),
        ("sasl.kerberos.service.name=geheim", "sasl.kerberos.service.name is about TLS or SASL, and no option that"),
        (
            "security.protocol=TLS",
            "security.protocol must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        (
            "sasl.jaas.config=geheim\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN",
            "sasl.jaas.config has no flag (`required`) after its login module",
        ),
        ("bootstrap.servers=x:y", "ottla: bootstrap.servers, of --command-config or OTTLA_BOOTSTRAP_SERVER: 'x:y' is"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"client.id=x\n{text}\n")
    said = run("topics", "list", "--command-config", file)
    assert said.status in (1, 2)
    assert words in said.err
    assert "geheim" not in said.err


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    said = run("topics", "list", "--command-config", tmp_path / "no.properties")
    assert (said.status, said.line) == (
        1,
        f"ottla: {tmp_path}/no.properties: cannot be read: No such file or directory",
    )


def test_a_group_in_a_shared_file_does_not_forbid_a_partition(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    produce(broker, topic, "x\n", "-p", "0")
    file = tmp_path / "client.properties"
    file.write_text("group.id=shared\n")
    said = run("consume", topic, "-b", broker.bootstrap, "--command-config", file, "-p", "0", "-o", "0", "-e")
    assert (said.status, said.out) == (0, "x\n")
    assert read_file(str(file)) == {"group.id": "shared"}
