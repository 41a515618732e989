"""Rounds of one audited directory: load, a death, damage, a start, and what was answered held against what is there.

Each choice comes from the seed; when exactly a kill falls does not, so that a seed that failed is run again, and again.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from kit.audit import damage
from kit.audit.clients import SHORTENED, Clients
from kit.audit.damage import LostEnd, PowerCut, SmallFiles, look_of, lose_end
from kit.audit.deaths import FEW_DESCRIPTORS, Victim
from kit.audit.greedy import READERS, GreedyReaders
from kit.audit.ledger import Ledger, Place
from kit.audit.reading import (
    Rows,
    ShortRead,
    committed,
    described,
    read_with_aiokafka,
    read_with_confluent,
    read_with_kafka_python,
    shown,
)
from kit.broker import BrokerDidNotStart
from kit.command import run

from ottla.cli.log_verify import STATUS_UNSURE

LEAST_ACKNOWLEDGED = 40
"""A broker that acknowledges less between two deaths did not come back to life."""
PATIENCE_S = 60.0
CLOCK_IS_SET = 0.3
"""How often in a round the wall clock is set wrong, or right again."""
NO_THREADS = 0.25
"""How often in a round no thread can be started any more."""
FEW_FILES = 0.2
"""How often a life has few descriptors."""
GREEDY = 0.2
"""How often many old clients ask for everything and take nothing."""
LOST_ENDS = {True: 0.15, False: 0.6}
"""How often a log loses its end, by whether the broker was killed."""
STOPS = 0.08
MONTH_MS = 30 * 86_400_000
NEEDS_REPAIR = {
    "garbage": damage.CHECKPOINTS,
    "empty": (damage.LOG_STARTS,),
    "zeros": (damage.LOG_STARTS,),
}
"""Which checkpoints a start refuses to begin with, by what was done to them: it does not guess what they said."""


@dataclass
class Tally:
    """What a number of rounds came to."""

    rounds: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    damages: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    ready_ms: list[int] = field(default_factory=list)
    start_s: list[float] = field(default_factory=list)
    breaches: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, other: Tally) -> None:
        """Count another directory's rounds in."""
        self.rounds += other.rounds
        self.kills += other.kills
        self.damages += other.damages
        self.counts += other.counts
        self.ready_ms += other.ready_ms
        self.start_s += other.start_s
        self.breaches += other.breaches
        self.seconds += other.seconds


