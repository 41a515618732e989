from __future__ import annotations

import pytest

from ottla.config.listeners import (
    Listener,
    SecurityProtocol,
    parse_address,
    parse_advertised_listeners,
    parse_bound_listeners,
    parse_listeners,
    parse_optional_address,
    parse_protocol_map,
    protocols_by_name,
    show_optional_address,
    with_protocols,
)

PLAINTEXT = SecurityProtocol.PLAINTEXT


@pytest.mark.parametrize(
    ("text", "name", "host", "port"),
    [
        ("PLAINTEXT://:9092", "PLAINTEXT", "", 9092),
        ("PLAINTEXT://0.0.0.0:0", "PLAINTEXT", "0.0.0.0", 0),
        ("INTERNAL://broker-1.example:65535", "INTERNAL", "broker-1.example", 65535),
        ("plaintext://localhost:1", "PLAINTEXT", "localhost", 1),
        ("A://[::1]:9092", "A", "::1", 9092),
        ("A://[fe80::1%eth0]:9092", "A", "fe80::1%eth0", 9092),
        ("TC-0://x:1", "TC-0", "x", 1),
    ],
)
def test_a_listener_is_name_host_and_port(text: str, name: str, host: str, port: int) -> None:
    (listener,) = parse_listeners(text)
    assert (listener.name, listener.host, listener.port) == (name, host, port)
    assert parse_listeners(str(listener)) == (listener,)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("localhost:9092", "must be NAME://host:port"),
        ("PLAINTEXT://localhost", "must be NAME://host:port"),
        ("PLAINTEXT://::1:9092", "must be NAME://host:port"),
        ("PLAINTEXT://[localhost]:9092", "is not an IPv6 address"),
        ("PLAINTEXT://:65536", "the port must be from 0 to 65535"),
        ("PLAINTEXT://:-1", "the port must be from 0 to 65535"),
        ("PLAINTEXT://user@localhost:9092", "must be NAME://host:port"),
        ("PLAINTEXT://{HOST}:9092", "must be NAME://host:port"),
        ("PLAINTEXT://bücher:9092", "must be NAME://host:port"),
        ("PLAINTEXT://:9092/", "must be NAME://host:port"),
        ("PLAINTEXT://:9092,PLAINTEXT://:9093", "named twice"),
        ("A://:9092,B://:9092", "want the same port"),
        ("A://h:9092,B://h:9092", "want the same port"),
        ("A://0.0.0.0:9092,B://127.0.0.1:9092", "want the same port"),
        ("A://[::]:9092,B://[::1]:9092", "want the same port"),
        ("A://:9092,B://127.0.0.1:9092", "want the same port"),
    ],
)
def test_a_broken_or_double_listener_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_listeners(text)


@pytest.mark.parametrize(
    "text",
    ["A://:0,B://:0", "A://127.0.0.1:1,B://127.0.0.2:1", "A://0.0.0.0:1,B://[::]:1", "A://[::]:1,B://127.0.0.1:1"],
)
def test_different_addresses_may_share_a_port(text: str) -> None:
    assert len(parse_listeners(text)) == 2


def test_at_least_one_listener_must_be_bound() -> None:
    with pytest.raises(ValueError, match="at least one"):
        parse_bound_listeners(" , ")


@pytest.mark.parametrize("text", ["auto", "AUTO", ""])
def test_auto_advertises_nothing_of_its_own(text: str) -> None:
    assert parse_advertised_listeners(text) == ()


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_an_address_that_nobody_can_connect_to_is_not_advertised(host: str) -> None:
    with pytest.raises(ValueError, match="not an address that a client can connect to"):
        parse_advertised_listeners(f"PLAINTEXT://{host}:9092")


def test_two_names_may_advertise_the_same_address() -> None:
    assert len(parse_advertised_listeners("A://proxy:443,B://proxy:443")) == 2


def test_a_name_stands_for_its_protocol() -> None:
    protocols = protocols_by_name(parse_protocol_map("internal:plaintext, OUT:SASL_SSL"))
    listeners = with_protocols(parse_listeners("INTERNAL://:1,OUT://:2,SSL://:3"), protocols)
    assert [one.protocol for one in listeners] == [PLAINTEXT, SecurityProtocol.SASL_SSL, SecurityProtocol.SSL]


def test_a_name_that_stands_for_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="INTERNAL has no protocol: add INTERNAL:PLAINTEXT"):
        with_protocols(parse_listeners("INTERNAL://:1"), protocols_by_name(()))


@pytest.mark.parametrize("text", ["A", ":PLAINTEXT", "A:TLS", "A:PLAINTEXT,a:SSL"])
def test_a_broken_protocol_map_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"NAME:PROTOCOL|must be one of|mapped twice"):
        parse_protocol_map(text)


def test_an_address_without_a_name() -> None:
    assert parse_address("[::1]:8080") == ("::1", 8080)
    assert parse_optional_address("") is None
    assert show_optional_address(parse_optional_address("[::1]:8080")) == "[::1]:8080"
    assert show_optional_address(parse_optional_address(":0")) == ":0"
    with pytest.raises(ValueError, match="'8080' must be host:port"):
        parse_address("8080")


def test_an_ipv6_listener_is_shown_in_brackets() -> None:
    assert str(Listener("A", "::1", 9092, PLAINTEXT)) == "A://[::1]:9092"
