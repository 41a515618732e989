"""The cost of a receive by the position of its buffer in a page: why the broker's receive buffers begin at a page.

    python benchmarks/receive_copy.py            five frames of 16 KB by one recv, as a pipelining producer sends them

Large blocks of the C library, and so of `bytearray`, begin 16 bytes after a page boundary. The kernel copies by the
instruction `rep movsb`, which is slow on some processors if the destination is a little ahead of the source, both
modulo 4096. Sender and receiver share a thread and a processor, so that only the copy is timed.
"""

from __future__ import annotations

import argparse
import mmap
import os
import platform
import socket
import statistics
import time

from tabulate import tabulate

FRAME_BYTES = 16_447
FRAMES = 5
READ_BYTES = 256 << 10
ROUNDS = 15
OFFSETS = (0, 8, 16, 32, 64, 512, 2048, 4080)


def receive_us(sender: socket.socket, receiver: socket.socket, room: memoryview, times: int) -> float:
    """Microseconds for the receives of five frames into `room`, the mean of `times`."""
    frame = bytes(FRAME_BYTES)
    elapsed_ns = 0
    for _ in range(times):
        for _ in range(FRAMES):
            sender.sendall(frame)
        missing = FRAMES * FRAME_BYTES
        began_ns = time.perf_counter_ns()
        while missing:
            missing -= receiver.recv_into(room)
        elapsed_ns += time.perf_counter_ns() - began_ns
    return elapsed_ns / times / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=200, help="receives in a round (default 200)")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pages = memoryview(mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    rooms = {"bytearray of 1 MiB": memoryview(bytearray(1 << 20))[:READ_BYTES]}
    rooms |= {f"page + {offset}" if offset else "page": pages[offset : offset + READ_BYTES] for offset in OFFSETS}
    times: dict[str, list[float]] = {name: [] for name in rooms}
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sender:
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        receiver, _ = server.accept()
        with receiver:
            for _ in range(ROUNDS):
                for name, room in rooms.items():
                    times[name].append(receive_us(sender, receiver, room, options.times))
    base = times["page"]
    rows = [
        [
            name,
            f"{statistics.median(found):.1f}",
            f"{statistics.median(one / page for one, page in zip(found, base, strict=True)):.2f}",
        ]
        for name, found in times.items()
    ]
    print(f"{platform.processor() or platform.machine()}, kernel {platform.release()}; medians of {ROUNDS} rounds")
    print(tabulate(rows, headers=["buffer begins at", "us for 5 x 16 KB", "times a page's"], disable_numparse=True))


if __name__ == "__main__":
    main()
