"""Several clients that share the receive buffers, in any pieces and any order, against a model of what each has sent.

What is promised: every request is answered once and in order, an answer names the offset at which its bytes lie,
nothing is stored twice or by halves, nobody waits for ever, and who is done owns nothing.
"""

from __future__ import annotations

import random
import struct
from collections import deque
from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import Phase, given, settings
from kit.cleaning import records_of
from kit.examples import examples
from kit.exchange import Exchange, batch, fetch_request, make_topic, produce_request
from kit.nodes import partition_of, start_node
from kit.produce_frames import damaged, frame

from ottla.broker.net.buffers import POOL_BYTES
from ottla.protocol.api import REGISTRY
from ottla.protocol.api.api_versions import ApiVersionsRequest
from ottla.protocol.api.produce import ProduceResponse
from ottla.protocol.headers import decode_response_header
from ottla.protocol.message import Request, decode

TOPICS = {"cached": "page-cache", "synced": "sync"}
MAX_WAIT_MS = 500
LARGE_BYTES = 140_000
SIZES_BYTES = [1, 9_000, 33_000, 70_000, LARGE_BYTES, LARGE_BYTES, LARGE_BYTES, LARGE_BYTES + 1, 160_000, 300_000]
LARGEST_BYTES = 1_100_000
KINDS = ["old", "acks 1", "acks 0", "damaged", "idempotent", "again", "other", "poll"]
LIMITS_BYTES = [1_300_000, 2_000_000, 6_000_000, 256 << 20]
ALL = 1 << 30
PRODUCE, FETCH, API_VERSIONS = 0, 1, 18
READS_IN_A_ROW = 32
"""What libuv reads of a socket before it looks at others."""


@dataclass
class Sent:
    """A request, and what must become of it: `value` is what is stored, b"" for nothing."""

    correlation_id: int
    kind: str
    key: int
    version: int
    topic: str = ""
    value: bytes = b""


@dataclass
class Client:
    """`stream` is under way; `asked` has no answer yet, in order."""

    exchange: Exchange
    producer_id: int
    stream: bytearray = field(default_factory=bytearray)
    asked: deque[Sent] = field(default_factory=deque)
    sequences: dict[str, int] = field(default_factory=dict)
    newest: tuple[str, bytes, bytes] | None = None
    """Topic, batch and value of the idempotent producer's last request."""
    takes_answers: bool = True


