"""An executor of Spark has this package, numpy, pyarrow and the codecs, and nothing else that the broker needs."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CODECS = {"cramjam", "lz4", "xxhash", "zstandard"}
"""What record batches may be compressed with; imported with the batches themselves."""
CHECKSUMS = ({"crc32c"}, {"crcmod"})
"""One of both is enough."""
IMPORTED_AS = {"google_re2": "re2", "prometheus_client": "prometheus_client"}

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
print(*sys.modules)
"""


def dependencies() -> set[str]:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {line.split(">")[0].split(";")[0].strip().replace("-", "_") for line in listed}
    return {IMPORTED_AS.get(name, name) for name in names}


@pytest.mark.parametrize("checksum", CHECKSUMS)
def test_the_source_imports_without_what_only_the_broker_needs(checksum: set[str]) -> None:
    missing = dependencies() - CODECS - checksum
    assert {"click", "re2", "uvloop", "javaproperties", "prometheus_client"} <= missing
    program = PROGRAM.replace("MISSING", repr(missing))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    imported = set(done.stdout.split())
    assert "ottla.spark.fetcher" in imported
    assert "ottla.spark.sender" in imported
    ours = {name.split(".")[1] for name in imported if name.startswith("ottla.")}
    assert ours == {"address", "client_core", "protocol", "spark", "version"}
