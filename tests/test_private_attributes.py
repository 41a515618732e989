"""How often tests and benchmarks reach into private attributes of other objects: what is left may only become less.

A test that looks inside breaks when the inside is put in order, and does not notice when the outside is wrong. Rather
pass in what it needs, check behaviour, or give the class a read-only property if its other users would want it too.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

TOP = Path(__file__).parents[1]
OWN = {"self", "cls", "os", "sys"}
AN_ACCESS = re.compile(r"\._" + "".join(rf"(?<!\b{name}\._)" for name in sorted(OWN)) + "[a-z]")
"""What each of them looks like in a file. Few files have one, and to parse all takes ten times as long as this."""
OF_NAMED_TUPLES = {"_replace", "_asdict", "_fields", "_make"}
LEFT = {
    "tests/arrow/test_client.py": 1,
    "tests/broker/api/test_old_clients.py": 1,
    "tests/broker/fast/test_templates_and_slow_path.py": 1,
    "tests/broker/groups/test_classic_machine.py": 1,
    "tests/broker/groups/test_shell.py": 1,
    "tests/broker/net/test_shared_receiving.py": 1,
    "tests/broker/runtime/test_redo_rounds.py": 6,
    "tests/broker/runtime/test_threads.py": 5,
    "tests/broker/runtime/test_volume_syncs.py": 3,
    "tests/client/groups/test_blocking_groups.py": 2,
    "tests/client/groups/test_consumer_protocol_member.py": 2,
    "tests/client/groups/test_poll_watch.py": 2,
    "tests/client/test_blocking.py": 4,
    "tests/client/test_blocking_inbox.py": 4,
    "tests/client/test_blocking_lifecycle.py": 4,
    "tests/client/test_consumer.py": 1,
    "tests/client/test_interrupted_reading.py": 3,
    "tests/client/test_reading_what_is_whole.py": 1,
    "tests/client/test_unobserved_failures.py": 1,
    "tests/client_core/test_send_queues.py": 1,
    "tests/kit/fake_group.py": 1,
    "tests/kit/inside_clients.py": 2,
    "tests/kit/kafka_python_messages.py": 1,
    "tests/kit/simulated_files.py": 1,
    "tests/kit/simulator/consumers.py": 1,
    "tests/kit/simulator/redo_worlds.py": 1,
    "tests/spark/test_fetcher.py": 1,
    "tests/spark/test_secured.py": 1,
    "tests/spark/test_stream_planner.py": 1,
    "tests/storage/files/test_volume.py": 2,
}
"""By file. `kit/inside_clients.py` is the place where tests look into the bundled client; those of threads end threads
from outside; PySpark has no public way to what Spark's UI keeps; the rest look at one thing each."""


def reaches(source: str) -> list[str]:
    """The accesses `other._name` in some Python. Constants (`KafkaError._FATAL`) are another's way of naming."""
    if not AN_ACCESS.search(source):
        return []
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr[:1] == "_"
        and node.attr[1:2].islower()
        and node.attr not in OF_NAMED_TUPLES
        and not (isinstance(node.value, ast.Name) and node.value.id in OWN)
    ]


def test_what_is_left_becomes_less() -> None:
    found = Counter(
        {
            str(path.relative_to(TOP)): len(reaches(path.read_text()))
            for folder in ("tests", "benchmarks")
            for path in (TOP / folder).rglob("*.py")
        }
    )
    more = {path: count for path, count in found.items() if count > LEFT.get(path, 0)}
    assert more == {}, "private attributes of other objects: see the file's docstring"
    fewer = {path: found[path] for path, count in LEFT.items() if found[path] < count}
    assert fewer == {}, "fewer are left: write the new number into LEFT"


def test_an_access_is_seen() -> None:
    assert reaches("self._a._b; timers._heap; Error._FATAL; row._replace(x=1); x.__class__") == [
        "self._a._b",
        "timers._heap",
    ]
