"""A broker's life under hostile input: one node, a few lines to it, steps, and what must hold after each.

A step is plain data (see `Step`), so that a life can be saved and lived again. After each step:

- nothing was raised, nothing was logged that is a bug or a second line;
- every answer is decoded by our decoder and, where it has the version, by kio's, to its last byte;
- no answer says UNKNOWN_SERVER_ERROR, but for those where Kafka does;
- a request whose every answer is a refusal has changed nothing that is stored;
- on a line that has to log in, nothing but the requests of a login is answered before, and nobody is there whose
  password was not used;
- a witness on a line of its own still gets its record and its committed offset;
- CPU time, and for some steps the peak of memory, are noted (`Cost`): `run.py` holds them against bounds.

At the end the broker is stopped or dies, and one that starts from the disk must know the same topics and committed
offsets.
"""

from __future__ import annotations

import re
import struct
import time
import tracemalloc
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypedDict

from kit.clock import ManualClock
from kit.exchange import batch, fetch_request, make_topic, produce_request
from kit.fuzz.vocabulary import WITNESS
from kit.fuzz.watch import Finding, Watch, describe, error_codes
from kit.kio_messages import kio_class, kio_message
from kit.nodes import pass_time, start_node
from kit.simulated_files import SimulatedFiles
from kit.tokens import Issuer, jwks_url
from kit.transport import FakeTransport, feed

from ottla.broker.net.connection import Connection
from ottla.broker.net.connections import Connections
from ottla.broker.node import Node
from ottla.broker.principal import ANONYMOUS
from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.api.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest
from ottla.protocol.api.offset_commit import OffsetCommitRequest
from ottla.protocol.api.offset_fetch import OffsetFetchRequest
from ottla.protocol.api.produce import ProduceRequest
from ottla.protocol.errors import ErrorCode, MalformedMessage
from ottla.protocol.headers import decode_request_header, decode_response_header, encode_request_header
from ottla.protocol.message import Request, Response, decode_prefix, encode

WITNESS_LINE = "witness"
MOST_FRAME_BYTES = 4 << 20
CONFIG: dict[str, object] = {
    "socket.request.max.bytes": MOST_FRAME_BYTES,
    "log.segment.bytes": 4096,
    "log.index.interval.bytes": 200,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.cleaner.backoff.ms": 1000,
    "offsets.topic.num.partitions": 2,
    "offsets.topic.segment.bytes": 131072,
    "group.initial.rebalance.delay.ms": 0,
    "metadata.log.max.record.bytes.between.snapshots": 4000,
}
SASL: dict[str, object] = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,SASL_PLAINTEXT://127.0.0.1:9093",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "sasl.jaas.config": 'PlainLoginModule required user_alice="a secret";',
    "connections.max.reauth.ms": 60_000,
}
TOKENS_ISSUER: Final = Issuer("fuzz", "EdDSA", private_bytes=b"k" * 32)
TOKEN_USER = "dora"
FIRST_SASL_LINE = 100
"""Lines from this number on come in by the listener with SASL."""
SCRAM_USER = "carol"
SALTED_PASSWORDS = {"SCRAM-SHA-256": b"s" * 32, "SCRAM-SHA-512": b"s" * 64}
BEFORE_LOGIN = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
PASSWORD = b"a secret"
USERS = frozenset({"ANONYMOUS", "alice", SCRAM_USER, TOKEN_USER})
_TOKEN = re.compile(rb"Bearer ([\w.=-]+)", re.IGNORECASE)
TOPICS: dict[str, dict[str, object]] = {
    "plain": {"partitions": 2},
    "compacted": {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", "segment_bytes": "1024"},
    "tight": {"ottla_validate_records": "true", "message_timestamp_type": "LogAppendTime", "compression_type": "gzip"},
    "old": {"message_timestamp_before_max_ms": "1000", "max_message_bytes": "2000"},
    WITNESS: {"retention_ms": "-1", "retention_bytes": "-1", "cleanup_policy": "delete"},
}
CHANGING = frozenset(
    {
        ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT, ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.DELETE_RECORDS,
        ApiKey.CREATE_PARTITIONS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE, ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.UPDATE_FEATURES,
    }
)  # fmt: skip
"""What changes stored state only where an answer says success. (Members' comings and goings are soft, or time's
doing.)"""
SAYS_SO = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.OFFSET_COMMIT, ApiKey.CONSUMER_GROUP_HEARTBEAT})
"""Where UNKNOWN_SERVER_ERROR is Kafka's own answer to some requests: to a subscription of bytes that say nothing, to
what no record holds. A bug is seen by its line in the log there, too."""
_FRONT = struct.Struct(">hhi")


