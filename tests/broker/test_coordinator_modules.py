"""The modules of the coordinators come one after the other: how many with each, and that a broker imports them so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.broker.coordinator_modules import GROUP_COORDINATOR, TRANSACTION_COORDINATOR

MOST_AT_ONCE = 12
"""Modules that come with one of them: 1 to 5 ms together."""

COUNT = """
import json, sys
import ottla.broker.process
from importlib import import_module

def count(name):
    before = len(sys.modules)
    import_module(name)
    return len(sys.modules) - before

print(json.dumps({name: count(name) for name in json.loads(sys.argv[1])}))
"""

ASK = """
import asyncio, struct, sys
import ottla.broker.process
from ottla.broker import server
from ottla.config.broker import BrokerConfig
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import encode

async def main(directory):
    config = BrokerConfig.load(overrides={"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": directory,
        "ottla.http.listener": ""})
    broker = server.Server(config)
    await broker.start()
    from ottla.protocol.api.find_coordinator import FindCoordinatorRequest

    reader, writer = await asyncio.open_connection(*broker.addresses["PLAINTEXT"])
    body = encode_request_header(10, 2, 1, "t") + encode(FindCoordinatorRequest(key="g", key_type=0), 2)
    writer.write(struct.pack(">i", len(body)) + body)
    await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
    held = broker.node.services.metrics.held["FindCoordinator"]
    print(sum(held.counts))
    writer.close()
    await broker.stop()

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.parametrize("modules", [GROUP_COORDINATOR, TRANSACTION_COORDINATOR])
def test_each_module_of_a_coordinator_brings_few_others(modules: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COUNT, json.dumps(modules)], capture_output=True, text=True, timeout=60, check=True
    )
    counts: dict[str, int] = json.loads(done.stdout)
    assert [name for name, count in counts.items() if not count] == []  # one that was there is not needed in the list
    assert [name for name, count in counts.items() if count > MOST_AT_ONCE] == []


def test_the_first_request_to_the_group_coordinator_takes_a_step_for_each_module(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert int(done.stdout) >= len(GROUP_COORDINATOR)
