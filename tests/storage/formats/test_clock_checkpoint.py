"""`ottla.clock`: what a start knows of the time."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.simulated_files import SimulatedFiles

from ottla.storage.files.clock_trust import BehindTime, KnownTime
from ottla.storage.files.files import OsFiles
from ottla.storage.formats.checkpoint import BrokenFile
from ottla.storage.formats.clock_checkpoint import encode_known_time, known_time_of, read_known_time, write_known_time
from ottla.storage.formats.layout import CLOCK_FILE, LOCK_FILE

DATA = Path("/data")
KNOWN = KnownTime(1_795_364_703_123, 86_400_000, "0f6e2b1c-0000-4000-8000-123456789abc", 5)


def disk() -> SimulatedFiles:
    files = SimulatedFiles()
    files.make_directory(DATA, parents=True)
    return files


@pytest.mark.parametrize("known", [KNOWN, KnownTime(0), KnownTime(5, 7, "", 0, BehindTime(1, 2, 3))])
def test_what_is_written_is_read(known: KnownTime) -> None:
    files = disk()
    write_known_time(files, DATA, known)
    assert read_known_time(files, DATA) == known
    assert known_time_of(files, DATA) == (known, True)


def test_a_new_directory_knows_nothing() -> None:
    assert known_time_of(disk(), DATA) == (None, False)


def test_every_flipped_bit_and_every_shorter_file_is_found() -> None:
    files, sound = disk(), encode_known_time(KNOWN)
    bent = [sound[:end] for end in range(len(sound) - 1)]
    for bit in range(len(sound) * 8 - 8):  # but for the last line's end
        one = bytearray(sound)
        one[bit // 8] ^= 1 << bit % 8
        bent.append(bytes(one))
    for data in bent:
        files.write_atomically(DATA / CLOCK_FILE, data)
        with pytest.raises(BrokenFile):
            read_known_time(files, DATA)


def test_without_it_the_newest_file_of_the_directory_gives_the_time() -> None:
    files = disk()
    for name, written_ms in (("meta.properties", 5_000), ("recovery-point-offset-checkpoint", 9_000)):
        files.now_ms = written_ms
        files.write_atomically(DATA / name, b"x")
    files.now_ms = 20_000
    files.write_atomically(DATA / LOCK_FILE, b"")
    files.write_atomically(DATA / CLOCK_FILE, b"broken")
    files.make_directory(DATA / "orders-0")
    assert known_time_of(files, DATA) == (KnownTime(9_000), False)


def test_a_link_to_nothing_has_no_time_and_is_no_reason_to_refuse_the_directory(tmp_path: Path) -> None:
    (tmp_path / ".#notes").symlink_to(tmp_path / "nowhere")
    assert known_time_of(OsFiles(), tmp_path) == (None, False)
