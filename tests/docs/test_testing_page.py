"""The fixture of docs/testing.md, in a test run of its own as a reader would have it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60
PID = """

def test_the_broker_is_a_process_of_the_run():
    import os, pathlib
    (child,) = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    pathlib.Path("pid").write_text(child)
"""


def test_the_fixture_starts_a_broker_and_ends_it_with_the_run(tmp_path: Path) -> None:
    fixture, test = re.findall(r"^```python\n(.*?)^```", (TOP / "docs" / "testing.md").read_text(), re.S | re.M)
    (tmp_path / "conftest.py").write_text(fixture)
    (tmp_path / "test_orders.py").write_text(test + PID)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", ".", "."]
    environment = {**os.environ, "PYTHONPATH": str(TOP)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists()