class Clients:
    """Some clients of one node, what they have sent, and what they were answered."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.node, _, self.clock = start_node(
            queued_max_request_bytes=chance.choice(LIMITS_BYTES),
            socket_request_max_bytes=LARGEST_BYTES + 10_000,
            message_max_bytes=LARGEST_BYTES + 10_000,
        )
        for topic, acks_all in TOPICS.items():
            make_topic(self.node, topic, ottla_acks_all=acks_all)
        make_topic(self.node, "empty")
        self.reported: dict[tuple[str, int], bytes] = {}
        self.unanswered: list[Sent] = []
        """With acks=0: must be stored all the same."""
        self.requests = 0
        self.producers = 0
        first = Exchange(self.node)
        self.shared = first
        self.clients = [self._new(first), *(self._new(Exchange(self.node, first)) for _ in range(chance.randint(1, 3)))]

    def _new(self, exchange: Exchange) -> Client:
        self.producers += 1
        return Client(exchange, 1000 + self.producers)

    def do_something(self, client: Client, *, polls: bool, is_lossy: bool) -> None:
        chance, connection = self.chance, client.exchange.connection
        match chance.choices(range(8), [30, 35, 5, 10, 8, 6, 3, 3])[0]:
            case 0:
                for _ in range(chance.randint(1, 4)):
                    kind = chance.choice(KINDS) if chance.random() < 0.5 else "plain"
                    if kind != "poll" or polls:
                        size_bytes = LARGEST_BYTES if chance.random() < 0.05 else chance.choice(SIZES_BYTES)
                        self.write(client, kind, size_bytes, chance.choice(["cached", "cached", "synced"]))
            case 1:
                most = chance.choice([chance.randint(1, 9), chance.randint(1, 400_000), ALL, ALL])
                self.arrive(client, most, chance.choice([1, 2, READS_IN_A_ROW]))
            case 2:
                self.arrive(client, 0)
            case 3:
                self.node.services.turn.end()
            case 4:
                self.node.settle()
            case 5:
                self.pass_time(chance.choice([1, MAX_WAIT_MS + 1]))
            case 6:
                client.takes_answers = not client.takes_answers
                (connection.resume_writing if client.takes_answers else connection.pause_writing)()
            case 7 if is_lossy:
                self.lose(client)
        for each in self.clients:
            self.read_answers(each)
        self.check_the_pool()

    def check_the_pool(self) -> None:
        """It knows how much it keeps, keeps nothing twice, and nothing that somebody has."""
        buffers = self.shared.connections.shared.buffers
        pool = {id(held) for held in buffers.pool}
        assert len(pool) == len(list(buffers.pool))
        assert buffers.pool.size_bytes == sum(held.capacity for held in buffers.pool) <= POOL_BYTES
        owned = [client.exchange.connection.reader.held for client in self.clients]
        with_owner = [held for held in (*owned, *buffers._retired) if held is not None]
        assert buffers.owned_bytes == sum(held.capacity for held in with_owner)
        assert pool.isdisjoint(map(id, with_owner))

    def write(self, client: Client, kind: str, size_bytes: int, topic: str) -> None:
        """The client sends a request; it arrives when `arrive` says so."""
        self.requests += 1
        correlation_id = self.requests
        value = b"%d:" % correlation_id + b"v" * size_bytes
        version = 7 if kind == "old" else 9
        sent = Sent(correlation_id, kind, PRODUCE, version, topic, value)
        request: Request
        match kind:
            case "other":
                request, sent = ApiVersionsRequest(), Sent(correlation_id, kind, API_VERSIONS, 0)
            case "poll":
                request = fetch_request("empty", 0, max_wait_ms=MAX_WAIT_MS)
                sent = Sent(correlation_id, kind, FETCH, 11)
            case "damaged":
                request, sent.value = produce_request(topic, damaged(batch(value=value))), b""
            case "again" if client.newest is not None:
                sent.topic, records, sent.value = client.newest
                request = produce_request(sent.topic, records)
            case "idempotent" | "again":
                sequence = client.sequences.get(topic, 0)
                client.sequences[topic] = sequence + 1
                records = batch(value=value, producer_id=client.producer_id, producer_epoch=0, base_sequence=sequence)
                client.newest = topic, records, value
                request = produce_request(topic, records)
            case _:
                acks = {"acks 0": 0, "acks 1": 1}.get(kind, -1)
                request = produce_request(topic, batch(value=value), acks=acks)
        client.stream += frame(request, sent.version, correlation_id)
        client.asked.append(sent)

    def arrive(self, client: Client, most_bytes: int, most_reads: int = READS_IN_A_ROW) -> None:
        """A readable event as libuv has it: it reads on while reads are filled, and then asks once more in vain."""
        connection, transport = client.exchange.connection, client.exchange.transport
        for _ in range(most_reads):
            if transport.is_paused or transport.closed:
                return
            room = connection.get_buffer(-1)
            assert len(room) > 0
            count = min(len(room), len(client.stream), most_bytes)
            if not count:
                return
            room[:count] = client.stream[:count]
            del client.stream[:count]
            most_bytes -= count
            connection.buffer_updated(count)
            if count < len(room):
                return

    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        self.node.run_due()

    def lose(self, client: Client) -> None:
        """It goes away in the middle of whatever it was at, and another one comes."""
        client.exchange.transport.closed = True
        client.exchange.connection.connection_lost(None)
        self.clients[self.clients.index(client)] = self._new(Exchange(self.node, self.shared))

    def read_answers(self, client: Client) -> None:
        """Each belongs to the oldest request that wants one."""
        transport = client.exchange.transport
        assert not transport.closed
        written = bytes(transport.written)
        transport.written.clear()
        while written:
            (length,) = struct.unpack_from(">i", written)
            body, written = written[4 : 4 + length], written[4 + length :]
            assert len(body) == length
            while client.asked[0].kind == "acks 0":
                self.unanswered.append(client.asked.popleft())
            sent = client.asked.popleft()
            correlation_id, position = decode_response_header(sent.key, sent.version, body)
            assert correlation_id == sent.correlation_id
            response = decode(REGISTRY[sent.key].response, body, sent.version, position)
            if isinstance(response, ProduceResponse):
                answer = response.responses[0].partition_responses[0]
                assert (answer.error_code == 0) == bool(sent.value), (sent.kind, answer)
                if sent.value:
                    assert self.reported.setdefault((sent.topic, answer.base_offset), sent.value) == sent.value

    def finish(self) -> None:
        """Let everything arrive and all be answered."""
        for client in self.clients:
            if not client.takes_answers:
                client.exchange.connection.resume_writing()
        for _ in range(200):
            for client in self.clients:
                self.arrive(client, ALL)
            self.node.settle()
            self.pass_time(MAX_WAIT_MS + 1)
            if not any(client.stream or client.exchange.connection.is_waiting for client in self.clients):
                break
        self.node.settle()
        for client in self.clients:
            self.read_answers(client)
            assert not client.stream
            assert {sent.kind for sent in client.asked} <= {"acks 0"}
            self.unanswered += client.asked
            assert client.exchange.connection.reader.partial_since_ms is None
        assert self.shared.connections.shared.buffers.owned_bytes == 0

    def check_what_is_stored(self) -> None:
        logs = {topic: partition_of(self.node, topic).log for topic in TOPICS}
        stored = {topic: [record.value for record in records_of(log)] for topic, log in logs.items()}
        for (topic, offset), value in self.reported.items():
            assert stored[topic][offset] == value
        for sent in self.unanswered:
            assert sent.value in stored[sent.topic]
        for topic in TOPICS:
            assert len(set(stored[topic])) == len(stored[topic])


# The seed cannot be made simpler.
@settings(max_examples=examples(80), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.integers(0, (1 << 32) - 1))
def test_clients_that_share_buffers_are_served_as_if_each_were_alone(seed: int) -> None:
    chance = random.Random(seed)
    clients = Clients(chance)
    polls, is_lossy = chance.random() < 0.6, chance.random() < 0.4
    for _ in range(60):
        clients.do_something(chance.choice(clients.clients), polls=polls, is_lossy=is_lossy)
    clients.finish()
    clients.check_what_is_stored()
