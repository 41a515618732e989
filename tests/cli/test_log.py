from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner, Result
from kit.broker import BrokerProcess
from kit.old_segments import mixed_segment
from kit.seed_examples import SEED_EXAMPLES, TIMESTAMP_MS, SeedExample, make_seed_example

from ottla import Producer
from ottla.cli.main import main
from ottla.protocol.records.batch import Record, encode_batch
from ottla.protocol.stored.metadata import TopicRecord, encode_metadata_record
from ottla.storage.files.files import OsFiles
from ottla.storage.formats import layout
from ottla.storage.formats.checkpoint import write_offsets
from ottla.storage.formats.layout import TopicPartition
from ottla.storage.formats.redo_format import head_of, pack_entry
from ottla.storage.producers.transaction_index import AbortedTransaction, encode_transaction_index


def ottla(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def rows(*arguments: object) -> list[dict[str, Any]]:
    result = ottla("log", "dump", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.output.splitlines()]


@pytest.mark.parametrize("example", SEED_EXAMPLES, ids=lambda example: example.name)
def test_the_worked_examples_are_shown_step_by_step(tmp_path: Path, example: SeedExample) -> None:
    make_seed_example(tmp_path, example)
    result = ottla("log", "explain", "seed-0", "--log-dir", tmp_path, "--offset", example.offset)
    assert result.exit_code == 0, result.output
    relative, position = example.floor
    raw = struct.pack(">ii", *example.floor).hex(" ", 1)
    for said in (
        f"> {example.segment} ",
        f"{raw[:11]}   {raw[12:]}",
        f"relative offset {relative} ({example.segment} + {relative} = {example.segment + relative}), "
        f"position {position}",
        f"Scan: batch headers from position {position} on",
        f"offsets {example.offset} ",
        "CRC-32C of what follows: right",
        f'value      "v{example.offset}',
        f"Found: offset {example.offset} is in the batch at position",
    ):
        assert said in result.output
    assert "\x1b" not in result.output, "colours are for terminals"


@pytest.mark.parametrize("example", SEED_EXAMPLES, ids=lambda example: example.name)
def test_the_worked_examples_as_json(tmp_path: Path, example: SeedExample) -> None:
    make_seed_example(tmp_path, example)
    result = ottla("log", "explain", tmp_path / "seed-0", "--offset", example.offset, "--json")
    reported = json.loads(result.output)
    assert reported["segment"]["base_offsets"] == list(example.base_offsets)
    entry = reported["offset_index"]["entry"]
    assert (entry["relative_offset"], entry["position"]) == example.floor
    assert reported["scan"]["start_position"] == example.floor[1]
    assert reported["record"]["offset"] == example.offset
    assert reported["batch"]["is_crc_right"]
    assert reported["ending"] == "found"


def test_a_look_up_by_time_takes_milliseconds_and_calendar_time(tmp_path: Path) -> None:
    make_seed_example(tmp_path, SEED_EXAMPLES[0])
    by_number = ottla("log", "explain", "seed-0", "--log-dir", tmp_path, "--timestamp", TIMESTAMP_MS + 15)
    by_name = ottla("log", "explain", "seed-0", "--log-dir", tmp_path, "--timestamp", "2023-11-14T22:13:20.015")
    assert by_number.exit_code == 0
    assert by_number.output == by_name.output
    assert "Found: offset 15 is in the batch" in by_number.output
    assert "> segment 10: largest timestamp" in by_number.output


def test_an_offset_that_is_not_there_ends_with_status_1_and_the_reason(tmp_path: Path) -> None:
    make_seed_example(tmp_path, SEED_EXAMPLES[0])
    result = ottla("log", "explain", "seed-0", "--log-dir", tmp_path, "--offset", 21)
    assert result.exit_code == 1
    assert "Nothing there yet: 21 is the log end offset" in result.output
    result = ottla("log", "explain", "seed-0", "--log-dir", tmp_path, "--offset", 22)
    assert result.exit_code == 1
    assert "OFFSET_OUT_OF_RANGE: offset 22 is past the log end offset 21" in result.output


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        (["t-0", "--log-dir", "DIR", "--offset", "1"], 1, "ottla: DIR/t-0 is not there"),
        (["t", "--offset", "1"], 2, "'t' is not a topic and a partition, such as orders-0"),
        (["t-0"], 2, "give one of --offset and --timestamp"),
        (["t-0", "--offset", "1", "--timestamp", "1"], 2, "give one of --offset and --timestamp"),
        (["t-0", "--timestamp", "soon"], 2, "'soon' is neither milliseconds since 1970 nor a time"),
        (["t-0", "--offset", "-1"], 2, "-1 is too small: at least 0"),
    ],
)
def test_a_wrong_command_line_is_one_clear_line(tmp_path: Path, arguments: list[str], status: int, line: str) -> None:
    result = ottla("log", "explain", *(argument.replace("DIR", str(tmp_path)) for argument in arguments))
    assert result.exit_code == status
    assert line.replace("DIR", str(tmp_path)) in result.output


