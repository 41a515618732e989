"""The gate: every API passes it, also where requests are answered from templates, and it counts each answer once."""

from __future__ import annotations

import errno
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from kit.exchange import Exchange, batch, fetch_request, fetch_templates, make_topic, produce_request
from kit.handlers import stub_handler
from kit.nodes import start_node
from kit.wire_values import messages

import ottla.protocol.api as declarations
from ottla.broker.api import HANDLERS
from ottla.broker.context import Context
from ottla.broker.fast.hot_path import HotPath
from ottla.broker.fetch.delayed_fetch import PARTITIONS_PER_STEP
from ottla.broker.node import Node
from ottla.broker.peer import Peer
from ottla.broker.requests.chunks import ELEMENTS_PER_CHUNK
from ottla.broker.requests.dispatch import RequestDispatcher
from ottla.broker.requests.gate import Gate
from ottla.broker.requests.rights import is_asked_by_gate
from ottla.broker.runtime.in_flight_request import CloseConnection
from ottla.broker.runtime.metrics import Histogram, RequestMeter
from ottla.broker.security.authorizer import AUTHORIZATION_CODES
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api import REGISTRY, Api, ApiKey
from ottla.protocol.api.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.api.list_offsets import ListOffsetsRequest
from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Request, Response, decode, encode

REACHED = KafkaError(ErrorCode.INVALID_REQUEST, "the request came to its handler")
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
PRODUCE_VERSION, FETCH_VERSION = 9, 12
FIRST_VERSION_WITH_TOPIC_IDS = 13


