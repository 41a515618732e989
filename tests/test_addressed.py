"""By which names the HTTP port may be asked, and whose addresses are this machine's."""

from __future__ import annotations

import socket

import pytest

from ottla.addressed import is_loopback, is_named


@pytest.mark.parametrize(
    "host",
    [
        "",
        "localhost",
        "LOCALHOST:9644",
        "localhost.",
        "127.0.0.1:9644",
        "10.1.2.3",
        "[::1]:9644",
        "::1",
        "[fe80::1%eth0]:9644",
        "broker:9644",
        "a.localhost",
        "host.docker.internal:9644",
        "kafka.example:9644",
    ],
)
def test_what_no_web_page_is_called_is_this_machine(host: str) -> None:
    assert is_named(host, ("Kafka.example",))


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example.:9644",
        "localhost.evil.example",
        "127.0.0.1.evil.example:9644",
        "evillocalhost.example",
        "127.1.example",
        "[evil.example]",
        "x.kafka.example",
        "\x00.example",
    ],
)
def test_what_may_be_the_name_of_a_web_page_is_not(host: str) -> None:
    assert not is_named(host, ("kafka.example",))


def test_this_machine_may_be_called_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_named("Mine.example:9644")
    monkeypatch.setattr(socket, "gethostname", lambda: "mine.Example")
    assert is_named("Mine.example:9644")


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("", False),
        ("::", False),
    ],
)
def test_loopback_addresses_are_known(host: str, is_local: bool) -> None:
    assert is_loopback(host) is is_local
