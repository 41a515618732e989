"""How much memory there may be, and the defaults that follow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.memory import memory_limit
from ottla.config.options import OriginKind

MB = 1_000_000
UNLIMITED_V1 = str((1 << 63) - 4096)


def machine(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": cgroup, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("cgroup", "files", "limit"),
    [
        pytest.param("0::/a/b", {"sys/fs/cgroup/a/b/memory.max": "160000000"}, 160 * MB, id="its own, v2"),
        pytest.param(
            "0::/a/b",
            {
                "sys/fs/cgroup/a/b/memory.max": "max",
                "sys/fs/cgroup/a/memory.max": "90000000",
                "sys/fs/cgroup/memory.max": "95000000",
            },
            90 * MB,
            id="one above it is smaller, v2",
        ),
        pytest.param("0::/", {"sys/fs/cgroup/memory.max": "50000000"}, 50 * MB, id="the root that a container sees"),
        pytest.param("0::/../x", {"sys/fs/cgroup/memory.max": "50000000"}, 50 * MB, id="moved out of its namespace"),
        pytest.param("0::/a", {"sys/fs/cgroup/a/memory.max": "max"}, None, id="no limit, v2"),
        pytest.param("0::/a", {}, None, id="no memory controller"),
        pytest.param(
            "4:memory:/docker/77\n0::/docker/77",
            {"sys/fs/cgroup/memory/memory.limit_in_bytes": "70000000"},
            70 * MB,
            id="the host's path in a container, v1",
        ),
        pytest.param(
            "5:cpu,memory:/a",
            {
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": UNLIMITED_V1,
                "sys/fs/cgroup/memory/memory.limit_in_bytes": UNLIMITED_V1,
            },
            None,
            id="no limit, v1",
        ),
        pytest.param("0::/a", {"sys/fs/cgroup/a/memory.max": "many"}, None, id="no number"),
        pytest.param("nothing like it", {}, None, id="no list of cgroups"),
    ],
)
def test_the_smallest_limit_of_the_cgroup_and_those_above_it_counts(
    tmp_path: Path, cgroup: str, files: dict[str, str], limit: int | None
) -> None:
    assert memory_limit(machine(tmp_path, cgroup, files)) == limit


def test_without_proc_there_is_no_limit(tmp_path: Path) -> None:
    assert memory_limit(tmp_path) is None


@pytest.mark.skipif(sys.platform == "win32", reason="there is no RLIMIT_DATA")
def test_a_limit_of_the_process_counts_too() -> None:
    program = "from ottla.config.memory import memory_limit; print(memory_limit())"
    command = ["sh", "-c", 'ulimit -d 400000; exec "$@"', "sh", sys.executable, "-c", program]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert int(said) <= 400_000 * 1024


def with_memory(memory_bytes: int, **keys: str) -> BrokerConfig:
    overrides = {key.replace("_", "."): value for key, value in keys.items()}
    return BrokerConfig.load(overrides=overrides, memory_bytes=memory_bytes)


def test_with_little_memory_what_clients_may_make_the_broker_hold_is_less() -> None:
    config = with_memory(160 * MB)
    assert config.ottla_connections_max_unsent_bytes == 40 * MB
    assert config.queued_max_request_bytes == 20 * MB
    assert config.socket_request_max_bytes == 10 * MB
    assert config.ottla_batch_max_decompressed_bytes == 10 * MB
    assert config.log_cleaner_dedupe_buffer_size == 10 * MB
    assert config.socket_send_buffer_bytes == 160 * MB // 1024
    assert len(config.fitted) == 6
    assert config.origin_of("queued.max.request.bytes").kind is OriginKind.DEFAULT


def test_with_enough_memory_the_defaults_are_the_usual_ones() -> None:
    usual, config = BrokerConfig.of(), with_memory(4 << 30)
    assert config.fitted == []
    assert config.describe() == usual.describe()
    assert with_memory(1 << 30).ottla_connections_max_unsent_bytes == usual.ottla_connections_max_unsent_bytes
    assert with_memory((1 << 30) - 4).ottla_connections_max_unsent_bytes == (1 << 28) - 1


def test_what_is_set_stays_as_it_is() -> None:
    config = with_memory(160 * MB, ottla_connections_max_unsent_bytes="100000000", socket_request_max_bytes="30000000")
    assert config.ottla_connections_max_unsent_bytes == 100 * MB
    assert config.socket_request_max_bytes == 30 * MB
    assert config.queued_max_request_bytes == 30 * MB  # not less than one request


def test_batches_that_may_be_long_still_arrive() -> None:
    config = with_memory(160 * MB, message_max_bytes="50000000")
    assert config.socket_request_max_bytes == 100 * MB
    assert config.queued_max_request_bytes == 100 * MB


def test_with_hardly_any_memory_the_defaults_are_still_of_use() -> None:
    config = with_memory(1 * MB)
    assert config.ottla_connections_max_unsent_bytes == 2 << 20
    assert config.socket_request_max_bytes >= 2 * config.message_max_bytes
    assert config.socket_send_buffer_bytes == 64 << 10
