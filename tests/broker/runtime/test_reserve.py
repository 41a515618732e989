"""What goes on and what is refused while less is free than `ottla.log.dir.reserve.bytes`, on a whole node."""

from __future__ import annotations

import errno
import json
import random
from http import HTTPStatus
from pathlib import Path

import pytest
from kit.cleaning import records_of
from kit.clock import ManualClock
from kit.exchange import Exchange, batch, fetch_request, make_topic, produce_request
from kit.group_requests import COMMIT_VERSION, begin, code_of, commit, commit_request, committed
from kit.nodes import DATA, ask, pass_time, start_node
from kit.simulated_files import SimulatedFiles
from kit.topics import codes, delete
from kit.topics import create as create_topics

from ottla.broker.http.pages import pages_of
from ottla.broker.metadata.change_requests import NewTopic
from ottla.broker.node import Node
from ottla.broker.partitions.partition import Partition
from ottla.broker.telemetry.exposition import Exposition
from ottla.protocol.api.create_topics import CreateTopicsRequest
from ottla.protocol.api.delete_records import DeleteRecordsRequest
from ottla.protocol.api.delete_topics import DeleteTopicsRequest
from ottla.protocol.api.fetch import FetchResponse
from ottla.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.api.init_producer_id import InitProducerIdRequest
from ottla.protocol.api.produce import ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.storage.files.reserve import INODES_OF_A_PARTITION

RESERVE = 800_000
ALL = 100_000_000
Life = tuple[Node, SimulatedFiles, ManualClock]


def life(files: SimulatedFiles | None = None, clock: ManualClock | None = None, **keys: object) -> Life:
    if files is None:
        files = SimulatedFiles()
        files.volumes[DATA] = (ALL, ALL)
    return start_node(files, clock, ottla_log_dir_reserve_bytes=RESERVE, offsets_topic_num_partitions=1, **keys)


def leave_free(node: Node, files: SimulatedFiles, clock: ManualClock, free: int, home: Path = DATA) -> None:
    """So much is free, and the chore has seen it."""
    files.volumes[home] = (ALL, free)
    pass_time(node, clock, 1_000)


def produced(node: Node, topic: str = "t", *, partition: int = 0, acks: int = -1, value: bytes = b"v") -> ErrorCode:
    answer = Exchange(node).ask(produce_request(topic, batch(1, value=value), acks=acks, partition=partition), 9)
    assert isinstance(answer, ProduceResponse)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def partition_of(node: Node, topic: str = "t", index: int = 0) -> Partition:
    partition = node.services.catalog.partition(topic, index)
    assert partition is not None
    return partition


def create(node: Node, name: str) -> int:
    wanted = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    answer = ask(node, CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 7)
    return int(answer.topics[0].error_code)  # type: ignore[attr-defined]


@pytest.mark.parametrize("acks", [1, -1])
def test_records_are_refused_below_the_reserve_and_taken_again_above(acks: int) -> None:
    node, files, clock = life()
    make_topic(node, "t")
    assert produced(node, acks=acks) == ErrorCode.NONE
    leave_free(node, files, clock, RESERVE - 1)
    for _ in range(3):
        assert produced(node, acks=acks) == ErrorCode.KAFKA_STORAGE_ERROR
    assert partition_of(node).log.log_end_offset == 1
    leave_free(node, files, clock, RESERVE + 1)
    assert produced(node, acks=acks) == ErrorCode.KAFKA_STORAGE_ERROR, "the way back begins an eighth higher"
    leave_free(node, files, clock, 2 * RESERVE)
    assert produced(node, acks=acks) == ErrorCode.NONE
    assert partition_of(node).high_watermark == 2


