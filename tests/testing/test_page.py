"""The page about tests: its blocks print what they say, and it names every method."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.testing import EmbeddedBroker

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```\n", PAGE, re.DOTALL)


@pytest.mark.parametrize(("code", "printed"), [block for block in BLOCKS if "myshop" not in block[0]])
def test_a_block_prints_what_it_says(code: str, printed: str) -> None:
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, printed), ended.stderr


def test_there_are_blocks() -> None:
    assert len(BLOCKS) >= 4


def test_every_method_is_on_the_page() -> None:
    public = {name for name in dir(EmbeddedBroker) if not name.startswith("_")} | {"faults"}
    assert {name for name in public if not re.search(rf"\b{name}\b", PAGE)} == {"is_running"}
