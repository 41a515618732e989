"""`serve` as a process: what it says when it starts, and when it cannot."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from kit.broker import BrokerProcess

from ottla.storage.formats import layout

TIMEOUT_S = 60.0


def refused(*arguments: str, environment: dict[str, str] | None = None) -> str:
    """The one line that says why the broker does not start."""
    command = [sys.executable, "-m", "ottla", "serve", "--log-level", "error", *arguments]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert done.stdout == ""
    return line


def place(tmp_path: Path, *overrides: str) -> list[str]:
    pairs = ["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path / 'data'}", "ottla.http.listener=", *overrides]
    return [word for pair in pairs for word in ("--override", pair)]


def test_the_address_is_printed_once_it_accepts(own_broker: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", own_broker.port), timeout=TIMEOUT_S):
        pass
    assert f"listening on PLAINTEXT://127.0.0.1:{own_broker.port}" in own_broker.output


def test_file_environment_and_override_each_win_over_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.segment.bytes=wrong\n")
    assert refused(str(file)).endswith(
        "log.segment.bytes=wrong: must be an integer of at least 1024 (server.properties:1)"
    )
    environment = {"KAFKA_LOG_SEGMENT_BYTES": "alsowrong"}
    line = refused(str(file), environment=environment)
    assert line.endswith("(environment KAFKA_LOG_SEGMENT_BYTES)")
    line = refused(str(file), "--override", "log.segment.bytes=1", environment=environment)
    assert line == "ottla: log.segment.bytes=1: must be an integer of at least 1024 (--override)"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing.properties"], "nothing.properties: cannot be read: No such file or directory"),
        (["--override", "log.dirs"], "--override=log.dirs: must be key=value"),
        (["--override", "listeners=9092"], "listeners=9092: '9092' must be NAME://host:port"),
        (
            ["--override", "listeners=SSL://:0"],
            "cannot start: ssl.keystore.location: must be set: a TLS listener needs a key and a certificate",
        ),
    ],
)
def test_a_wrong_configuration_is_one_line(arguments: list[str], words: str) -> None:
    assert words in refused(*arguments)


def test_a_profile_that_does_not_exist_is_a_wrong_command_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ottla", "serve", "--profile", "kafka-0.7", *place(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 2
    assert "kafka-2.8" in done.stderr
    assert refused(*place(tmp_path, "ottla.profile=kafka-0.7")).startswith(
        "ottla: ottla.profile=kafka-0.7: must be one of"
    )


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused(*place(tmp_path, f"listeners=PLAINTEXT://127.0.0.1:{port}"))
    assert line.endswith(
        f"listeners=PLAINTEXT://127.0.0.1:{port}: another process uses this port; "
        "end that process, or give this listener another port"
    )


def test_an_address_of_another_machine_is_one_line(tmp_path: Path) -> None:
    line = refused(*place(tmp_path, "listeners=PLAINTEXT://192.0.2.1:9092"))  # RFC 5737: of no machine
    assert line.endswith(
        "listeners=PLAINTEXT://192.0.2.1:9092: this machine has no such address; "
        "a listener without a host, such as PLAINTEXT://:9092, is at all of its addresses"
    )


def test_a_start_that_fails_logs_first_which_keys_have_no_effect(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listeners = f"listeners=PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"
        command = [sys.executable, "-m", "ottla", "serve", *place(tmp_path, listeners, "listener=PLAINTEXT://:9093")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 1
    warning, error = done.stderr.splitlines()
    assert "listener: not a key that Ottla knows, no effect; did you mean listeners?" in warning
    assert "another process uses this port" in error


def test_a_second_process_on_the_same_directory_is_one_line(own_broker: BrokerProcess, tmp_path: Path) -> None:
    line = refused(*place(tmp_path))
    directory = own_broker.directory
    assert f"cannot start: {directory} is in use by another broker (locked by another process): " in line
    assert line.endswith(": stop that one, or set log.dirs to another")


def test_a_directory_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a directory")
    line = refused(*place(tmp_path))
    assert line.endswith(f"cannot start: no log directory can be used: {tmp_path / 'data'}: Not a directory")


def test_an_audit_log_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "missing" / "audit.log"
    line = refused(*place(tmp_path, f"ottla.audit.log={file}"))
    assert line.endswith(f"ottla.audit.log={file}: cannot be written: No such file or directory (--override)")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every directory")
def test_an_unreadable_directory_is_one_line(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0)
    try:
        assert str(data) in refused(*place(tmp_path))
    finally:
        data.chmod(0o700)


def test_a_directory_that_a_newer_version_wrote_is_one_line(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / layout.FORMAT_FILE).write_text("version=99\n")
    assert "99" in refused(*place(tmp_path))