@pytest.mark.parametrize("command", [["explain", "--offset", "1"], ["verify"]])
@pytest.mark.parametrize(
    ("place", "partition", "line"),
    [
        ("none", "t-0", "none does not exist: give a data directory, one of the broker's log.dirs (--log-dir)"),
        ("file", "t-0", "file is not a directory: give a data directory, one of the broker's log.dirs (--log-dir)"),
        ("empty", "t-0", "empty/t-0 is not there, and DIR/empty has no partitions: give a data directory, one of"),
        ("data", "orders-7", "data/orders-7 is not there: of orders there is 0 to 10, 3 in all"),
        ("data", "single-7", "data/single-7 is not there: of single there is 2"),
        ("data", "order-0", "data/order-0 is not there: did you mean orders-0?"),
        ("data", "t-0", "data/t-0 is not there: another one of the broker's log.dirs may have it (--log-dir)"),
    ],
)
def test_a_partition_that_is_not_there_is_a_line_that_says_what_to_do(
    tmp_path: Path, command: list[str], place: str, partition: str, line: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for name in ("orders-0", "orders-2", "orders-10", "single-2", "orders-9.0123456789abcdef0123456789abcdef-delete"):
        (tmp_path / "data" / name).mkdir(parents=True)
    result = ottla("log", *command, partition, "--log-dir", tmp_path / place)
    assert result.exit_code == 1
    assert result.output.startswith(f"ottla: {tmp_path}/{line.replace('DIR', str(tmp_path))}")
    assert result.output.count("\n") == 1


def test_a_path_that_the_system_refuses_is_one_line(tmp_path: Path) -> None:
    for command in (["verify"], ["verify", "--repair"], ["dump"], ["explain", "--offset", "1"]):
        path = f"{tmp_path}/{'x' * 300}/orders-0"
        result = ottla("log", *command, path)
        assert result.exit_code == 1
        assert "File name too long" in result.output
        assert result.output.count("\n") == 1


@pytest.mark.parametrize("command", ["retain", "clean"])
def test_a_topic_of_a_running_broker_that_is_not_utf_8_is_one_line(command: str) -> None:
    result = ottla("log", command, "caf\udce9", "--http", "127.0.0.1:1")
    assert result.exit_code == 1
    assert result.output == "ottla: 'caf\\udce9' is not UTF-8: no topic has such a name\n"


def make_directory(tmp_path: Path) -> Path:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    log = encode_batch([Record(0, 1, b"k", b"\xff\x00", (("h", b"x"),)), Record(1, 2, None, None, ())])
    layout.log_file(directory, 0).write_bytes(log)
    layout.offset_index_file(directory, 0).write_bytes(struct.pack(">ii", 1, 70))
    layout.time_index_file(directory, 0).write_bytes(struct.pack(">qi", 2, 1))
    (directory / layout.LEADER_EPOCH_CHECKPOINT_FILE).write_text("0\n1\n3 0\n")
    (directory / layout.PARTITION_METADATA_FILE).write_text("version: 0\ntopic_id: nhB9nTcrtoJr2B01QqQZ1g")
    write_offsets(OsFiles(), tmp_path / layout.RECOVERY_POINT_CHECKPOINT_FILE, {TopicPartition("orders", 0): 2})
    (tmp_path / "something.else").write_bytes(b"x")
    (tmp_path / "lost+found").mkdir()
    return directory


def test_a_directory_is_dumped_file_by_file(tmp_path: Path) -> None:
    make_directory(tmp_path)
    dumped = rows(tmp_path, "--records")
    kinds = {Path(row["file"]).name: row["kind"] for row in dumped if row["type"] == "file"}
    assert kinds == {
        "recovery-point-offset-checkpoint": "offset checkpoint",
        "something.else": "unknown",
        "00000000000000000000.index": "offset index",
        "00000000000000000000.log": "log",
        "00000000000000000000.timeindex": "time index",
        "leader-epoch-checkpoint": "leader epochs",
        "partition.metadata": "text",
    }
    by_type = {row["type"]: row for row in dumped}
    assert by_type["checkpoint"] == {"type": "checkpoint", "topic": "orders", "partition": 0, "offset": 2}
    assert by_type["offset index entry"]["bytes"] == "00 00 00 01 00 00 00 46"
    assert by_type["time index entry"]["timestamp"] == 2
    assert by_type["leader epoch"] == {"type": "leader epoch", "epoch": 3, "start_offset": 0}
    assert by_type["batch"]["is_crc_right"]
    records = [row for row in dumped if row["type"] == "record"]
    assert records[0]["value"] == {"base64": "/wA="}
    assert records[0]["headers"] == [["h", "x"]]
    assert (records[1]["offset"], records[1]["key"], records[1]["value"]) == (1, None, None)


def test_records_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    directory = make_directory(tmp_path)
    assert "record" not in {row["type"] for row in rows(layout.log_file(directory, 0))}


def test_text_shows_what_is_no_utf8_as_bytes_and_null_as_null(tmp_path: Path) -> None:
    make_directory(tmp_path)
    output = ottla("log", "dump", tmp_path, "--records").output
    assert 'key "k"  value 0xff00  h="x"' in output
    assert "key null  value null" in output
    assert "orders-0  2" in output


def test_damage_is_reported_where_it_begins_and_what_is_before_is_shown(tmp_path: Path) -> None:
    directory = make_directory(tmp_path)
    path = layout.log_file(directory, 0)
    sound = path.read_bytes()
    damaged = bytearray(encode_batch([Record(2, 1, None, b"value", ())]))
    damaged[-1] ^= 1
    path.write_bytes(sound + bytes(damaged) + b"torn")
    dumped = rows(path, "--records")
    assert [row["is_crc_right"] for row in dumped if row["type"] == "batch"] == [True, False]
    assert dumped[-1]["type"] == "problem"
    assert f"at position {len(sound) + len(damaged)}" in dumped[-1]["problem"]


def redo_log(*rounds: list[tuple[str, int, int, bytes]]) -> bytes:
    """A redo log of these rounds: partition, position, end offset, bytes."""
    topic_id, data = UUID(int=7).bytes, b""
    for sequence, entries in enumerate(rounds):
        body = b"".join(
            pack_entry(topic_id, 4711, position, end_offset, len(content), len(name)) + name.encode() + content
            for name, position, end_offset, content in entries
        )
        data += head_of(3, sequence, body) + body
    return data


def test_a_redo_log_is_dumped_record_by_record_and_entry_by_entry(tmp_path: Path) -> None:
    path = tmp_path / layout.REDO_LOG_FILE
    path.write_bytes(redo_log([], [("orders-0", 70, 4720, b"batch"), ("b-1", 0, 9, b"another")]) + bytes(4096))
    entry = {"type": "redo entry", "topic_id": "AAAAAAAAAAAAAAAAAAAABw", "base_offset": 4711}
    assert rows(path) == [
        {"type": "file", "file": str(path), "kind": "redo log", "size_bytes": 4259},
        {"type": "redo record", "position": 0, "generation": 3, "sequence": 0, "entry_count": 0, "size_bytes": 24},
        {"type": "redo record", "position": 24, "generation": 3, "sequence": 1, "entry_count": 2, "size_bytes": 139},
        {**entry, "partition": "orders-0", "position": 70, "end_offset": 4720, "size_bytes": 5},
        {**entry, "partition": "b-1", "position": 0, "end_offset": 9, "size_bytes": 7},
    ]
    lines = ottla("log", "dump", path).output.splitlines()
    assert lines[0].endswith("redo log, 4.2 KiB")
    assert [" ".join(line.split()) for line in lines[2:4]] == [
        "position 24 generation 3 sequence 1 139 bytes 2 entries",
        "orders-0 topic id AAAAAAAAAAAAAAAAAAAABw segment 4711 position 70 5 bytes to offset 4719",
    ]


@pytest.mark.parametrize(("content", "types"), [(b"", []), (bytes(512), []), (b"garbage", ["problem"])])
def test_a_redo_log_without_a_record_that_can_be_read(tmp_path: Path, content: bytes, types: list[str]) -> None:
    path = tmp_path / layout.REDO_LOG_FILE
    path.write_bytes(content)
    assert [row["type"] for row in rows(path)][1:] == types


def test_broken_small_files_are_problems_and_no_tracebacks(tmp_path: Path) -> None:
    for name in (
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000007.snapshot",
        "00000000000000000000.txnindex",
        "00000000000000000000.log",
        layout.INDEX_OFFSET_CHECKPOINT_FILE,
        layout.LEADER_EPOCH_CHECKPOINT_FILE,
        layout.REPLICATION_OFFSET_CHECKPOINT_FILE,
        "00000000000000000004-0000000001.checkpoint",
    ):
        path = tmp_path / name
        path.write_bytes(b"garbage")
        assert [row["type"] for row in rows(path, "--records")][-1] == "problem", name
        assert "problem:" in ottla("log", "dump", path).output


def test_aborted_transactions_are_rows(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.txnindex"
    path.write_bytes(encode_transaction_index([AbortedTransaction(1000, 5, 9, 10)]))
    (row,) = rows(path)[1:]
    assert row == {
        "type": "aborted transaction",
        "entry": 0,
        "version": 0,
        "producer_id": 1000,
        "first_offset": 5,
        "last_offset": 9,
        "last_stable_offset": 10,
    }
    assert "producer 1000        aborted from offset 5 to 9  last stable offset 10" in ottla("log", "dump", path).output


def test_ids_in_metadata_records_are_printed_as_kafka_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "__cluster_metadata-0"
    path.mkdir()
    value = encode_metadata_record(TopicRecord(name="orders", topic_id=UUID(int=7)))
    layout.log_file(path, 0).write_bytes(bytes(encode_batch([Record(0, 1, None, value, ())])))
    (row,) = [row for row in rows(path, "--records") if row["type"] == "record"]
    assert row["metadata"] == {"kind": "TopicRecord", "name": "orders", "topic_id": "AAAAAAAAAAAAAAAAAAAABw"}


def test_a_file_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    result = ottla("log", "dump", tmp_path / "nothing")
    assert result.exit_code == 1
    assert result.output == f"ottla: {tmp_path}/nothing: No such file or directory\n"


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    log = b"".join(bytes(encode_batch([Record(number, 1, b"k", b"v", ())])) for number in range(5000))
    layout.log_file(directory, 0).write_bytes(log)
    command = f"{sys.executable} -m ottla log dump {directory} --records | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    assert done.returncode == 0
    assert done.stdout.count("\n") == 1


# --- verify


def verified(*arguments: object) -> tuple[int, list[dict[str, Any]]]:
    result = ottla("log", "verify", *arguments, "--json")
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def left_behind(tmp_path: Path) -> Path:
    """A data directory with 100 records in `orders-0`, of a broker that has stopped."""
    with BrokerProcess(tmp_path / "data") as broker:
        lines = "".join(f"record {number}\n" for number in range(100))
        result = CliRunner().invoke(main, ["produce", "orders", "-b", broker.bootstrap], input=lines)
        assert result.exit_code == 0, result.output
    return tmp_path / "data"


def spoil(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def test_verify_calls_a_sound_directory_sound(left_behind: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = ottla("log", "verify", left_behind)
    assert result.exit_code == 0
    assert result.output.endswith(": sound\n")
    monkeypatch.chdir(left_behind.parent)  # ./data is the default
    for arguments in ((), ("orders-0",), ("data/orders-0",), ("orders-0", "--log-dir", left_behind)):
        status, reported = verified(*arguments)
        assert (status, reported[-1]["partitions"]) == (0, 1 if arguments else 2)
    assert ottla("log", "verify", "--quiet").output == ""


def test_verify_names_damage_by_file_position_and_offset_and_ends_with_status_1(left_behind: Path) -> None:
    path = left_behind / "orders-0" / layout.offset_file_name(0, ".log")
    spoil(path, 100)
    status, reported = verified(left_behind)
    assert status == 1
    assert [
        (one["severity"], one["file"], one["position"], one["offset"]) for one in reported if one["type"] == "finding"
    ] == [("damage", str(path), 0, 0)]
    assert reported[-1]["findings_damage"] == 1
    result = ottla("log", "verify", left_behind)
    line = f"damage  orders-0/{path.name}, position 0, offset 0: the checksum does not match"
    assert result.output.startswith(line)
    assert result.output.endswith(": 1 damage\n")


def test_repair_says_each_thing_it_mends_and_a_second_one_has_nothing_to_do(left_behind: Path) -> None:
    spoil(left_behind / "orders-0" / layout.offset_file_name(0, ".log"), 100)
    planned = ottla("log", "verify", left_behind)
    assert planned.exit_code == 1
    assert "would   orders-0: checked and synced from offset 0 on" in planned.output
    assert f"\nto have that done, stop the broker and run: ottla log verify --repair {left_behind}\n" in planned.output
    result = ottla("log", "verify", "--repair", left_behind)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert "mended  orders-0: offsets 0 to 99 are not in the log any more" in lines
    assert lines[-1].endswith(": 1 note"), "what was kept aside"
    again = ottla("log", "verify", "--repair", left_behind)
    assert again.exit_code == 0
    assert "mended" not in again.output
    status, reported = verified(left_behind)
    assert (status, [one["type"] for one in reported]) == (0, ["finding", "verified"])


def test_repair_refuses_a_directory_that_a_broker_has(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data"):
        result = ottla("log", "verify", "--repair", tmp_path / "data")
    assert result.exit_code == 1
    assert "is in use by a broker" in result.output


@pytest.mark.parametrize("arguments", [["nothing"], ["orders-7"], ["nothing/orders-0"]])
def test_verify_of_what_is_not_there_is_one_line(tmp_path: Path, arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["log", "verify", *arguments])
    assert result.exit_code == 1
    assert result.stderr.startswith("ottla: ")
    assert len(result.stderr.splitlines()) == 1


def test_verify_says_when_a_name_is_no_partition() -> None:
    result = ottla("log", "verify", "orders", "--log-dir", "data")
    assert result.exit_code == 2
    assert "'orders' is not a topic and a partition" in result.output


def old_directory(tmp_path: Path) -> Path:
    """A partition with messages of formats v0 and v1 and batches of today."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    layout.log_file(directory, 0).write_bytes(mixed_segment().data)
    return directory


def test_old_messages_are_dumped_like_batches(tmp_path: Path) -> None:
    directory = old_directory(tmp_path)
    dumped = rows(directory, "--records")
    found = [row for row in dumped if row["type"] == "record"]
    assert [(row["offset"], row["timestamp"], row["value"].encode()) for row in found] == [
        (record.offset, record.timestamp, record.value) for record in mixed_segment().records
    ]
    batches = [row for row in dumped if row["type"] == "batch"]
    assert {row["magic"] for row in batches} == {0, 1, 2}
    assert all(row["is_crc_right"] for row in batches)
    assert [row["base_offset"] for row in batches][1:] == [row["last_offset"] + 1 for row in batches[:-1]]
    assert all(row["record_count"] == row["last_offset"] - row["base_offset"] + 1 for row in batches)
    text = ottla("log", "dump", directory).output
    assert "message format v0" in text
    assert "message format v1" in text
    assert "CRC WRONG" not in text


@pytest.mark.parametrize(("offset", "kind", "field"), [(3, "v0", "last_offset"), (40, "v1", "max_timestamp")])
def test_a_look_up_in_old_messages_is_shown_with_their_own_header(
    tmp_path: Path, offset: int, kind: str, field: str
) -> None:
    old_directory(tmp_path)
    said = ottla("log", "explain", "t-0", "--log-dir", tmp_path, "--offset", offset).output
    assert f"Header of a message of format {kind}:" in said
    assert "CRC-32 of what follows: right" in said
    assert f"  {field} " in said
    assert f"Found: offset {offset} is in the batch at position" in said


def test_what_is_unsure_has_an_exit_status_of_its_own(left_behind: Path) -> None:
    """Past the recovery point of a broker that was killed: the next start looks at it. Damage counts for more."""
    (left_behind / layout.CLEAN_SHUTDOWN_FILE).unlink()
    (left_behind / layout.RECOVERY_POINT_CHECKPOINT_FILE).write_text("0\n0\n")
    path = left_behind / "orders-0" / layout.offset_file_name(0, ".log")
    spoil(path, 100)
    status, reported = verified(left_behind)
    assert [one["severity"] for one in reported if one["type"] == "finding"] == ["unsure"]
    assert status == 3
    assert ottla("log", "verify", "--quiet", left_behind).exit_code == 3
    assert ottla("log", "verify", left_behind / "orders-0").exit_code == 3
    spoil(left_behind / "meta.properties", 0)
    assert verified(left_behind)[0] == 1
    assert ottla("log", "verify", "--repair", left_behind).exit_code == 0
    assert verified(left_behind)[0] == 0


def test_messages_of_before_0_11_are_looked_into(tmp_path: Path) -> None:
    """Their headers, their checksums and the order of their offsets, as the page says."""
    old_directory(tmp_path)
    path = tmp_path / "t-0" / layout.offset_file_name(0, ".log")
    write_offsets(OsFiles(), tmp_path / layout.RECOVERY_POINT_CHECKPOINT_FILE, {TopicPartition("t", 0): 1})
    _, reported = verified("t-0", "--log-dir", tmp_path)
    assert not [one for one in reported if one["type"] == "finding" and one["file"] == str(path)]
    spoil(path, 30)
    status, reported = verified("t-0", "--log-dir", tmp_path)
    assert status == 1
    (problem,) = [one["problem"] for one in reported if one["type"] == "finding" and one["file"] == str(path)]
    assert problem.startswith("the checksum does not match")


def test_an_aborted_transaction_is_no_finding_beside_a_running_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with Producer(broker.bootstrap, transactional_id="id") as producer:
            producer.begin_transaction()
            producer.send_and_wait("t", b"aborted")
            producer.abort_transaction()
        beside = ottla("log", "verify", tmp_path / "data")
        assert "note    t-0/00000000000000000000.txnindex: 1 aborted transaction of the active segment" in beside.output
        assert beside.exit_code == 0
    assert ottla("log", "verify", tmp_path / "data").exit_code == 0