class Rights:
    """An authorizer that allows everything but `denied` names, until it `refuses`; `asked` has the questions."""

    def __init__(self) -> None:
        self.refuses = False
        self.denied: set[str | tuple[AclOperation, str]] = set()
        self.asked: list[tuple[AclOperation, ResourceType, str]] = []

    def is_allowed(self, peer: Peer, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        self.asked.append((operation, resource_type, name))
        return not self.refuses and name not in self.denied and (operation, name) not in self.denied

    def is_allowed_somewhere(self, peer: Peer, operation: AclOperation, resource_type: ResourceType) -> bool:
        return not self.refuses

    def allowed_operations(self, peer: Peer, operations: int, resource_type: ResourceType, name: str) -> int:
        return 0 if self.refuses else operations


class Meters:
    """Meters of a test's own."""

    def __init__(self) -> None:
        self.made: dict[tuple[str, int, int], RequestMeter] = {}

    def __call__(self, name: str, version: int, code: int) -> RequestMeter:
        return self.made.setdefault((name, version, int(code)), RequestMeter(Histogram()))

    @property
    def counts(self) -> Counter[tuple[str, int, int]]:
        return Counter({key: meter.count for key, meter in self.made.items() if meter.count})


def node_behind(authorizer: Rights | None = None, **gate: Any) -> Node:
    """A node with the topics "t" and "u", with an authorizer, handlers or meters of the test's."""
    node, _, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t")
    make_topic(node, "u")
    object.__setattr__(node.services, "authorizer", authorizer)  # frozen
    node.dispatcher = RequestDispatcher(node.services, Gate(node.services, **gate))
    return node


def is_learnt(client: Exchange, key: ApiKey) -> bool:
    hot_path = client.connection.peer.hot_path
    if key == ApiKey.FETCH:
        return fetch_templates(client) is not None
    return isinstance(hot_path, HotPath) and hot_path.produce is not None


VERSIONS = [
    pytest.param(api.key, version, id=f"{api.name}-v{version}")
    for api in REGISTRY.values()
    for version in sorted({api.min_version, api.max_version})
    if api.key in HANDLERS
]


@pytest.fixture(scope="module")
def refusing() -> Node:
    """A node whose clients have no right at all, and whose handlers say when a request comes to them."""

    def reached(request: object, context: Context) -> None:
        raise REACHED

    rights = Rights()
    rights.refuses = True
    handlers = {key: (lambda load=load: load()._replace(handle=reached)) for key, load in HANDLERS.items()}
    return node_behind(rights, handlers=handlers)


def refusal_at_the_gate(api: Api, request: Request) -> KafkaError:
    """The error that the gate gives to this request where no right is there; REACHED where it has nothing to ask."""
    for need in HANDLERS[api.key]().needs:
        code = AUTHORIZATION_CODES[need.resource_type]
        if not need.named:
            if is_asked_by_gate(need):
                return KafkaError(code, f"the request needs {need.operation.name} on the cluster")
        elif need.answered:
            if getattr(request, need.named[0]):
                return KafkaError(code)
        elif getattr(request, need.named[0]) is not None:
            return KafkaError(code)
    return REACHED


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_no_request_passes_the_gate_without_the_rights_that_its_api_states(
    refusing: Node, key: ApiKey, version: int
) -> None:
    api = REGISTRY[key]

    @settings(max_examples=3, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(request=messages(api.request, version))
    def check(request: Request) -> None:
        if isinstance(request, ProduceRequest):
            request.acks = -1
        arrived = decode(api.request, encode(request, version), version)
        error = refusal_at_the_gate(api, arrived)
        refusal = api.refused(arrived, version, error.code, error.message)
        if refusal is None:
            return  # ApiVersions, which needs no right: the connection would be closed
        answer = Exchange(refusing).ask(request, version)
        assert answer == decode(api.response, encode(refusal, version), version)

    check()


def session_request(node: Node, epoch: int, session_id: int) -> FetchRequest:
    """A request of a session that has the topic since its first one."""
    request = fetch_request("", 0, session_epoch=epoch, session_id=session_id)
    request.topics[0].topic_id = node.services.catalog.topics["t"].id
    if epoch > 0:
        request.topics = []
    return request


def test_a_produce_answered_from_a_template_was_admitted_and_is_asked_again_when_a_right_changes() -> None:
    rights = Rights()
    node = node_behind(authorizer=rights)
    client = Exchange(node)
    request = produce_request("t", batch())
    for _ in range(3):
        assert client.ask(request, PRODUCE_VERSION).responses[0].partition_responses[0].error_code == 0  # type: ignore[attr-defined]
    assert is_learnt(client, ApiKey.PRODUCE)
    assert rights.asked == [(AclOperation.WRITE, ResourceType.TOPIC, "t")]
    rights.refuses = True
    node.services.validity.change()
    for _ in range(2):
        answer = client.ask(request, PRODUCE_VERSION)
        assert isinstance(answer, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == DENIED
    assert not is_learnt(client, ApiKey.PRODUCE), "a refused request was learnt"
    assert rights.asked == [(AclOperation.WRITE, ResourceType.TOPIC, "t")] * 3


@pytest.mark.parametrize("in_session", [False, True])
def test_a_fetch_answered_from_a_template_was_admitted_and_is_asked_again_when_a_right_changes(
    in_session: bool,
) -> None:
    rights = Rights()
    node = node_behind(authorizer=rights)
    client = Exchange(node)
    client.ask(produce_request("t", batch()), PRODUCE_VERSION)
    rights.asked.clear()
    session_id = 0
    asked: list[int] = []

    def fetch(epoch: int) -> FetchResponse:
        if in_session:
            answer = client.ask(session_request(node, epoch, session_id), FIRST_VERSION_WITH_TOPIC_IDS)
        else:
            answer = client.ask(fetch_request("t", 0), FETCH_VERSION)
        assert isinstance(answer, FetchResponse)
        return answer

    for epoch in range(5):
        answer = fetch(epoch)
        assert answer.error_code == 0
        assert answer.responses[0].partitions[0].records
        session_id = answer.session_id
        asked.append(len(rights.asked))
    assert is_learnt(client, ApiKey.FETCH)
    assert asked[0] > 0
    assert asked[-1] == asked[-2], "no template answers: the test sees nothing"
    rights.refuses = True
    node.services.validity.change()
    for epoch in (5, 6):
        assert fetch(epoch).responses[0].partitions[0].error_code == DENIED
    assert not is_learnt(client, ApiKey.FETCH), "a refused request was learnt"


def test_a_produce_of_two_topics_with_a_right_to_one_is_answered_by_the_slow_path_each_time() -> None:
    rights = Rights()
    node = node_behind(authorizer=rights)
    client = Exchange(node)
    request = produce_request("t", batch())
    request.topic_data += produce_request("u", batch()).topic_data
    rights.denied = {"u"}
    for _ in range(3):
        assert codes(client.ask(request, PRODUCE_VERSION)) == {"t": 0, "u": DENIED}
    rights.denied = set()
    node.services.validity.change()
    assert codes(client.ask(request, PRODUCE_VERSION)) == {"t": 0, "u": 0}


@pytest.mark.parametrize("partitions", [1, PARTITIONS_PER_STEP])
def test_a_session_is_learnt_only_where_the_client_may_read_all_of_its_topics(partitions: int) -> None:
    """Also where the topic without a right is beyond what one step reads."""
    rights = Rights()
    node = node_behind(authorizer=rights)
    client = Exchange(node)
    make_topic(node, "many", partitions)
    client.ask(produce_request("u", batch()), PRODUCE_VERSION)
    rights.denied = {"u"}
    topics = node.services.catalog.topics
    first = fetch_request("many", 0, partitions=partitions, session_epoch=0)
    first.topics += fetch_request("u", 0).topics
    for asked in first.topics:
        asked.topic_id = topics[asked.topic].id
    session_id = 0

    def fetch(request: FetchRequest) -> int:
        """The code of the topic "u"."""
        nonlocal session_id
        client.send(request, FIRST_VERSION_WITH_TOPIC_IDS)
        for _ in range(3):
            node.run_due()
            node.settle()
        answer = client.reply()
        assert isinstance(answer, FetchResponse)
        session_id = answer.session_id
        return next(one.partitions[0].error_code for one in answer.responses if one.topic_id == topics["u"].id)

    def fetch_more(epoch: int) -> int:
        return fetch(fetch_request("", 0, session_id=session_id, session_epoch=epoch).replace(topics=[]))

    assert fetch(first) == DENIED
    for epoch in (1, 2, 3):
        assert not is_learnt(client, ApiKey.FETCH)
        assert fetch_more(epoch) == DENIED
    rights.denied = set()
    node.services.validity.change()
    for epoch in (4, 5, 6):
        assert fetch_more(epoch) == 0
    assert is_learnt(client, ApiKey.FETCH)


def codes(answer: Response) -> dict[str, int]:
    if isinstance(answer, FetchResponse):
        return {one.topic: one.partitions[0].error_code for one in answer.responses}
    assert isinstance(answer, ProduceResponse)
    return {one.name: one.partition_responses[0].error_code for one in answer.responses}


def test_a_fetch_that_waits_ends_with_an_error_once_the_right_is_gone() -> None:
    rights = Rights()
    node = node_behind(authorizer=rights)
    client, producer = Exchange(node), Exchange(node)
    client.send(fetch_request("t", 0, max_wait_ms=10_000), FETCH_VERSION)
    assert client.replies() == []
    rights.denied = {(AclOperation.READ, "t")}
    node.services.validity.change()
    producer.ask(produce_request("t", batch()), PRODUCE_VERSION)
    assert codes(client.reply()) == {"t": DENIED}


def test_every_answer_is_counted_once_by_the_meters_of_the_gate() -> None:
    meters = Meters()
    node = node_behind(meters=meters)
    before = node.services.metrics.request_counts
    client = Exchange(node)
    good, bad = batch(), bytearray(batch())
    bad[-1] ^= 1
    for records in (good, good, good, bytes(bad), good):
        client.ask(produce_request("t", records), PRODUCE_VERSION)
    assert is_learnt(client, ApiKey.PRODUCE)
    client.send(produce_request("t", good, acks=0), PRODUCE_VERSION)
    node.settle()
    for _ in range(3):
        client.ask(fetch_request("t", 0), FETCH_VERSION)
    assert is_learnt(client, ApiKey.FETCH)
    client.ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]), 9)
    client.ask(fetch_request("t", 0, session_epoch=7, session_id=77), FETCH_VERSION)
    client.send_frame(b"\0\x12\0\x63\0\0\0\x05\xff\xff\0")  # ApiVersions v99
    assert meters.counts == {
        ("Produce", PRODUCE_VERSION, 0): 5,
        ("Produce", PRODUCE_VERSION, ErrorCode.CORRUPT_MESSAGE): 1,
        ("Fetch", FETCH_VERSION, 0): 3,
        ("Fetch", FETCH_VERSION, ErrorCode.FETCH_SESSION_ID_NOT_FOUND): 1,
        ("Metadata", 9, 0): 1,
        ("ApiVersions", 0, ErrorCode.UNSUPPORTED_VERSION): 1,
    }
    assert node.services.metrics.request_counts == before, "counted beside the gate"


