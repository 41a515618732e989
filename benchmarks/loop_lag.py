"""The work that blocks the broker's loop, and for how long: all requests for 2,000 partitions, and background tasks.

    PYTHONPATH=benchmarks python benchmarks/loop_lag.py [--only WORD] [--acks sync|page-cache] [--times N]

One row for each piece of work, requested over a socket (or over HTTP) as by any client. `stretch`: the longest time
for which one request of the API held the loop; `lag`: the longest delay of a timer of the loop. The broker measures
both (`ottla_request_hold_max_seconds`, `ottla_loop_lag_max_seconds`; the timer runs ten times a second).
`p50`, `p99`, `longest`: round trips of a witness in another process, which sends ApiVersions each millisecond
meanwhile. Then the longest steps by name: requests of every API, background tasks and collections of
garbage (`ottla_chore_step_max_seconds`), those above 1 ms, the longest first. Milliseconds are wall time, so they
include the time of other programs on the processor. docs/limits.md has the bound of each row.

`slow`: the time of a fixed loop of bytecodes before and after the row, divided by that on an idle machine (`FIXED_MS`);
`scaled`: the stretch divided by this. `--times` repeats each row, and prints the run with the least stretch:
other programs on the machine seldom affect all of them.
"""

from __future__ import annotations

import argparse
import gzip
import multiprocessing
import re
import socket
import struct
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from statistics import median, quantiles
from typing import Any, NamedTuple
from uuid import UUID

import frames
from servers import Ottla

from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.api.alter_client_quotas import AlterClientQuotasRequest
from ottla.protocol.api.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ottla.protocol.api.api_versions import ApiVersionsRequest
from ottla.protocol.api.create_acls import CreateAclsRequest
from ottla.protocol.api.create_topics import CreateTopicsRequest
from ottla.protocol.api.delete_records import DeleteRecordsRequest
from ottla.protocol.api.delete_topics import DeleteTopicsRequest
from ottla.protocol.api.describe_acls import DescribeAclsRequest
from ottla.protocol.api.describe_client_quotas import DescribeClientQuotasRequest
from ottla.protocol.api.describe_configs import DescribeConfigsRequest
from ottla.protocol.api.describe_groups import DescribeGroupsRequest
from ottla.protocol.api.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.api.describe_producers import DescribeProducersRequest
from ottla.protocol.api.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from ottla.protocol.api.fetch import FetchRequest
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest
from ottla.protocol.api.init_producer_id import InitProducerIdRequest
from ottla.protocol.api.join_group import JoinGroupRequest
from ottla.protocol.api.list_groups import ListGroupsRequest
from ottla.protocol.api.list_offsets import ListOffsetsRequest
from ottla.protocol.api.list_transactions import ListTransactionsRequest
from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.api.offset_commit import OffsetCommitRequest
from ottla.protocol.api.offset_fetch import OffsetFetchRequest
from ottla.protocol.api.produce import ProduceRequest
from ottla.protocol.headers import decode_response_header, encode_request_header
from ottla.protocol.message import Request, Response, decode, encode
from ottla.protocol.records.batch import encode_batch, seal_batch
from ottla.protocol.records.record import Record

TOPICS, PARTITIONS = 10, 200
PRODUCERS, IN_FLIGHT = 50_000, 50
LISTED, ACLS = 10_000, 20_000
LISTS = (
    "Metadata of 10,000 topics", "DescribeLogDirs of 10,000 topics", "DescribeConfigs of 1,000 topics",
    "DescribeAcls of 20,000", "DescribeClientQuotas of 10,000", "DescribeUserScramCredentials of 10,000",
    "ListTransactions of 10,000",
)  # fmt: skip
"""Rows that need a separate broker."""
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
ZERO_ID = UUID(int=0)
STAMP_MS = 1_700_000_000_000
FIXED_TURNS, FIXED_MS = 100_000, 4.1
"""Turns of the loop that measures the speed of the machine, and the milliseconds that they took on the machine of
docs/performance.md (an AMD EPYC, Python 3.11.7) when it was idle: the least of 600."""
SHOWN_MS = 1.0
"""The shortest step that is named."""


