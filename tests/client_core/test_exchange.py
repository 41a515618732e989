"""A connection without a socket: the handshake, requests to bytes, answers matched to them, and its end."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client_core import exchange as exchange_module
from ottla.client_core.exchange import Exchange
from ottla.client_core.frames import FrameReader
from ottla.client_core.handshake import HandshakeRefused, Place, Question, negotiate
from ottla.client_core.produce_template import ProduceTemplate
from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.api.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode, MalformedMessage
from ottla.protocol.headers import decode_request_header, response_header
from ottla.protocol.message import Request, Response, decode, encode
from ottla.protocol.types import ZERO_UUID, Bytes, Int16, String

VERSIONS = {int(key): (api.min_version, api.max_version) for key, api in REGISTRY.items()}


def requests_of(exchange):
    """The requests among the bytes to send: (header, body)."""
    return requests_in(exchange.bytes_to_send())


def requests_in(buffers):
    data = b"".join(buffers)
    found = []
    while data:
        (size,) = struct.unpack_from(">i", data)
        content, data = data[4 : 4 + size], data[4 + size :]
        header, body = decode_request_header(content)
        found.append((header, content[body:]))
    return found


def answer_to(header, response, version=None, correlation_id=None):
    """The frame that answers a request."""
    version = header.api_version if version is None else version
    number = header.correlation_id if correlation_id is None else correlation_id
    content = response_header(header.api_key, header.api_version, number) + encode(response, version)
    return struct.pack(">i", len(content)) + content


def feed(exchange, data, now=0.0, piece_bytes=2**31):
    found = []
    while data:
        room = exchange.buffer()
        count = min(len(room), len(data), piece_bytes)
        room[:count] = data[:count]
        data = data[count:]
        found += exchange.receive(count, now)
    return found


def begun(handshake=None, **options):
    found = Exchange(
        "me", FrameReader(1000), handshake or negotiate("toy", "1.0+local"), handshake_timeout_s=10, **options
    )
    found.begin(100.0)
    return found


def versions_answer(versions=VERSIONS, error=ErrorCode.NONE):
    items = [
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=a, max_version=b) for key, (a, b) in versions.items()
    ]
    return ApiVersionsResponse(error_code=int(error), api_keys=items)


def ready(**options):
    found = begun(**options)
    ((header, _),) = requests_of(found)
    feed(found, answer_to(header, versions_answer({3: (0, 12)})))
    assert found.is_ready
    return found


def ask(exchange, context="?", deadline=1000.0, now=0.0):
    return exchange.send(MetadataRequest(topics=[]), 12, now, deadline, context)


def ask_by_template(exchange, records=b"records"):
    template = ProduceTemplate(
        12, client_id="me", topic="t", topic_id=ZERO_UUID, partition=0, acks=-1, timeout_ms=30_000
    )
    request = exchange_module.InFlight(ApiKey.PRODUCE, 12, -1, 0.0, 1000.0, "by template", has_tagged_answer=True)
    return exchange.send_template(request, template, records)


def answer_of(name):
    return MetadataResponse(cluster_id=name, brokers=[], topics=[])


# The handshake --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 7, 1000])
def test_the_handshake_asks_for_versions_and_names_the_software(piece_bytes):
    exchange = begun()
    ((header, body),) = requests_of(exchange)
    assert (header.api_key, header.api_version, header.client_id) == (ApiKey.API_VERSIONS, 3, "me")
    asked = decode(ApiVersionsRequest, body, 3)
    assert (asked.client_software_name, asked.client_software_version) == ("toy", "1.0-local")
    (answer,) = feed(exchange, answer_to(header, versions_answer()), piece_bytes=piece_bytes)
    assert answer.request.context is None
    assert exchange.is_ready
    assert exchange.versions == VERSIONS
    assert not exchange.has_bytes_to_send


def test_a_broker_that_does_not_know_our_newest_version_is_asked_in_its_oldest():
    exchange = begun()
    ((first, _),) = requests_of(exchange)
    refusal = versions_answer({18: (0, 2)}, ErrorCode.UNSUPPORTED_VERSION)
    feed(exchange, answer_to(first, refusal, version=0), now=105.0)
    assert not exchange.is_ready
    ((second, body),) = requests_of(exchange)
    assert (second.api_version, body, second.correlation_id) == (0, b"", 1)
    assert exchange.next_deadline() == 115.0
    feed(exchange, answer_to(second, versions_answer({3: (0, 9)})))
    assert exchange.versions == {3: (0, 9)}


def asked_for_place(exchange):
    """The version of the ApiVersions request among the bytes to send, and the broker that it expects."""
    ((header, body),) = requests_of(exchange)
    request = decode(ApiVersionsRequest, body, header.api_version)
    return header, (header.api_version, request.client_software_name, request.cluster_id, request.node_id)


def test_the_expected_broker_is_named_in_the_version_that_has_it():
    _, asked = asked_for_place(begun(negotiate("toy", "1.0", Place("cluster", 3))))
    assert asked == (5, "toy", "cluster", 3)
    _, asked = asked_for_place(begun())
    assert asked == (3, "toy", None, -1)


@pytest.mark.parametrize(
    ("newest", "second"), [(4, (3, "toy", None, -1)), (3, (3, "toy", None, -1)), (2, (0, "", None, -1))]
)
def test_an_older_broker_is_asked_again_without_the_place_in_the_newest_version_that_both_know(newest, second):
    exchange = begun(negotiate("toy", "1.0", Place("cluster", 3)))
    header, _ = asked_for_place(exchange)
    feed(exchange, answer_to(header, versions_answer({18: (0, newest)}, ErrorCode.UNSUPPORTED_VERSION), version=0))
    header, asked = asked_for_place(exchange)
    assert asked == second
    feed(exchange, answer_to(header, versions_answer({3: (0, 9)})))
    assert exchange.versions == {3: (0, 9)}


@pytest.mark.parametrize("answers", [1, 2])
def test_a_refusal_of_the_handshake_has_its_code(answers):
    exchange = begun()
    for left in reversed(range(answers)):
        ((header, _),) = requests_of(exchange)
        code = ErrorCode.UNSUPPORTED_VERSION if left else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        frame = answer_to(header, versions_answer({}, code), version=0 if left else header.api_version)
        if left:
            feed(exchange, frame)
            continue
        with pytest.raises(HandshakeRefused, match="refused ApiVersions") as refused:
            feed(exchange, frame)
        assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert not exchange.is_ready


def test_no_request_goes_before_the_end_of_the_handshake():
    exchange = begun()
    for send in (lambda: ask(exchange), lambda: exchange.send_only(MetadataRequest(topics=[]), 12)):
        with pytest.raises(RuntimeError, match="handshake"):
            send()


class RiddleRequest(Request, key=1000, versions="0", flexible="none"):
    """A toy mechanism's message from the client."""

    answer: Bytes


