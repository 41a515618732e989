"""Streams groups in a shard: timers, figures, offsets that expire."""

from __future__ import annotations

import pytest
from kit.group_requests import commit_request, committed, group_ids
from kit.nodes import ask
from kit.streams_nodes import StreamsNode

from ottla.broker.telemetry.exposition import Exposition


@pytest.fixture
def broker() -> StreamsNode:
    """The group `app` has the member `m`, and all its topics."""
    broker = StreamsNode()
    broker.join()
    broker.pass_ms(10)
    broker.join()
    return broker


def figures(broker: StreamsNode) -> str:
    return Exposition(broker.node.services, broker.node.cleaner).render().decode()


def test_a_scrape_shows_streams_groups_by_state_and_their_epochs() -> None:
    broker = StreamsNode()
    broker.join()
    assert 'ottla_groups{state="NotReady",type="streams"} 1.0' in figures(broker)
    broker.pass_ms(10)
    broker.join()
    text = figures(broker)
    assert 'ottla_groups{state="Stable",type="streams"} 1.0' in text
    assert "kafka_server_group_coordinator_metrics_streams_group_rebalance_total 2.0" in text


def test_a_member_that_falls_silent_is_removed_by_the_brokers_timer(broker: StreamsNode) -> None:
    broker.pass_ms(46_000)
    assert 'ottla_groups{state="Empty",type="streams"} 1.0' in figures(broker)


def test_an_empty_group_is_removed_when_its_offsets_have_expired() -> None:
    broker = StreamsNode(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1_000)
    broker.join()
    broker.pass_ms(10)
    broker.join()
    ask(broker.node, commit_request("app", {0: 1}, generation=3, member_id="m"), 9)
    broker.pass_ms(40_000)
    broker.heartbeat(3)
    broker.pass_ms(40_000)
    assert committed(broker.node, "app") == 1, "the group has a member that reads the topic"
    broker.pass_ms(200_000)
    assert group_ids(broker.node) == set()