class Client:
    """A client that sends requests and waits for the answers."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._number = 0

    def send(self, request: Request, version: int) -> None:
        """Send a request."""
        self._number += 1
        body = encode_request_header(request.message_key, version, self._number, "lag") + encode(request, version)
        self.socket.sendall(struct.pack(">i", len(body)) + body)

    def receive(self, key: ApiKey, version: int) -> Response:
        """The next answer."""
        (length,) = struct.unpack(">i", self._take(4))
        body = self._take(length)
        _, position = decode_response_header(key, version, body)
        return decode(REGISTRY[key].response, body, version, position)

    def ask(self, request: Request, version: int) -> Any:
        """Send a request, and wait for the answer."""
        self.send(request, version)
        return self.receive(ApiKey(request.message_key), version)

    def _take(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            piece = self.socket.recv(min(1 << 20, length - len(data)))
            if not piece:
                sys.exit("the broker closed the connection")
            data += piece
        return bytes(data)


def witness(address: tuple[str, int], pipe: Connection) -> None:
    """Send ApiVersions each millisecond; `start` and `stop` come through the pipe, the round trips go back."""
    client = Client(address)
    while pipe.recv() == "start":
        times: list[float] = []
        while not pipe.poll():
            begun = time.perf_counter()
            client.ask(ApiVersionsRequest(client_software_name="w", client_software_version="1"), 3)
            times.append((time.perf_counter() - begun) * 1e3)
            time.sleep(0.001)
        pipe.recv()
        pipe.send(times)


class Table:
    """The broker, its witness, and the rows."""

    def __init__(self, server: Ottla, http_port: int, only: str, runs: int) -> None:
        self.address = (server.host, server.port)
        self.client = Client(self.address)
        self.http = f"http://{server.host}:{http_port}"
        self._only = only
        self._runs = runs
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.Process(target=witness, args=(self.address, theirs), daemon=True)
        self._process.start()

    def end(self) -> None:
        """End the rows of this broker."""
        self._pipe.send("end")
        self._process.join()

    def wants(self, name: str) -> bool:
        """Whether the row is wanted."""
        return self._only in name

    def row(self, name: str, api: str, work: Callable[[], object], times: int = 1, *, once: bool = False) -> None:
        """Do the work `--times` times and print its delays for other clients. A row that is not wanted is done once
        without output, because later rows may need it. `once`: the work cannot be done again.
        """
        if not self.wants(name):
            work()
            return
        runs = [self._run(api, work, times) for _ in range(1 if once else self._runs)]
        print(f"{name:<58}{min(runs, key=lambda run: (run.stretch_ms, run.trips_ms[-1]))}", flush=True)

    def _run(self, api: str, work: Callable[[], object], times: int) -> Run:
        slow = fixed_loop_ms()
        self.figures()
        self._pipe.send("start")
        time.sleep(0.2)
        for _ in range(times):
            work()
            time.sleep(0.02)
        time.sleep(0.2)
        self._pipe.send("stop")
        trips_ms = sorted(self._pipe.recv())
        lag_ms, steps = self.figures()
        slow = (slow + fixed_loop_ms()) / 2 / FIXED_MS
        return Run(steps.get(api, 0.0) if api else None, lag_ms, trips_ms, slow, steps)

    def post(self, path: str) -> str:
        """Send a request to the broker over HTTP."""
        request = urllib.request.Request(self.http + path, method="POST", headers={"X-Ottla": "1"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            return str(answer.read().decode())

    def figures(self) -> tuple[float, dict[str, float]]:
        """Milliseconds since the last call: the longest lag, and the longest step of each API and background task."""
        with urllib.request.urlopen(self.http + "/metrics", timeout=60) as answer:
            text = answer.read().decode()
        found = re.search(r"^ottla_loop_lag_max_seconds (\S+)", text, re.MULTILINE)
        assert found
        steps = re.findall(r'^ottla_(?:request_hold|chore_step)_max_seconds{\w+="([^"]*)"} (\S+)', text, re.MULTILINE)
        return float(found[1]) * 1e3, {name: float(step_s) * 1e3 for name, step_s in steps}


class Run(NamedTuple):
    """The measured times of a piece of work, in milliseconds."""

    stretch_ms: float | None
    lag_ms: float
    trips_ms: list[float]
    slow: float
    steps: dict[str, float]

    def __str__(self) -> str:
        """The row without its name."""
        cuts = quantiles(self.trips_ms, n=100)
        stretch, scaled = f"{'':>9}", f"{'':>8}"
        if self.stretch_ms is not None:
            stretch, scaled = f"{self.stretch_ms:>9.1f}", f"{self.stretch_ms / self.slow:>8.1f}"
        longest = sorted(self.steps.items(), key=lambda step: -step[1])
        named = ", ".join(f"{name} {ms:.1f}" for name, ms in longest if ms >= SHOWN_MS)
        figures = f"{self.lag_ms:>9.1f}{cuts[49]:>9.2f}{cuts[98]:>9.1f}{self.trips_ms[-1]:>9.1f}"
        return f"{stretch}{figures}{self.slow:>7.2f}{scaled}  {named}"


def fixed_loop_ms() -> float:
    """The time of the fixed loop: the median of some runs."""
    return median(_fixed_loop_ms() for _ in range(9))


def _fixed_loop_ms() -> float:
    begun, number = time.perf_counter(), 0
    for turn in range(FIXED_TURNS):
        number += turn & 3
    return (time.perf_counter() - begun) * 1e3


def create(client: Client, names: list[str], partitions: int, **configs: str) -> None:
    """Create topics."""
    pairs = [
        CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in configs.items()
    ]
    topics = [
        CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=-1, assignments=[], configs=pairs
        )
        for name in names
    ]
    answer = client.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)
    assert not any(topic.error_code for topic in answer.topics), answer.topics[0]


def delete(client: Client, names: list[str]) -> None:
    """Delete topics."""
    topics = [DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=ZERO_ID) for name in names]
    answer = client.ask(DeleteTopicsRequest(topics=topics, timeout_ms=60_000), 6)
    assert not any(result.error_code for result in answer.responses)


def produce(client: Client, topic: str, partitions: int, batch: bytes, acks: int = -1) -> int:
    """Produce a batch to each partition; the first error code."""
    answer = client.ask(produce_request(topic, partitions, batch, acks), 9)
    return next((each.error_code for each in answer.responses[0].partition_responses if each.error_code), 0)


def produce_request(topic: str, partitions: int, batch: bytes, acks: int) -> ProduceRequest:
    """A batch for each partition."""
    data = [ProduceRequest.PartitionProduceData(index=index, records=batch) for index in range(partitions)]
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=data)]
    return ProduceRequest(acks=acks, timeout_ms=60_000, topic_data=topics)


def names() -> list[str]:
    """The topics that exist."""
    return [f"many-{number}" for number in range(TOPICS)]


def requests(table: Table) -> None:
    """Requests for 2,000 partitions."""
    client = table.client
    table.figures()  # the first scrape imports what it needs
    time.sleep(0.5)
    table.row("nothing", "", lambda: time.sleep(3))
    first, *others = names()
    table.row(f"create a topic of {PARTITIONS} partitions", "CreateTopics",
              lambda: create(client, [first], PARTITIONS), once=True)  # fmt: skip
    for name in others:
        create(client, [name], PARTITIONS)
    few = [f"few-{number}" for number in range(200)]
    table.row("create 200 topics in one request", "CreateTopics", lambda: create(client, few, 1), once=True)
    table.row("delete 200 topics in one request", "DeleteTopics", lambda: delete(client, few), once=True)
    batch, _ = frames.batch_of(1000)

    def produce_first() -> None:
        for name in names():
            assert produce(client, name, PARTITIONS, batch) == 0
            time.sleep(0.02)

    table.row("10 first Produce requests to 200 partitions each", "Produce", produce_first, once=True)
    table.row("Produce to 200 partitions", "Produce", lambda: produce(client, names()[0], PARTITIONS, batch), 10)
    table.row("Metadata of everything", "Metadata", lambda: client.ask(MetadataRequest(topics=None), 12), 20)
    fetched = [
        FetchRequest.FetchTopic(
            topic=name,
            partitions=[FetchRequest.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000)
                        for index in range(PARTITIONS)],
        )
        for name in names()
    ]  # fmt: skip
    fetch = FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=-1, topics=fetched)
    table.row("Fetch of 2,000 partitions", "Fetch", lambda: client.ask(fetch, 12), 20)
    for words, stamp in (("latest", -1), ("by time", STAMP_MS), ("the largest timestamp", -3)):
        asked = [
            ListOffsetsRequest.ListOffsetsTopic(
                name=name,
                partitions=[ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=stamp)
                            for index in range(PARTITIONS)],
            )
            for name in names()
        ]  # fmt: skip
        request = ListOffsetsRequest(replica_id=-1, topics=asked)
        table.row(f"ListOffsets of 2,000 partitions: {words}", "ListOffsets", partial(client.ask, request, 7), 10)
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None)
        for name in names()
    ]
    configs = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
    table.row("DescribeConfigs of 10 topics, everything", "DescribeConfigs", lambda: client.ask(configs, 4), 10)
    logs = DescribeLogDirsRequest(topics=None)
    table.row("DescribeLogDirs of everything", "DescribeLogDirs", lambda: client.ask(logs, 4), 10)
    deleted = DeleteRecordsRequest(
        topics=[
            DeleteRecordsRequest.DeleteRecordsTopic(
                name=name,
                partitions=[DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=1)
                            for index in range(PARTITIONS)],
            )
            for name in names()
        ],
        timeout_ms=60_000,
    )  # fmt: skip
    table.row("DeleteRecords of 2,000 partitions", "DeleteRecords", lambda: client.ask(deleted, 2))
    scrape = f"{table.http}/metrics"
    table.row("a scrape of /metrics", "", lambda: urllib.request.urlopen(scrape, timeout=60).read(), 5)


def producers(table: Table) -> None:
    """Requests for a partition that remembers many producers."""
    client = table.client
    name = f"DescribeProducers of {PRODUCERS:,}"
    if not table.wants(name):
        return  # no later row needs them
    create(client, ["producers"], 1)
    records = [Record(0, STAMP_MS, b"k", b"v")]
    for first in range(0, PRODUCERS, IN_FLIGHT):
        for number in range(first, first + IN_FLIGHT):
            batch = encode_batch(records, producer_id=number, producer_epoch=0, base_sequence=0)
            client.send(produce_request("producers", 1, bytes(batch), 1), 9)
        for _ in range(IN_FLIGHT):
            client.receive(ApiKey.PRODUCE, 9)
    topics = [DescribeProducersRequest.TopicRequest(name="producers", partition_indexes=[0])]
    request = DescribeProducersRequest(topics=topics)
    answer = client.ask(request, 0)
    assert len(answer.topics[0].partitions[0].active_producers) == PRODUCERS
    table.row(name, "DescribeProducers", lambda: client.ask(request, 0), 5)


def groups(table: Table) -> None:
    """Requests for groups."""
    client = table.client
    while client.ask(FindCoordinatorRequest(key="g", key_type=0), 2).error_code:
        time.sleep(0.1)
    offsets = [
        OffsetCommitRequest.OffsetCommitRequestTopic(
            name=name,
            partitions=[OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=1, committed_metadata=None)
                        for index in range(PARTITIONS)],
        )
        for name in names()
    ]  # fmt: skip
    commit = OffsetCommitRequest(group_id="g", member_id="", topics=offsets)
    while client.ask(commit, 8).topics[0].partitions[0].error_code:
        time.sleep(0.1)
    table.row("OffsetCommit of 2,000 partitions", "OffsetCommit", lambda: client.ask(commit, 8), 10)
    everything = OffsetFetchRequest(group_id="g", topics=None)
    table.row("OffsetFetch of a group's 2,000 partitions", "OffsetFetch", lambda: client.ask(everything, 7), 20)
    small = OffsetCommitRequest(
        group_id="",
        member_id="",
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=names()[0],
                partitions=[
                    OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=1, committed_metadata=None
                    )
                ],
            )
        ],
    )
    many = [f"group-{number}" for number in range(2_000)]
    for name in many:
        small.group_id = name
        client.ask(small, 8)
    table.row("DescribeGroups of 2,000 groups", "DescribeGroups",
              lambda: client.ask(DescribeGroupsRequest(groups=many), 5), 5)  # fmt: skip
    table.row("ListGroups of 2,000 groups", "ListGroups", lambda: client.ask(ListGroupsRequest(), 4), 5)
    table.row("JoinGroup of 500 members", "JoinGroup", lambda: join(table.address, 500), once=True)


def join(address: tuple[str, int], count: int) -> None:
    """All members of a new group join at the same time."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\0" + bytes(100))
    request = JoinGroupRequest(
        group_id="large", member_id="", session_timeout_ms=30_000, rebalance_timeout_ms=30_000,
        protocol_type="consumer", protocols=[protocol],
    )  # fmt: skip
    members = [Client(address) for _ in range(count)]
    for member in members:
        member.send(request, 3)
    for member in members:
        member.receive(ApiKey.JOIN_GROUP, 3)


