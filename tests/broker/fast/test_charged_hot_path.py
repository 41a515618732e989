"""Requests of clients under quotas that templates answer: what is charged, and what is left to the slow path."""

from __future__ import annotations

import struct
from itertools import count
from typing import Any

import pytest
from kit.clock import ManualClock
from kit.exchange import Exchange, batch, fetch_request, make_topic, produce_request
from kit.nodes import start_node
from kit.transport import feed

from ottla.broker.fast.hot_path import ChargedHotPath
from ottla.broker.fetch.fetch_read import FetchRead
from ottla.broker.node import Node
from ottla.broker.partitions.append_shares import BATCH_BYTES
from ottla.broker.security.quotas import accounts
from ottla.broker.security.quotas.limits import FETCH, PRODUCE, REQUEST, Limit
from ottla.broker.security.quotas.rate import Rate
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import encode

PRODUCE_VERSION, FETCH_VERSION, SESSION_VERSION = 9, 12, 13
WINDOW_S = 10
PLENTY = 1e12
ALL = {PRODUCE: PLENTY, FETCH: PLENTY, REQUEST: PLENTY}


class NoSlowPath:
    """Stands in for the dispatcher of a connection whose requests templates have to answer."""

    def start(self, frame: memoryview, peer: object) -> Any:
        raise AssertionError("a request took the slow path")


def make_node(**rates: float) -> tuple[Node, ManualClock]:
    """A node with these quotas for the client id of `Exchange`; its requests take no time."""
    node, _, clock = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t")
    set_quotas(node, **rates)
    return node, clock


def set_quotas(node: Node, **rates: float) -> None:
    node.services.quotas.change({(("client-id", "test"),): rates})
    quotas_of(node).now_ns = lambda: 0


def quotas_of(node: Node) -> Any:
    assert node.services.quotas.clients is not None
    return node.services.quotas.clients


def taken(node: Node, kind: str, client_id: str = "test") -> float:
    """What the client has taken in the window."""
    quotas = quotas_of(node)
    meter = quotas.account(kind, Limit(PLENTY, "", client_id)).meter
    assert isinstance(meter, Rate)
    rate, window_ms = meter.measure(quotas.now_ms())
    return rate * window_ms / 1000


def only_templates(client: Exchange) -> None:
    assert isinstance(client.connection.peer.hot_path, ChargedHotPath)
    client.connection.dispatcher = NoSlowPath()  # type: ignore[assignment]  # see there


