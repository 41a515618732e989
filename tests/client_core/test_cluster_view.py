"""The view of the cluster: what is asked for, what answers change, and which leader is believed."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from ottla.client_core.cluster_view import BrokerAddress, ClusterView
from ottla.protocol.api.metadata import MetadataResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import ZERO_UUID

ID = uuid4()


def topic(name, *leaders, epoch=0, topic_id=ID, error=ErrorCode.NONE):
    partitions = [
        MetadataResponse.MetadataResponsePartition(
            partition_index=index, leader_id=leader, leader_epoch=epoch, replica_nodes=[leader], isr_nodes=[leader]
        )
        for index, leader in enumerate(leaders)
    ]
    return MetadataResponse.MetadataResponseTopic(
        error_code=int(error), name=name, topic_id=topic_id, partitions=partitions
    )


def answer(*topics, brokers=(1, 2), controller_id=2):
    described = [
        MetadataResponse.MetadataResponseBroker(node_id=node, host=f"b{node}", port=9090 + node) for node in brokers
    ]
    return MetadataResponse(
        brokers=described, cluster_id="c", controller_id=controller_id, topics=list(topics), throttle_time_ms=0
    )


def taken(view, *topics, version=12, **options):
    view.take(view.metadata_request(version), version, answer(*topics, **options))


def names(request):
    return None if request.topics is None else [topic.name for topic in request.topics]


def test_an_answer_names_brokers_and_the_leaders_of_the_topics_that_were_asked_about():
    view = ClusterView()
    view.use(["t"])
    taken(view, topic("t", 1, 2), topic("other", 1))
    assert view.brokers == {1: BrokerAddress(1, "b1", 9091), 2: BrokerAddress(2, "b2", 9092)}
    assert (view.cluster_id, view.controller_id) == ("c", 2)
    assert [view.leader_of("t", index) for index in range(3)] == [1, 2, -1]
    assert view.epoch_of("t", 1) == 0
    assert view.epoch_of("t", 2) == view.epoch_of("other", 0) == -1
    assert (view.topic_id("t"), view.topic_id("other")) == (ID, ZERO_UUID)
    assert list(view.topics) == ["t"]
    assert view.names_by_id() == {ID: "t"}


def test_a_leader_that_is_no_broker_of_the_cluster_is_none():
    view = ClusterView()
    view.use(["t"])
    taken(view, topic("t", 7))
    assert view.leader_of("t", 0) == -1
    taken(view, topic("t", 7), brokers=(7,))
    assert view.leader_of("t", 0) == 7


def test_an_answer_without_brokers_leaves_those_that_are_known():
    view = ClusterView()
    taken(view)
    taken(view, brokers=(), controller_id=-1)
    assert (set(view.brokers), view.controller_id) == ({1, 2}, 2)


def test_an_older_leader_epoch_is_not_believed_unless_the_topic_is_another_one():
    view = ClusterView()
    view.use(["t"])
    taken(view, topic("t", 2, epoch=5))
    taken(view, topic("t", 1, epoch=4))
    assert (view.leader_of("t", 0), view.epoch_of("t", 0)) == (2, 5)
    taken(view, topic("t", 1, epoch=-1))
    assert view.leader_of("t", 0) == 1
    taken(view, topic("t", 2, epoch=5))
    taken(view, topic("t", 1, epoch=0, topic_id=UUID(int=9)))
    assert (view.leader_of("t", 0), view.epoch_of("t", 0)) == (1, 0)


def test_topics_are_asked_about_until_they_are_forgotten_or_let_go():
    view = ClusterView()
    assert names(view.metadata_request(12)) == []
    assert view.ask_about(["b", "a"])
    assert not view.ask_about(["a"])
    view.use(["c"])
    assert names(view.metadata_request(12)) == ["a", "b", "c"]
    assert view.lacks_topics
    taken(view, topic("a", 1), topic("b", 1), topic("c", 1))
    assert not view.lacks_topics
    view.let_go("a")
    view.let_go("c")
    assert names(view.metadata_request(12)) == ["b", "c"]
    assert sorted(view.topics) == ["b", "c"]
    view.forget("c")
    assert names(view.metadata_request(12)) == ["b"]


def test_a_topic_that_an_answer_leaves_out_stays_known():
    view = ClusterView()
    view.use(["t"])
    taken(view, topic("t", 1))
    taken(view)
    assert view.leader_of("t", 0) == 1


@pytest.mark.parametrize("name", ["", "n" * 250])
def test_a_name_that_no_topic_can_have_is_not_asked_about(name):
    view = ClusterView()
    with pytest.raises(ValueError, match="cannot be the name of a topic"):
        view.ask_about(["good", name])
    assert names(view.metadata_request(12)) == []


@pytest.mark.parametrize(("version", "asked"), [(0, []), (1, None), (12, None)])
def test_all_topics_are_known_after_an_answer_about_all(version, asked):
    view = ClusterView()
    view.use(["mine"])
    assert view.use_all(True)
    assert not view.use_all(True)
    assert view.lacks_all
    request = view.metadata_request(version)
    assert names(request) == asked
    view.take(request, version, answer(topic("mine", 1), topic("other", 1)))
    assert not view.lacks_all
    taken(view, topic("other", 1), version=version)
    assert list(view.topics) == ["other"]
    assert view.use_all(False)
    assert list(view.topics) == []


def test_an_answer_to_an_earlier_question_is_not_one_about_all():
    """The program begins to want all topics while a question about some is on its way."""
    view = ClusterView()
    request = view.metadata_request(12)
    view.use_all(True)
    view.take(request, 12, answer())
    assert view.lacks_all


@pytest.mark.parametrize(("version", "may_create", "creates"), [(3, False, True), (4, False, False), (4, True, True)])
def test_asking_creates_topics_only_where_it_may_or_the_version_cannot_say(version, may_create, creates):
    assert ClusterView().metadata_request(version, may_create=may_create).allow_auto_topic_creation is creates