class Audit:
    """See the module. `run` once; `tally` and `ledger.breaches` then say what was found."""

    def __init__(self, seed: int, directory: Path, kills: int, deadline: float = float("inf")) -> None:
        self.tally = Tally()
        self.ledger = Ledger()
        self._chance = random.Random(seed)
        self.victim = Victim(directory, random.Random(self._chance.random()))
        self._small = SmallFiles(directory, random.Random(self._chance.random()))
        self._wanted = kills
        self._deadline = deadline
        self._clients: Clients | None = None

    def run(self) -> Tally:
        """All rounds, until something is broken, the time is up or enough kills were made."""
        began = time.monotonic()
        tally = self.tally
        try:
            self._live()
        except BrokerDidNotStart as error:
            self.ledger.breach(f"a start failed: {str(error)[-500:]}")
        except (ShortRead, KafkaException) as error:
            self.ledger.breach(f"round {tally.rounds}: {error}")
        finally:
            self.victim.kill()
            if self._clients is not None:
                self._clients.end()
        tally.counts, tally.breaches = self.ledger.counts, self.ledger.breaches
        tally.ready_ms, tally.start_s = self.victim.ready_ms[1:], self.victim.start_s[1:]
        tally.seconds = time.monotonic() - began
        return tally

    @property
    def output(self) -> str:
        """What the broker has said, in all of its lives."""
        return self.victim.process.output

    def _live(self) -> None:
        self.victim.start(is_sync=True)
        self._clients = Clients(self.ledger, self.victim.bootstrap, self._chance)
        while self.tally.kills.total() < self._wanted and time.monotonic() < self._deadline:
            self._round()
            self.tally.rounds += 1
            if self.ledger.breaches:
                return
        self._close()

    # -- one round

    def _round(self) -> None:
        clients = self._clients
        assert clients is not None
        self._load(clients)
        is_killed = self._end_life()
        self.victim.threads.end()
        clients.pause()
        clients.drain()
        self._small.remember()
        lost = self._lose_end(is_killed=is_killed)
        needs_repair = self._damage(is_killed=is_killed, may_cut=lost is None)
        is_sync = self._chance.random() < 0.7
        self.ledger.is_sync = is_sync
        is_few = self._chance.random() < FEW_FILES
        self.victim.limit_descriptors(FEW_DESCRIPTORS if is_few else None)
        self.tally.damages[f"descriptors: {FEW_DESCRIPTORS}"] += is_few
        said = len(self.output)
        while is_killed and not needs_repair and lost is None and self._chance.random() < 0.25:
            if not self.victim.kill_while_starting(is_sync=is_sync):
                raise BrokerDidNotStart(self.output[-2000:])
            self.tally.kills["while it starts"] += 1
        if needs_repair:
            self._mend(needs_repair, is_sync=is_sync)
        if self._chance.random() < NO_THREADS:
            self.refuse_without_threads(is_sync=is_sync)
        self.victim.start(is_sync=is_sync)
        if lost is not None:
            self.hear_of(lost, self.output[said:])
        if clients.settle():
            self._look(clients)

    def _load(self, clients: Clients) -> None:
        before, began = self.ledger.counts["acknowledged"], time.monotonic()
        clients.resume()
        if self._chance.random() < CLOCK_IS_SET:
            clock = self.victim.clock
            clock.set(0 if clock.ahead_ms else MONTH_MS)
            self.tally.damages[f"wall clock: {'a month ahead' if clock.ahead_ms else 'right again'}"] += 1
        if self._chance.random() < NO_THREADS:
            self.victim.threads.begin()
            self.tally.damages["threads: none can be started"] += 1
        greedy = None
        if not self.victim.process.prefix and self._chance.random() < GREEDY:
            greedy = GreedyReaders(self.victim.process.port, self.victim.process.pid)
            greedy.begin([("kept", 0), ("kept", 1), ("kept", 2), SHORTENED])
            self.tally.damages[f"clients that take nothing: {READERS}"] += 1
        time.sleep(0.1 + self._chance.random() * 0.6)
        self.wait_for_acknowledgements(before, began)
        if greedy is not None and (wrong := greedy.end()):
            self.ledger.breach(wrong)

    def wait_for_acknowledgements(self, before: int, began: float) -> None:
        """Until the clients' work is worth a death, for some seconds at most where nothing is acknowledged."""
        while self.ledger.counts["acknowledged"] < before + LEAST_ACKNOWLEDGED:
            time.sleep(0.01)
            if time.monotonic() > began + PATIENCE_S:
                self.ledger.breach(f"only {self.ledger.counts['acknowledged'] - before} records were acknowledged")
                return

    def _end_life(self) -> bool:
        """Whether it was a death, and no stop."""
        way = self._chance.random()
        if way < STOPS:
            status = self.victim.stop()
            if status:
                self.ledger.breach(f"a clean stop ended with status {status}")
            self.ledger.counts["clean stops"] += 1
            return False
        if way < 0.2:
            self.victim.kill_while_stopping()
            self.tally.kills["while it stops"] += 1
        else:
            self.victim.kill()
            self.tally.kills["while it serves"] += 1
        return True

    # -- damage

    def _lose_end(self, *, is_killed: bool) -> LostEnd | None:
        """Take away the end of a log that nobody was to take; what the start must say of it then."""
        if self._chance.random() >= LOST_ENDS[is_killed]:
            return None
        lost = lose_end(self.victim.directory / "{}-{}".format(*SHORTENED), self._chance)
        if lost is not None:
            self._note("end of a log that was promised", lost.how)
            self.ledger.destroy(SHORTENED, lost.first_lost, lost.reached)
        return lost

    def hear_of(self, lost: LostEnd, said: str) -> None:
        """Where offsets were given out, the start must have named them."""
        about = "{}-{}: the log ends at offset".format(*SHORTENED)
        wanted = f"had reached {lost.reached} when"
        if lost.reached > lost.first_lost and not any(
            about in line and wanted in line and (" ERROR " in line or not self.ledger.is_sync)
            for line in said.splitlines()
        ):
            self.ledger.breach(f"{SHORTENED}: {lost}, and the start did not say so: {said[-1500:]}")

    def refuse_without_threads(self, *, is_sync: bool) -> None:
        """A start that gets no thread must refuse in one line, and leave everything as it was."""
        before = look_of(self.victim.directory)
        self.victim.threads.begin()
        refusal = self.victim.refusal(is_sync=is_sync)
        self.victim.threads.end()
        self.tally.damages["threads: none at a start"] += 1
        if refusal is None:
            self.ledger.breach("a start came about though no thread can be started")
            self.victim.kill()
        elif "no thread can be started" not in refusal or "Traceback" in refusal:
            self.ledger.breach(f"without a thread a start said: {refusal[-500:]}")
        if (after := look_of(self.victim.directory)) != before:
            changed = sorted(path for path, _ in before.items() ^ after.items())
            self.ledger.breach(f"a start that was refused for want of a thread has changed {changed[:5]}")

    def _damage(self, *, is_killed: bool, may_cut: bool) -> str | None:
        """Spoil files; what a start refuses to begin with, if that was among it. Without `may_cut` nothing that bears
        on where logs end.
        """
        chance, directory = self._chance, self.victim.directory
        is_crash = is_killed and not (directory / damage.CLEAN_MARK).exists()
        if is_crash and may_cut and chance.random() < 0.6:
            self._cut_power()
        for kind in ("index", "timeindex", "snapshot"):
            if chance.random() < 0.25:
                self._note(kind, self._small.spoil_derived(kind))
        if not is_crash or not may_cut:
            return None
        if chance.random() < 0.15:
            self._note(damage.EPOCHS, self._small.spoil_epochs())
        if chance.random() < 0.15:
            self._note("unfinished file", self._small.leave())
        if chance.random() < 0.4:
            name = chance.choice(damage.CHECKPOINTS)
            how = self._small.spoil_checkpoint(name)
            self._note(name, how)
            if how is not None and name == damage.LOG_STARTS:
                self._forget_log_starts(is_readable=how == "older")
            if how is not None and name in NEEDS_REPAIR.get(how, ()):
                return name
        return None

    def _note(self, what: str, how: str | None) -> None:
        if how is not None:
            self.tally.damages[f"{what}: {how}"] += 1

    def _cut_power(self) -> None:
        directory, chance = self.victim.directory, self._chance
        power = PowerCut(directory, random.Random(chance.random()))
        for path in damage.partitions(directory):
            name, _, index = path.name.rpartition("-")
            place = (name, int(index))
            if not name.startswith("__") and self.ledger.is_sync and chance.random() < 0.7:
                topic = self.ledger.topics.get(name)
                if topic is None or place[1] >= len(topic.partitions):
                    continue
                cut_at = power.cut(path, self.ledger.must_reach(place))
                if cut_at is not None:
                    self._note("unsynced end of a log", "cut or overwritten")
                    self.ledger.lose_from(place, cut_at)
            elif chance.random() < 0.4:
                power.tear(path)
                self._note("end of a log", "a torn write")

    def _forget_log_starts(self, *, is_readable: bool) -> None:
        """The file that said where logs begin is gone: deleted records that still are there come back."""
        rows = damage.rows(self.victim.directory / damage.LOG_STARTS) if is_readable else {}
        for topic in self.ledger.topics.values():
            for index, known in enumerate(topic.partitions):
                # An older file may say more than the last one, where that was lost before.
                known.start_asked = max(known.start_asked, rows.get(f"{topic.name}-{index}", 0))
                found = damage.segments(self.victim.directory / f"{topic.name}-{index}")
                if found:
                    known.start = min(known.start, damage.base_offset(found[0]))

    def _mend(self, name: str, *, is_sync: bool) -> None:
        """A start must refuse in one line, `log verify --repair` must mend it."""
        refusal = self.victim.refusal(is_sync=is_sync)
        if refusal is None:
            self.ledger.breach(f"a start came about in spite of a broken {name}")
            self.victim.kill()
        elif name not in refusal or "Traceback" in refusal:
            self.ledger.breach(f"with a broken {name} a start said: {refusal[-500:]}")
        said = run("log", "verify", "--repair", "-q", self.victim.directory)
        if said.status not in (0, STATUS_UNSURE):  # what the next start will repair may be left
            self.ledger.breach(f"a broken {name} was not mended: {said.out[-500:]} {said.err[-500:]}")
        self.ledger.counts["repairs"] += 1

    # -- what is there

    def _look(self, clients: Clients) -> None:
        ledger, bootstrap = self.ledger, self.victim.bootstrap
        for stray in self.victim.directory.glob("*-stray"):  # nobody has put one there: it is of a deleted topic
            ledger.breach(f"{stray.name}: the start did not know that its topic was deleted")
        ledger.audit_topics(described(clients.admin))
        places: list[Place] = [
            (topic.name, index) for topic in ledger.topics.values() for index in range(len(topic.partitions))
        ]
        found = read_with_confluent(bootstrap, places)
        self._compare(clients, found)
        for place, (start, end, rows) in found.items():
            ledger.audit_partition(place, shown(ledger, place, start, end, rows))
        for group in clients.groups:
            for place, offset in committed(bootstrap, group).items():
                ledger.audit_commit(group, place, offset)

    def _compare(self, clients: Clients, found: dict[Place, tuple[int, int, Rows]]) -> None:
        """Another client must be shown the same of one partition."""
        way, place = self._chance.random(), self._chance.choice(sorted(found))
        if way < 0.25:
            again = read_with_kafka_python(self.victim.bootstrap, place)
        elif way < 0.5:
            again = read_with_aiokafka(self.victim.bootstrap, place, clients.asyncio.loop)
        else:
            return
        if again[1:] != found[place][1:] and place[0] not in ("compacted", "expiring"):
            self.ledger.breach(f"{place}: another client was shown {again[:2]} and {len(again[2])} records")

    def _close(self) -> None:
        """A clean stop, and the directory must be sound, but for what was spoilt on purpose and never noticed."""
        self.victim.stop()
        said = run("log", "verify", self.victim.directory)
        for line in said.out.splitlines():
            if line.startswith("damage") and ".log, " in line:
                self.ledger.breach(f"after all rounds: {line}")