class RiddleResponse(Response, key=1000, versions="0", flexible="none"):
    """A toy mechanism's message from the broker: a riddle, or whether the last was solved."""

    error_code: Int16
    riddle: String


def solving(secret):
    """A toy of a SASL mechanism: riddles until the broker has none left. What a real one needs is all here."""
    versions = yield from negotiate("toy", "1")
    said = yield Question(RiddleRequest(answer=b""), RiddleResponse, 0)
    while said.riddle:
        said = yield Question(RiddleRequest(answer=secret + said.riddle.encode()), RiddleResponse, 0)
        if said.error_code:
            raise HandshakeRefused("Riddle", ErrorCode.of(said.error_code))
    return versions


@pytest.mark.parametrize("piece_bytes", [1, 5, 1000])
def test_an_authentication_of_several_steps_is_part_of_the_handshake(piece_bytes):
    exchange = begun(solving(b"me:"))
    ((header, _),) = requests_of(exchange)
    feed(exchange, answer_to(header, versions_answer({3: (0, 12)})), piece_bytes=piece_bytes)
    said = []
    for riddle in ("one", "two", ""):
        assert not exchange.is_ready
        ((header, body),) = requests_of(exchange)
        said.append(decode(RiddleRequest, body, 0).answer)
        feed(exchange, answer_to(header, RiddleResponse(error_code=0, riddle=riddle)), piece_bytes=piece_bytes)
    assert said == [b"", b"me:one", b"me:two"]
    assert exchange.is_ready
    assert exchange.versions == {3: (0, 12)}
    assert ask(exchange).correlation_id == 4