@pytest.mark.parametrize("learning", [0, 3])
def test_a_produce_is_counted_by_the_error_of_its_partition_on_either_path(learning: int) -> None:
    meters = Meters()
    client = Exchange(node_behind(meters=meters))
    damaged = bytearray(batch())
    damaged[-1] ^= 1
    for _ in range(learning):
        client.ask(produce_request("t", batch()), PRODUCE_VERSION)
    assert is_learnt(client, ApiKey.PRODUCE) == bool(learning)
    client.ask(produce_request("t", bytes(damaged)), PRODUCE_VERSION)
    assert meters.counts[("Produce", PRODUCE_VERSION, ErrorCode.CORRUPT_MESSAGE)] == 1
    assert meters.counts[("Produce", PRODUCE_VERSION, 0)] == learning


def test_a_chunked_request_is_admitted_and_counted_once() -> None:
    rights, meters = Rights(), Meters()
    node = node_behind(authorizer=rights, meters=meters)
    partitions = [
        ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=-1)
        for index in range(2 * ELEMENTS_PER_CHUNK)
    ]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=partitions)]
    )
    client = Exchange(node)
    client.send(request, 7)
    answers: list[object] = []
    for _ in range(10):
        node.run_due()
        node.settle()
        answers += client.replies()
    assert len(answers) == 1
    assert rights.asked == [(AclOperation.DESCRIBE, ResourceType.TOPIC, "t")]
    assert meters.counts == {("ListOffsets", 7, 0): 1}


