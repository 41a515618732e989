"""What the names in a directory say about log starts that were lost or not written down."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from kit.log_dirs import ONE
from kit.simulated_files import SimulatedFiles

from ottla.storage.formats.layout import TopicPartition, log_file
from ottla.storage.formats.lost_starts import freed_starts

PARTITION = TopicPartition("orders", 0)
PLACE = ONE / "orders-0"


@pytest.mark.parametrize(
    ("logs", "freed", "start"),
    [
        (["0.", "5."], [], None),
        (["5.", "9."], [], None),  # taken away without a trace
        (["5.", "9."], ["0"], 5),
        (["9."], ["0", "5"], 9),
        (["0.", "9."], ["5"], None),  # the cleaner's
        (["9.", "0.swap"], ["0", "5"], None),  # the cleaner's, in the middle of its work
    ],
)
def test_a_log_begins_where_retention_was_freeing_segments(
    logs: Sequence[str], freed: Sequence[str], start: int | None
) -> None:
    files = SimulatedFiles()
    files.make_directory(PLACE, parents=True)
    for name in logs:
        base, _, suffix = name.partition(".")
        files.write_atomically(log_file(PLACE, int(base), "." + suffix if suffix else ""), b"")
    for base in freed:
        files.write_atomically(log_file(PLACE, int(base), ".deleted"), b"")
    assert freed_starts(files, ONE, [PARTITION], {}) == ({} if start is None else {PARTITION: start})
    assert freed_starts(files, ONE, [PARTITION], {PARTITION: 9}) == {}
