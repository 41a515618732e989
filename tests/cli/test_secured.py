"""Commands at a broker with SASL: by a file, by the environment, by an option; and what is refused in one line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from kit.broker import BrokerProcess
from kit.command import Said

from ottla.cli.client_properties import read_environment
from ottla.cli.entry import quick_ping
from ottla.cli.failures import Failure
from ottla.cli.main import main
from ottla.config.sources import COMMAND_VARIABLES
from ottla.config.sources import read_environment as read_broker_keys

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="s3cret" user_bob="hush";'
LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="s3cret";'


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    overrides = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
    }
    with BrokerProcess(tmp_path_factory.mktemp("broker"), overrides) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in COMMAND_VARIABLES:
        monkeypatch.delenv(variable, raising=False)


def run(*arguments: object, env: dict[str, str] | None = None) -> Said:
    result = CliRunner().invoke(main, [str(one) for one in arguments], input="", env=env)
    return Said(result.exit_code, result.stdout, result.stderr)


def written(tmp_path: Path, *lines: str) -> Path:
    file = tmp_path / "client.properties"
    file.write_text("\n".join(lines) + "\n")
    return file


def variables(broker: BrokerProcess, **more: str) -> dict[str, str]:
    return {
        "OTTLA_BOOTSTRAP_SERVER": broker.bootstrap,
        "OTTLA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "OTTLA_SASL_MECHANISM": "PLAIN",
        "OTTLA_SASL_USERNAME": "alice",
        **more,
    }


@pytest.mark.parametrize(
    "command", [["topics", "list"], ["groups", "list"], ["ping"], ["features", "list"]], ids=" ".join
)
def test_a_file_with_kafkas_names_serves_commands_at_a_broker_with_sasl(
    broker: BrokerProcess, tmp_path: Path, command: list[str]
) -> None:
    file = written(tmp_path, "security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", f"sasl.jaas.config={LOGIN}")
    said = run(*command, "-b", broker.bootstrap, "--command-config", file)
    assert (said.status, said.err) == (0, "")


def test_a_file_has_its_password_from_a_config_provider(broker: BrokerProcess, tmp_path: Path) -> None:
    kind = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
    login = LOGIN.replace("s3cret", "${env:SECRET}")
    lines = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", f"sasl.jaas.config={login}")
    file = written(tmp_path, "config.providers=env", f"config.providers.env.class={kind}", *lines)
    arguments = ["topics", "list", "-b", broker.bootstrap, "--command-config", file]
    assert run(*arguments, env={"SECRET": "s3cret"}).status == 0
    said = run(*arguments)
    assert (said.status, said.line) == (
        1,
        f"ottla: sasl.jaas.config=${{env:SECRET}}: the variable SECRET is not set ({file.name}:5)",
    )


def test_the_environment_says_what_no_file_says(broker: BrokerProcess, tmp_path: Path) -> None:
    given = variables(broker, OTTLA_SASL_PASSWORD="s3cret")
    assert run("topics", "list", env=given).status == 0
    said = run("ping", env=given)
    assert (said.status, said.err) == (0, "")
    assert said.out.startswith(f"{broker.bootstrap} answers after ")
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    assert run("topics", "list", env=variables(broker, OTTLA_SASL_PASSWORD_FILE=str(secret))).status == 0
    # Who logs in is one thing: bob of the file with his own password, not with that of the environment.
    file = written(tmp_path, "sasl.username=bob", "sasl.password=hush")
    assert run("topics", "list", env={**given, "OTTLA_COMMAND_CONFIG": str(file)}).status == 0


def test_the_option_counts_before_the_file(broker: BrokerProcess, tmp_path: Path) -> None:
    file = written(tmp_path, "security.protocol=SSL", "sasl.mechanism=PLAIN", f"sasl.jaas.config={LOGIN}")
    arguments = ["topics", "list", "-b", broker.bootstrap, "--command-config", file]
    assert run(*arguments, "--security-protocol", "sasl_plaintext").status == 0
    assert run(*arguments, "--security-protocol", "tls").status == 2


@pytest.mark.parametrize("command", [["topics", "list"], ["ping"]], ids=" ".join)
def test_a_wrong_password_is_one_line_without_it(broker: BrokerProcess, command: list[str]) -> None:
    said = run(*command, env=variables(broker, OTTLA_SASL_PASSWORD="wr0ng"))
    assert said.status == 1
    assert said.line.startswith(f"ottla: {broker.bootstrap}: the PLAIN login of user 'alice' failed: ")
    assert "wr0ng" not in said.line
    assert "\n" not in said.line


def test_a_command_that_does_not_log_in_is_sent_to_security_protocol(broker: BrokerProcess) -> None:
    said = run("topics", "list", "-b", broker.bootstrap)
    assert said.status == 1
    assert "does its listener want SASL? security.protocol is PLAINTEXT; or are there too many" in said.line


def test_a_token_that_cannot_be_had_is_one_line_and_no_fault_of_a_broker(broker: BrokerProcess, tmp_path: Path) -> None:
    url = f"sasl.oauthbearer.token.endpoint.url={(tmp_path / 'none').as_uri()}"
    file = written(tmp_path, "security.protocol=SASL_PLAINTEXT", "sasl.mechanism=OAUTHBEARER", url)
    said = run("topics", "list", "-b", broker.bootstrap, "--command-config", file)
    assert said.status == 1
    assert said.line.startswith("ottla: sasl.oauthbearer.token.endpoint.url: ")
    assert said.line.endswith("cannot be read: No such file or directory")


def test_a_command_that_speaks_tls_to_a_plain_listener_is_sent_to_security_protocol(broker: BrokerProcess) -> None:
    said = run("topics", "list", "-b", broker.bootstrap, "--security-protocol", "SSL")
    assert said.status == 1
    assert said.line.endswith("in the TLS handshake; is its listener one with TLS (security.protocol)?")


def test_a_health_check_without_a_login_gets_its_answer(broker: BrokerProcess) -> None:
    assert run("ping", "-b", broker.bootstrap).status == 0


def test_a_password_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    for path, said in (
        (tmp_path / "none", "No such file"),
        (tmp_path / "binary", "UTF-8"),
        (tmp_path / "long", "longer"),
    ):
        (tmp_path / "binary").write_bytes(b"\xff")
        (tmp_path / "long").write_bytes(b"x" * 70_000)
        with pytest.raises(Failure, match=said):
            read_environment({"OTTLA_SASL_PASSWORD_FILE": str(path)}, {})
    with pytest.raises(Failure, match="set one of them"):
        read_environment({"OTTLA_SASL_PASSWORD_FILE": "x", "OTTLA_SASL_PASSWORD": "y"}, {})


def test_variables_of_the_commands_are_no_keys_of_the_broker() -> None:
    assert read_broker_keys(dict.fromkeys(COMMAND_VARIABLES, "x")) == {}


def test_a_ping_in_its_plain_form_leaves_the_environment_to_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_SECURITY_PROTOCOL", "SSL")
    assert quick_ping(["-b", "127.0.0.1:1"]) is None
