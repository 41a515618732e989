"""Groups of bit flips in copies of one directory: what a verification, a start, real clients and a repair make of each.

What must hold, for each flip by its kind (`flips.py`), and for everything else in the directory always:

- `ottla log verify` finds it: in a log everywhere; elsewhere unless the file still makes sense (text has no checksum);
- past the recovery point a start detects it: the log ends before the batch, what follows is quarantined or, a torn tail
  that nobody was promised, cut; a line names the file, the metric counts, and nothing of it is served;
- below it the broker serves what is before, answers CORRUPT_MESSAGE for the batch, at once and with a line of its
  log, and no client is handed anything of it;
- nobody is ever handed a record that was not sent like that;
- `ottla log verify --repair` leaves a sound directory: what comes before the flip is served, what is after it is
  quarantined, byte by byte, and all other partitions are whole.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kit.audit import damage
from kit.audit.flips import OF_A_DIRECTORY, OF_A_LOG, Flip, choose, choose_kind, choose_of_directory
from kit.audit.ledger import Place
from kit.audit.loops import LoopThread
from kit.audit.patient_reading import handed_to_aiokafka, read_at, read_past_damage
from kit.audit.reading import Rows, committed
from kit.audit.specimen import GROUP, SETTINGS, Specimen, make_specimen
from kit.broker import BrokerDidNotStart, BrokerProcess
from kit.command import run

HTTP = re.compile(r"metrics at (http://\S+)")
QUARANTINED = "ottla_recovery_kept_aside_files"
MOST_BREACHES = 10
MAY_BE_UNNOTICED = ("epochs", "small", "metadata", "identity", "epoch")
"""Kinds of files of text, where another digit may make sense, and epochs that the checkpoint has no word on."""


@dataclass
class FlipTally:
    """What became of a number of flips."""

    flips: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    unnoticed: list[str] = field(default_factory=list)
    breaches: list[str] = field(default_factory=list)
    seconds: float = 0.0


class FlipAudit:
    """See the module. `group` as often as one likes."""

    def __init__(self, specimen: Specimen, work: Path, seed: int) -> None:
        self.tally = FlipTally()
        self._specimen = specimen
        self._directory = work
        self._chance = random.Random(seed)
        self._broker = BrokerProcess(work, SETTINGS)
        self._asyncio = LoopThread()
        self._flips: list[Flip] = []

    def end(self) -> None:
        """No more groups."""
        self._broker.kill()
        self._asyncio.end()

    def group(self) -> None:
        """Flip a bit in most partitions, and sometimes one outside; look, start, read, repair, start, read."""
        began = time.monotonic()
        self._specimen.copy(self._directory)
        self._choose()
        for flip in self._flips:
            flip.do(self._directory)
            self.tally.flips[flip.kind] += 1
        self._verify()
        is_repaired_first = self._chance.random() < 0.4 or any(flip.kind == "identity" for flip in self._flips)
        if not is_repaired_first:
            self._start_as_it_is()
        self._repair()
        self._start_mended()
        self.tally.seconds += time.monotonic() - began

    def _choose(self) -> None:
        chance, specimen = self._chance, self._specimen
        drawn = [choose(specimen, place, chance) for place in specimen.places if chance.random() < 0.9]
        if chance.random() < 0.5:
            drawn.append(choose_of_directory(specimen, chance.choice(OF_A_DIRECTORY), chance))
        elif chance.random() < 0.3:
            drawn = drawn[1:]
            drawn.append(choose_kind(specimen, specimen.places[0], "identity", chance))
        self._flips = [flip for flip in drawn if flip is not None]

    def _breach(self, flip: Flip | None, what: str) -> None:
        self.tally.breaches.append(f"{flip}: {what}" if flip else what)

    def _note(self, flip: Flip, outcome: str) -> None:
        self.tally.outcomes[flip.kind, outcome] += 1

    # -- looking

    def _verify(self) -> None:
        said = run("log", "verify", "--json", "-q", self._directory)
        found = [json.loads(line) for line in said.out.splitlines()]
        files = Counter(row["file"] for row in found if row.get("type") == "finding" and row["severity"] != "note")
        for flip in self._flips:
            path = self._directory / flip.path
            # A flip in one file may be reported of the other that contradicts it: an epoch, an index, an identity.
            if files[str(path)] or any(Path(name).parent == path.parent for name in files):
                self._note(flip, "found by verify")
            elif flip.kind in MAY_BE_UNNOTICED or self._is_compacted_gap(flip) or _is_offset_of_a_time(flip):
                self._note(flip, "makes sense as it is")
                self.tally.unnoticed.append(str(flip))
            else:
                self._breach(flip, "not found by `log verify`")

    def _is_compacted_gap(self, flip: Flip) -> bool:
        """A base offset of a compacted log that still fits between its neighbours: no checksum covers it."""
        return (
            flip.place is not None
            and flip.place[0] == "compacted"
            and flip.kind in ("header", "past")
            and (flip.batch is not None and flip.position - flip.batch.position < 8)
        )

    # -- starting on it as it is

    def _start_as_it_is(self) -> None:
        said = len(self._broker.output)
        try:
            self._broker.start()
        except BrokerDidNotStart:
            self._refused(self._broker.output[said:])
            return
        output = self._broker.output[said:]
        read = read_past_damage(self._broker.bootstrap, self._specimen.places)
        spoilt = {flip.place: flip for flip in self._flips}
        for place, rows in read.items():
            flip = spoilt.get(place)
            if flip is None or flip.kind not in OF_A_LOG or flip.kind == "epoch":
                self._same(flip, place, rows.rows, self._specimen.rows[place])
            elif flip.kind == "past":
                self._ends_before(flip, rows.rows, output)
            else:
                self._refused_to_clients(flip, rows.rows, rows.error, self._broker.output[said:])
        self._count_quarantined(self._broker.output[said:])
        self._read_from_anywhere(spoilt)
        self._broker.stop()

    def _refused(self, output: str) -> None:
        """Only what says which topics and records there are may keep a broker from starting, and in one line."""
        culprits = [flip for flip in self._flips if flip.kind in ("small", "metadata")]
        line = next((line for line in output.splitlines() if "cannot start" in line), output[-300:])
        if not culprits or "Traceback" in output:
            self._breach(culprits[0] if culprits else None, f"a start failed: {output[-1500:]}")
        for flip in culprits:
            self._note(flip, "a start refuses")
            if flip.path.name not in output and flip.path.parent.name not in output:
                self._breach(flip, f"a start refuses without naming the file: {line}")

    def _same(self, flip: Flip | None, place: Place, rows: Rows, expected: Rows) -> None:
        if rows == expected:
            if flip is not None:
                self._note(flip, "all records served")
            return
        wrong = [row for row in rows if row not in expected][:1]
        self._breach(flip, f"{place}: {len(rows)} records are shown, {len(expected)} expected; not sent: {wrong}")

    def _ends_before(self, flip: Flip, rows: Rows, output: str) -> None:
        """A log whose unsure part is damaged ends before the damage."""
        assert flip.place is not None
        assert flip.batch is not None
        expected = [row for row in self._specimen.rows[flip.place] if row[0] < flip.batch.base_offset]
        if self._is_compacted_gap(flip) and rows[: len(expected)] == expected and rows != expected:
            if not _sent(rows, self._specimen.rows[flip.place]):
                self._breach(flip, "a client was handed what was never sent")
            self._note(flip, "no wrong bytes served")
            return
        if rows != expected:
            return self._breach(flip, f"{len(rows)} records are served, {len(expected)} lie before it")
        name = f"{flip.place[0]}-{flip.place[1]}/"
        lines = [line for line in output.splitlines() if ("WARNING" in line or "ERROR" in line) and name[:-1] in line]
        if not lines:
            return self._breach(flip, "no line of the start tells of it")
        kept = list((self._directory / name).glob("*.corrupt-*"))
        if not kept:
            self._note(flip, "detected at the start: a torn tail, cut")
            if flip.batch.position + flip.batch.size != (self._specimen.directory / flip.path).stat().st_size:
                self._breach(flip, "sound batches behind it were cut")
            return None
        self._note(flip, "detected at the start: kept aside")
        return self._kept_byte_by_byte(flip)

    def _kept_byte_by_byte(self, flip: Flip) -> None:
        """From the batch on, everything is in the files that were quarantined."""
        assert flip.batch is not None
        path = self._directory / flip.path
        before = bytearray((self._specimen.directory / flip.path).read_bytes())
        before[flip.position] ^= 1 << flip.bit
        expected = {path.name: bytes(before[flip.batch.position :])}
        for later in damage.segments((self._specimen.directory / flip.path).parent):
            if later.name > path.name:
                expected[later.name] = later.read_bytes()
        for name, content in expected.items():
            kept = [one.read_bytes() for one in path.parent.glob(f"{name}.corrupt-*")]
            if content and content not in kept:
                self._breach(flip, f"{name} was not quarantined as it was")

    def _refused_to_clients(self, flip: Flip, rows: Rows, error: str | None, output: str) -> None:
        """Below the recovery point a batch is checked before its first reader gets it."""
        assert flip.place is not None
        assert flip.batch is not None
        batch, expected = flip.batch, self._specimen.rows[flip.place]
        if not _sent(rows, expected):
            self._breach(flip, "a client was handed what was never sent")
        before = [row for row in expected if row[0] < batch.base_offset]
        if rows[: len(before)] != before:
            self._breach(flip, "records before it are not served")
        if flip.kind == "header" and flip.position - batch.position < 8:
            # No checksum covers an offset: where it makes sense behind its neighbour, the next batch does not.
            self._note(flip, "no wrong bytes served")
            return
        name = f"{flip.place[0]}-{flip.place[1]}"
        lines = [line for line in output.splitlines() if "ERROR" in line or "WARNING" in line]
        if rows == before and any(f"{name}: unsynced or damaged: the log ends at" in line for line in lines):
            self._note(flip, "detected at the start: kept aside")  # headers of the segment that holds the point
            return
        if rows != before or error is None or "Invalid message" not in error:
            self._breach(
                flip, f"a client was shown {len(rows)} records, {len(before)} lie before it, and received {error}"
            )
            return
        if not any(f"{name}: damaged: " in line for line in lines):
            self._breach(flip, "no line says that a read was answered CORRUPT_MESSAGE")
        self._note(flip, "refused by the broker")
        if self._chance.random() < 0.3:
            reported = handed_to_aiokafka(self._broker.bootstrap, flip.place, batch.base_offset, self._asyncio.loop)
            if reported is not None:
                self._breach(flip, f"aiokafka: {reported}")

    def _count_quarantined(self, output: str) -> None:
        kept = len(list(self._directory.glob("*/*.corrupt-*")))
        found = HTTP.search(output)
        if found is None:
            return self._breach(None, f"no line tells where the metrics are: {output}")
        with urllib.request.urlopen(f"{found[1]}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        (line,) = (line for line in text.splitlines() if line.startswith(QUARANTINED))
        if float(line.split()[1]) != kept:
            self._breach(None, f"the metric says {line}, and {kept} files were kept aside")
        return None

    def _read_from_anywhere(self, spoilt: dict[Place | None, Flip]) -> None:
        """Where an index was spoilt, a look-up must still find each record."""
        for place, flip in spoilt.items():
            if place is None or flip.kind not in ("index", "timeindex"):
                continue
            rows = self._specimen.rows[place]
            for row in self._chance.sample(rows, 8):
                found = read_at(self._broker.bootstrap, place, row[0])
                if found != row:
                    self._breach(flip, f"a read at offset {row[0]} finds {found and found[0]}")

    # -- mending

    def _repair(self) -> None:
        said = run("log", "verify", "--repair", "-q", self._directory)
        if said.status:
            self._breach(None, f"{self._all()}: not mended: {_damage(said.out)}{said.err[-300:]}")
        again = run("log", "verify", "-q", self._directory)
        if again.status:
            self._breach(None, f"{self._all()}: not sound after a repair: {_damage(again.out)}")

    def _all(self) -> str:
        return "; ".join(map(str, self._flips))

    def _start_mended(self) -> None:
        try:
            self._broker.start()
        except BrokerDidNotStart:
            return self._breach(None, f"{self._all()}: no start after a repair: {self._broker.output[-600:]}")
        read = read_past_damage(self._broker.bootstrap, self._specimen.places)
        spoilt = {flip.place: flip for flip in self._flips}
        for place, found in read.items():
            self._mended(spoilt.get(place), place, found.rows, found.error)
        self._commits_make_sense()
        with suppress(AssertionError):
            self._broker.stop()
        return None

    def _mended(self, flip: Flip | None, place: Place, rows: Rows, error: str | None) -> None:
        expected = self._specimen.rows[place]
        if error is not None:
            self._breach(flip, f"{place}: after a repair a client receives {error}")
        if flip is None or flip.batch is None or flip.kind == "epoch":
            if rows != expected:
                self._breach(flip, f"{place}: {len(rows)} of {len(expected)} records after a repair")
            elif flip is not None:
                self._note(flip, "mended, nothing lost")
            return
        before = [row for row in expected if row[0] < flip.batch.base_offset]
        if rows == before:
            self._note(flip, "mended: the log ends before it, the rest is kept aside")
        elif self._is_compacted_gap(flip) and rows[: len(before)] == before and _sent(rows, expected):
            self._note(flip, "mended, as far as it is known which offset is wrong")
        else:
            self._breach(flip, f"after a repair {len(rows)} records are served, {len(before)} lie before it")

    def _commits_make_sense(self) -> None:
        """What a group committed is there, unless the flip was in its log: then it is something that it committed."""
        metadata = [flip for flip in self._flips if flip.kind == "metadata"]
        if metadata and any(self._directory.glob("__consumer_offsets-*-stray")):
            # The last batch of the metadata, damaged past the recovery point, is no different from one that was torn.
            return self._note(metadata[0], "a torn tail, cut: what only it knew is renamed to -stray")
        is_spoilt = any(flip.kind == "commits" for flip in self._flips)
        found = committed(self._broker.bootstrap, GROUP)
        for place, offset in self._specimen.commits.items():
            got = found.get(place, -1)
            if got != offset and not (is_spoilt and -1 <= got <= offset):
                self._breach(None, f"{self._all()}: {offset} was committed for {place}, {got} is there")
        return None


def _is_offset_of_a_time(flip: Flip) -> bool:
    """The offset in an entry of a time index: another one of the same batch is as good."""
    return flip.kind == "timeindex" and flip.position % 12 >= 8


def _sent(rows: Rows, expected: Rows) -> bool:
    """Whether all records were sent, whatever their offsets."""
    known = {(key, value) for _, key, value in expected}
    return all((key, value) in known for _, key, value in rows)


def _damage(output: str) -> str:
    return "; ".join(line for line in output.splitlines() if line.startswith(("damage", "left")))


def audit_flips(flips: int, seed: int, root: Path, report: Callable[[str], None]) -> FlipTally:
    """Flip at least so many bits in copies of one directory, all below `root`; what was found."""
    shutil.rmtree(root / "specimen", ignore_errors=True)
    specimen = make_specimen(root / "specimen")
    audit = FlipAudit(specimen, root / "flipped", seed)
    tally, reported = audit.tally, 0
    try:
        while tally.flips.total() < flips and len(tally.breaches) < MOST_BREACHES:
            audit.group()
            for breach in tally.breaches[reported:]:
                report(f"  BROKEN: {breach}")
            reported = len(tally.breaches)
    finally:
        audit.end()
    return tally


def flip_table(tally: FlipTally) -> list[tuple[str, str]]:
    """What became of the flips, in rows of (what, figure)."""
    rows = [("bits flipped", f"{tally.flips.total():,}")]
    for kind, count in sorted(tally.flips.items()):
        rows.append((f"{kind}", f"{count:,}"))
        outcomes = sorted((word, number) for (of, word), number in tally.outcomes.items() if of == kind)
        rows.extend((f"  {word}", f"{number:,}") for word, number in outcomes)
    rows.append(("promises broken", f"{len(tally.breaches):,}"))
    rows.append(("minutes", f"{tally.seconds / 60:.1f}"))
    return rows
