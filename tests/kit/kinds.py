"""The kinds of tests that take long, by their place: each is a mark, and `scripts/test --quick` leaves all of them out.

What has no line here runs in the test's own process and waits for nothing. CONTRIBUTING.md says which question each
kind answers.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]

PLACES: Final = {
    "processes": (
        "broker/test_notify.py",
        "broker/test_process.py",
        "cli/test_acls.py",
        "cli/test_client_properties.py",
        "cli/test_clients.py",
        "cli/test_completion.py",
        "cli/test_configuration.py",
        "cli/test_console.py",
        "cli/test_consume_share_group.py",
        "cli/test_delete_records.py",
        "cli/test_features.py",
        "cli/test_format.py",
        "cli/test_groups.py",
        "cli/test_log.py",
        "cli/test_log_dirs.py",
        "cli/test_operations.py",
        "cli/test_ping.py",
        "cli/test_platforms.py",
        "cli/test_produce_json.py",
        "cli/test_quotas.py",
        "cli/test_registry.py",
        "cli/test_run.py",
        "cli/test_secured.py",
        "cli/test_serve.py",
        "cli/test_share_groups.py",
        "cli/test_standard_files.py",
        "cli/test_streams_groups.py",
        "cli/test_terminal.py",
        "cli/test_tls.py",
        "cli/test_tokens.py",
        "cli/test_transactions.py",
        "cli/test_users.py",
        "cli/test_waiting.py",
        "client/groups/test_against_broker.py",
        "client/test_against_broker.py",
        "client/test_against_secured_broker.py",
        "client/test_blocking.py",
        "client/test_blocking_lifecycle.py",
        "client/test_examples.py",
        "client/test_order.py",
        "client/test_page.py",
        "client/test_restarts.py",
        "client/test_share_consumer_against_broker.py",
        "client/test_share_groups_against_broker.py",
        "client/test_splitting.py",
        "client/test_streams_groups_against_broker.py",
        "client/test_transactions_against_broker.py",
        "client/test_wrong_broker.py",
        "crash/test_audit.py",
        "crash/test_clock_jump.py",
        "crash/test_commits.py",
        "crash/test_dead_letters.py",
        "crash/test_kill.py",
        "crash/test_kill_cleaning.py",
        "crash/test_mover_clients.py",
        "crash/test_audit_redo.py",
        "crash/test_redo_log.py",
        "crash/test_transaction_audit.py",
        "diagnosis/test_dead_letter_diagnosis.py",
        "image",
        "integration",
        "registry/test_extra.py",
        "registry/test_real_serializers.py",
        "scripts/test_usage_of_scripts.py",
        "test_forks.py",
        "test_start_imports.py",
        "testing/test_page.py",
        "testing/test_plugin.py",
        "testing/test_real_clients.py",
    ),
    "simulation": (
        "broker/test_flipped_bits.py",
        "crash/test_simulator.py",
        "fuzz",
    ),
    "oracles": (
        "protocol/records/test_oracles.py",
        "protocol/test_kafka_golden.py",
        "protocol/test_kafka_python_oracle.py",
        "protocol/test_kio_oracle.py",
        "protocol/test_old_kafka_python_oracle.py",
    ),
    "old_clients": ("integration/test_old_clients.py",),
    "spark": (
        "spark/test_demo.py",
        "spark/test_docs.py",
        "spark/test_exactly_once.py",
        "spark/test_read_committed.py",
        "spark/test_secured.py",
        "spark/test_sink.py",
        "spark/test_source.py",
        "spark/test_stream.py",
        "spark/test_write_once.py",
    ),
}
"""Folders and files below `tests`. A longer path goes before a shorter one."""

SPARK_NEEDS: Final = ("numpy", "pyarrow")
"""Of all tests in `spark`. Where they are not there, a quick run leaves those out, too, and does not install them."""
_KIND_OF: Final = {place: kind for kind, places in PLACES.items() for place in places}


@cache
def kind_of(path: Path) -> str | None:
    """The kind of the tests in this file or folder; None where they are quick, or no tests of ours."""
    if not path.is_relative_to(TESTS):
        return None
    inside = path.relative_to(TESTS)
    for one in (inside, *inside.parents):
        if kind := _KIND_OF.get(one.as_posix()):
            return kind
    return None


def is_left_out(path: Path) -> bool:
    """Whether a quick run goes past this file or folder: of a kind, or in need of what a quick run does not install."""
    if kind_of(path) is not None:
        return True
    needs_columns = any(path.is_relative_to(TESTS / folder) for folder in ("arrow", "spark"))
    return needs_columns and not all(map(find_spec, SPARK_NEEDS))


def what_is_left_out() -> str:
    """One line for the end of a quick run."""
    files = sorted(TESTS.rglob("test_*.py"))
    left_out = Counter(kind_of(path) or "spark" for path in files if is_left_out(path))
    kinds = ", ".join(f"{kind} {left_out[kind]}" for kind in PLACES)
    return f"--quick left out {left_out.total()} of {len(files)} files of tests ({kinds}): scripts/test runs them all"
