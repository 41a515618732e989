"""What a start must not import: each of these once took more of the time to the first produce than it should."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kit.imports import unavoidable

NOT_AT_START = {
    "javaproperties",  # xml, http and email come with it; only a server.properties, or escapes, need it
    "importlib.metadata",  # the version is ottla.__version__
    "email",
    "http",
    "xml",
    "urllib.request",
    "prometheus_client",  # only a scrape
    "crcmod",  # only where crc32c has no wheel
    "ottla.broker.http",  # only the first connection to the HTTP port, which is open by default
    "ottla.broker.telemetry.exposition",
    "ottla.broker.groups.coordinator",  # only where there are groups, or somebody asks for one
    "ottla.config.created_topics",  # only where ottla.create.topics is set
    "ottla.broker.catalog.configured_topics",
    "dataclasses",  # compiles several functions for each class: `ottla/plain.py`
    "ottla.broker.api.fetch",  # handlers come with their first request, but for the three of a first produce
    "ottla.broker.api.describe_configs",
    "ottla.broker.fast.fetch_templates",  # the first Fetch that a template could answer
    "ottla.broker.runtime.queued_syncer",  # only simulations and tests
    "ottla.broker.formats.conversion",  # the first request of a client from before 2017
    "ottla.protocol.api.describe_configs",  # and so do the messages
    "ottla.broker.metadata.config_plans",  # the first change of a configuration
    "ottla.broker.metadata.quota_plans",
    "ottla.broker.metadata.feature_plans",
    "ottla.storage.cleaner.cleaner",  # the first look at a compacted log, in a worker
    "click",  # only what the plain form of `ottla serve` does not understand
    "cramjam",  # the first batch of its codec
    "lz4",
    "zstandard",
    "xxhash",
    "random",
    "hashlib",
    "encodings.idna",  # a listener's address as text
    "re2",
    "ottla.client",
    "ottla.spark",
    "ottla.storage.tools.verify",
    "ottla.storage.tools.explain",
    "pyspark",
    "pyarrow",
    "numpy",
}

START = """
import asyncio, sys
import ottla.cli.entry, ottla.cli.serving, ottla.broker.process
from ottla.broker import server
from ottla.config.broker import BrokerConfig

async def start(directory):
    config = BrokerConfig.load(overrides={"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": directory,
        "ottla.http.listener": "127.0.0.1:0"})
    broker = server.Server(config)
    await broker.start()
    print(*sys.modules)
    await broker.stop()

for _ in range(2):
    asyncio.run(start(DIRECTORY))
"""


def test_a_start_imports_nothing_that_only_other_work_needs(tmp_path: Path) -> None:
    program = START.replace("DIRECTORY", repr(str(tmp_path)))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    fresh, again = (set(line.split()) for line in done.stdout.splitlines())
    assert "ottla.broker.node" in fresh
    assert sorted(((fresh | again) & NOT_AT_START) - unavoidable()) == []
