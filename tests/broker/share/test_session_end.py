"""What a member has is available to others when its share session ends."""

from __future__ import annotations

from kit.nodes import ask_for
from kit.share_requests import acquire_all, acquired_by, node_with_records, topic_id_of

from ottla.broker.peer import Peer
from ottla.protocol.api.share_fetch import ShareFetchRequest, ShareFetchResponse


def test_the_end_of_a_session_releases_records_of_a_partition_that_was_removed_from_it() -> None:
    node, _, _ = node_with_records(3)
    peer = Peer()
    acquire_all(node, peer, 0)
    removal = ShareFetchRequest(
        group_id="g",
        member_id="m",
        share_session_epoch=1,
        max_wait_ms=0,
        min_bytes=0,
        max_records=100,
        batch_size=100,
        topics=[],
        forgotten_topics_data=[ShareFetchRequest.ForgottenTopic(topic_id=topic_id_of(node), partitions=[0])],
    )
    ask_for(ShareFetchResponse, node, removal, 2, peer=peer)
    other = Peer()
    assert acquired_by(node, other, 0, member_id="other") == []
    peer.end()
    node.settle()
    assert acquired_by(node, other, 1, member_id="other") == [(0, 2, 2)]
