"""What `ottla serve` must not have imported when it has accepted its first record: each costs a start some time.

`tests/broker/test_start_imports.py` has more names, and starts on a directory that was used before.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from kit.exchange import batch, produce_request
from kit.imports import unavoidable
from kit.wire import Wire

from ottla.protocol.api.metadata import MetadataRequest

NOT_BEFORE_THE_FIRST_RECORD = {
    "dataclasses",
    "ottla.broker.fetch.fetch_read",  # the handler of Fetch imports it; what importlib is asked for is not reported
    "ottla.broker.fast.fetch_templates",
    "ottla.broker.fast.partitions_template",
    "ottla.broker.fast.session_template",
    "ottla.broker.fast.sessionless_template",
    "ottla.broker.formats.conversion",
    "ottla.broker.groups.coordinator",
    "ottla.broker.http.server",
    "click",
    "cramjam",
}


def test_the_first_record_is_accepted_without_what_only_other_work_needs(tmp_path: Path) -> None:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path), "ottla.http.listener": ""}
    words = [word for key, value in settings.items() for word in ("--override", f"{key}={value}")]
    command = [sys.executable, "-X", "importtime", "-m", "ottla", "serve", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            ready = re.search(r":(\d+)$", process.stdout.readline().strip())
            assert ready
            with Wire(int(ready[1])) as wire:
                wanted = [MetadataRequest.MetadataRequestTopic(name="t")]
                while wire.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=True), 9).topics[0].error_code:
                    pass
                answer = wire.call(produce_request("t", batch(1)), 9)
                assert answer.responses[0].partition_responses[0].error_code == 0
        finally:
            process.terminate()
            log = process.communicate(timeout=60)[1]
    imported = {line.rpartition("|")[2].strip() for line in log.splitlines() if line.startswith("import time:")}
    assert {"ottla.protocol.api.produce", "uvloop"} <= imported
    assert sorted((imported & NOT_BEFORE_THE_FIRST_RECORD) - unavoidable()) == []
