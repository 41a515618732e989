"""`ottla registry`: its URL, its end, its options, a secured broker, and real serializers."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kit.registry_api import RegistryApi

from ottla.testing import EmbeddedBroker

NOBODY = "127.0.0.1:1"


def registry_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "ottla", "registry", *arguments]


@contextmanager
def registry(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A registry on a free port, and its URL."""
    command = registry_command("--listen", "127.0.0.1:0", *arguments)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def refused(*arguments: str) -> tuple[int, str, str]:
    ended = subprocess.run(registry_command(*arguments), capture_output=True, text=True, timeout=60, check=False)
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_its_url_and_ends_quietly(number: signal.Signals) -> None:
    with EmbeddedBroker() as broker, registry("-b", broker.bootstrap_servers) as (process, url):
        assert RegistryApi(url).register("a", '"int"') == 1
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (0, "", "")


def test_the_topic_can_have_another_name() -> None:
    with EmbeddedBroker() as broker, registry("-b", broker.bootstrap_servers, "--topic", "team-schemas") as (_, url):
        RegistryApi(url).register("a", '"int"')
        assert broker.records("team-schemas")[0].key == b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}'


def test_it_has_the_rights_of_its_user(tmp_path: Path) -> None:
    login_module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{login_module} user_admin="admin-secret";',
    }
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    secrets = {**login, "sasl.username": "admin", "sasl.password": "admin-secret"}
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in secrets.items()))
    with EmbeddedBroker(config, client_options=secrets) as broker:
        with registry("-b", broker.bootstrap_servers, "--command-config", str(file)) as (_, url):
            assert RegistryApi(url).register("a", '"int"') == 1
        with broker.schema_registry() as inside:
            assert RegistryApi(inside.url).get("/subjects") == ["a"]


def test_a_port_that_is_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, out, err = refused("--listen", f"127.0.0.1:{port}")
    assert (status, out, err.count("\n")) == (1, "", 1)
    reason = "another process uses this port; --listen 127.0.0.1:0 takes a free port"
    assert err == f"ottla: cannot listen on 127.0.0.1:{port}: {reason}\n"


def test_an_address_that_cannot_be_is_refused() -> None:
    status, out, err = refused("--listen", "8081")
    assert (status, out) == (2, "")
    assert "'8081' is not HOST:PORT, such as 127.0.0.1:8081" in err


def test_a_warning_says_when_and_from_where() -> None:
    with registry("-b", NOBODY) as (process, _):
        assert process.stderr is not None
        line = process.stderr.readline()
    assert re.match(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING ottla\.registry\.log: _schemas cannot be read yet: ", line
    )


def test_a_topic_that_cannot_be_is_refused() -> None:
    status, out, err = refused("--topic", "a b")
    assert (status, out) == (2, "")
    assert "'a b'" in err


def test_an_address_that_others_can_reach_is_a_warning() -> None:
    with registry("-b", NOBODY, "--listen", "0.0.0.0:0") as (process, url):
        assert url.startswith("http://0.0.0.0:")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert err.startswith("ottla: warning: 0.0.0.0 can be reached from other machines: all who reach it")