def test_an_idempotent_producers_first_batch_that_found_no_room_is_still_the_first_when_there_is_some_again() -> None:
    """The second one was on its way when there was room again, and comes before the first is sent again."""
    node, files, clock = life()
    make_topic(node, "t")
    client = Exchange(node)

    def sent(sequence: int) -> ErrorCode:
        content = batch(1, producer_id=3, producer_epoch=0, base_sequence=sequence)
        answer = client.ask(produce_request("t", content, acks=-1), 9)
        assert isinstance(answer, ProduceResponse)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    leave_free(node, files, clock, RESERVE - 1)
    assert sent(0) == ErrorCode.KAFKA_STORAGE_ERROR
    leave_free(node, files, clock, 2 * RESERVE)
    assert sent(1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (sent(0), sent(1)) == (ErrorCode.NONE, ErrorCode.NONE)


def test_with_acks_0_the_connection_ends_below_the_reserve() -> None:
    node, files, clock = life()
    make_topic(node, "t")
    leave_free(node, files, clock, RESERVE - 1)
    client = Exchange(node)
    client.send(produce_request("t", batch(1), acks=0), 9)
    node.settle()
    assert client.transport.is_closing()


def test_reads_go_on_below_the_reserve() -> None:
    node, files, clock = life()
    make_topic(node, "t")
    produced(node)
    leave_free(node, files, clock, 0)
    answer = Exchange(node).ask(fetch_request("t", 0), 12)
    assert isinstance(answer, FetchResponse)
    assert answer.responses[0].partitions[0].records


def test_records_stop_at_the_reserve_without_a_look_for_each() -> None:
    """No chore runs: what was appended since the last look tells when to look again."""
    node, files, clock = life()
    make_topic(node, "t")
    leave_free(node, files, clock, RESERVE + 200_000)
    looks = files.history.count(("volume_bytes", DATA))
    accepted = 0
    value = b"v" * 10_000
    while produced(node, value=value) == ErrorCode.NONE:
        accepted += 1
        total, free = files.volumes[DATA]
        files.volumes[DATA] = (total, free - 10_100)
        assert accepted < 100
    assert RESERVE - RESERVE // 16 - 10_100 < files.volumes[DATA][1] < RESERVE
    assert files.history.count(("volume_bytes", DATA)) - looks <= 6


# -- what frees room


def test_records_are_deleted_below_the_reserve() -> None:
    node, files, clock = life()
    make_topic(node, "t")
    produced(node)
    leave_free(node, files, clock, 0)
    wanted = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=1)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[wanted])
    answer = ask(node, DeleteRecordsRequest(topics=[topic], timeout_ms=30_000), 2)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE  # type: ignore[attr-defined]
    again, _, _ = life(files.crash(random.Random(1)), clock)
    assert partition_of(again).log_start_offset == 1


def test_topics_are_deleted_and_none_are_created_below_the_reserve() -> None:
    node, files, clock = life()
    make_topic(node, "t")
    leave_free(node, files, clock, 0)
    assert create(node, "u") == ErrorCode.KAFKA_STORAGE_ERROR
    answer = ask(node, DeleteTopicsRequest(topic_names=["t"], timeout_ms=30_000), 5)
    assert answer.responses[0].error_code == ErrorCode.NONE  # type: ignore[attr-defined]
    assert "t" not in node.services.catalog.topics
    leave_free(node, files, clock, ALL)
    assert create(node, "u") == ErrorCode.NONE


