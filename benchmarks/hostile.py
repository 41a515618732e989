"""The memory that hostile clients make the broker use, and the delays of another client meanwhile.

    PYTHONPATH=benchmarks python benchmarks/hostile.py [--seconds N] [--only WORD]

For each kind of attack: the broker's private memory (RssAnon: pages of segments that the kernel sends belong to the
page cache), at its highest and after the attack, and the 50th and 99th percentile and the longest of the round trips
of a client that produces 1 KiB and waits, again and again, meanwhile. Attackers run in another process, so that
only the broker and the processors are shared. docs/limits.md says which limit stops which attack.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import quantiles

import frames
from servers import Ottla

TOPIC = "attacked"
LOG_MB = 256
FETCH_BYTES = 50 << 20
Attack = Callable[[tuple[str, int], Event], None]


def connect(address: tuple[str, int], count: int) -> list[socket.socket]:
    """Open `count` connections, with small windows, so that answers stay at the broker."""
    sockets = []
    for _ in range(count):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect(address)
        one.setblocking(False)
        sockets.append(one)
    return sockets


def send_some(one: socket.socket, data: bytes) -> int:
    """Send the bytes that the socket accepts now; 0 if it accepts none or the broker has closed it."""
    try:
        return one.send(data)
    except OSError:
        return 0


def fetches(count: int) -> bytes:
    """Fetches from the start of the log, of as many bytes as the broker returns."""
    exchange = frames.fetch_exchange(TOPIC, FETCH_BYTES)
    frame = bytearray(exchange.frame)
    struct.pack_into(">q", frame, exchange.offset_at, 0)
    return bytes(frame) * count


def nobody(address: tuple[str, int], stop: Event) -> None:
    """No attack: the others are compared with this."""
    stop.wait()


def never_reads(address: tuple[str, int], stop: Event) -> None:
    """200 clients fetch everything, 100 times each, and read nothing."""
    data = fetches(100)
    sockets = connect(address, 200)
    while not stop.wait(0.05):
        for one in sockets:
            send_some(one, data)


def old_fetches(address: tuple[str, int], stop: Event) -> None:
    """200 clients fetch everything once by Fetch v2, which has to be converted, and read nothing."""
    topic = TOPIC.encode()
    body = struct.pack(">hhih", 1, 2, 0, -1)  # Fetch v2, correlation id, no client id
    body += struct.pack(">iii", -1, 500, 1)  # replica, longest wait, fewest bytes
    body += struct.pack(f">ih{len(topic)}si", 1, len(topic), topic, 1) + struct.pack(">iqi", 0, 0, FETCH_BYTES)
    sockets = connect(address, 200)
    for one in sockets:
        send_some(one, struct.pack(">i", len(body)) + body)
    stop.wait()


def slow_readers(address: tuple[str, int], stop: Event) -> None:
    """200 clients fetch everything and read 1 KiB of it 20 times a second."""
    data = fetches(1)
    sockets = connect(address, 200)
    for one in sockets:
        send_some(one, data)
    while not stop.wait(0.05):
        for one in sockets:
            try:
                one.recv(1024)
            except OSError:
                continue


def fetch_everything(address: tuple[str, int], stop: Event) -> None:
    """20 clients fetch everything, over and over, as fast as they can read."""
    data = fetches(1)
    selector = selectors.DefaultSelector()
    for one in connect(address, 20):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        selector.register(one, selectors.EVENT_READ, [0])
        send_some(one, data)
    buffer = bytearray(1 << 20)
    while not stop.is_set():
        for key, _ in selector.select(0.1):
            assert isinstance(key.fileobj, socket.socket)
            one = key.fileobj
            try:
                key.data[0] += one.recv_into(buffer)
            except OSError:
                continue
            if key.data[0] >= FETCH_BYTES:
                key.data[0] = 0
                send_some(one, data)


def byte_at_a_time(address: tuple[str, int], stop: Event) -> None:
    """500 clients send a request of 1 MB, one byte each 10 ms."""
    data = struct.pack(">i", 1_000_000) + bytes(1_000_000)
    sockets = connect(address, 500)
    at = 0
    while not stop.wait(0.01):
        for one in sockets:
            send_some(one, data[at : at + 1])
        at += 1


def partial_requests(address: tuple[str, int], stop: Event) -> None:
    """200 clients announce 100 MB and send all of it except the end."""
    data = struct.pack(">i", 100_000_000) + bytes(1 << 20)
    sockets = connect(address, 200)
    sent = [0] * len(sockets)
    while not stop.wait(0.01):
        for slot, one in enumerate(sockets):
            if sent[slot] < 99_000_000:
                sent[slot] += send_some(one, data if sent[slot] == 0 else data[4:])


def half_open(address: tuple[str, int], stop: Event) -> None:
    """5,000 clients connect and send nothing."""
    sockets = connect(address, 5_000)
    stop.wait()
    del sockets


ATTACKS: list[Attack] = [
    nobody,
    never_reads,
    old_fetches,
    slow_readers,
    fetch_everything,
    byte_at_a_time,
    partial_requests,
    half_open,
]


def anonymous_mb(pid: int) -> float:
    """The private memory of the process (not of a file), in MB (1e6 bytes)."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024 / 1e6