class Step(TypedDict, total=False):
    """One thing that happens; exactly one key besides `line`, but for those of TLS."""

    line: int
    send: bytes
    """Bytes that arrive on the line, in one read."""
    drop: bool
    """The line ends."""
    wait_ms: int
    restart: Literal["stop", "kill"]
    clean: bool
    """Every compacted log is cleaned."""
    tls: Literal["shake", "talk", "raw", "keys", "renegotiate", "goodbye"]
    """What a client of TLS does (`tls.py`), with `send`; `how` its records are changed on the way, `at` where."""
    how: str
    at: int
    threads: bool
    """Whether syncs find a thread from now on, until the next start; where they do not, the witness is answered."""


@dataclass
class Cost:
    """What the dearest step has taken."""

    seconds: float = 0.0
    seconds_for_bytes: int = 0
    memory_bytes: int = 0
    memory_for_bytes: int = 0


@dataclass
class Line:
    """One connection, and what was asked on it."""

    transport: FakeTransport
    connection: Connection
    stream: bytearray = field(default_factory=bytearray)
    asked: deque[tuple[int, int, int]] = field(default_factory=deque)
    must_log_in: bool = False
    has_sent_password: bool = False
    """That of alice, who logs in by PLAIN."""
    has_sent_token: bool = False
    """A token of TOKENS_ISSUER, of whatever time."""
    newest: bytes = b""
    """The end of what was sent, in which a password may begin."""
    has_bare_tokens: bool = False
    """It has sent SaslHandshake 0: answers may be tokens without a header, and are not decoded."""