def test_retention_is_shortened_and_removes_segments_below_the_reserve() -> None:
    node, files, clock = life(log_segment_bytes=1024, log_retention_check_interval_ms=10_000)
    make_topic(node, "t")
    for _ in range(5):
        produced(node, value=b"v" * 900)
    leave_free(node, files, clock, 0)
    config = IncrementalAlterConfigsRequest.AlterableConfig(name="retention.bytes", config_operation=0, value="1000")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name="t", configs=[config])
    answer = ask(node, IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    assert answer.responses[0].error_code == ErrorCode.NONE  # type: ignore[attr-defined]
    pass_time(node, clock, 11_000)
    assert partition_of(node).log_start_offset == 3


def test_the_cleaner_works_below_the_reserve() -> None:
    node, files, clock = life(log_segment_bytes=1024)
    make_topic(node, "t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    for _ in range(5):
        produced(node, value=b"v" * 900)
    leave_free(node, files, clock, 0)
    pass_time(node, clock, 60_000)
    assert node.cleaner.figures.cleanings == 1
    assert len(records_of(partition_of(node).log)) == 2


def test_producer_ids_are_given_out_below_the_reserve() -> None:
    node, files, clock = life()
    leave_free(node, files, clock, 0)
    answer = ask(node, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4)
    assert answer.error_code == ErrorCode.NONE  # type: ignore[attr-defined]


# -- groups


def test_offsets_are_committed_until_half_of_the_reserve_is_gone() -> None:
    node, files, clock = life()
    make_topic(node, "t", 4)
    commit(node, "g", {0: 5})
    leave_free(node, files, clock, RESERVE // 2)
    assert commit(node, "g", {0: 6}) == ErrorCode.NONE
    leave_free(node, files, clock, RESERVE // 2 - 1)
    pending = begin(node, commit_request("g", {0: 7}), COMMIT_VERSION)
    node.settle()
    assert code_of(pending) is ErrorCode.NOT_COORDINATOR
    pass_time(node, clock, 5_000)
    leave_free(node, files, clock, RESERVE - 1)
    pass_time(node, clock, 5_000)
    assert committed(node, "g") == 6
    assert commit(node, "g", {0: 8}) == ErrorCode.NONE


def test_offsets_deleted_with_their_topic_below_half_of_the_reserve_stay_deleted() -> None:
    node, files, clock = life()
    make_topic(node, "t", 4)
    commit(node, "g", {0: 5})
    leave_free(node, files, clock, 0)
    ask(node, DeleteTopicsRequest(topic_names=["t"], timeout_ms=30_000), 5)
    leave_free(node, files, clock, ALL)
    pass_time(node, clock, 5_000)
    make_topic(node, "t", 4)
    assert committed(node, "g") == -1


# -- several directories


def test_only_partitions_in_the_directory_that_is_short_of_room_refuse_and_new_ones_go_to_the_other() -> None:
    one, two = Path("/one"), Path("/two")
    files = SimulatedFiles()
    files.volumes = {one: (ALL, ALL), two: (ALL, ALL)}
    node, _, clock = start_node(files, log_dirs="/one,/two", ottla_log_dir_reserve_bytes=RESERVE)
    make_topic(node, "t", 4)
    leave_free(node, files, clock, RESERVE - 1, one)
    for index in range(4):
        home = node.services.log_manager.directory_of("t", index)
        assert home is not None
        refused = produced(node, partition=index) == ErrorCode.KAFKA_STORAGE_ERROR
        assert refused is (home.path == one)
    make_topic(node, "u", 3)
    assert {node.services.log_manager.directory_of("u", index).path for index in range(3)} == {two}  # type: ignore[union-attr]
    leave_free(node, files, clock, ALL, one)
    assert {produced(node, partition=index) for index in range(4)} == {ErrorCode.NONE}


# -- starting and stopping


def test_a_broker_starts_below_the_reserve_and_serves_what_it_has() -> None:
    node, files, clock = life()
    make_topic(node, "t")
    produced(node)
    commit(node, "g", {0: 1})
    files.volumes[DATA] = (ALL, RESERVE // 2)
    again, _, _ = life(files.crash(random.Random(2)), clock)
    pass_time(again, clock, 2_000)
    assert partition_of(again).high_watermark == 1
    assert committed(again, "g") == 1
    assert produced(again) == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_stop_below_the_reserve_is_clean() -> None:
    node, files, clock = life()
    make_topic(node, "t")
    produced(node)
    leave_free(node, files, clock, 0)
    node.stop()
    again, _, _ = life(files, clock)
    assert again.services.log_manager.was_clean


def test_a_start_below_the_reserve_makes_the_directories_of_topics_that_were_promised() -> None:
    node, files, clock = life()
    make_topic(node, "t")
    after = files.crash(random.Random(3))
    if after.is_directory(DATA / "t-0"):  # nothing has synced its name yet
        for name in after.list_directory(DATA / "t-0"):
            after.unlink(DATA / "t-0" / name)
        after.remove_directory(DATA / "t-0")
    after.volumes[DATA] = (ALL, 0)
    again, _, _ = life(after, clock)
    leave_free(again, after, clock, ALL)
    assert produced(again) == ErrorCode.NONE


# -- inodes


def test_records_are_refused_below_the_reserve_of_inodes_and_topics_are_deleted() -> None:
    node, files, clock = life()
    make_topic(node, "t")
    files.inodes[DATA] = (1000, 30)
    pass_time(node, clock, 1_000)
    assert produced(node) == ErrorCode.KAFKA_STORAGE_ERROR
    (created,) = create_topics(node, NewTopic("u"))
    assert created.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert codes(delete(node, "t")) == [ErrorCode.NONE]
    files.inodes[DATA] = (1000, 100)
    pass_time(node, clock, 1_000)
    make_topic(node, "t")
    assert produced(node) == ErrorCode.NONE


def test_no_request_makes_partitions_for_whose_files_there_are_no_inodes() -> None:
    """However many are free: a request for 5,000 partitions would take the last one."""
    node, files, _ = life()
    files.inodes[DATA] = (1000, 50 + 4 * INODES_OF_A_PARTITION)
    (refused,) = create_topics(node, NewTopic("t", 5))
    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert refused.error_message == (
        "the log directories have inodes for 4 partitions more (ottla.log.dir.reserve.inodes)"
    )
    assert codes(create_topics(node, NewTopic("t", 2), NewTopic("u", 3), NewTopic("v", 2))) == [
        ErrorCode.NONE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NONE,
    ]


def test_a_directory_without_inodes_is_passed_over() -> None:
    files = SimulatedFiles()
    files.inodes[Path("/more")] = (1000, 50)
    node, _, _ = life(files, log_dirs=f"{DATA},/more")
    make_topic(node, "t", 3)
    assert {partition_of(node, "t", index).log.directory.parent for index in range(3)} == {DATA}


def test_a_start_without_an_inode_serves_what_there_is_and_deletes_topics(caplog: pytest.LogCaptureFixture) -> None:
    node, files, clock = life()
    make_topic(node, "t")
    assert produced(node) == ErrorCode.NONE
    node.stop()
    files = files.successor()
    epoch = node.services.catalog.node_epoch
    files.fail("open", "*/quorum-state.tmp", errno.ENOSPC, times=None)
    files.fail("open", "*.tmp", errno.ENOSPC, times=None)
    for _ in range(2):  # the second one has no quorum-state of the first
        again, _, _ = life(files, clock)
        assert partition_of(again).log.log_end_offset == 1
        assert again.services.catalog.node_epoch > epoch
        epoch = again.services.catalog.node_epoch
        files = files.crash(random.Random(1))
        files.fail("open", "*.tmp", errno.ENOSPC, times=None)
    assert "quorum-state stays as it is" in caplog.text
    last, _, _ = life(files, clock)
    assert codes(delete(last, "t")) == [ErrorCode.NONE]
    files.heal()
    last.stop()
    after, _, _ = life(files.crash(random.Random(2)), clock)
    assert after.services.log_manager.was_clean


def test_a_start_without_an_inode_opens_a_log_whose_id_a_crash_left_blank(caplog: pytest.LogCaptureFixture) -> None:
    node, files, clock = life()
    make_topic(node, "t")
    assert produced(node) == ErrorCode.NONE
    node.stop()
    files = files.successor()
    marked = files.open(DATA / "t-0" / "partition.metadata", writable=True)
    marked.pwritev([bytes(marked.size())], 0)
    files.fail("open", "*.tmp", errno.ENOSPC, times=None)
    again, _, _ = life(files, clock)
    assert partition_of(again).log.log_end_offset == 1
    assert "/data/t-0/partition.metadata is written by a later start: No space left on device" in caplog.text


# -- seeing it


def test_what_is_free_and_the_reserve_are_in_the_metrics() -> None:
    node, files, clock = life()
    leave_free(node, files, clock, 123_456)
    page = Exposition(node.services, node.cleaner).render().decode()
    assert f'ottla_log_directory_free_bytes{{logDirectory="{DATA}"}} 123456.0' in page
    assert f'ottla_log_directory_reserve_bytes{{logDirectory="{DATA}"}} {float(RESERVE)}' in page
    assert f'ottla_log_directory_full{{logDirectory="{DATA}"}} 1.0' in page
    assert "ottla_log_directory_free_inodes{" not in page
    files.inodes[DATA] = (1000, 30)
    pass_time(node, clock, 1_000)
    page = Exposition(node.services, node.cleaner).render().decode()
    assert f'ottla_log_directory_free_inodes{{logDirectory="{DATA}"}} 30.0' in page
    assert f'ottla_log_directory_reserve_inodes{{logDirectory="{DATA}"}} 50.0' in page


def test_below_the_reserve_the_broker_is_ready_for_clients_that_read_or_make_room() -> None:
    node, files, clock = life()
    ready = pages_of(node.services, node.cleaner, {}, lambda: True)["/readyz"]
    for free, status in ((ALL, "ready"), (0, "ready, but records are refused: no log directory has its reserve")):
        leave_free(node, files, clock, free)
        page = ready()
        assert page.status is HTTPStatus.OK
        assert json.loads(page.body)["status"] == status
    files.fail("pwritev", error=errno.ENOSPC, times=None)
    refuse_a_change(node)
    assert ready().status is HTTPStatus.SERVICE_UNAVAILABLE


def refuse_a_change(node: Node) -> None:
    """A write of the metadata finds no room at all."""
    config = IncrementalAlterConfigsRequest.AlterableConfig(name="log.retention.ms", config_operation=0, value="5")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
    answer = ask(node, IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    assert answer.responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR  # type: ignore[attr-defined]


def test_the_reserve_is_changed_while_the_broker_runs() -> None:
    node, files, clock = life()
    make_topic(node, "t")
    leave_free(node, files, clock, RESERVE - 1)
    assert produced(node) == ErrorCode.KAFKA_STORAGE_ERROR
    config = IncrementalAlterConfigsRequest.AlterableConfig(
        name="ottla.log.dir.reserve.bytes", config_operation=0, value="1000"
    )
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
    answer = ask(node, IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    assert answer.responses[0].error_code == ErrorCode.NONE  # type: ignore[attr-defined]
    pass_time(node, clock, 1_000)
    assert produced(node) == ErrorCode.NONE
