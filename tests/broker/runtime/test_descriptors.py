"""Who gets how many of the descriptors that the process may open."""

from __future__ import annotations

import pytest

from ottla.broker.runtime.descriptors import LEAST_DESCRIPTORS, shares_of, shortage
from ottla.config.broker import BrokerConfig


@pytest.mark.parametrize(
    ("limit", "connections", "logs"),
    [(LEAST_DESCRIPTORS, 20, 20), (120, 45, 45), (200, 75, 75), (1024, 480, 480), (1 << 20, (1 << 20) - 2112, 2048)],
)
def test_small_limits_are_shared_evenly_and_large_ones_go_to_connections(
    limit: int, connections: int, logs: int
) -> None:
    assert shares_of(BrokerConfig.of(), limit) == (connections, logs)


def test_without_a_limit_the_logs_have_what_the_key_says() -> None:
    assert shares_of(BrokerConfig.of({"ottla.log.max.open.segments": 100}), None).logs == 200
    assert shortage(BrokerConfig.of(), None) is None


def test_room_for_fewer_connections_than_there_may_be_is_said_up_to_a_number() -> None:
    said = shortage(BrokerConfig.of(), 120)
    assert said is not None
    assert said.startswith("RLIMIT_NOFILE=120 leaves room for 45 connections beside 45 files of logs; `ulimit -n`")
    assert shortage(BrokerConfig.of({"max.connections": 45}), 120) is None
    assert shortage(BrokerConfig.of(), 1024) is None
