"""One Spark session for all tests that need one: starting it costs more than all of them together."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.spark.java import JavaNotFound, prepare_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def spark_home(directory: Path) -> Path:
    """PySpark's folder without the zip of itself that comes first among what Spark's Python workers import from.

    Nothing in a zip is compiled beforehand, so every worker would take a second of processor for its imports, three
    times what it takes from site-packages. The worker of a stream has 10 s of Spark to say that it is there, which on
    a busy machine was not enough; nothing sets that time.
    """
    pyspark = importlib.util.find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    home = directory / "home"
    home.mkdir()
    for name in ("bin", "jars"):
        (home / name).symlink_to(Path(pyspark.origin).with_name(name))
    return home


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
    os.environ["SPARK_HOME"] = str(spark_home(directory))
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2,3]").appName("ottla tests")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.sql.warehouse.dir", str(directory / "warehouse"))
    session = builder.config("spark.local.dir", str(directory)).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
