"""Addresses as people write them."""

from __future__ import annotations

import pytest

from ottla.address import host_and_port, plain_host


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
