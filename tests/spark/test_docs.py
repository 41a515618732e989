"""The code of docs/spark.md and of docs/spark-writing.md runs, block after block, as somebody would type it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kit.broker import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]  # all blocks; one time-out spoils the session of all others

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("spark.md", "spark-writing.md")


def blocks() -> list[str]:
    text = "".join((DOCS / page).read_text() for page in PAGES)
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_session_of_the_pages_runs_from_nothing_to_its_result(
    spark: SparkSession, own_broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_PYTHON", os.environ["PYSPARK_PYTHON"])
    names: dict[str, Any] = {}
    ran = 0
    for block in blocks():
        code = block.replace("localhost:9092", own_broker.bootstrap)
        code = code.replace('"archive/', f'"{tmp_path}/archive/')  # Spark's own folder is not the test's
        exec(compile(code, f"{PAGES}, block {ran}", "exec"), names)
        ran += 1
    assert ran >= 6
    assert names["table"].count() == 3
    assert names["values"].columns == ["value", "offset"]
