"""`ping`: both ways to it, the quick one of health checks and click's, against brokers and against what is none."""

from __future__ import annotations

import json
import re
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kit.broker import BrokerProcess
from kit.certificates import certificates
from kit.command import run

from ottla.cli import entry, probe

TIMEOUT_S = 60.0


@contextmanager
def listening(answer: bytes | None) -> Iterator[str]:
    """Something that takes one connection, reads, and sends `answer`; None: never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = threading.Event()

        def talk() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                if answer is None:
                    ended.wait(TIMEOUT_S)
                else:
                    connection.sendall(answer)

        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        ended.set()
        thread.join(TIMEOUT_S)


def answer(*, correlation_id: int = probe.CORRELATION_ID, error: int = 0, count: int = 1) -> bytes:
    return struct.pack(">iihi", 16, correlation_id, error, count) + struct.pack(">hhh", 18, 0, 4)


def test_a_broker_that_answers_is_one_line_and_status_0(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    said = run("ping", "-b", broker.bootstrap)
    assert (said.status, said.err) == (0, "")
    assert said.out.startswith(f"{broker.bootstrap} answers after ")
    assert entry.quick_ping(["-b", broker.bootstrap]) == 0
    assert capsys.readouterr().out.startswith(f"{broker.bootstrap} answers after ")


def test_the_first_of_several_that_answers_counts(broker: BrokerProcess) -> None:
    reported = json.loads(run("ping", "-b", f"127.0.0.1:1,{broker.bootstrap}", "--json").out)
    assert reported["server"] == broker.bootstrap
    assert reported["apis"] > 10


def test_an_address_that_is_empty_is_not_the_default_one() -> None:
    """A script whose variable is not set must not be shown another broker."""
    done = run("ping", "-b", "")
    assert (done.status, done.out) == (2, "")
    assert "--bootstrap-server" in done.err


NOBODY = "ottla: 127.0.0.1:1: Connection refused. Is it running? ottla serve"


def test_nobody_there_is_one_line_and_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ping", "-b", "127.0.0.1:1").line == NOBODY
    assert entry.quick_ping(["--bootstrap-server", "127.0.0.1:1", "-q"]) == 1
    assert capsys.readouterr().err == f"{NOBODY}\n"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no Kafka broker"),
        (b"", "closed without an answer"),
        (answer()[:9], "closed without an answer"),
        (answer(correlation_id=7), "no Kafka broker"),
        (answer(count=2), "no Kafka broker"),
        (answer(error=35), "the broker refuses with error 35"),
        (struct.pack(">i", probe.MAX_RESPONSE_BYTES + 1), "no Kafka broker"),
        (None, "no answer within 50 ms"),
    ],
)
def test_what_is_no_broker_is_distinguished(data: bytes | None, words: str) -> None:
    with listening(data) as address:
        said = run("ping", "-b", address, "--timeout-ms", "50" if data is None else "60000")
    assert said.status == 1
    assert words in said.line


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["-b"],
        ["-b", "nonsense:x"],
        ["--timeout-ms", "0"],
        ["--timeout-ms", "x"],
        ["--timeout-ms", "9" * 5_000],
        ["--json"],
        ["file"],
    ],
)
def test_what_the_quick_way_does_not_understand_is_left_to_click(arguments: list[str]) -> None:
    assert entry.quick_ping(arguments) is None


def test_serving_asks_the_listener_that_file_and_environment_name(broker: BrokerProcess, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"listeners=PLAINTEXT://0.0.0.0:{broker.port}\n")
    assert run("ping", "--serving", file).status == 0
    environment = {"KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:1"}
    assert "127.0.0.1:1" in run("ping", "--serving", file, environment=environment).line
    environment = {"KAFKA_LISTENERS": "PLAINTEXT://:0"}
    assert "port 0 is chosen at the start" in run("ping", "--serving", environment=environment).line
    assert run("ping", "--serving", "-b", broker.bootstrap).status == 2


def test_serving_asks_a_broker_whose_listeners_all_have_tls(tmp_path: Path) -> None:
    keys = certificates().server_overrides()
    with BrokerProcess(tmp_path / "data", {"listeners": "SSL://127.0.0.1:0", **keys}) as broker:
        lines = [f"listeners=SSL://:{broker.port}", *(f"{key}={value}" for key, value in keys.items())]
        file = tmp_path / "server.properties"
        file.write_text("\n".join(lines))
        said = run("ping", "--serving", file)
        assert "WARNING" not in broker.output
    assert said.out.startswith(f"localhost:{broker.port} answers after ")
    assert run("ping", "--serving", file).line.endswith("Connection refused. Is it running? ottla serve")


def test_serving_asks_the_http_port_where_all_listeners_want_certificates(tmp_path: Path) -> None:
    keys = certificates().server_overrides(client_auth="required")
    overrides = {"listeners": "SSL://127.0.0.1:0", "ottla.http.listener": "127.0.0.1:0", **keys}
    with BrokerProcess(tmp_path / "data", overrides) as broker:
        port = re.findall(r"http://127\.0\.0\.1:(\d+)", broker.output)[0]
        lines = [f"listeners=SSL://:{broker.port}", *(f"{key}={value}" for key, value in keys.items())]
        file = tmp_path / "server.properties"
        file.write_text("\n".join([*lines, f"ottla.http.listener=:{port}"]))
        assert run("ping", "--serving", file).out == f"localhost:{port} is ready\n"
        assert "WARNING" not in broker.output
    assert run("ping", "--serving", file).line.endswith("Connection refused. Is it running? ottla serve")
    file.write_text("\n".join([*lines, "ottla.http.listener="]))
    assert "give --bootstrap-server and --command-config" in run("ping", "--serving", file).line


def test_the_quick_way_imports_neither_click_nor_asyncio(broker: BrokerProcess) -> None:
    code = (
        "import sys; sys.argv = ['ottla', 'ping', '-b', sys.argv[1]]; from ottla.cli import entry\n"
        "try: entry.run()\nexcept SystemExit as end: assert end.code == 0\n"
        "print([name for name in ('click', 'asyncio', 'json', 'ottla.client') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, broker.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