class Life:
    """See the module. A context: use it with `with`."""

    def __init__(self, *, with_kio: bool = True, config: dict[str, object] | None = None) -> None:
        self.watch = Watch()
        self.clock = ManualClock()
        self.files = SimulatedFiles()
        self.cost = Cost()
        self.answers = 0
        self.steps: list[Step] = []
        self._with_kio = with_kio
        tokens = {"sasl.oauthbearer.jwks.endpoint.url": jwks_url(TOKENS_ISSUER)}
        self._config = CONFIG | SASL | tokens | (config or {})
        self.node: Node
        self._lines: dict[int | str, Line] = {}
        self._ended: list[Line] = []
        self.frames = 0
        self._correlation_id = 1 << 30

    def __enter__(self) -> Life:
        self.watch.__enter__()
        try:
            self.start_broker()
            for name, options in TOPICS.items():
                rest = dict(options)
                make_topic(self.node, name, int(str(rest.pop("partitions", 1))), **{k: str(v) for k, v in rest.items()})
            self.ask(produce_request(WITNESS, batch(value=b"I was here")), 8)
            self.ask(FindCoordinatorRequest(key=WITNESS, key_type=0), 1)  # makes __consumer_offsets
            pass_time(self.node, self.clock, 1_000)
            for mechanism, salted_password in enumerate(SALTED_PASSWORDS.values(), 1):
                made = self.ask(_user(mechanism, salted_password), 0)
                assert made.results[0].error_code == 0, made
            committed = self.ask(_commit_of_the_witness(), 7)
            assert committed.topics[0].partitions[0].error_code == 0, committed
            self.watch.check()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *problem: object) -> None:
        self.watch.__exit__(None, None, None)

    # -- steps

    def live(self, steps: list[Step], *, weighs: bool = False) -> None:
        """All steps, then the end."""
        for step in steps:
            self.step(step, weighs=weighs)
        self.end()

    def step(self, step: Step, *, weighs: bool = False) -> list[Response]:
        """One step; the answers that came. Raises Finding."""
        self.steps.append(step)
        size = len(step.get("send", b""))
        before = self.stored() if size else ()
        if weighs:
            tracemalloc.start()
        started = time.thread_time()
        try:
            self.do(step)
            self.node.settle()
        except Finding:
            raise
        except Exception as error:
            raise Finding(f"raised to the loop: {describe(error)}") from error
        finally:
            seconds = time.thread_time() - started
            if weighs:
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
                if peak > self.cost.memory_bytes:
                    self.cost.memory_bytes, self.cost.memory_for_bytes = peak, size
        if not weighs and "restart" not in step and seconds > self.cost.seconds:
            self.cost.seconds, self.cost.seconds_for_bytes = seconds, size
        self.watch.check()
        reported = self._collect()
        self.check_refusals(reported, before)
        return [response for _, response in reported]

    def do(self, step: Step) -> None:
        """What happens in a step."""
        if "send" in step:
            line = self._line(step.get("line", 0))
            self._note_asked(line, step["send"])
            feed(line.connection, step["send"])
            self.node.settle()
            for number, each in list(self._lines.items()):  # as the loop does after a transport was closed
                if each.transport.closed:
                    each.connection.connection_lost(None)
                    self._ended.append(self._lines.pop(number))
        elif step.get("drop"):
            self.drop_line(step.get("line", 0))
        elif "wait_ms" in step:
            pass_time(self.node, self.clock, step["wait_ms"])
        elif step.get("clean"):
            for topic in list(self.node.services.catalog.topics):
                self.node.cleaner.ask(topic)
                pass_time(self.node, self.clock, 3_000)
        elif "threads" in step:
            self.node.services.syncer.has_threads = step["threads"]  # type: ignore[attr-defined]  # the queued one
            self.ask(_commit_of_the_witness(), 7)
        elif "restart" in step:
            self._restart(step["restart"])

    def end(self) -> None:
        """The witness's last look; then both ways to end, each with a start that must find what was there."""
        self.check_witness()
        for how in ("kill", "stop"):
            self.step({"restart": how})
            self.check_witness()

    def check_witness(self) -> None:
        """A client that behaves gets its record and its committed offset, at once."""
        fetched = self.ask(fetch_request(WITNESS, 0), 4)
        data = fetched.responses[0].partitions[0]
        if data.error_code or b"I was here" not in bytes(data.records or b""):
            raise Finding(f"the witness lost its record: error {data.error_code}")
        wanted = OffsetFetchRequest.OffsetFetchRequestTopic(name=WITNESS, partition_indexes=[0])
        offsets = self.ask(OffsetFetchRequest(group_id=WITNESS, topics=[wanted]), 5)
        reported = offsets.topics[0].partitions[0]
        if (reported.error_code, reported.committed_offset) != (0, 1):
            raise Finding(f"the witness lost its committed offset: {reported}")
        self.watch.check()

    # -- lines

    def _line(self, number: int | str) -> Line:
        line = self._lines.get(number)
        if line is None:
            must_log_in = isinstance(number, int) and number >= FIRST_SASL_LINE
            connection = self.connections.protocol("SASL_PLAINTEXT" if must_log_in else "PLAINTEXT")
            transport = FakeTransport()
            connection.connection_made(transport)
            line = self._lines[number] = Line(transport, connection, must_log_in=must_log_in)
        return line

    def drop_line(self, number: int | str) -> None:
        """A client goes away."""
        line = self._lines.pop(number, None)
        if line is not None:
            line.transport.closed = True
            line.connection.connection_lost(None)

    def is_open(self, number: int) -> bool:
        """Whether the line would take bytes now."""
        line = self._lines.get(number)
        return line is None or not line.transport.is_paused

    def _note_asked(self, line: Line, data: bytes) -> None:
        """Read along: which (key, version, correlation id) the answers belong to."""
        line.has_sent_password |= PASSWORD in line.newest + data
        line.newest = (line.newest + data)[-len(PASSWORD) :]
        stream = line.stream
        stream += data
        if line.must_log_in and not line.has_sent_token:
            line.has_sent_token = any(map(TOKENS_ISSUER.has_signed, _TOKEN.findall(stream)))
        while len(stream) >= 4:
            (length,) = struct.unpack_from(">i", stream)
            if not 0 < length <= MOST_FRAME_BYTES:
                stream.clear()
                return
            if len(stream) < 4 + length:
                return
            if length >= _FRONT.size:
                if not _wants_no_answer(bytes(stream[4 : 4 + length])):
                    line.asked.append(front := _FRONT.unpack_from(stream, 4))
                    line.has_bare_tokens |= line.must_log_in and front[:2] == (ApiKey.SASL_HANDSHAKE, 0)
                self.frames += 1
            del stream[: 4 + length]

    def _collect(self) -> list[tuple[int, Response]]:
        reported = []
        ended, self._ended = self._ended, []
        for line in (*self._lines.values(), *ended):
            written = memoryview(bytes(line.transport.written))
            line.transport.written.clear()
            user = line.connection.peer.principal.name
            if line.must_log_in and (
                user not in USERS
                or (user == "alice" and not line.has_sent_password)
                or (user == TOKEN_USER and not line.has_sent_token)
            ):
                raise Finding(f"{user} has logged in")
            if line.has_bare_tokens:
                continue
            while written:
                (length,) = struct.unpack_from(">i", written)
                if len(written) < 4 + length:
                    raise Finding("an answer was sent in part")
                reported.append(self._decode(line, bytes(written[4 : 4 + length])))
                written = written[4 + length :]
        self.answers += len(reported)
        return reported

    def _decode(self, line: Line, body: bytes) -> tuple[int, Response]:
        (correlation_id,) = struct.unpack_from(">i", body)
        while line.asked:
            key, version, asked_id = line.asked.popleft()
            if asked_id == correlation_id:
                break
        else:
            raise Finding(f"an answer with correlation id {correlation_id}, which nobody asked for")
        api = REGISTRY[key]
        if line.must_log_in and key not in BEFORE_LOGIN and line.connection.peer.principal == ANONYMOUS:
            raise Finding(f"{api.name} is answered before a login")
        if key == ApiKey.API_VERSIONS and version not in api.response.message_versions:
            version = 0
        try:
            _, position = decode_response_header(key, version, body)
            response, end = decode_prefix(api.response, body, version, position)
        except MalformedMessage as error:
            raise Finding(f"{api.name} v{version}: the answer does not decode: {error}") from error
        if end != len(body):
            raise Finding(f"{api.name} v{version}: {len(body) - end} bytes behind the answer")
        if self._with_kio:
            _check_with_kio(api.name, api.response, version, body[position:])
        if key not in SAYS_SO and ErrorCode.UNKNOWN_SERVER_ERROR in error_codes(response):
            raise Finding(f"{api.name} v{version}: UNKNOWN_SERVER_ERROR")
        return key, response

    def check_refusals(self, reported: list[tuple[int, Response]], before: tuple[object, ...]) -> None:
        """One request was sent and every part of it refused: then nothing may have changed."""
        frames, self.frames = self.frames, 0
        if len(reported) != 1 or frames != 1 or not before:
            return
        key, response = reported[0]
        codes = error_codes(response)
        if key in CHANGING and codes and all(codes) and self.stored() != before:
            raise Finding(f"{ApiKey(key).name} refused everything ({codes[:5]}) and changed something")

    def stored(self) -> tuple[object, ...]:
        """Where every log ends: whatever is stored moves one of them."""
        ends = [
            (
                name,
                [(each.log.log_end_offset, each.log.log_start_offset) for each in topic.partitions if each is not None],
            )
            for name, topic in self.node.services.catalog.topics.items()
        ]
        return (*ends, sorted(self.node.services.catalog.topics))

    # -- the broker

    def start_broker(self) -> None:
        """Begin another life of the broker, on the files that are there."""
        self.node, _, _ = start_node(
            self.files, self.clock, **{key.replace(".", "_"): v for key, v in self._config.items()}
        )
        self.connections = Connections(self.node.services, self.node.dispatcher, doors=self.node.doors)
        self.node.settle()

    def _restart(self, how: str) -> None:
        before = self._topics()
        for number in list(self._lines):
            self.drop_line(number)
        self.node.settle()
        if how == "stop":
            self.node.stop()
            self.files.kill()
        else:
            self.files = self.files.kill()
        self.start_broker()
        pass_time(self.node, self.clock, 1_000)
        if (after := self._topics()) != before:
            raise Finding(f"topics before and after a restart differ: {before} {after}")

    def _topics(self) -> dict[str, list[int]]:
        return {
            name: [-1 if each is None else each.log.log_end_offset for each in topic.partitions]
            for name, topic in self.node.services.catalog.topics.items()
            if not topic.is_internal
        }

    def ask(self, request: Request, version: int) -> Any:
        """The witness asks."""
        self._correlation_id += 1
        body = encode_request_header(request.message_key, version, self._correlation_id, WITNESS) + encode(
            request, version
        )
        line = self._line(WITNESS_LINE)
        data = struct.pack(">i", len(body)) + body
        self._note_asked(line, data)
        feed(line.connection, data)
        self.node.settle()
        reported = self._collect()
        if not reported:
            raise Finding(f"the witness got no answer to {type(request).__name__}")
        return reported[-1][1]


