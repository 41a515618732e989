"""One process that moves records exactly once: it consumes, transforms and produces in transactions until it is killed.

    python tests/kit/audit/mover.py confluent 127.0.0.1:9092 mover-0 3

The arguments are the client library, the broker, the name (which is its transactional id) and which life of that name
it is. It aborts some transactions on purpose, and takes its time in others, so that kills fall into open ones. An error
that its producer can go on after aborts the transaction and goes back to the committed offsets; any other one ends the
process, with the error as the last line of its output. One that hangs ends with the stacks of its threads: kafka-python
3.0 may do so after a connection is lost, with batches that it does not send and without a request that waits.

`mover_clients.py` has the client libraries.
"""

from __future__ import annotations

import faulthandler
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kit.audit.mover_clients import ConfluentMover, KafkaPythonMover, Mover, OttlaMover, Taken
from kit.audit.movers import HUNG_LINE

MOST_RECORDS = 120
ABORTS = 0.05
"""How many transactions are aborted on purpose."""
PAUSES = 0.3
"""How many are held open for a moment."""
MOST_OF_A_PAUSE_S = 0.05
HUNG_S = {"kafka-python": 20.0}
OTHERS_HUNG_S = 60.0
TICK_S = 0.25
PATIENT_TICKS = 40
"""So long the broker is not asked whether it is there."""


class Watch:
    """Ends the process when it has done nothing for long. Time in which it did not run does not count: it was paused,
    or the machine had other things to do. Nor does time without a broker: a start may take half a minute where the
    machine has much to do, and is often killed.
    """

    def __init__(self, hung_s: float, is_there: Callable[[], bool]) -> None:
        """`is_there`: whether the broker takes connections."""
        self._most = round(hung_s / TICK_S)
        self._is_there = is_there
        self._ticks = 0

    def start(self) -> None:
        """Watch, in a thread."""
        threading.Thread(target=self._run, daemon=True).start()

    def works(self) -> None:
        """It has done something."""
        self._ticks = 0

    def tick(self) -> bool:
        """A moment has passed, in which the process ran; whether it hangs."""
        if self._ticks < PATIENT_TICKS or self._is_there():
            self._ticks += 1
        return self._ticks >= self._most

    def _run(self) -> None:
        while not self.tick():
            time.sleep(TICK_S)  # of a real process under real clients: what is counted is time in which it runs
        sys.stderr.write(f"{HUNG_LINE} {self._ticks * TICK_S:.0f} s\n")
        faulthandler.dump_traceback()
        os._exit(1)


def takes_connections(bootstrap: str) -> bool:
    """Whether there is a broker."""
    host, _, port = bootstrap.rpartition(":")
    try:
        socket.create_connection((host, int(port)), TICK_S).close()
    except OSError:
        return False
    return True


def run(mover: Mover, name: str, life: int, chance: random.Random, watch: Watch) -> None:
    """Move records, for ever."""
    transactions = 0
    while True:
        watch.works()
        records = mover.take(chance.randrange(1, MOST_RECORDS))
        if not records:
            continue
        transactions += 1
        try:
            is_commit = chance.random() >= ABORTS
            move(mover, b"%s %d %d" % (name.encode(), life, transactions), records, is_commit=is_commit, chance=chance)
        except mover.errors as error:
            sys.stderr.write(f"aborts: {error!r}\n")
            mover.abort()
            is_commit = False
        if not is_commit:
            mover.rewind()


def move(mover: Mover, key: bytes, records: Sequence[Taken], *, is_commit: bool, chance: random.Random) -> None:
    """One transaction; some stay open for a moment, half of their records acknowledged."""
    mover.begin()
    half = len(records) // 2 if chance.random() < PAUSES else 0
    mover.produce(key, records[:half])
    if half:
        mover.flush()
        time.sleep(chance.random() * MOST_OF_A_PAUSE_S)
    mover.produce(key, records[half:])
    mover.end(records, is_commit=is_commit)


def main() -> None:
    """Run until killed."""
    library, bootstrap, name, life = sys.argv[1:]
    watch = Watch(HUNG_S.get(library, OTHERS_HUNG_S), lambda: takes_connections(bootstrap))
    watch.start()
    chance = random.Random(f"{name} {life}")
    is_kip_848, is_static = "kip-848" in library, "static" in library
    mover: Mover
    if library == "kafka-python":
        mover = KafkaPythonMover(bootstrap, name)
    elif library.startswith("ottla"):
        mover = OttlaMover(bootstrap, name, is_kip_848=is_kip_848)
    else:
        mover = ConfluentMover(bootstrap, name, is_kip_848=is_kip_848, is_static=is_static)
    try:
        run(mover, name, int(life), chance, watch)
    except mover.errors as error:
        faulthandler.dump_traceback_later(OTHERS_HUNG_S, exit=True)  # no thread of Python's own runs at the exit
        sys.exit(f"ends: {error!r}")


if __name__ == "__main__":
    main()
