"""An executor of Spark needs this package, numpy and pyarrow, and for compressed batches the package of their codec.

What is missing is reported by the first thing that needs it, not by an import.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

IMPORTED_AS = {"google_re2": "re2"}

PROGRAM = """
import importlib.abc, pkgutil, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in MISSING:
            raise ImportError(f"{name} is not installed here")

sys.meta_path.insert(0, Missing())
import importlib.machinery
found = importlib.machinery.PathFinder.find_spec
def find_spec(name, path=None, target=None):
    return None if name.split(".")[0] in MISSING else found(name, path, target)
importlib.machinery.PathFinder.find_spec = find_spec   # crc32c is looked for there
import ottla.spark
for module in pkgutil.iter_modules(ottla.spark.__path__):
    importlib.import_module(f"ottla.spark.{module.name}")
"""

IMPORTS = PROGRAM + "print(*sys.modules)"
USES = (
    PROGRAM
    + """
from ottla.protocol.records import checksum
from ottla.protocol.records.compression import Compression, compress, decompress, missing
print(missing())
print(decompress(Compression.GZIP, compress(Compression.GZIP, b"gzip is Python's own"), 100))
for codec in (Compression.SNAPPY, Compression.LZ4, Compression.ZSTD):
    for use in (lambda: compress(codec, b"x"), lambda: decompress(codec, BYTES[codec], 100)):
        try:
            use()
        except ImportError as error:
            print(error)
print(checksum.slow_because)
try:
    checksum.crc32c(b"x")
except ImportError as error:
    print(error)
"""
)


def dependencies() -> set[str]:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {line.split(">")[0].split(";")[0].strip().replace("-", "_") for line in listed}
    return {IMPORTED_AS.get(name, name) for name in names}


def run_without(missing: set[str], program: str) -> str:
    """What `program` prints where `missing` cannot be imported."""
    done = subprocess.run(
        [sys.executable, "-c", program.replace("MISSING", repr(missing))],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("installed", [set(), {"crcmod"}, {"crc32c", "lz4"}], ids=["nothing", "crcmod", "some"])
def test_the_source_imports_without_any_dependency_of_the_broker(installed: set[str]) -> None:
    missing = dependencies() - installed
    assert {"click", "re2", "uvloop", "javaproperties", "prometheus_client", "zstandard", "xxhash"} <= missing
    imported = set(run_without(missing, IMPORTS).split())
    assert "ottla.spark.fetcher" in imported
    assert "ottla.spark.sender" in imported
    assert not imported & missing
    ours = {name.split(".")[1] for name in imported if name.startswith("ottla.")}
    assert ours == {"address", "arrow", "client_core", "jaas", "protocol", "scram", "spark", "version"}


def test_what_needs_a_missing_dependency_says_which() -> None:
    from ottla.protocol.records.compression import Compression, compress

    compressed = {int(codec): compress(codec, b"x") for codec in Compression}
    lines = run_without(dependencies(), USES.replace("BYTES", repr(compressed))).splitlines()
    packages = {"snappy": "cramjam", "lz4": "lz4", "zstd": "zstandard"}
    assert lines == [
        repr(packages),
        repr(b"gzip is Python's own"),
        *(
            f"{codec} needs the package {package}, which is not installed: `pip install {package}`"
            for codec, package in packages.items()
            for _ in range(2)
        ),
        "crc32c is not installed",
        "checksums need the package crc32c, or crcmod: `pip install crc32c`",
    ]