def lists(table: Table) -> None:
    """Requests with long answers, such as lists of everything. With an authorizer, so that there are ACLs."""
    client = table.client
    table.figures()
    topics = [f"one-{number}" for number in range(LISTED)]
    for first in range(0, LISTED, 500):
        create(client, topics[first : first + 500], 1)
    everything = f"of {LISTED:,} topics"
    table.row(f"Metadata {everything}", "Metadata", lambda: client.ask(MetadataRequest(topics=None), 12), 5)
    logs = DescribeLogDirsRequest(topics=None)
    table.row(f"DescribeLogDirs {everything}", "DescribeLogDirs", lambda: client.ask(logs, 4), 5)
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None)
        for name in topics[:1_000]
    ]
    configs = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
    table.row("DescribeConfigs of 1,000 topics", "DescribeConfigs", lambda: client.ask(configs, 4), 3)
    creations = [
        CreateAclsRequest.AclCreation(
            resource_type=2, resource_name=f"topic-{number % 5_000}", resource_pattern_type=3,
            principal=f"User:u{number}", host="*", operation=3, permission_type=3,
        )
        for number in range(ACLS)
    ]  # fmt: skip
    for first in range(0, ACLS, 2_000):
        client.ask(CreateAclsRequest(creations=creations[first : first + 2_000]), 3)
    acls = DescribeAclsRequest(
        resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=None,
        host_filter=None, operation=1, permission_type=1,
    )  # fmt: skip
    table.row(f"DescribeAcls of {ACLS:,}", "DescribeAcls", lambda: client.ask(acls, 3), 5)
    entries = [
        AlterClientQuotasRequest.EntryData(
            entity=[AlterClientQuotasRequest.EntityData(entity_type="user", entity_name=f"u{number}")],
            ops=[AlterClientQuotasRequest.OpData(key="producer_byte_rate", value=1e9, remove=False)],
        )
        for number in range(LISTED)
    ]
    for first in range(0, LISTED, 1_000):
        client.ask(AlterClientQuotasRequest(entries=entries[first : first + 1_000], validate_only=False), 1)
    quotas = DescribeClientQuotasRequest(components=[], strict=False)
    table.row(f"DescribeClientQuotas of {LISTED:,}", "DescribeClientQuotas", lambda: client.ask(quotas, 1), 5)
    users = [
        AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name=f"u{number}", mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
        )
        for number in range(LISTED)
    ]
    for first in range(0, LISTED, 1_000):
        upsertions = users[first : first + 1_000]
        client.ask(AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions), 0)
    scram = DescribeUserScramCredentialsRequest(users=None)
    name = f"DescribeUserScramCredentials of {LISTED:,}"
    table.row(name, "DescribeUserScramCredentials", lambda: client.ask(scram, 0), 5)
    while client.ask(FindCoordinatorRequest(key="i", key_type=1), 2).error_code:
        time.sleep(0.1)
    for number in range(LISTED):
        client.ask(InitProducerIdRequest(transactional_id=f"id-{number}", transaction_timeout_ms=60_000), 4)
    ids = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    table.row(f"ListTransactions of {LISTED:,}", "ListTransactions", lambda: client.ask(ids, 1), 5)


