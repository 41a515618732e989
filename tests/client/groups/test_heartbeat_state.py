"""A heartbeat of the consumer protocol says what is new, and everything when nobody knows what was heard."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from ottla.client import TopicPartition
from ottla.client.groups.heartbeat_state import Facts, HeartbeatState, owned_by_id

ID = UUID(int=7)
FACTS = Facts(frozenset({"b", "a"}), None, "uniform", 30_000)


def told(request):
    """The fields that say something."""
    names = {
        "rebalance_timeout_ms": -1,
        "subscribed_topic_names": None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": None,
    }
    return {name for name, nothing in names.items() if getattr(request, name) != nothing}


def test_joining_tells_everything_and_owns_nothing():
    state = HeartbeatState("g", "instance")
    request = state.request("m", 0, replace(FACTS, owned=frozenset({(ID, 1)})))
    assert (request.group_id, request.member_id, request.member_epoch, request.instance_id) == ("g", "m", 0, "instance")
    assert request.subscribed_topic_names == ["a", "b"]
    assert request.topic_partitions == []
    assert (request.rebalance_timeout_ms, request.server_assignor) == (30_000, "uniform")


def test_later_ones_tell_what_changed_since():
    state = HeartbeatState("g", None)
    state.request("m", 0, FACTS)
    state.answered()
    assert told(state.request("m", 1, FACTS)) == set()
    state.answered()
    owning = replace(FACTS, owned=frozenset({(ID, 1), (ID, 0)}))
    request = state.request("m", 1, owning)
    assert told(request) == {"topic_partitions"}
    assert [(one.topic_id, one.partitions) for one in request.topic_partitions] == [(ID, [0, 1])]
    state.answered()
    assert state.is_reported(owning)
    assert told(state.request("m", 1, replace(owning, topics=frozenset({"c"})))) == {"subscribed_topic_names"}
    state.answered()
    pattern = replace(owning, topics=frozenset(), regex="c.*")
    assert told(state.request("m", 1, pattern)) == {"subscribed_topic_names", "subscribed_topic_regex"}
    state.answered()
    request = state.request("m", 1, replace(pattern, regex=None))
    assert request.subscribed_topic_regex == ""  # an empty one takes it back; null would leave it


def test_after_a_heartbeat_without_an_answer_everything_is_told_again():
    state = HeartbeatState("g", None)
    state.request("m", 0, FACTS)
    state.answered()
    state.request("m", 3, FACTS)
    state.lost()
    assert told(state.request("m", 3, FACTS)) == {
        "rebalance_timeout_ms",
        "subscribed_topic_names",
        "server_assignor",
        "topic_partitions",
    }


def test_leaving_for_good_and_for_a_while():
    state = HeartbeatState("g", "instance")
    assert state.leaving("m", for_good=True).member_epoch == -1
    assert state.leaving("m", for_good=False).member_epoch == -2


def test_partitions_go_by_the_ids_of_their_topics():
    owned = [TopicPartition("a", 0), TopicPartition("unknown", 1)]
    assert owned_by_id(owned, {"a": ID}) == {(ID, 0)}
