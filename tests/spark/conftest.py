"""One Spark session for all tests that need one, with settings for queries of few rows: starting takes the time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kit.forked_python import forked_python

from ottla.spark.java import JavaNotFound, prepare_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    # Most of the time goes into starting: classes are loaded and compiled once, and hardly ever run again.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions"
    " -XX:-BytecodeVerificationRemote",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.adaptive.enabled": "false",
    # A class for each query, compiled from Java, is for queries of many rows.
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # The default starts eight processes of `readlink` for each file of a checkpoint.
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming.checkpointing."
    "FileSystemBasedCheckpointFileManager",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session that knows format `ottla` only by what Spark finds on its own."""
    directory = tmp_path_factory.mktemp("spark")
    try:
        prepare_environment(directory)
    except JavaNotFound as missing:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(missing))
    # Spark lists the folders of sys.path. The finder of an editable install is none, so the clone is named here.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # the machine's own name may not resolve
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2,2]").appName("ottla tests")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.sql.warehouse.dir", str(directory / "warehouse"))
    builder = builder.config("spark.local.dir", str(directory))
    with forked_python(directory) as python:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = str(python)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()