def chores(table: Table) -> None:
    """Background tasks."""
    client = table.client
    create(client, ["rolling"], 1, segment_bytes="1024", retention_bytes="-1", file_delete_delay_ms="1000")
    for _ in range(200):
        assert produce(client, "rolling", 1, frames.batch_of(1000)[0], acks=1) == 0
    alter = "retention.bytes"

    def retain() -> None:
        from ottla.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest as Alter

        config = Alter.AlterableConfig(name=alter, config_operation=0, value="1")
        client.ask(Alter(resources=[Alter.AlterConfigsResource(
            resource_type=2, resource_name="rolling", configs=[config])], validate_only=False), 1)  # fmt: skip
        table.post("/log/retain?topic=rolling")
        time.sleep(3)

    table.row("retention deletes 200 segments", "segment unlink", retain, once=True)
    create(client, ["compacted"], 1, cleanup_policy="compact", segment_bytes=str(16 << 20))
    for first in range(0, 400_000, 2_000):
        records = [
            Record(slot, STAMP_MS, b"key-%d" % ((first + slot) * 7 % 100_000), bytes(200)) for slot in range(2_000)
        ]
        assert produce(client, "compacted", 1, bytes(encode_batch(records)), acks=1) == 0

    def clean() -> None:
        table.post("/log/roll?partition=compacted-0")
        table.post("/log/clean?topic=compacted")
        while re.search('"(waiting|running)"', table.post("/log/cleaning?topic=compacted")):
            time.sleep(0.1)

    table.row("cleaning a compacted log of 90 MB", "log cleaner", clean, once=True)
    bomb = seal_batch(
        gzip.compress(bytes(900 << 20)), base_offset=0, leader_epoch=-1, attributes=1, last_offset_delta=0,
        base_timestamp=STAMP_MS, max_timestamp=STAMP_MS, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        record_count=1,
    )  # fmt: skip
    table.row("a batch of 0.9 MB that would be 900 MB, compacted topic", "Produce",
              lambda: produce(client, "compacted", 1, bytes(bomb)), 5)  # fmt: skip
    records = [Record(slot, STAMP_MS, b"key-%d" % slot, bytes(60)) for slot in range(10_000)]
    from ottla.protocol.records.compression import Compression

    packed = bytes(encode_batch(records, compression=Compression.GZIP))
    table.row("a batch of 10,000 compressed records, compacted topic", "Produce",
              lambda: produce(client, "compacted", 1, packed), 5)  # fmt: skip
    table.row(f"delete a topic of {PARTITIONS} partitions", "DeleteTopics",
              lambda: delete(client, names()[-1:]), once=True)  # fmt: skip
    table.row("delete topics of 1,800 partitions", "DeleteTopics",
              lambda: delete(client, names()[:-1]), once=True)  # fmt: skip


