"""`ottla tls make`: what it writes, with which modes, and that a broker and a client work with it."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from kit.broker import BrokerProcess
from kit.command import run

from ottla.config.sources import read_properties


def properties(path: Path) -> dict[str, str]:
    return {key: given.text for key, given in read_properties(path).items()}


def test_a_broker_and_a_client_work_with_what_it_writes(tmp_path: Path) -> None:
    place = tmp_path / "with space"
    said = run("tls", "make", str(place), "--client", "alice", "--client", "bob", "--host", "kafka.example")
    assert said.status == 0, said.err
    server = properties(place / "server.properties") | {"listeners": "SSL://127.0.0.1:0"}
    assert server["ssl.client.auth"] == "required"
    keys = properties(place / "client.properties")
    assert keys == properties(place / "alice.properties")
    assert properties(place / "bob.properties")["ssl.keystore.location"] == str(place / "bob.pem")
    with BrokerProcess(tmp_path / "data", server) as broker:
        client = AdminClient(
            {
                "bootstrap.servers": broker.bootstrap,
                "security.protocol": keys["security.protocol"],
                "ssl.ca.location": keys["ssl.truststore.location"],
                "ssl.certificate.location": keys["ssl.keystore.location"],
                "ssl.key.location": keys["ssl.keystore.location"],
            }
        )
        assert client.list_topics(timeout=30).brokers


def test_what_it_writes_is_read_by_people(tmp_path: Path) -> None:
    place = tmp_path / "a=b: c#\\u"
    assert run("tls", "make", str(place)).status == 0
    text = (place / "server.properties").read_text()
    assert "\nssl.keystore.type=PEM\n" in text
    assert text.startswith("listeners=SSL://:9093\n")
    escaped = str(place).replace("\\", "\\\\")
    assert f"\nssl.keystore.location={escaped}/server.pem\n" in text
    assert properties(place / "server.properties")["ssl.keystore.location"] == str(place / "server.pem")
    assert (place / "client.properties").read_text().startswith("bootstrap.servers=localhost:9093\n")


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    place = tmp_path / "tls"
    assert run("tls", "make", str(place), "--client", "alice").status == 0
    modes = {path.name: path.stat().st_mode & 0o777 for path in place.iterdir()}
    secret = {name for name in modes if b"PRIVATE KEY" in (place / name).read_bytes()}
    assert secret == {"ca.key", "server.pem", "alice.pem"}
    assert {modes[name] for name in secret} == {0o600}
    assert place.stat().st_mode & 0o777 == 0o700


def test_the_servers_certificate_is_for_the_named_hosts_and_for_this_machine(tmp_path: Path) -> None:
    assert run("tls", "make", str(tmp_path), "--host", "kafka.example", "--host", "192.0.2.1").status == 0
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate((tmp_path / "server.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["kafka.example", "localhost"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.1", "127.0.0.1", "::1"]
    ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    assert properties(tmp_path / "server.properties")["ssl.client.auth"] == "none"


@pytest.mark.parametrize("name", ["ca.pem", "server.pem", "alice.pem", "client.properties"])
def test_nothing_is_written_over(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    said = run("tls", "make", str(tmp_path), "--client", "alice")
    assert said.status == 1
    assert said.err == f"ottla: {tmp_path / name} exists, and nothing is written over: name an empty directory\n"
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--client", "../x"), "--client ../x: must be letters, digits, dots and dashes"),
        (
            ("--client", "server"),
            "--client server: must be letters, digits, dots and dashes, and not ca, server, client",
        ),
        (("--client", "a" * 65), "must be letters"),
        (("--host", "a b"), "--host a b: must be a name or an address"),
    ],
)
def test_a_wrong_name_is_one_line(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    said = run("tls", "make", str(tmp_path), *arguments)
    assert said.status == 1
    assert words in said.err
    assert list(tmp_path.iterdir()) == []


def test_without_cryptography_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ottla.cli.certificates", None)
    said = run("tls", "make", str(tmp_path))
    assert (said.status, said.err) == (1, "ottla: needs the package cryptography: pip install 'ottla[security]'\n")