def test_a_handler_that_cannot_be_imported_fails_its_request_and_not_the_next() -> None:
    failures = [OSError("too many open files")]
    load = HANDLERS[ApiKey.DESCRIBE_CLUSTER]

    def loading() -> Any:
        if failures:
            raise failures.pop()
        return load()

    client = Exchange(node_behind(handlers={**HANDLERS, ApiKey.DESCRIBE_CLUSTER: loading}))
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    codes = []
    for _ in range(2):
        answer = client.ask(request, 0)
        assert isinstance(answer, DescribeClusterResponse)
        codes.append(answer.error_code)
    assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]


def test_what_is_handled_without_needs_is_not_refused() -> None:
    def answered(request: object, context: Context) -> DescribeClusterResponse:
        return DescribeClusterResponse(cluster_id="c", brokers=[])

    rights = Rights()
    rights.refuses = True
    node = node_behind(handlers={**HANDLERS, ApiKey.DESCRIBE_CLUSTER: stub_handler(answered)}, authorizer=rights)
    answer = Exchange(node).ask(DescribeClusterRequest(include_cluster_authorized_operations=False), 0)
    assert isinstance(answer, DescribeClusterResponse)
    assert answer.cluster_id == "c"


def test_an_api_whose_module_cannot_be_read_closes_the_connection_and_is_served_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = node_behind()
    gate = Gate(node.services)
    api = declarations.Api(ApiKey.LIST_GROUPS, "0-5", "3+")
    monkeypatch.setitem(declarations.REGISTRY, ApiKey.LIST_GROUPS, api)

    def no_descriptor(name: str) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(declarations, "import_module", no_descriptor)
        with pytest.raises(CloseConnection, match=r"ListGroups cannot be loaded: .*Too many open files"):
            gate.serves(ApiKey.LIST_GROUPS, 4)
    admission = gate.serves(ApiKey.LIST_GROUPS, 4)
    assert admission is not None
    assert admission.request is api.request