@contextmanager
def broker(acks_all: str, more: Mapping[str, str] | None = None) -> Iterator[tuple[Ottla, int]]:
    """A broker with its HTTP port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    overrides = {"ottla.http.listener": f"127.0.0.1:{port}", "group.initial.rebalance.delay.ms": "0", **(more or {})}
    with Ottla(acks_all, overrides) as server:
        yield server, port


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--acks", default="page-cache", choices=("sync", "page-cache"))
    parser.add_argument("--times", type=int, default=1, help="do each row that can be repeated so many times")
    options = parser.parse_args()
    columns = f"{'stretch':>9}{'lag':>9}{'p50':>9}{'p99':>9}{'longest':>9}{'slow':>7}{'scaled':>8}"
    print(f"{'':<58}{columns}  longest steps, requests and chores")
    wants_lists = any(options.only in name for name in LISTS)
    if not (options.only and wants_lists):
        with broker(options.acks) as (server, port):
            table = Table(server, port, options.only, options.times)
            requests(table)
            groups(table)
            producers(table)
            chores(table)
            table.end()
    if wants_lists:
        with broker(options.acks, AUTHORIZED) as (server, port):
            table = Table(server, port, options.only, options.times)
            lists(table)
            table.end()


if __name__ == "__main__":
    main()
