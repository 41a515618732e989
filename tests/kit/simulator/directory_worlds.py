"""Worlds with two log directories, on two file systems: one may fail while the other serves, and comes back at a start.

The metadata log is in the first. What a topic's partition is in, the broker decides.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kit.nodes import DATA

if TYPE_CHECKING:
    from kit.simulated_files import SimulatedFiles

WORLDS: Final = 0.15
"""How many there are."""
OTHER: Final = Path("/other-data")
_OTHER_FILE_SYSTEM: Final = 2


def draw_directories(seed: int, share: float, files: SimulatedFiles) -> Sequence[Path]:
    """The log directories of a seed's world."""
    if random.Random(f"the directories of {seed}").random() >= share:
        return (DATA,)
    files.mounts[OTHER] = _OTHER_FILE_SYSTEM
    return DATA, OTHER
