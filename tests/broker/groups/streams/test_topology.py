"""Topologies as members send them: what is refused, and what a group finds in them."""

from __future__ import annotations

from typing import Any

import pytest
from kit.streams_topologies import WORD_COUNT, internal_topic, request_topology, subtopology, topology

from ottla.broker.groups.streams.topology import (
    Topology,
    check_expressions,
    check_structure,
    check_topic_names,
    named_topics,
)
from ottla.protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from ottla.protocol.errors import ErrorCode, KafkaError


def refusal(subtopologies: list[StreamsGroupHeartbeatRequest.Subtopology], epoch: int = 0) -> tuple[ErrorCode, str]:
    with pytest.raises(KafkaError) as caught:
        check_structure(request_topology(*subtopologies, epoch=epoch))
    return caught.value.code, caught.value.message


def test_a_topology_knows_its_topics_and_who_reads_them() -> None:
    words = topology(*WORD_COUNT, epoch=3)
    assert words.epoch == 3
    assert sorted(words.required_topics) == ["app-counts-changelog", "app-words-repartition", "lines"]
    assert words.subtopology_by_source == {"lines": "0", "app-words-repartition": "1"}


def test_all_topics_need_rights_also_those_that_are_only_written() -> None:
    sent = request_topology(
        subtopology("0", reads=["b", "a"], writes=["out"], changelog=[internal_topic("log")]),
        subtopology("1", reads=["a"], repartition=[internal_topic("part")]),
    )
    assert named_topics(sent) == ["b", "a", "out", "log", "part"]


def test_topologies_are_equal_if_their_records_are() -> None:
    first, second = WORD_COUNT
    assert topology(first, second) == topology(second, first)
    assert topology(first, second) != topology(first)
    assert topology(first, epoch=1) != topology(first, epoch=2)
    assert topology(subtopology(reads=["a", "b"])) != topology(subtopology(reads=["b", "a"]))
    assert topology(first) != "topology"


def test_a_topology_is_what_its_record_says() -> None:
    words = topology(*WORD_COUNT, subtopology("2", reads=["a", "b"], joins=[([0, 1], [])]))
    assert Topology(words.value) == words
    changelog = words.value.subtopologies[1].state_changelog_topics[0]
    assert [(config.key, config.value) for config in changelog.topic_configs] == [("cleanup.policy", "compact")]
    assert words.value.subtopologies[2].copartition_groups[0].source_topics == [0, 1]


def test_a_valid_topology_passes_all_checks() -> None:
    sent = request_topology(*WORD_COUNT, subtopology("2", reads=["a", "b"], joins=[([0, 1], [])]), epoch=0)
    check_topic_names(named_topics(sent))
    check_expressions(sent)
    check_structure(sent)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["a", "__consumer_offsets", "__transaction_state"],
            "Use of Kafka internal topics __consumer_offsets,__transaction_state in a Kafka Streams topology "
            "is prohibited.",
        ),
        (["a", "b c", ""], "Topic names b c, are not valid topic names."),
    ],
)
def test_topics_that_cannot_be_used_are_refused(names: list[str], message: str) -> None:
    with pytest.raises(KafkaError) as caught:
        check_topic_names(names)
    assert (caught.value.code, caught.value.message) == (ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def test_regular_expressions_are_refused_as_by_kafka() -> None:
    with pytest.raises(KafkaError, match="Regular expressions for source topics are not supported yet") as caught:
        check_expressions(request_topology(subtopology(source_topic_regex=["a.*"])))
    assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_the_partitions_of_a_changelog_are_not_chosen_by_the_member() -> None:
    code, message = refusal([subtopology(reads=["a"], changelog=[internal_topic("log", 3)])])
    assert code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert message == "Changelog topic log must have an undefined partition count, but it is set to 3."


def test_a_negative_epoch_is_refused() -> None:
    assert refusal([subtopology(reads=["a"])], epoch=-1)[0] == ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"repartition": [internal_topic("p", -1)]}, "the partitions or replicas of p are negative"),
        ({"changelog": [internal_topic("p", replicas=-2)]}, "the partitions or replicas of p are negative"),
        ({"repartition": [internal_topic("p"), internal_topic("p")]}, "names an internal topic twice"),
        ({"joins": [([1], [])]}, "a copartition group with an index that is out of range"),
        ({"joins": [([-1], [])]}, "a copartition group with an index that is out of range"),
        ({"joins": [([], [0])]}, "a copartition group with an index that is out of range"),
    ],
)
def test_a_subtopology_that_contradicts_itself_is_refused(fields: dict[str, Any], message: str) -> None:
    code, text = refusal([subtopology(reads=["a"], **fields)])
    assert code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert text.startswith("Subtopology 0")
    assert message in text


def test_a_configuration_with_a_key_twice_is_refused() -> None:
    topic = internal_topic("log", cleanup_policy="compact")
    topic.topic_configs *= 2
    assert "configures log with a key twice" in refusal([subtopology(reads=["a"], changelog=[topic])])[1]


def test_two_subtopologies_of_one_id_are_refused() -> None:
    code, message = refusal([subtopology("0", reads=["a"]), subtopology("0", reads=["b"])])
    assert (code, message) == (ErrorCode.STREAMS_INVALID_TOPOLOGY, "Two subtopologies have the same id.")