def test_an_authentication_that_is_refused_never_gets_ready():
    exchange = begun(solving(b"not me:"))
    ((header, _),) = requests_of(exchange)
    feed(exchange, answer_to(header, versions_answer({})))
    ((header, _),) = requests_of(exchange)
    feed(exchange, answer_to(header, RiddleResponse(error_code=0, riddle="who?")))
    ((header, _),) = requests_of(exchange)
    with pytest.raises(HandshakeRefused, match="refused Riddle") as refused:
        feed(exchange, answer_to(header, RiddleResponse(error_code=58, riddle="")))
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not exchange.is_ready


# Requests and answers -------------------------------------------------------------------------------------------------


@given(st.permutations(range(4)), st.integers(1, 200))
def test_answers_in_any_order_and_pieces_find_their_requests(order, piece_bytes):
    exchange = ready()
    for number in range(4):
        ask(exchange, str(number))
    headers = [header for header, _ in requests_of(exchange)]
    stream = b"".join(answer_to(headers[number], answer_of(str(number))) for number in order)
    found = feed(exchange, stream, piece_bytes=piece_bytes)
    assert [answer.request.context for answer in found] == [str(number) for number in order]
    assert [answer.decode(MetadataResponse).cluster_id for answer in found] == [str(number) for number in order]
    assert exchange.in_flight == {}


def test_in_order_an_answer_to_a_later_request_is_refused():
    exchange = ready(in_order=True)
    ask(exchange)
    ask(exchange)
    first, second = (header for header, _ in requests_of(exchange))
    with pytest.raises(MalformedMessage, match="answered request 2, not 1"):
        feed(exchange, answer_to(second, answer_of("x")))
    assert [request.correlation_id for request in exchange.in_flight.values()] == [1, 2]
    assert first.correlation_id == 1


@pytest.mark.parametrize("in_order", [False, True])
def test_an_answer_that_no_request_has_is_refused(in_order):
    exchange = ready(in_order=in_order)
    ask(exchange)
    ((header, _),) = requests_of(exchange)
    with pytest.raises(MalformedMessage, match="77"):
        feed(exchange, answer_to(header, answer_of("x"), correlation_id=77))
    again = ready(in_order=in_order)
    with pytest.raises(MalformedMessage, match="no request has"):
        feed(again, answer_to(header, answer_of("x")))


def test_a_second_answer_to_the_same_request_is_refused_after_the_first():
    exchange = ready()
    ask(exchange)
    ((header, _),) = requests_of(exchange)
    frame = answer_to(header, answer_of("x"))
    exchange.buffer()[: 2 * len(frame)] = 2 * frame
    found = []
    with pytest.raises(MalformedMessage):
        found.extend(exchange.receive(2 * len(frame), 0.0))
    assert len(found) == 1


def test_a_frame_above_the_bound_is_refused():
    exchange = ready()
    with pytest.raises(MalformedMessage, match="frame of 1001 bytes"):
        feed(exchange, struct.pack(">i", 1001))


def test_a_body_that_cannot_be_decoded_is_malformed():
    exchange = ready()
    ask(exchange)
    ((header, _),) = requests_of(exchange)
    content = response_header(header.api_key, header.api_version, header.correlation_id) + b"\xff"
    (answer,) = feed(exchange, struct.pack(">i", len(content)) + content)
    with pytest.raises(MalformedMessage):
        answer.decode(MetadataResponse)


