"""`ottla log verify`, `dump` and `explain` where something that is no file has the name of one."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.cli.main import main
from ottla.testing import EmbeddedBroker

BROKEN = "orders-0"


def ottla(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["log", *map(str, arguments)])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A stopped broker's directory: a segment of orders is rolled, so that an obstacle may come before a sound one."""
    directory = tmp_path / "data"
    with EmbeddedBroker({"log.segment.bytes": 1048576}, directory=directory) as broker:
        broker.create_topic("orders")
        broker.create_topic("users")
        broker.send("orders", *[b"x" * 300_000 for _ in range(8)])
        broker.send("users", b"anna")
    return directory


def a_directory(path: Path) -> None:
    path.mkdir()


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to("gone")


def a_link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def a_socket(path: Path) -> None:
    # The path of a socket may be 107 bytes long, and the test's directory is longer.
    here = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


KINDS: list[tuple[Callable[[Path], object], str]] = [
    (a_directory, "is a directory, not a file"),
    (os.mkfifo, "is a named pipe, not a file"),
    (a_socket, "is a socket, not a file"),
    (a_link_to_nothing, "is a link to nothing"),
    (a_link_to_itself, "is a link that leads nowhere"),
]


def findings(data: Path) -> tuple[int, dict[str, list[str]]]:
    """The exit status, and the damages by file."""
    result = ottla("verify", data, "--json")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    rows = [json.loads(line) for line in result.output.splitlines()]
    assert rows[-1]["type"] == "verified", result.output
    found: dict[str, list[str]] = {}
    for row in rows:
        if row["type"] == "finding" and row["severity"] == "damage":
            found.setdefault(str(Path(row["file"]).relative_to(data)), []).append(row["problem"])
    return result.exit_code, found


def segments(data: Path) -> list[Path]:
    return sorted((data / BROKEN).glob("*.log"))


@pytest.mark.parametrize(("make", "words"), KINDS)
@pytest.mark.parametrize(
    "name",
    ["00000000000000000000.log", "00000000000000000000.index", "leader-epoch-checkpoint", "partition.metadata"],
)
def test_verify_reports_it_and_goes_on_with_the_rest(
    data: Path, name: str, make: Callable[[Path], object], words: str
) -> None:
    assert findings(data) == (0, {})
    path = data / BROKEN / name
    path.unlink(missing_ok=True)
    make(path)
    users = data / "users-0" / "00000000000000000000.log"
    damaged = bytearray(users.read_bytes())
    damaged[-1] ^= 1
    users.write_bytes(damaged)
    status, found = findings(data)
    assert status == 1
    (first, *_) = found[f"{BROKEN}/{name}"]
    assert first.startswith(words)
    assert first.endswith(": it is left out of everything below, and no repair changes it")
    assert any("checksum does not match" in problem for problem in found["users-0/00000000000000000000.log"])


@pytest.mark.parametrize(("make", "words"), KINDS)
@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "meta.properties", ".lock", "ottla-redo.log"])
def test_verify_reports_it_among_the_files_of_the_directory(
    data: Path, name: str, make: Callable[[Path], object], words: str
) -> None:
    (data / name).unlink(missing_ok=True)
    make(data / name)
    status, found = findings(data)
    assert status == 1
    assert found[name][0].startswith(words)


def test_a_segment_of_the_metadata_log_that_is_a_directory_ends_no_verification(data: Path) -> None:
    path = data / "__cluster_metadata-0" / "00000000000000000000.log"
    path.unlink()
    path.mkdir()
    status, found = findings(data)
    assert status == 1
    assert found["__cluster_metadata-0/00000000000000000000.log"][0].startswith("is a directory, not a file")


def test_a_file_that_may_not_be_read_is_reported(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests may run as root, whom no mode stops: the system's answer is replaced."""
    path = segments(data)[0]
    may = os.access
    monkeypatch.setattr(os, "access", lambda asked, mode: Path(asked) != path and may(asked, mode))
    status, found = findings(data)
    assert status == 1
    assert found[f"{BROKEN}/{path.name}"][0].startswith("cannot be read: Permission denied")


def test_a_repair_leaves_the_partition_as_it_is_and_mends_the_others(data: Path) -> None:
    path = data / BROKEN / "00000000000000000000.log"
    path.rename(path.with_name("saved"))
    path.mkdir()
    (data / "users-0" / "00000000000000000000.index").write_bytes(b"12345678")
    before = {one.name: one.stat().st_mtime_ns for one in (data / BROKEN).iterdir()}
    result = ottla("verify", "--repair", data)
    assert result.exit_code == 1, result.output
    assert "users-0" in result.output
    assert {one.name: one.stat().st_mtime_ns for one in (data / BROKEN).iterdir()} == before
    path.rmdir()
    path.with_name("saved").rename(path)
    assert findings(data) == (0, {})


def test_a_link_to_a_file_is_a_file(data: Path) -> None:
    path = segments(data)[0]
    moved = path.rename(data.parent / "elsewhere")
    path.symlink_to(moved)
    assert findings(data) == (0, {})


@pytest.mark.parametrize(("make", "words"), KINDS)
def test_dump_says_it_and_goes_on(data: Path, make: Callable[[Path], object], words: str) -> None:
    path = segments(data)[0]
    path.unlink()
    make(path)
    result = ottla("dump", data / BROKEN, "--json")
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.output.splitlines()]
    at = next(index for index, row in enumerate(rows) if row.get("file") == str(path))
    assert rows[at + 1]["type"] == "problem"
    assert rows[at + 1]["problem"].startswith(words)
    assert any(row["type"] == "batch" for row in rows[at:])


@pytest.mark.parametrize(("make", "words"), KINDS)
def test_explain_names_it_in_one_line(data: Path, make: Callable[[Path], object], words: str) -> None:
    path = segments(data)[0]
    path.unlink()
    make(path)
    result = ottla("explain", data / BROKEN, "--offset", "0")
    assert result.exit_code == 1
    assert f"{path}: {words}" in result.output
    assert len(result.output.strip().splitlines()) == 1
