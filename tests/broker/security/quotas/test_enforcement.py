"""Quotas as clients meet them: throttle times in answers, muted connections, refusals."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from kit.clock import ManualClock
from kit.exchange import Exchange, batch, fetch_request, make_topic, produce_request
from kit.nodes import start_node
from kit.sasl_connections import SaslNode
from kit.transport import feed

from ottla.broker.fast.hot_path import HotPath
from ottla.broker.node import Node
from ottla.broker.principal import Principal
from ottla.broker.requests.chunks import ELEMENTS_PER_CHUNK
from ottla.broker.security.quotas import accounts
from ottla.protocol.api.alter_client_quotas import AlterClientQuotasRequest
from ottla.protocol.api.api_versions import ApiVersionsRequest
from ottla.protocol.api.create_partitions import CreatePartitionsRequest
from ottla.protocol.api.create_topics import CreateTopicsRequest
from ottla.protocol.api.delete_topics import DeleteTopicsRequest
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.api.list_groups import ListGroupsRequest
from ottla.protocol.api.list_offsets import ListOffsetsRequest
from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.api.produce import ProduceResponse
from ottla.protocol.api.write_txn_markers import WriteTxnMarkersRequest
from ottla.protocol.errors import ErrorCode

PRODUCE_VERSION, FETCH_VERSION, SESSION_VERSION = 9, 12, 13
WINDOW_MS = 11_000
"""After so long nothing counts any more."""


both_paths = pytest.mark.usefixtures("path")
"""Request templates charge what the slow path charges."""


@pytest.fixture(params=["templates", "slow path"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "slow path":
        monkeypatch.setattr("ottla.broker.requests.dispatch.learn", lambda *_: None)


def make_node(**keys: object) -> tuple[Node, ManualClock]:
    node, _, clock = start_node(ottla_acks_all="page-cache", **keys)
    make_topic(node, "t")
    return node, clock


def limit(node: Node, entity: dict[str, str | None], **values: float | None) -> None:
    """Set quotas as a client does; None removes one."""
    request = AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequest.EntryData(
                entity=[
                    AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity.items()
                ],
                ops=[
                    AlterClientQuotasRequest.OpData(key=key, value=value or 0, remove=value is None)
                    for key, value in values.items()
                ],
            )
        ],
        validate_only=False,
    )
    answer: Any = Exchange(node).ask(request, 1)
    assert [entry.error_code for entry in answer.entries] == [0]


def produce(client: Exchange, records: bytes, **more: Any) -> ProduceResponse:
    answer = client.ask(produce_request("t", records, **more), PRODUCE_VERSION)
    assert isinstance(answer, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == 0
    return answer


def fetch(client: Exchange, offset: int = 0, **more: Any) -> FetchResponse:
    answer = client.ask(fetch_request("t", offset, **more), FETCH_VERSION)
    assert isinstance(answer, FetchResponse)
    assert answer.error_code == 0
    return answer


def pass_time(node: Node, clock: ManualClock, ms: int) -> None:
    clock.advance(ms)
    node.run_due()
    node.settle()


@both_paths
def test_a_producer_over_its_quota_is_answered_at_once_and_muted_for_the_time_that_the_answer_says() -> None:
    node, clock = make_node()
    limit(node, {"client-id": "test"}, producer_byte_rate=1_000)
    client = Exchange(node)
    assert produce(client, batch(value=b"x" * 100)).throttle_time_ms == 0
    answer = produce(client, batch(value=b"x" * 20_000))
    assert answer.throttle_time_ms > 10_000
    assert client.transport.is_paused
    pass_time(node, clock, answer.throttle_time_ms - 1)
    assert client.transport.is_paused
    pass_time(node, clock, 1)
    assert not client.transport.is_paused
    assert produce(client, batch()).throttle_time_ms > 0, "the bytes of before count until they are out of the window"


def frame(client: Exchange, records: bytes) -> bytes:
    return client.frame(produce_request("t", records), PRODUCE_VERSION)


@both_paths
def test_what_has_been_read_already_waits_until_the_connection_is_heard_again() -> None:
    node, clock = make_node()
    limit(node, {"client-id": "test"}, producer_byte_rate=1_000)
    client = Exchange(node)
    feed(client.connection, frame(client, batch(value=b"x" * 20_000)) + frame(client, batch()))
    node.settle()
    answer = client.reply()
    assert isinstance(answer, ProduceResponse)
    pass_time(node, clock, answer.throttle_time_ms)
    assert isinstance(client.reply(), ProduceResponse)


def test_a_muted_connection_is_not_taken_for_one_that_does_not_finish_its_request() -> None:
    node, clock = make_node()
    limit(node, {"client-id": "test"}, producer_byte_rate=100)
    client = Exchange(node)
    second = frame(client, batch())
    feed(client.connection, frame(client, batch(value=b"x" * 20_000)) + second[:-10])
    node.settle()
    answer = client.reply()
    assert isinstance(answer, ProduceResponse)
    patience_ms = node.services.config.ottla_partial_frame_timeout_ms
    assert answer.throttle_time_ms > patience_ms
    clock.advance(answer.throttle_time_ms)
    client.connections.sweep()
    assert client.connection.closing is None
    pass_time(node, clock, 0)
    client.connections.sweep()
    assert client.connection.closing is None, "its time begins when it is heard again"
    clock.advance(patience_ms + 1)
    client.connections.sweep()
    assert client.connection.closing is not None


def test_a_connection_that_ends_while_muted_leaves_no_timer() -> None:
    node, _ = make_node()
    limit(node, {"client-id": "test"}, producer_byte_rate=10)
    client = Exchange(node)
    before = len(node.services.timers)
    produce(client, batch(value=b"x" * 20_000))
    assert len(node.services.timers) == before + 1
    client.connection.connection_lost(None)
    assert len(node.services.timers) == before


@both_paths
def test_all_connections_of_a_client_share_its_quota_and_others_have_their_own() -> None:
    node, _ = make_node()
    limit(node, {"user": "alice"}, producer_byte_rate=1_000)
    alice, again, bob = Exchange(node), Exchange(node), Exchange(node)
    for client in (alice, again):
        client.connection.peer.principal = Principal("User", "alice")
    produce(alice, batch(value=b"x" * 20_000))
    assert produce(again, batch()).throttle_time_ms > 0
    assert produce(bob, batch(value=b"x" * 20_000)).throttle_time_ms == 0
    assert not bob.transport.is_paused


@both_paths
def test_a_fetch_over_the_quota_is_answered_empty_and_costs_nothing() -> None:
    node, clock = make_node()
    client = Exchange(node)
    for _ in range(4):
        produce(client, batch(value=b"x" * 4_000))
    limit(node, {"client-id": "test"}, consumer_byte_rate=1_000)
    first = fetch(client)
    assert first.throttle_time_ms == 0
    size_bytes = len(first.responses[0].partitions[0].records or b"")
    assert 8_000 < size_bytes <= 10_000, "no more than the quota lets pass in a window"
    second = fetch(client, 2)
    assert second.responses == []
    assert second.throttle_time_ms > 0
    pass_time(node, clock, WINDOW_MS)
    assert not client.transport.is_paused
    third = fetch(client, 2)
    assert third.responses[0].partitions[0].records
    assert third.throttle_time_ms == 0


@both_paths
def test_a_batch_that_is_larger_than_the_window_is_given_and_the_next_one_waits() -> None:
    node, _ = make_node()
    client = Exchange(node)
    produce(client, batch(value=b"x" * 40_000))
    produce(client, batch(value=b"x" * 40_000))
    limit(node, {"client-id": "test"}, consumer_byte_rate=100)
    assert fetch(client).responses[0].partitions[0].records
    assert fetch(client, 1).responses == []


def session_fetch(node: Node, epoch: int, session_id: int, offset: int = 0) -> FetchRequest:
    request = fetch_request("", offset, session_epoch=epoch, session_id=session_id)
    request.topics[0].topic_id = node.services.catalog.topics["t"].id
    return request


@both_paths
def test_a_throttled_fetch_in_a_session_leaves_what_it_has_to_say_for_the_next() -> None:
    node, clock = make_node()
    producer = Exchange(node)
    for _ in range(2):
        produce(producer, batch(value=b"x" * 8_000))
    limit(node, {"client-id": "test"}, consumer_byte_rate=1_000)
    client = Exchange(node)
    opened: Any = client.ask(session_fetch(node, 0, 0), SESSION_VERSION)
    assert opened.responses[0].partitions[0].records
    throttled: Any = client.ask(session_fetch(node, 1, opened.session_id, 1), SESSION_VERSION)
    assert (throttled.error_code, throttled.session_id, throttled.responses) == (0, opened.session_id, [])
    assert throttled.throttle_time_ms > 0
    pass_time(node, clock, WINDOW_MS)
    request = session_fetch(node, 2, opened.session_id, 1)
    request.topics = []
    answer: Any = client.ask(request, SESSION_VERSION)
    assert answer.responses[0].partitions[0].records


@both_paths
def test_a_throttled_fetch_opens_no_session() -> None:
    node, _ = make_node()
    producer = Exchange(node)
    produce(producer, batch(value=b"x" * 20_000))
    limit(node, {"client-id": "test"}, consumer_byte_rate=100)
    client = Exchange(node)
    fetch(client)
    other = Exchange(node)
    answer: Any = other.ask(session_fetch(node, 0, 0), SESSION_VERSION)
    assert (answer.session_id, answer.responses) == (0, [])
    assert len(list(node.services.fetch_sessions)) == 0


def test_a_request_is_charged_the_time_for_which_it_holds_the_thread() -> None:
    node, clock = make_node()
    limit(node, {"client-id": "test"}, request_percentage=1)
    quotas = node.services.quotas.clients
    assert quotas is not None
    looks = iter(range(0, 10**12, 50_000_000))  # each look at the clock is 50 ms later
    quotas.now_ns = lambda: next(looks)
    client = Exchange(node)
    throttled = []
    for _ in range(4):
        answer: Any = client.ask(ListGroupsRequest(), 3)
        throttled.append(answer.throttle_time_ms)
        pass_time(node, clock, answer.throttle_time_ms)
    # 5 % of a second each: of one percent over ten seconds there is room for two.
    assert throttled[:2] == [0, 0]
    assert 0 < throttled[2] <= 1_000, "Kafka lets nobody wait for longer than a sample"


def test_markers_of_transactions_are_charged_to_no_client() -> None:
    """As in Kafka, where they come from other brokers."""
    node, _ = make_node()
    limit(node, {"client-id": "test"}, request_percentage=1)
    quotas = node.services.quotas.clients
    assert quotas is not None
    looks = iter(range(0, 10**15, 60_000_000_000))
    quotas.now_ns = lambda: next(looks)
    client = Exchange(node)
    client.ask(WriteTxnMarkersRequest(markers=[]), 1)
    assert not client.transport.is_paused
    client.ask(ListGroupsRequest(), 3)
    assert client.transport.is_paused


@both_paths
def test_a_long_poll_is_not_charged_for_its_wait() -> None:
    node, clock = make_node()
    limit(node, {"client-id": "test"}, request_percentage=1)
    quotas = node.services.quotas.clients
    assert quotas is not None
    quotas.now_ns = lambda: clock.monotonic_ms() * 1_000_000
    client = Exchange(node)
    client.send(fetch_request("t", 0, max_wait_ms=60_000), FETCH_VERSION)
    pass_time(node, clock, 60_000)
    answer: Any = client.reply()
    assert answer.throttle_time_ms == 0


def new_topic(name: str) -> CreateTopicsRequest.CreatableTopic:
    return CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=5, replication_factor=1, assignments=[], configs=[]
    )


def test_each_piece_of_a_long_request_is_charged() -> None:
    node, clock = make_node()
    limit(node, {"client-id": "test"}, request_percentage=1_000)
    quotas = node.services.quotas.clients
    assert quotas is not None
    looks = iter(range(0, 10**12, 50_000_000))
    quotas.now_ns = lambda: next(looks)
    client = Exchange(node)
    names = [
        ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=-1)
        for index in range(10 * ELEMENTS_PER_CHUNK)
    ]
    before = next(looks)
    client.send(
        ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=names)]), 7
    )
    for _ in range(20):
        pass_time(node, clock, 1)
    assert client.replies()
    spans = (next(looks) - before) / 50_000_000 / 2
    assert spans >= 10, "each piece has a beginning and an end"


def test_a_fetch_that_waited_from_before_the_quota_is_not_charged_for_its_wait() -> None:
    node, clock = make_node()
    client, producer = Exchange(node), Exchange(node)

    def begin() -> None:
        client.send(fetch_request("t", 0, max_wait_ms=60_000, min_bytes=10_000), FETCH_VERSION)
        node.settle()

    for _ in range(2):
        begin()
        pass_time(node, clock, 60_000)
        client.reply()
    begin()  # by the template
    limit(node, {"client-id": "test"}, request_percentage=1)
    quotas = node.services.quotas.clients
    assert quotas is not None
    quotas.now_ns = lambda: clock.monotonic_ms() * 1_000_000
    produce(producer, batch())  # too little: it waits on, on the slow path
    pass_time(node, clock, 60_000)
    answer: Any = client.reply()
    assert answer.responses[0].partitions[0].records
    assert answer.throttle_time_ms == 0


@pytest.mark.parametrize(("create", "grow", "delete"), [(6, 3, 5), (7, 3, 6)])
def test_newer_versions_are_refused_changes_over_the_quota(create: int, grow: int, delete: int) -> None:
    node, clock = make_node(controller_quota_window_num=2)
    limit(node, {"client-id": "test"}, controller_mutation_rate=1)
    client = Exchange(node)

    def creation(*names: str) -> CreateTopicsRequest:
        return CreateTopicsRequest(topics=[new_topic(name) for name in names])

    made: Any = client.ask(creation("a", "b"), create)
    codes = {topic.name: topic.error_code for topic in made.topics}
    assert codes == {"a": 0, "b": ErrorCode.THROTTLING_QUOTA_EXCEEDED}
    assert made.throttle_time_ms == 3_000, "five were taken of two, at one a second"
    pass_time(node, clock, 3_000)
    grown: Any = client.ask(
        CreatePartitionsRequest(
            topics=[CreatePartitionsRequest.CreatePartitionsTopic(name="a", count=7, assignments=None)],
            timeout_ms=1_000,
            validate_only=False,
        ),
        grow,
    )
    assert [result.error_code for result in grown.results] == [0]
    removal = DeleteTopicsRequest(topic_names=["a"], timeout_ms=1_000)
    if delete >= 6:
        removal.topic_names, removal.topics = [], [DeleteTopicsRequest.DeleteTopicState(name="a", topic_id=UUID(int=0))]
    refused: Any = client.ask(removal, delete)
    assert [result.error_code for result in refused.responses] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert refused.throttle_time_ms == 2_000
    assert "a" in node.services.catalog.topics


def test_older_versions_are_served_and_wait_afterwards() -> None:
    node, _ = make_node(controller_quota_window_num=2)
    limit(node, {"client-id": "test"}, controller_mutation_rate=1)
    client = Exchange(node)
    made: Any = client.ask(CreateTopicsRequest(topics=[new_topic("a")]), 5)
    assert [topic.error_code for topic in made.topics] == [0]
    assert made.throttle_time_ms == 3_000
    assert client.transport.is_paused


def test_a_topic_that_metadata_creates_is_charged() -> None:
    node, _ = make_node(controller_quota_window_num=1, num_partitions=4)
    limit(node, {"client-id": "test"}, controller_mutation_rate=1)
    client = Exchange(node)
    answer: Any = client.ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="new")]), 9)
    assert answer.topics[0].error_code == 0
    assert answer.throttle_time_ms == 3_000


def test_templates_are_forgotten_when_a_quota_comes_or_goes() -> None:
    node, _ = make_node()
    client = Exchange(node)

    def learnt() -> HotPath:
        for _ in range(3):
            assert produce(client, batch()).throttle_time_ms == 0
        hot_path = client.connection.peer.hot_path
        assert isinstance(hot_path, HotPath)
        assert hot_path.produce is not None
        return hot_path

    assert learnt().quota is None
    limit(node, {"client-id": "test"}, producer_byte_rate=1e9)
    assert learnt().quota is not None
    limit(node, {"client-id": "test"}, producer_byte_rate=None)
    limit(node, {"client-id": "another"}, producer_byte_rate=1)
    assert learnt().quota is None


def test_without_quotas_nothing_of_them_exists() -> None:
    node, _ = make_node()
    assert node.services.quotas.clients is None
    limit(node, {"user": None}, producer_byte_rate=1)
    assert node.services.quotas.clients is not None
    limit(node, {"user": None}, producer_byte_rate=None)
    assert node.services.quotas.clients is None


def test_quotas_hold_after_a_restart() -> None:
    node, files, clock = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t")
    limit(node, {"client-id": None}, producer_byte_rate=1_000)
    node.stop()
    again, _, _ = start_node(files, clock, ottla_acks_all="page-cache")
    assert produce(Exchange(again), batch(value=b"x" * 20_000)).throttle_time_ms > 0


@both_paths
def test_a_quota_that_is_raised_counts_for_what_was_taken_before() -> None:
    node, clock = make_node()
    limit(node, {"client-id": "test"}, producer_byte_rate=1_000)
    client = Exchange(node)
    answer = produce(client, batch(value=b"x" * 20_000))
    limit(node, {"client-id": "test"}, producer_byte_rate=1_000_000)
    pass_time(node, clock, answer.throttle_time_ms)
    assert produce(client, batch()).throttle_time_ms == 0


def test_accounts_are_bounded_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "MAX_ACCOUNTS", 5)
    node, clock = make_node()
    limit(node, {"client-id": None}, producer_byte_rate=1_000)
    quotas = node.services.quotas.clients
    assert quotas is not None
    peer = Exchange(node).connection.peer
    for number in range(20):
        assert quotas.request(peer, f"client-{number}", 0, 9) is not None
    assert quotas.account_count == 5
    clock.advance(accounts.IDLE_MS)
    assert quotas.request(peer, "one more", 0, 9) is not None
    assert quotas.account_count == 1
    for end in "ab":
        quotas.request(peer, "x" * accounts.MOST_NAME_CHARACTERS + end, 0, 9)
    assert quotas.account_count == 2, "names are cut"


@both_paths
def test_what_is_throttled_is_counted() -> None:
    node, _ = make_node()
    limit(node, {"client-id": "test"}, producer_byte_rate=1_000)
    answer = produce(Exchange(node), batch(value=b"x" * 20_000))
    counters = node.services.quotas.counters
    assert counters.throttled == {"producer_byte_rate": 1}
    assert counters.throttle_ms == {"producer_byte_rate": answer.throttle_time_ms}


def test_nothing_is_charged_before_the_login() -> None:
    """Neither to ANONYMOUS nor to the client id: in Kafka no request gets as far as the quotas before it."""
    at = SaslNode()
    high = {"request_percentage": 1e9}
    at.node.services.quotas.change({(("user", None),): high})
    quotas = at.node.services.quotas.clients
    assert quotas is not None
    client = at.connect()
    assert client.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3).error_code == 0
    assert quotas.account_count == 0
    assert client.log_in().error_code == 0
    assert quotas.account_count == 0
    client.ask(ListGroupsRequest(), 3)
    assert quotas.account_count == 1
