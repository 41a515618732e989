"""Addresses as people write them."""

from __future__ import annotations

import pytest

from ottla.address import host_and_port, parse_server, parse_servers, plain_host


def test_an_ipv6_address_stands_in_brackets_before_its_port() -> None:
    assert [host_and_port(host, 9092) for host in ("localhost", "192.0.2.1", "::1")] == [
        "localhost:9092",
        "192.0.2.1:9092",
        "[::1]:9092",
    ]


@pytest.mark.parametrize(
    ("host", "plain"),
    [
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::FFFF:192.0.2.1", "192.0.2.1"),
        ("::ffff:c000:201", "192.0.2.1"),
        ("::ffff:0:1", "0.0.0.1"),
        ("::ffff:1:2:3", "::ffff:1:2:3"),
        ("::1", "::1"),
        ("::", "::"),
        ("2001:db8::ffff:1", "2001:db8::ffff:1"),
        ("192.0.2.1", "192.0.2.1"),
        ("broker.example.org", "broker.example.org"),
    ],
)
def test_an_ipv4_address_in_ipv6_s_clothes_is_an_ipv4_address(host: str, plain: str) -> None:
    assert plain_host(host) == plain


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("h", ("h", 9092)),
        (" h:1 ", ("h", 1)),
        ("[::1]:9", ("::1", 9)),
        ("[::1]", ("::1", 9092)),
        ("PLAINTEXT://h:1", ("h", 1)),
        ("sasl_ssl://[::1]:9", ("::1", 9)),
    ],
)
def test_the_address_of_a_server_may_have_its_protocol(text: str, address: tuple[str, int]) -> None:
    assert parse_server(text) == address
    assert parse_servers(f"{text},,a:2,") == [address, ("a", 2)]


@pytest.mark.parametrize(
    "text", ["", ":1", "h:", "h:x", "h:0", "h:65536", "http://h:1", "h:1/", "a/b", "::1", "[::1", "[]:1", "h]:1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        parse_server(text)
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        parse_servers(text)


@pytest.mark.parametrize("port", ["0", "00", "65536", "99999", "9" * 5_000])
def test_a_port_that_there_cannot_be_is_said(port: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT: ports are from 1 to 65535"):
        parse_server(f"h:{port}")
