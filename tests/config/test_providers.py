"""Config providers: secrets that are not in server.properties."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.logins import plain_passwords

PACKAGE = "org.apache.kafka.common.config.provider"
ENVIRONMENT = {"config.providers": "env", "config.providers.env.class": f"{PACKAGE}.EnvVarConfigProvider"}


def file_provider(kind: str = "FileConfigProvider", **parameters: str) -> dict[str, str]:
    keys = {f"config.providers.f.param.{name.replace('_', '.')}": value for name, value in parameters.items()}
    return {"config.providers": "f", "config.providers.f.class": f"{PACKAGE}.{kind}"} | keys


def rack(text: str, providers: dict[str, str], **environ: str) -> str:
    return BrokerConfig.load(overrides=providers | {"broker.rack": text}, environ=environ).broker_rack


def test_the_environment_is_put_in_anywhere_and_any_number_of_times() -> None:
    assert rack("${env:A}", ENVIRONMENT, A="x") == "x"
    assert rack("1${env:A}2${env:B}3", ENVIRONMENT, A="x", B="y") == "1x2y3"


def test_what_comes_in_is_not_looked_through_again() -> None:
    assert rack("${env:A}", ENVIRONMENT, A="${env:B}", B="y") == "${env:B}"


def test_without_providers_and_for_other_names_nothing_is_replaced() -> None:
    assert rack("${env:A}", {}, A="x") == "${env:A}"
    assert rack("${vault:A} ${env}", ENVIRONMENT, A="x") == "${vault:A} ${env}"


@pytest.mark.parametrize("key", ["delegation.token.secret.key", "listener.name.a.plain.sasl.jaas.config"])
def test_a_secret_whose_variable_no_provider_replaces_is_warned_about(key: str) -> None:
    said = "no config provider has replaced its ${...:...}, which is part of the secret (--override)"
    for providers in ({}, ENVIRONMENT):
        assert f"{key}: {said}" in BrokerConfig.load(overrides=providers | {key: "${vault:s3cret}"}).warnings
    replaced = BrokerConfig.load(overrides=ENVIRONMENT | {key: "${env:A}"}, environ={"A": "x"})
    assert said not in " ".join(replaced.warnings)


def test_variables_in_the_environment_and_in_a_file_are_replaced_too(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    lines = [f"{key}={value}" for key, value in ENVIRONMENT.items()]
    path.write_text("\n".join([*lines, "broker.rack=${env:A}"]))
    config = BrokerConfig.load(path, environ={"A": "x", "B": "4", "KAFKA_NUM_PARTITIONS": "${env:B}"})
    assert (config.broker_rack, config.num_partitions) == ("x", 4)
    assert config.warnings == []
    assert str(config.origin_of("broker.rack")) == "server.properties:3"


def test_a_secret_of_a_listener_comes_from_the_environment_and_is_shown_nowhere() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="${env:SECRET}";'
    given = ENVIRONMENT | {
        "listeners": "SASL_PLAINTEXT://:9092",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
    }
    config = BrokerConfig.load(overrides=given, environ={"SECRET": "hunter2"})
    assert plain_passwords(config, "SASL_PLAINTEXT") == {"alice": "hunter2"}
    arguments = ["config", *(part for pair in given.items() for part in ("--override", "=".join(pair)))]
    for more in ([], ["--json"], ["--effective"]):
        shown = CliRunner().invoke(main, [*arguments, *more], env={"SECRET": "hunter2"})
        assert shown.exit_code == 0, shown.output
        assert "[hidden]" in shown.output
        assert "hunter2" not in shown.output


def test_a_properties_file_has_several_secrets(tmp_path: Path) -> None:
    path = tmp_path / "secrets.properties"
    path.write_text("one=x\ntwo=with\\u0020blank\n")
    assert rack(f"${{f:{path}:one}}/${{f:{path}:two}}", file_provider()) == "x/with blank"


def test_a_directory_has_a_secret_in_each_file(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("x")
    assert rack(f"${{f:{tmp_path}:one}}", file_provider("DirectoryConfigProvider")) == "x"


@pytest.mark.parametrize("kind", ["FileConfigProvider", "DirectoryConfigProvider"])
def test_paths_can_be_restricted(tmp_path: Path, kind: str) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    for directory in (inside, outside):
        directory.mkdir()
        (directory / "f").write_text("f=x")
    provider = file_provider(kind, allowed_paths=f"{inside},/usr")

    def text(directory: str) -> str:
        return f"${{f:{directory}/f:f}}" if kind == "FileConfigProvider" else f"${{f:{directory}:f}}"

    assert rack(text(str(inside)), provider) in ("x", "f=x")
    for directory in (str(outside), f"{inside}/../out", "relative"):
        with pytest.raises(ConfigError, match=r"not below allowed\.paths"):
            rack(text(directory), provider)


def test_variables_can_be_restricted() -> None:
    provider = ENVIRONMENT | {"config.providers.env.param.allowlist.pattern": "SECRET_.*"}
    assert rack("${env:SECRET_A}", provider, SECRET_A="x") == "x"
    with pytest.raises(ConfigError, match=r"PATH is not one of allowlist\.pattern"):
        rack("${env:PATH}", provider, PATH="x")


@pytest.mark.parametrize(
    ("text", "providers", "reason"),
    [
        ("${env:MISSING}", ENVIRONMENT, "variable MISSING is not set"),
        ("${env:/path:A}", ENVIRONMENT, "has no paths"),
        ("${f:/missing:A}", file_provider(), "the file cannot be read"),
        ("${f:A}", file_provider(), "a file has to be named"),
        (f"${{f:{__file__}:missing}}", file_provider(), "no key missing"),
        ("${f:/missing:A}", file_provider("DirectoryConfigProvider"), "No such file"),
        ("${f:/etc:../etc/hostname}", file_provider("DirectoryConfigProvider"), "have to be named"),
        ("${f:/etc:..}", file_provider("DirectoryConfigProvider"), "have to be named"),
        ("x", {"config.providers": "env"}, "must be org.apache.kafka"),
        ("x", file_provider("VaultConfigProvider"), "must be org.apache.kafka"),
        ("x", file_provider(allowed_paths="relative"), "must be absolute"),
        ("x", file_provider(allowed_paths="/nowhere/at/all"), "must be absolute and exist"),
        ("x", ENVIRONMENT | {"config.providers.env.param.allowlist.pattern": "("}, "no regular expression"),
    ],
)
def test_what_cannot_be_had_refuses_the_start_with_the_key_and_the_place(
    text: str, providers: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        rack(text, providers)
    assert reason in str(refusal.value)
    assert "\n" not in str(refusal.value)
