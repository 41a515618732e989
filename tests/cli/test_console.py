"""`ottla console`: its URL, its end, its options, and a secured broker."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.client.blocking import Admin
from ottla.testing import EmbeddedBroker

NOBODY = "127.0.0.1:1"


def console_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "ottla", "console", "--no-browser", *arguments]


@contextmanager
def console(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A console on a free port, and its URL."""
    command = console_command("--listen", "127.0.0.1:0", *arguments)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def ask(url: str, path: str, content: object = None) -> Any:
    address, token = url.split("#token=")
    headers = {"X-Ottla-Token": token, "Content-Type": "application/json"}
    body = None if content is None else json.dumps(content).encode()
    with urllib.request.urlopen(urllib.request.Request(address + path, body, headers), timeout=30) as answer:
        return json.load(answer)


def refused(*arguments: str) -> tuple[int, str, str]:
    ended = subprocess.run(console_command(*arguments), capture_output=True, text=True, timeout=60, check=False)
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_its_url_and_ends_quietly(number: signal.Signals) -> None:
    with console("-b", NOBODY) as (process, url):
        assert urllib.request.urlopen(url, timeout=30).status == 200
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (0, "", "")


def test_it_ends_while_a_tail_runs() -> None:
    with EmbeddedBroker() as broker, console("-b", broker.bootstrap_servers) as (process, url):
        topic = broker.create_topic()
        address, token = url.split("#token=")
        request = urllib.request.Request(f"{address}api/topics/{topic}/tail", headers={"X-Ottla-Token": token})
        with urllib.request.urlopen(request, timeout=30) as tail:
            assert json.loads(tail.readline()) == {"records": [], "skipped": 0}
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (0, "", "")


def test_it_has_the_rights_of_its_user(tmp_path: Path) -> None:
    """As `reader`, who may see one topic and write to none."""
    properties = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{properties} user_admin="admin-secret" user_reader="reader-secret";'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    admin = {**login, "sasl.username": "admin", "sasl.password": "admin-secret"}
    with EmbeddedBroker(config, client_options=admin) as broker:
        for name in ("public", "private"):
            broker.create_topic(name)
            broker.send(name, b"tea")
        allow(broker.admin, "public")
        file = tmp_path / "client.properties"
        lines = {**login, "sasl.username": "reader", "sasl.password": "reader-secret"}
        file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        with console("-b", broker.bootstrap_servers, "--command-config", str(file)) as (_, url):
            assert [one["name"] for one in ask(url, "api/topics")["topics"]] == ["public"]
            (record,) = ask(url, "api/topics/public/records")["records"]
            assert record["value"]["text"] == "tea"
            for path, content in (
                ("api/topics/private/records", None),
                ("api/topics/public/records", {"value": {"text": "coffee"}}),
            ):
                with pytest.raises(urllib.error.HTTPError) as caught:
                    ask(url, path, content)
                assert caught.value.code == 403
                assert "AUTHORIZATION_FAILED" in json.load(caught.value)["error"]


def allow(admin: Admin, topic: str) -> None:
    from ottla.client import Acl, AclOperation, ResourceType

    operations = (AclOperation.READ, AclOperation.DESCRIBE)
    admin.create_acls([Acl(ResourceType.TOPIC, topic, "User:reader", operation) for operation in operations])


def test_the_browser_gets_a_file_of_the_user_and_not_the_token(tmp_path: Path) -> None:
    """All users of the machine see the arguments of a process."""
    browser, seen = tmp_path / "browser", tmp_path / "seen"
    script = (
        f"#!{sys.executable}",
        "import os, sys",
        "path = sys.argv[1].removeprefix('file://')",
        f"with open({str(seen) + '.new'!r}, 'w') as file:",
        "    file.write(f'{os.stat(path).st_mode & 0o777:o} {path} {open(path).read()}')",
        f"os.rename({str(seen) + '.new'!r}, {str(seen)!r})",
    )
    browser.write_text("\n".join(script))
    browser.chmod(0o700)
    environment = {**os.environ, "DISPLAY": ":0", "BROWSER": f"{browser} %s"}
    command = [sys.executable, "-m", "ottla", "console", "-b", NOBODY, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            deadline = time.monotonic() + 30
            while not seen.exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            mode, path, content = seen.read_text().split(" ", 2)
            assert (mode, url.partition("#token=")[2] in path, f'"0; url={url}"' in content) == ("600", False, True)
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
            assert process.stdout.read() == ""
        finally:
            process.kill()
    assert not Path(path).exists()


def test_read_only_is_in_the_status() -> None:
    with EmbeddedBroker() as broker, console("-b", broker.bootstrap_servers, "--read-only") as (_, url):
        assert ask(url, "api/status")["read_only"] is True


@pytest.mark.parametrize("address", ["9645", ":9645", "::1:9645", "127.0.0.1:70000"])
def test_an_address_that_cannot_be_is_refused(address: str) -> None:
    status, out, err = refused("--listen", address)
    assert (status, out) == (2, "")
    assert f"{address!r} is not HOST:PORT, such as 127.0.0.1:9645" in err


def test_a_port_that_is_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, out, err = refused("--listen", f"127.0.0.1:{port}")
    assert (status, out, err.count("\n")) == (1, "", 1)
    reason = "another process uses this port; --listen 127.0.0.1:0 takes a free port"
    assert err == f"ottla: cannot listen on 127.0.0.1:{port}: {reason}\n"


def test_an_address_of_another_machine_is_one_line_without_a_warning() -> None:
    status, out, err = refused("--listen", "192.0.2.1:9645")  # RFC 5737: of no machine
    reason = "this machine has no such address; 127.0.0.1 is for this machine only, 0.0.0.0 for all of its addresses"
    assert (status, out, err) == (1, "", f"ottla: cannot listen on 192.0.2.1:9645: {reason}\n")


def test_a_host_without_an_address_is_one_line() -> None:
    status, out, err = refused("--listen", "nowhere.invalid:9645")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("ottla: cannot listen on nowhere.invalid:9645: ")
    assert err.endswith("; --listen needs a name or an address of this machine, such as 127.0.0.1\n")


def test_a_misspelt_option_names_the_right_one() -> None:
    status, out, err = refused("--read-onyl")
    assert (status, out) == (2, "")
    assert "--read-only" in err


def test_a_wrong_option_of_the_client_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("fetch.max.wait.ms=soon\n")
    status, out, err = refused("--command-config", str(file))
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "fetch.max.wait.ms" in err


def test_a_larger_request_timeout_of_the_file_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("request.timeout.ms=60000\ngroup.id=billing\n")
    with console("-b", NOBODY, "--command-config", str(file)) as (_, url):
        assert url.startswith("http://127.0.0.1:")


def test_an_address_that_others_can_reach_is_a_warning() -> None:
    with console("-b", NOBODY, "--listen", "0.0.0.0:0") as (process, url):
        assert url.startswith("http://0.0.0.0:")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert err.startswith("ottla: warning: 0.0.0.0 can be reached from other machines")
