"""Bits of each small file of a directory flipped, one at a time: what a broker shows then, and what it leaves.

A run flips two bits of each byte, 3,500 in all; runs with `TEST_SEED` 0, 1, 2 and 3 together flip every bit.

A start notices a flip and refuses, or a partition stays away, in one line; or all is shown as it was. What is not
noticed stands in a table of docs/durability.md, which is the one list of exceptions that there is. Whatever a flip
does, all records stay on the disk, and `ottla log verify --repair` brings back all that it hid.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from kit.clock import ManualClock
from kit.flip_specimen import KEYS, Shown, content, kind_of, on_disk, shown, small_files
from kit.nodes import DATA
from kit.seeds import run_seed

from ottla.broker.metadata.image import MetadataError
from ottla.broker.metadata.rebuild import MetadataRebuild
from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig
from ottla.storage.errors import StorageError
from ottla.storage.formats.layout import REDO_LOG_FILE
from ottla.storage.tools.repair import Repair

pytestmark = pytest.mark.timeout(600)  # some files have hundreds of these bits, 10 ms each on an idle machine

PAGE = Path(__file__).parents[2] / "docs" / "durability.md"
PLACES = ("d", "c", "__consumer_offsets")


@cache
def exceptions() -> frozenset[tuple[str, str]]:
    """(file, what it shows otherwise) of the page's table of flips that a start does not notice."""
    header = re.escape("| a bit of | shows otherwise | effect | test |")
    table = re.search(rf"(?m)^{header}\n\|[-|]+\n((?:\|.*\n)+)", PAGE.read_text())
    assert table is not None
    found = re.findall(r"(?m)^\| `([^`]+)` \| `([^`]+)` \|", table[1])
    assert len(found) == len(table[1].splitlines())
    return frozenset(found)


@cache
def config() -> BrokerConfig:
    """Read once: there are thousands of starts."""
    keys = {key.replace("_", "."): value for key, value in KEYS.items()}
    return BrokerConfig.of({"log.dirs": str(DATA), "num.recovery.threads.per.data.dir": 1, **keys})


@cache
def as_it_was(ending: str) -> Shown:
    seen, problem, _ = look(content(ending))
    assert not problem
    assert seen is not None
    return seen


def look(found: dict[str, bytes]) -> tuple[Shown | None, str, set[str]]:
    """What a start on these files shows, why it refuses or which partitions are away, and the `.log` files that have
    changed.
    """
    files, clock = on_disk(found), ManualClock()
    node = Node(config(), clock=clock, files=files)
    try:
        node.start()
    except (StorageError, MetadataError) as error:
        seen, problem = None, str(error)
    else:
        partitions = [node.services.catalog.partition(name, 0) for name in PLACES]
        for partition in partitions:
            if partition is not None:
                partition.log.retention.apply(clock.wall_ms())
        seen, problem = shown(node), "" if all(partitions) else "a partition is away"
    after = defaultdict(bytes, files.written_state())
    # Batches are appended by the start itself, to the metadata, and behind what a checkpoint says is lost.
    logs = [path for path in found if path.endswith(".log") and Path(path).name != REDO_LOG_FILE]
    return seen, problem, {path for path in logs if not after[path].startswith(found[path])}


def differences(one: Shown, other: Shown) -> set[str]:
    """Which fields differ; `end` where only ends of logs do."""
    fields = {field.name for field in dataclasses.fields(Shown)}
    differ = {name for name in fields if getattr(one, name) != getattr(other, name)}
    if "bounds" in differ and {name: a for name, (a, _) in one.bounds.items()} == {
        name: a for name, (a, _) in other.bounds.items()
    }:
        differ = differ - {"bounds"} | {"end"}
    return differ


def repaired(found: dict[str, bytes]) -> dict[str, bytes]:
    files = on_disk(found)
    for _ in Repair(files, DATA, 0, None, MetadataRebuild(files, DATA, 0, ())).run():
        pass
    return files.written_state()


def require_repair_brings_all_back(found: dict[str, bytes], ending: str, what: str) -> None:
    seen, problem, changed = look(repaired(found))
    assert not problem, what
    assert not changed, what
    assert seen is not None
    # A gap at the end hides nothing, and a repair cannot know that nothing is lost. Nor does it know a cluster's name.
    assert differences(seen, as_it_was(ending)) <= {"end", "cluster"}, what


def bits_of_the_run(size_bytes: int) -> Iterator[int]:
    """Two bits of each byte, others in the next byte and for the next seed: each of the eight comes in four seeds."""
    for at in range(size_bytes):
        bit = (run_seed() + at) % 4
        yield from (8 * at + bit, 8 * at + bit + 4)


@pytest.mark.parametrize(
    ("ending", "path"), [(ending, path) for ending in ("stop", "kill") for path in small_files(ending)]
)
def test_no_flipped_bit_loses_anything(ending: str, path: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    sound, was = content(ending), as_it_was(ending)
    repaired_for: set[str] = set()
    for bit in bits_of_the_run(len(sound[path])):
        bent = bytearray(sound[path])
        bent[bit // 8] ^= 1 << bit % 8
        found = {**sound, path: bytes(bent)}
        what = f"bit {bit} of {path}: {bytes(bent)!r}"
        seen, problem, changed = look(found)
        assert not changed, f"{what}: the broker has changed or removed {changed}"
        if problem:
            assert "\n" not in problem, what
            assert "verify --repair" in problem or kind_of(path) == "meta.properties" or seen is not None, what
            effects = {re.sub(r"'.*'|0x..|\d+", "", problem)}  # of each kind of refusal one is mended
        else:
            assert seen is not None
            differ = differences(seen, was)
            unknown = {(kind_of(path), name) for name in differ} - exceptions()
            assert not unknown, f"{what}: {unknown}: {seen}"
            effects = differ
        if effects - repaired_for:
            repaired_for |= effects
            require_repair_brings_all_back(found, ending, what)


def test_every_exception_of_the_page_is_one() -> None:
    """The table says no more than what is so."""
    files = {kind_of(path) for path in small_files("stop")}
    assert {name for name, _ in exceptions()} <= files
