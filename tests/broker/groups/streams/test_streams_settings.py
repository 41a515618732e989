"""The settings of a streams group: those of the broker, its own within the broker's bounds, and changes of both."""

from __future__ import annotations

import pytest

from ottla.broker.groups.streams.settings import StreamsSettings, settings_of
from ottla.config.broker import BrokerConfig


def test_a_group_that_sets_nothing_has_the_brokers_settings() -> None:
    assert settings_of(BrokerConfig.of({}), lambda _: {})("g") == StreamsSettings()


def test_a_group_has_its_own_settings_and_no_other_group_has_them() -> None:
    own = {
        "streams.session.timeout.ms": "50000",
        "streams.heartbeat.interval.ms": "6000",
        "streams.num.standby.replicas": "2",
        "streams.initial.rebalance.delay.ms": "7",
        "streams.assignment.interval.ms": "8",
        "streams.task.offset.interval.ms": "16000",
        "streams.acceptable.recovery.lag": "9",
        "streams.rack.aware.assignment.tags": "zone, cluster",
    }
    read = settings_of(BrokerConfig.of({}), lambda group_id: own if group_id == "g" else {})
    assert read("g") == StreamsSettings(
        session_timeout_ms=50_000,
        heartbeat_interval_ms=6_000,
        num_standby_replicas=2,
        initial_rebalance_delay_ms=7,
        assignment_interval_ms=8,
        task_offset_interval_ms=16_000,
        acceptable_recovery_lag=9,
        rack_aware_assignment_tags=("zone", "cluster"),
    )
    assert read("h") == StreamsSettings()


@pytest.mark.parametrize(
    ("key", "field", "low", "high"),
    [
        ("session.timeout.ms", "session_timeout_ms", 100, 60_000),
        ("heartbeat.interval.ms", "heartbeat_interval_ms", 10, 15_000),
        ("num.standby.replicas", "num_standby_replicas", 0, 2),
        ("assignment.interval.ms", "assignment_interval_ms", 0, 15_000),
        ("task.offset.interval.ms", "task_offset_interval_ms", 15_000, (1 << 31) - 1),
    ],
)
def test_a_value_that_the_bounds_have_left_behind_counts_as_the_next_one(
    key: str, field: str, low: int, high: int
) -> None:
    """It was set while the bounds were others, or by Kafka."""
    for value, counts in ((low - 1, low), (low, low), (high, high), (high + 1, high)):
        if 0 <= value < 1 << 31:
            own = {f"streams.{key}": str(value)}
            read = settings_of(BrokerConfig.of({}), lambda _, own=own: own)  # type: ignore[misc]  # bound in the loop
            assert getattr(read("g"), field) == counts


def test_values_that_cannot_be_read_are_the_brokers() -> None:
    own = {"streams.session.timeout.ms": "soon", "streams.num.standby.replicas": "1"}
    found = settings_of(BrokerConfig.of({}), lambda _: own)("g")
    assert (found.session_timeout_ms, found.num_standby_replicas) == (45_000, 1)


def test_a_key_that_changes_while_the_broker_runs_counts_at_once() -> None:
    config = BrokerConfig.of({})
    read = settings_of(config, lambda _: {})
    config.set_dynamic(node={"group.streams.assignment.interval.ms": "250"}, all_nodes={})
    assert read("g").assignment_interval_ms == 250


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        (StreamsSettings(), {"num.standby.replicas": "0"}),
        (
            StreamsSettings(num_standby_replicas=1, rack_aware_assignment_tags=("zone", "cluster")),
            {"num.standby.replicas": "1", "rack.aware.assignment.tags": "zone,cluster"},
        ),
    ],
)
def test_what_an_assignment_depends_on_is_kept_as_kafka_keeps_it(
    settings: StreamsSettings, kept: dict[str, str]
) -> None:
    assert settings.of_assignment == kept
