"""The bytecodes that a broker executes for a delivery to a member of a share group: no busy machine changes them.

    PYTHONPATH=benchmarks python benchmarks/share_bytecodes.py

The broker is a node in this process, without a loop, with `ottla.acks.all=page-cache`; its connections get frames. A
turn is: a Produce of one record of 100 bytes, by another connection (counted apart), the answer to the member's
ShareFetch, which waited for it, and the member's next ShareFetch, which acknowledges the record and waits. In the
second row a ShareAcknowledge comes before that ShareFetch. In the last ones, one ShareAcknowledge accepts and releases
2,000 records in turn, which are 2,000 runs: the bytecodes of a record and the CPU time of the change of what is in
flight, and the CPU time of the whole request. The times are the least of some runs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import frames
from bytecodes import Bytecodes
from cold_lines import TOPIC, _broker
from tabulate import tabulate

from ottla.broker.share.deliveries import Acknowledgement, Span, Wanted
from ottla.broker.share.in_flight import InFlightRecords
from ottla.protocol.api.share_acknowledge import ShareAcknowledgeRequest
from ottla.protocol.api.share_fetch import AcknowledgeType, ShareFetchRequest
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import Request, encode
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record

GROUP, VERSION = "bench", 2
MEMBER = str(UUID(int=7))
WARM_UP, TURNS = 100, 200
ALTERNATING, RUNS = 2_000, 7
KINDS = [AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE] * (ALTERNATING // 2)


def framed(request: Request, number: int) -> bytes:
    return frames.framed(encode_request_header(request.message_key, VERSION, number, "bench"), encode(request, VERSION))


def share_fetch(topic_id: UUID, epoch: int, accepted: int = -1, most_records: int = 500) -> bytes:
    """A ShareFetch that waits for a record; `accepted` is the offset that it accepts, none below 0."""
    batches = []
    if accepted >= 0:
        batches = [
            ShareFetchRequest.AcknowledgementBatch(
                first_offset=accepted, last_offset=accepted, acknowledge_types=[AcknowledgeType.ACCEPT]
            )
        ]
    topics = []
    if epoch == 0 or accepted >= 0:
        asked = ShareFetchRequest.FetchPartition(partition_index=0, acknowledgement_batches=batches)
        topics = [ShareFetchRequest.FetchTopic(topic_id=topic_id, partitions=[asked])]
    request = ShareFetchRequest(
        group_id=GROUP,
        member_id=MEMBER,
        share_session_epoch=epoch,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        max_records=most_records,
        batch_size=500,
        topics=topics,
        forgotten_topics_data=[],
    )
    return framed(request, epoch)


def share_acknowledge(topic_id: UUID, epoch: int, first_offset: int, *types: AcknowledgeType) -> bytes:
    """A ShareAcknowledge of neighbouring offsets, each with its type."""
    batch = ShareAcknowledgeRequest.AcknowledgementBatch(
        first_offset=first_offset, last_offset=first_offset + len(types) - 1, acknowledge_types=[*types]
    )
    said = ShareAcknowledgeRequest.AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
    topic = ShareAcknowledgeRequest.AcknowledgeTopic(topic_id=topic_id, partitions=[said])
    request = ShareAcknowledgeRequest(group_id=GROUP, member_id=MEMBER, share_session_epoch=epoch, topics=[topic])
    return framed(request, epoch)


def receive(node: Any, connection: Any, data: bytes) -> None:
    """Let a connection get bytes, and end the turns that follow."""
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))
    while node.services.turn.has_work:
        node.services.turn.end()


def deliveries(*, is_explicit: bool) -> tuple[Bytecodes, Bytecodes]:
    """The bytecodes of `TURNS` turns: those of the Produce requests alone, and those of turns with a member."""
    batch, _ = frames.batch_of(170)
    produce = frames.produce_exchange(TOPIC, batch, -1).frame
    alone, whole = Bytecodes(), Bytecodes()
    with _broker() as (node, connect):
        producer, member = connect(), connect()
        topic_id = node.services.catalog.topics[TOPIC].id

        def run(connection: Any, data: bytes) -> None:
            receive(node, connection, data)

        epoch = 0
        for number in range(WARM_UP + TURNS):
            if number < WARM_UP:
                run(producer, produce)
            else:
                alone.run(lambda: run(producer, produce))
        acquired = node.services.metrics.share_groups
        run(member, share_fetch(topic_id, 0))
        node.settle()
        offset = WARM_UP + TURNS

        for number in range(WARM_UP + TURNS):
            asked = []
            if is_explicit:
                epoch += 1
                asked = [share_acknowledge(topic_id, epoch, offset, AcknowledgeType.ACCEPT)]
            epoch += 1
            asked.append(share_fetch(topic_id, epoch, -1 if is_explicit else offset))
            offset += 1

            def turn(asked: list[bytes] = asked) -> None:
                run(producer, produce)
                for data in asked:
                    run(member, data)

            if number < WARM_UP:
                turn()
            else:
                whole.run(turn)
        if acquired.acquired_records != WARM_UP + TURNS or acquired.acknowledged_records != WARM_UP + TURNS:
            raise RuntimeError(f"{acquired.acquired_records} records were acquired")
    return alone, whole


def whole_acknowledgement() -> float:
    """The CPU milliseconds of a ShareAcknowledge that accepts and releases 2,000 records in turn."""
    records = [Record(number, 0, None, b"x", ()) for number in range(ALTERNATING)]
    produce = frames.produce_exchange(TOPIC, bytes(encode_batch(records)), -1).frame
    with _broker() as (node, connect):
        producer, member = connect(), connect()
        topic_id = node.services.catalog.topics[TOPIC].id
        receive(node, member, share_fetch(topic_id, 0, most_records=ALTERNATING))
        node.settle()
        receive(node, producer, produce)
        said = share_acknowledge(topic_id, 1, 0, *KINDS)
        began = time.process_time()
        receive(node, member, said)
        took = time.process_time() - began
        if node.services.metrics.share_groups.acknowledged_records != ALTERNATING // 2:
            raise RuntimeError("the records were not acknowledged")
    return took * 1000


def alternating() -> tuple[int, float]:
    """The bytecodes, and the least CPU milliseconds, of what such an acknowledgement does to the records in flight."""
    said = [Acknowledgement(0, ALTERNATING - 1, KINDS)]
    wanted = Wanted("m", ALTERNATING, ALTERNATING, ALTERNATING, 1e9)

    def prepared() -> Callable[[], object]:
        records = InFlightRecords(0)
        records.acquire(0, [Span(0, ALTERNATING - 1)], wanted)
        return lambda: records.acknowledge("m", said, most_deliveries=5, renewed_until_ms=0)

    bytecodes = Bytecodes()
    bytecodes.run(prepared())
    times = []
    for _ in range(RUNS):
        step, began = prepared(), time.process_time()
        step()
        times.append(time.process_time() - began)
    return bytecodes.count, min(times) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--functions", type=int, default=0, help="also the functions with most bytecodes, so many")
    options = parser.parse_args()
    rows = []
    for name, is_explicit in (("implicit, in the next ShareFetch", False), ("explicit, by a ShareAcknowledge", True)):
        alone, whole = deliveries(is_explicit=is_explicit)
        rows.append([f"a delivery that is accepted: {name}", f"{(whole.count - alone.count) / TURNS:,.0f}", ""])
        for code, count in (whole.of - alone.of).most_common(options.functions):
            print(f"{count / TURNS:8.1f} {code.co_filename.rpartition('/ottla/')[2]}:{code.co_qualname}")
    count, cpu_ms = alternating()
    rows.append(["records that alternate, each", f"{count / ALTERNATING:,.0f}", f"{cpu_ms:.1f} ms for all"])
    whole_ms = min(whole_acknowledgement() for _ in range(RUNS))
    rows.append(["the whole ShareAcknowledge of these", "", f"{whole_ms:.1f} ms"])
    print(tabulate(rows, ["share group", "bytecodes", "CPU"], tablefmt="github", disable_numparse=True))


if __name__ == "__main__":
    main()