def _wants_no_answer(frame: bytes) -> bool:
    """Whether it is a Produce with acks=0, which has none (as far as it can be read; else it ends the connection)."""
    api_key, version, _ = _FRONT.unpack_from(frame)
    if api_key != ApiKey.PRODUCE or version not in ProduceRequest.message_versions:
        return False
    try:
        _, position = decode_request_header(frame)
        request, _ = decode_prefix(ProduceRequest, frame, version, position)
    except MalformedMessage:
        return False
    return request.acks == 0


def _commit_of_the_witness() -> OffsetCommitRequest:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=None
    )
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=WITNESS, partitions=[partition])
    return OffsetCommitRequest(group_id=WITNESS, member_id="", topics=[topic])


def _user(mechanism: int, salted_password: bytes) -> AlterUserScramCredentialsRequest:
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=SCRAM_USER, mechanism=mechanism, iterations=4096, salt=b"salt", salted_password=salted_password
    )
    return AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])


def _check_with_kio(name: str, cls: type[Response], version: int, body: bytes) -> None:
    theirs = kio_class(cls, version)
    if theirs is None:
        return
    try:
        _, end = kio_message(theirs, body)
    except (OverflowError, ValueError) as error:
        if "date" in str(error) or isinstance(error, OverflowError) or "year" in str(error):
            return  # kio makes dates of times, and its dates end before Kafka's
        raise Finding(f"{name} v{version}: kio does not decode the answer: {error!r}") from error
    except Exception as error:
        if "negative timestamp" in str(error):
            return  # the same; Kafka answers -1 where it refuses
        raise Finding(f"{name} v{version}: kio does not decode the answer: {error!r}") from error
    if end != len(body):
        raise Finding(f"{name} v{version}: kio reads {end} of {len(body)} bytes")