def test_the_request_of_a_template_is_one_of_the_others():
    exchange = ready()
    ask(exchange, "before")
    buffers = ask_by_template(exchange)
    ask(exchange, "after")
    (before, _), (header, body), (after, _) = requests_in([*buffers, *exchange.bytes_to_send()])
    assert [before.correlation_id, after.correlation_id] == [header.correlation_id - 1, header.correlation_id + 1]
    assert (header.api_key, header.api_version, header.client_id) == (ApiKey.PRODUCE, 12, "me")
    assert decode(ProduceRequest, body, 12).topic_data[0].partition_data[0].records == b"records"
    (answer,) = feed(exchange, answer_to(header, ProduceResponse(responses=[], throttle_time_ms=3)))
    assert answer.request.context == "by template"
    assert answer.decode(ProduceResponse).throttle_time_ms == 3


def test_the_request_of_a_template_waits_for_the_end_of_a_handshake():
    exchange = ready()
    ask(exchange, "before")
    exchange.begin_again(negotiate("toy", "1.0"), 0.0)
    before, (handshake, _) = requests_in(ask_by_template(exchange))
    assert (before[0].api_key, handshake.api_key) == (ApiKey.METADATA, ApiKey.API_VERSIONS)
    feed(exchange, answer_to(handshake, versions_answer()))
    ((header, _),) = requests_of(exchange)
    assert header.api_key == ApiKey.PRODUCE


def test_templates_count_correlation_ids_as_the_others_do(monkeypatch):
    monkeypatch.setattr(exchange_module, "MAX_CORRELATION_ID", 2)
    exchange = ready()
    sent = [request for _ in range(3) for request in requests_in(ask_by_template(exchange))]
    assert [header.correlation_id for header, _ in sent] == [1, 2, 0]


def test_no_template_is_sent_before_the_end_of_the_handshake():
    with pytest.raises(RuntimeError):
        ask_by_template(begun())


def test_a_request_that_was_given_up_is_not_lost_with_the_others():
    exchange = ready()
    given_up, lost = ask(exchange, "given up"), ask(exchange, "lost")
    exchange.give_up(given_up)
    assert exchange.end() == [lost]


def test_a_header_cut_short_is_malformed_and_its_request_is_still_in_flight():
    exchange = ready()
    ask(exchange)
    ((header, _),) = requests_of(exchange)
    with pytest.raises(MalformedMessage, match="header ends early"):
        feed(exchange, struct.pack(">ii", 4, header.correlation_id))
    assert len(exchange.end()) == 1


def test_a_request_without_an_answer_takes_a_number_and_is_not_in_flight():
    exchange = ready()
    exchange.send_only(MetadataRequest(topics=[]), 12)
    ask(exchange)
    assert [header.correlation_id for header, _ in requests_of(exchange)] == [1, 2]
    assert list(exchange.in_flight) == [2]


def test_correlation_ids_begin_again_after_the_largest(monkeypatch):
    monkeypatch.setattr(exchange_module, "MAX_CORRELATION_ID", 2)
    exchange = ready()
    for _ in range(3):
        ask(exchange)
    assert [header.correlation_id for header, _ in requests_of(exchange)] == [1, 2, 0]


# The end --------------------------------------------------------------------------------------------------------------


def test_the_end_returns_what_was_in_flight_oldest_first():
    exchange = ready()
    for name in "abc":
        ask(exchange, name)
    _, (second, _), _ = requests_of(exchange)
    feed(exchange, answer_to(second, answer_of("b")))
    partial = answer_to(second, answer_of("lost"))[:-1]
    feed(exchange, partial)
    assert [request.context for request in exchange.end()] == ["a", "c"]
    assert exchange.end() == []


def test_a_connection_that_ends_in_its_handshake_has_no_request_of_the_drivers():
    exchange = begun()
    assert [request.context for request in exchange.end()] == [None]


def test_deadlines_are_of_each_request():
    exchange = ready()
    assert exchange.next_deadline() is None
    ask(exchange, "patient", deadline=50.0)
    ask(exchange, "hasty", deadline=20.0)
    assert exchange.next_deadline() == 20.0
    assert exchange.overdue(19.9) is None
    assert exchange.overdue(20.0).context == "hasty"
    assert exchange.overdue(50.0).context == "patient"


def test_a_handshake_has_its_own_deadline():
    exchange = begun()
    assert exchange.next_deadline() == 110.0
    assert exchange.overdue(110.0).context is None
