"""`ottla_group_lag` in a scrape: what it says, of whom, and how many lines it may have."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from kit.exchange import Exchange, batch, produce_request
from kit.group_requests import commit, delete_offsets, join, make_topic, sync
from kit.nodes import ask, start_node
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.groups import lag
from ottla.broker.node import Node
from ottla.broker.telemetry.exposition import SAMPLES_PER_PIECE, Exposition
from ottla.protocol.api.delete_topics import DeleteTopicsRequest
from ottla.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest

Lags = dict[tuple[str, str, str], float]


def scraped(node: Node) -> tuple[Lags, float]:
    """The lag by group, topic and partition, and how many are left out."""
    lags: Lags = {}
    omitted = -1.0
    for family in text_string_to_metric_families(Exposition(node.services, node.cleaner).render().decode()):
        for sample in family.samples:
            if sample.name == "ottla_group_lag":
                place = sample.labels["group"], sample.labels["topic"], sample.labels["partition"]
                assert place not in lags
                lags[place] = sample.value
            elif sample.name == "ottla_group_lag_omitted":
                omitted = sample.value
    return lags, omitted


def filled(records: int = 10, **keys: object) -> Node:
    node, _, _ = start_node(**keys)
    make_topic(node, "t", 2)
    exchange = Exchange(node)
    exchange.ask(produce_request("t", batch(records)), 9)
    return node


def test_the_lag_is_what_is_shown_beyond_the_commit() -> None:
    node = filled(10)
    commit(node, "g", {0: 4, 1: 0})
    assert scraped(node) == ({("g", "t", "0"): 6, ("g", "t", "1"): 0}, 0)
    commit(node, "g", {0: 10})
    assert scraped(node)[0]["g", "t", "0"] == 0


def test_a_commit_beyond_the_end_is_no_lag() -> None:
    node = filled(10)
    commit(node, "g", {0: 99})
    assert scraped(node)[0] == {("g", "t", "0"): 0}


def test_what_is_deleted_has_no_lag() -> None:
    node = filled(10)
    commit(node, "g", {0: 4})
    commit(node, "h", {0: 5})
    delete_offsets(node, "g", [0])
    assert scraped(node)[0] == {("h", "t", "0"): 5}
    ask(node, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 5)
    assert scraped(node)[0] == {}


@pytest.mark.parametrize("most", [1, 0])
def test_no_more_lines_than_the_key_says_and_groups_with_members_first(most: int) -> None:
    node = filled(10, ottla_metrics_group_lag_max_series=most)
    commit(node, "empty", {0: 4})
    joined = join(node, "live")
    sync(node, "live", joined)
    assert commit(node, "live", {0: 7}, member_id=joined.member_id, generation=joined.generation_id) == 0
    lags, omitted = scraped(node)
    assert lags == ({("live", "t", "0"): 3} if most else {})
    assert omitted == most


def test_the_key_changes_while_the_broker_runs() -> None:
    node = filled(10)
    commit(node, "g", {0: 4})
    alter = IncrementalAlterConfigsRequest
    config = alter.AlterableConfig(name="ottla.metrics.group.lag.max.series", config_operation=0, value="0")
    resource = alter.AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
    ask(node, alter(resources=[resource], validate_only=False), 1)
    assert scraped(node)[0] == {}


def test_many_lines_come_in_pieces_and_what_goes_meanwhile_is_left_out() -> None:
    node = filled(10)
    count = 2 * SAMPLES_PER_PIECE + 50
    for number in range(count):
        commit(node, f"g{number}", {0: 1})
    pieces, lines = Exposition(node.services, node.cleaner).pieces(), []
    for piece in pieces:
        lines.append(sum(line.startswith(b"ottla_group_lag{") for line in piece.splitlines()))
        assert lines[-1] <= SAMPLES_PER_PIECE
        if sum(lines) == SAMPLES_PER_PIECE:
            for number in range(count):
                delete_offsets(node, f"g{number}", [0])
    assert max(lines) == SAMPLES_PER_PIECE
    assert sum(lines) < count


def listed(steps: Generator[None, None, list[lag.CommittedPlace]]) -> tuple[list[lag.CommittedPlace], int]:
    """The places, and how often others could run before they were there."""
    stops = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, stops
        stops += 1


def test_the_places_are_listed_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    node = filled(10)
    for number in range(10):
        commit(node, f"g{number}", {0: 1, 1: 1})
    monkeypatch.setattr(lag, "PLACES_PER_STEP", 6)
    places, stops = listed(lag.committed_places(node.services.groups.get(), 100))
    assert stops > 5  # each group is looked at twice, and has two places
    assert sorted(places) == sorted((f"g{number}", "t", index) for number in range(10) for index in (0, 1))


def test_a_group_that_loses_its_members_while_places_are_listed_is_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    node = filled(10)
    joined = join(node, "live")
    sync(node, "live", joined)
    assert commit(node, "live", {0: 7}, member_id=joined.member_id, generation=joined.generation_id) == 0
    monkeypatch.setattr(lag, "PLACES_PER_STEP", 1)
    steps = lag.committed_places(node.services.groups.get(), 100)
    next(steps)
    shard = node.services.groups.get().shards.get("live")
    assert shard is not None
    monkeypatch.setattr(type(shard.groups["live"]), "is_empty", True)
    assert listed(steps) == ([("live", "t", 0)], 1)