@pytest.fixture(params=["alone", "in a turn"])
def arrival(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a request is answered within its read, as that of a client that sends alone, or at the turn's end."""
    monkeypatch.setattr("ottla.broker.net.connection.READS_ALONE", 0 if request.param == "alone" else 1 << 32)


@pytest.mark.usefixtures("arrival")
def test_templates_charge_the_bytes_of_produces() -> None:
    node, _ = make_node(**ALL)
    client = Exchange(node)
    request = produce_request("t", batch(value=b"x" * 500))
    size_bytes = len(encode_request_header(0, PRODUCE_VERSION, 1, "test") + encode(request, PRODUCE_VERSION))
    client.ask(request, PRODUCE_VERSION)
    only_templates(client)
    for _ in range(4):
        assert client.ask(request, PRODUCE_VERSION).throttle_time_ms == 0  # type: ignore[attr-defined]  # a Produce's
    feed(client.connection, b"".join(client.frame(request, PRODUCE_VERSION) for _ in range(3)))
    node.settle()
    assert len(client.replies()) == 3
    assert taken(node, PRODUCE) == pytest.approx(8 * size_bytes)


@pytest.mark.usefixtures("arrival")
def test_a_produce_over_the_quota_waits_for_as_long_as_all_of_them_have_taken() -> None:
    rate = 1_000
    node, _ = make_node(**{PRODUCE: rate})
    client = Exchange(node)
    request = produce_request("t", batch(value=b"x" * 500))
    size_bytes = len(encode_request_header(0, PRODUCE_VERSION, 1, "test") + encode(request, PRODUCE_VERSION))
    throttled = [
        client.ask(request, PRODUCE_VERSION).throttle_time_ms  # type: ignore[attr-defined]  # a Produce's
        for _ in range(WINDOW_S * rate // size_bytes + 1)
    ]
    assert isinstance(client.connection.peer.hot_path, ChargedHotPath)
    # (bytes / 10 s - quota) / quota * 10 s, with a quota of a byte per millisecond.
    assert throttled == [0] * (len(throttled) - 1) + [len(throttled) * size_bytes - WINDOW_S * rate]
    assert client.transport.is_paused


def test_templates_charge_the_bytes_of_fetches() -> None:
    node, _ = make_node(**ALL)
    client = Exchange(node)
    records = batch(value=b"x" * 500)
    client.ask(produce_request("t", records), PRODUCE_VERSION)
    client.ask(fetch_request("t", 0), FETCH_VERSION)
    only_templates(client)
    for _ in range(4):
        client.ask(fetch_request("t", 0), FETCH_VERSION)
    assert taken(node, FETCH) == 5 * len(records)


def session_fetch(node: Node, epoch: int, session_id: int, offset: int, **more: Any) -> Any:
    request = fetch_request("", offset, session_epoch=epoch, session_id=session_id, **more)
    request.topics[0].topic_id = node.services.catalog.topics["t"].id
    return request


def test_templates_charge_the_bytes_of_fetches_in_a_session() -> None:
    node, _ = make_node(**ALL)
    client = Exchange(node)
    records = batch(value=b"x" * 500)
    client.ask(produce_request("t", records), PRODUCE_VERSION)
    opened: Any = client.ask(session_fetch(node, 0, 0, 0), SESSION_VERSION)
    client.ask(session_fetch(node, 1, opened.session_id, 0), SESSION_VERSION)
    only_templates(client)
    for epoch in range(2, 6):
        client.ask(session_fetch(node, epoch, opened.session_id, 0), SESSION_VERSION)
    assert taken(node, FETCH) == 6 * len(records)


@pytest.mark.parametrize("in_session", [False, True])
def test_a_fetch_that_has_waited_is_charged_when_it_is_answered(in_session: bool) -> None:
    node, clock = make_node(**ALL)
    client, producer = Exchange(node), Exchange(node)
    records = batch(value=b"x" * 500)
    opened: Any = client.ask(session_fetch(node, 0, 0, 0), SESSION_VERSION) if in_session else None
    for number in range(3):
        if in_session:
            waiting = session_fetch(node, number + 1, opened.session_id, number, max_wait_ms=60_000)
        else:
            waiting = fetch_request("t", number, max_wait_ms=60_000)
        client.send(waiting, SESSION_VERSION if in_session else FETCH_VERSION)
        node.settle()
        if number:
            only_templates(client)
        producer.ask(produce_request("t", records), PRODUCE_VERSION)
        client.reply()
    assert taken(node, FETCH) == 3 * len(records)
    del clock


def test_a_fetch_that_has_waited_and_is_over_the_quota_is_answered_empty() -> None:
    records = batch(value=b"x" * 500)
    node, _ = make_node(**{FETCH: 2.5 * len(records) / WINDOW_S})
    client, producer = Exchange(node), Exchange(node)
    answers: list[Any] = []
    for number in range(3):
        client.send(fetch_request("t", number, max_wait_ms=60_000), FETCH_VERSION)
        node.settle()
        producer.ask(produce_request("t", records), PRODUCE_VERSION)
        answers.append(client.reply())
    assert [bool(answer.responses) for answer in answers] == [True, True, False]
    assert [answer.throttle_time_ms > 0 for answer in answers] == [False, False, True]
    assert client.transport.is_paused
    assert taken(node, FETCH) == 2 * len(records), "what was not given is not charged"


@pytest.mark.parametrize(("in_session", "by_deadline"), [(False, False), (False, True), (True, False), (True, True)])
def test_a_fetch_that_has_waited_and_is_over_the_quota_owes_nothing_that_the_slow_path_charges_nor_the_time_after_it(
    in_session: bool, by_deadline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = batch(value=b"x" * 500)
    node, clock = make_node(**{FETCH: 2.5 * len(records) / WINDOW_S, REQUEST: PLENTY})
    now_ns = 0
    quotas_of(node).now_ns = lambda: now_ns
    client, producer = Exchange(node), Exchange(node)
    version = SESSION_VERSION if in_session else FETCH_VERSION
    opened: Any = client.ask(session_fetch(node, 0, 0, 0), SESSION_VERSION) if in_session else None

    def fetch(epoch: int, offset: int) -> Any:
        more = {"max_wait_ms": 1_000, "min_bytes": 2 * len(records) if by_deadline else 1}
        if in_session:
            return session_fetch(node, epoch, opened.session_id, offset, **more)
        return fetch_request("t", offset, **more)

    read = FetchRead.look

    def slow_look(self: FetchRead, first: int, end: int) -> None:
        nonlocal now_ns
        now_ns += 1_000_000_000
        read(self, first, end)

    for number in range(3):
        client.send(fetch(number + 1, number), version)
        node.settle()
        if number == 2:
            monkeypatch.setattr(FetchRead, "look", slow_look)
        producer.ask(produce_request("t", records), PRODUCE_VERSION)
        if by_deadline:
            clock.advance(1_000)
            node.run_due()
            node.settle()
        answer: Any = client.reply()
    assert not answer.responses
    now_ns += 5_000_000_000
    clock.advance(20_000)  # what the slow path has charged is forgotten
    node.run_due()
    only_templates(client)
    answer = client.ask(fetch(4, 0), version)
    assert answer.responses
    assert taken(node, REQUEST) == 0


@pytest.mark.usefixtures("arrival")
def test_a_produce_whose_time_is_over_the_quota_is_answered_and_muted() -> None:
    node, clock = make_node(**{REQUEST: 1})
    client = Exchange(node)
    request = produce_request("t", batch())
    client.ask(request, PRODUCE_VERSION)
    only_templates(client)
    looks = count(0, 10_000_000)  # each look at the clock is 10 ms later; one percent of ten seconds is 100 ms
    quotas_of(node).now_ns = lambda: next(looks)
    throttled: list[int] = []
    while not any(throttled):
        answer: Any = client.ask(request, PRODUCE_VERSION)
        assert answer.responses[0].partition_responses[0].error_code == 0
        throttled.append(answer.throttle_time_ms)
    assert len(throttled) > 1
    assert throttled[-1] <= 1_000, "Kafka lets nobody wait for longer than a sample"
    assert node.services.quotas.counters.throttle_ms == {REQUEST: throttled[-1]}
    assert client.transport.is_paused
    clock.advance(throttled[-1])
    node.run_due()
    assert not client.transport.is_paused


def test_a_fetch_whose_client_has_used_up_its_time_is_answered_empty() -> None:
    node, _ = make_node(**{REQUEST: 1})
    client = Exchange(node)
    for _ in range(2):
        client.ask(produce_request("t", batch()), PRODUCE_VERSION)
        client.ask(fetch_request("t", 0), FETCH_VERSION)
    looks = count(0, 90_000_000)
    quotas_of(node).now_ns = lambda: next(looks)
    answers: list[Any] = [client.ask(fetch_request("t", 0), FETCH_VERSION)]
    while answers[-1].responses:
        answers.append(client.ask(fetch_request("t", 0), FETCH_VERSION))
    assert answers[-1].throttle_time_ms > 0
    assert client.transport.is_paused


def test_an_append_is_paid_for_by_its_batches_and_bytes() -> None:
    node, _ = make_node(**ALL)
    node.services.quotas.change({(("client-id", "test"),): {}, (("user", None),): ALL})
    quotas = quotas_of(node)
    quotas.now_ns = lambda: 0
    clients = [Exchange(node) for _ in range(3)]
    records = [batch(value=b"x" * size) for size in (100, 20_000, 3_000)]
    for number, client in enumerate(clients[:2]):
        client.connection.peer.principal = client.connection.peer.principal._replace(name=f"user-{number}")
    node.services.quotas.change({(("user", None),): {}} | {(("user", f"user-{number}"),): ALL for number in range(2)})
    quotas.now_ns = lambda: 0
    for client, content in zip(clients, records, strict=True):
        client.ask(produce_request("t", content), PRODUCE_VERSION)
    partition: Any = node.services.catalog.topics["t"].partitions[0]
    append, took_ns = partition.log.append_batches, 1_000_000_000

    def slowly(*arguments: Any) -> Any:
        quotas.now_ns = lambda: took_ns
        return append(*arguments)

    partition.log.append_batches = slowly
    for client, content in zip(clients, records, strict=True):
        client.send(produce_request("t", content), PRODUCE_VERSION)
    node.settle()
    weights = [BATCH_BYTES + len(content) for content in records]
    for number in range(2):
        meter = quotas.account(REQUEST, Limit(PLENTY, f"user-{number}", "")).meter
        rate, window_ms = meter.measure(quotas.now_ms())
        percent_seconds = rate * window_ms / 1000
        assert percent_seconds == pytest.approx(100 * weights[number] / sum(weights))


def test_a_changed_quota_counts_for_the_next_request() -> None:
    node, _ = make_node(**ALL)
    client = Exchange(node)
    request = produce_request("t", batch(value=b"x" * 500))
    for _ in range(3):
        client.ask(request, PRODUCE_VERSION)
    set_quotas(node, **{PRODUCE: 1})
    answer: Any = client.ask(request, PRODUCE_VERSION)
    assert answer.throttle_time_ms > 0


def test_a_client_whose_account_was_forgotten_is_charged_to_its_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "MAX_ACCOUNTS", 5)
    node, _, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t")
    node.services.quotas.change({(("client-id", None),): {PRODUCE: PLENTY}})
    client = Exchange(node)
    request = produce_request("t", batch())
    for _ in range(3):
        client.ask(request, PRODUCE_VERSION)
    quotas = quotas_of(node)
    for number in range(5):
        quotas.request(client.connection.peer, f"stranger-{number}", 0, PRODUCE_VERSION)
    before = taken(node, PRODUCE)
    assert before == 0, "its account was forgotten"
    for _ in range(3):
        client.ask(request, PRODUCE_VERSION)
    size_bytes = len(encode_request_header(0, PRODUCE_VERSION, 1, "test") + encode(request, PRODUCE_VERSION))
    assert taken(node, PRODUCE) == pytest.approx(3 * size_bytes)


def test_an_account_that_templates_use_is_not_the_one_to_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "MAX_ACCOUNTS", 5)
    node, _, clock = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t")
    node.services.quotas.change({(("client-id", None),): {PRODUCE: PLENTY}})
    client = Exchange(node)
    request = produce_request("t", batch())
    client.ask(request, PRODUCE_VERSION)
    only_templates(client)
    for number in range(20):
        clock.advance(1_000)
        client.ask(request, PRODUCE_VERSION)
        quotas_of(node).request(client.connection.peer, f"stranger-{number}", 0, PRODUCE_VERSION)


def test_another_client_id_by_the_same_connection_is_charged_to_its_own_account() -> None:
    node, _ = make_node(**ALL)
    node.services.quotas.change({(("client-id", None),): {PRODUCE: PLENTY}})
    client = Exchange(node)
    request = produce_request("t", batch())
    body = encode(request, PRODUCE_VERSION)
    sizes = dict.fromkeys(("test", "a-longer-one"), 0)
    for number, client_id in enumerate(["test", "test", "a-longer-one", "a-longer-one", "test", "test"]):
        content = encode_request_header(0, PRODUCE_VERSION, number, client_id) + body
        sizes[client_id] += len(content)
        client.asked[number] = 0, PRODUCE_VERSION
        feed(client.connection, struct.pack(">i", len(content)) + content)
        node.settle()
        client.reply()
    assert {client_id: taken(node, PRODUCE, client_id) for client_id in sizes} == pytest.approx(sizes)