class Victim:
    """A client that produces and waits."""

    def __init__(self, address: tuple[str, int]) -> None:
        batch, _ = frames.batch_of(1024)
        self._frame = frames.produce_exchange(TOPIC, batch, 1).frame
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fill(self) -> None:
        """Write a log that is large enough for fetches."""
        batch, _ = frames.batch_of(1 << 20)
        frame = frames.produce_exchange(TOPIC, batch, 1).frame
        for _ in range(LOG_MB):
            self._round_trip(frame)

    def measure(self, seconds: float, watch: Callable[[], None]) -> list[float]:
        """Milliseconds of each round trip."""
        times: list[float] = []
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            self._round_trip(self._frame)
            times.append((time.perf_counter() - start) * 1e3)
            if len(times) % 50 == 0:
                watch()
        return times

    def _round_trip(self, frame: bytes) -> None:
        self._socket.sendall(frame)
        (length,) = struct.unpack(">i", self._receive(4))
        self._receive(length)

    def _receive(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            piece = self._socket.recv(length - len(data))
            if not piece:
                sys.exit("the broker closed the connection of the client that only wants to produce")
            data += piece
        return data


def attacked(attack: Attack, seconds: float) -> None:
    """Run one attack on a new broker, and print its row."""
    with Ottla("page-cache") as server:
        server.create_topic(TOPIC)
        address = (server.host, server.port)
        victim = Victim(address)
        victim.fill()
        pid = server.process.pid
        before_mb = anonymous_mb(pid)
        highest_mb = before_mb

        def watch() -> None:
            nonlocal highest_mb
            highest_mb = max(highest_mb, anonymous_mb(pid))

        stop = multiprocessing.Event()
        attacker = multiprocessing.Process(target=attack, args=(address, stop), daemon=True)
        attacker.start()
        times = victim.measure(seconds, watch)
        stop.set()
        attacker.join(10)
        if attacker.is_alive():
            attacker.terminate()
        victim.measure(1, lambda: None)
        cuts = quantiles(times, n=100)
        print(
            f"{attack.__name__:<18}{before_mb:>9.0f}{highest_mb:>9.0f}{anonymous_mb(pid):>9.0f}{len(times):>9,}"
            f"{cuts[49]:>9.2f}{cuts[98]:>9.2f}{max(times):>9.1f}",
            flush=True,
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--only", default="", help="attacks whose name contains this")
    arguments = parser.parse_args()
    print(f"{'':<18}{'memory of its own, MB':>27}{'others: round trips, ms':>36}")
    print(f"{'attack':<18}{'before':>9}{'highest':>9}{'after':>9}{'number':>9}{'p50':>9}{'p99':>9}{'longest':>9}")
    for attack in ATTACKS:
        if arguments.only in attack.__name__:
            attacked(attack, arguments.seconds)


if __name__ == "__main__":
    main()
