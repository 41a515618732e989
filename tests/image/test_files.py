"""Dockerfile, compose.yaml and systemd unit against the project: what they name exists, what they repeat is right."""

from __future__ import annotations

import configparser
import fnmatch
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.dockerfile import TOP, only, read_dockerfile

from ottla.cli.main import main
from ottla.cli.probe import DEFAULT_PORT
from ottla.config.broker import BrokerConfig
from ottla.config.listeners import SecurityProtocol

VOLUME = "/var/lib/ottla"
DOCKER_STOP_MS = 10_000
"""What `docker stop` waits before it kills."""
ENTRY_POINT = TOP / "packaging/image/entrypoint.sh"


def compose_service() -> dict[str, Any]:
    (service,) = yaml.safe_load((TOP / "compose.yaml").read_text())["services"].values()
    assert isinstance(service, dict)
    return service


def text_environment(service: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in service["environment"].items()}


# --- Dockerfile


def test_every_path_that_is_copied_exists_and_is_not_ignored() -> None:
    patterns = [line for line in (TOP / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [one for one in read_dockerfile() if one.name == "COPY" and "from" not in one.options()]
    sources = [source for one in copied for source in one.words()[:-1]]
    assert sources
    for source in sources:
        assert (TOP / source).exists(), source
        assert any(fnmatch.fnmatch(source, pattern[1:]) or source.startswith(pattern[1:] + "/") for pattern in patterns)


def test_stages_are_copied_from_under_their_names() -> None:
    stages = [one.arguments.rpartition(" AS ")[2] for one in read_dockerfile() if one.name == "FROM"]
    used = {one.options()["from"] for one in read_dockerfile() if "from" in one.options()}
    assert used == set(stages[:-1])


def test_images_are_named_without_a_registry_and_have_a_python_that_we_support() -> None:
    least = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["requires-python"]
    for one in read_dockerfile():
        if one.name == "FROM":
            image = one.words()[0]
            assert "/" not in image
            found = re.fullmatch(r"python:3\.(\d+)-slim", image)
            assert found is not None
            assert int(found[1]) >= int(least.removeprefix(">=3."))


def test_any_builder_knows_the_options_of_its_instructions() -> None:
    """`COPY --chmod`, `RUN --mount` and the like are BuildKit's alone."""
    for one in read_dockerfile():
        if one.name in ("COPY", "RUN"):
            assert set(one.options() if one.name == "COPY" else re.findall(r"^--[a-z]+", one.arguments)) <= {"from"}


def test_what_is_built_is_all_that_the_package_needs() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())
    copied = {
        source for one in read_dockerfile() if one.stage == 0 and one.name == "COPY" for source in one.words()[:-1]
    }
    named = {project["project"]["readme"], *project["project"]["license-files"], "pyproject.toml"}
    packages = {one.rstrip("*") for one in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    pins = {f"packaging/image/{name}" for name in ("build-requirements.txt", "requirements.txt")}
    assert copied == named | packages | pins


def test_the_port_and_the_volume_are_those_of_the_defaults() -> None:
    config = BrokerConfig.load(environ={})
    assert [int(port) for port in only("EXPOSE").words()] == [listener.port for listener in config.listeners]
    assert config.listeners[0].port == DEFAULT_PORT
    assert only("VOLUME").words() == only("WORKDIR").words() == [VOLUME]
    assert [Path(VOLUME, path).is_relative_to(VOLUME) for path in config.log_dirs] == [True]


def test_a_new_volume_may_be_mounted_where_the_data_is_or_where_kafkas_own_image_has_it() -> None:
    """A new volume gets the owner and the mode of the directory that it hides; of none, it is root's."""
    steps = " && ".join(one.arguments for one in read_dockerfile() if one.name == "RUN").split(" && ")
    (made,) = (step.split() for step in steps if step.startswith("install -d -o 1000 -g 0 -m 0775 "))
    assert made[8:] == [VOLUME, f"{VOLUME}/data", "/var/lib/kafka/data"]


def test_the_standard_library_is_compiled_before_the_user_who_could_not() -> None:
    steps = [(one.name, one.arguments) for one in read_dockerfile()]
    compiles = next(at for at, (name, words) in enumerate(steps) if name == "RUN" and "compileall" in words)
    last_stage = max(at for at, (name, _) in enumerate(steps) if name == "FROM")
    assert last_stage < compiles < steps.index(("USER", "1000"))
    assert steps[compiles][1].endswith(" /usr/local/lib/python3.*")
    assert not any("--no-compile" in words for _, words in steps)


def test_it_does_not_run_as_root() -> None:
    assert int(only("USER").words()[0]) > 0


def test_the_health_check_and_the_command_are_the_entry_points() -> None:
    (entry,) = only("ENTRYPOINT").words()
    (copied,) = (one for one in read_dockerfile() if one.name == "COPY" and one.words()[-1].endswith(f"/{entry}"))
    assert TOP / copied.words()[0] == ENTRY_POINT
    assert os.access(ENTRY_POINT, os.X_OK)
    script = ENTRY_POINT.read_text()
    check = only("HEALTHCHECK").arguments.partition(" CMD ")[2]
    assert check == f'["{entry}", "ping"]'
    for (word,) in (["ping"], only("CMD").words()):
        assert f"exec ottla {word}" in script
        assert word in main.list_commands(None)  # type: ignore[arg-type]  # ours needs no context


def test_the_image_and_its_entry_point_name_the_same_files() -> None:
    script = ENTRY_POINT.read_text()
    (copied,) = (one for one in read_dockerfile() if one.arguments.startswith("packaging/image/image.properties "))
    assert f"properties={copied.words()[1]}\n" in script
    assert "/etc/ottla/server.properties" in script
    page = (TOP / "docs/image.md").read_text()
    for path in re.findall(r"/(?:etc|mnt)/\S+/server\.properties", script):
        assert path in page


def test_the_unit_and_the_compose_file_wait_for_a_stop_by_the_defaults() -> None:
    config = BrokerConfig.of()
    limit_s = (config.ottla_shutdown_timeout_ms + config.ottla_shutdown_close_timeout_ms) / 1000
    waits = [
        ("packaging/systemd/ottla.service", r"^TimeoutStopSec=(\d+)$"),
        ("compose.yaml", r"^ *stop_grace_period: (\d+)s$"),
    ]
    for path, pattern in waits:
        (seconds,) = re.findall(pattern, (TOP / path).read_text(), re.MULTILINE)
        assert int(seconds) > limit_s, path


def test_what_the_image_sets_is_a_sound_configuration_and_keeps_every_other_default() -> None:
    ours = BrokerConfig.load(TOP / "packaging/image/image.properties", environ={})
    stops = {"ottla.shutdown.timeout.ms", "ottla.shutdown.close.timeout.ms"}
    assert set(ours.values) == {"advertised.listeners", *stops}
    assert ours.ottla_shutdown_timeout_ms + ours.ottla_shutdown_close_timeout_ms < DOCKER_STOP_MS
    assert ours.warnings == []
    assert str(ours.advertised_listeners[0]) == f"PLAINTEXT://localhost:{DEFAULT_PORT}"


def test_the_entry_point_is_portable_shell() -> None:
    assert ENTRY_POINT.read_text().startswith("#!/bin/sh\n")
    subprocess.run(["sh", "-n", str(ENTRY_POINT)], check=True, timeout=60)


# --- the scripts at their places in Kafka's images

KAFKA = TOP / "packaging/image/kafka"
SCRIPTS = sorted(str(path.relative_to(KAFKA)) for path in KAFKA.rglob("*") if path.is_file())


@pytest.mark.parametrize("script", SCRIPTS)
def test_each_script_is_made_executable_and_is_sound(script: str) -> None:
    """A checkout on Windows has no modes."""
    steps = " && ".join(one.arguments for one in read_dockerfile() if one.name == "RUN").split(" && ")
    named = [word for step in steps if step.startswith("chmod ") for word in step.split()[1:]]
    assert any(fnmatch.fnmatch(f"/{script}", word) or f"/{script}".startswith(f"{word}/") for word in named)
    if (KAFKA / script).read_text().startswith("#!/bin/sh"):
        subprocess.run(["sh", "-n", str(KAFKA / script)], check=True, timeout=60)


# --- compose.yaml


def test_the_compose_file_builds_this_image_and_keeps_its_data() -> None:
    service = compose_service()
    assert service["build"] == "."
    (volume,) = service["volumes"]
    name, _, target = volume.partition(":")
    assert target == VOLUME
    assert name in yaml.safe_load((TOP / "compose.yaml").read_text())["volumes"]


def test_the_compose_files_environment_is_a_sound_configuration() -> None:
    service = compose_service()
    config = BrokerConfig.load(environ=text_environment(service))
    assert config.warnings == []
    assert {listener.protocol for listener in config.listeners} == {SecurityProtocol.PLAINTEXT}
    published = {int(port.split(":")[-1]): int(port.split(":")[-2]) for port in service["ports"]}
    host, services = config.advertised_listeners
    assert (host.host, host.port) == ("localhost", published[config.listeners[0].port])
    assert config.listeners[0].port == DEFAULT_PORT
    (service_name,) = yaml.safe_load((TOP / "compose.yaml").read_text())["services"]
    assert (services.host, services.port) == (service_name, config.listeners[1].port)


def test_a_stop_is_given_the_time_that_the_broker_takes() -> None:
    grace_s = int(compose_service()["stop_grace_period"].removesuffix("s"))
    assert grace_s * 1000 > BrokerConfig.load(environ={}).ottla_shutdown_timeout_ms


# --- systemd


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # systemd's keys have capitals
    parser.read(TOP / "packaging/systemd/ottla.service")
    return parser


def test_the_unit_starts_our_command_where_its_data_may_be_written() -> None:
    service = unit()["Service"]
    program, command, file = service["ExecStart"].split()
    assert (program.rpartition("/")[2], command, file) == ("ottla", "serve", "/etc/ottla/server.properties")
    assert service["WorkingDirectory"] == f"/var/lib/{service['StateDirectory']}" == VOLUME
    assert service["Type"] == "notify"
    assert int(service["TimeoutStopSec"]) * 1000 > BrokerConfig.load(environ={}).ottla_shutdown_timeout_ms


def test_the_unit_is_hardened() -> None:
    service = unit()["Service"]
    assert service["DynamicUser"] == service["NoNewPrivileges"] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd is not installed")
    text = (TOP / "packaging/systemd/ottla.service").read_text()
    copy = tmp_path / "ottla.service"
    copy.write_text(text.replace("/opt/ottla/bin/ottla", "/bin/true"))
    done = subprocess.run([analyze, "verify", str(copy)], capture_output=True, text=True, timeout=60, check=False)
    assert "ottla.service" not in done.stderr, done.stderr
