"""Another version that a benchmark runs beside this one: a checkout of it, or a commit of this repository.

`--against 0f03e7f` writes that commit's files to a temporary directory, which is removed when the program ends.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from argparse import ArgumentTypeError
from pathlib import Path

HERE = Path(__file__).parents[1]
HELP = "another version, whose broker takes part, too: a checkout, or a commit of this repository"


def version(text: str) -> Path:
    """The checkout that `--against` names. Raises ArgumentTypeError if there is neither such a directory nor such a
    commit.
    """
    if (place := Path(text)).is_dir():
        if not (place / "ottla" / "__main__.py").is_file():
            raise ArgumentTypeError(f"{text}: there is no Ottla; name a checkout or a commit of another version")
        return place.resolve()
    commit = commit_of(HERE, text)
    if commit is None:
        raise ArgumentTypeError(f"{text}: neither a directory nor a commit of this repository")
    directory = Path(tempfile.mkdtemp(prefix=f"ottla-{commit[:7]}-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    files = subprocess.run(["git", "-C", str(HERE), "archive", commit], capture_output=True, check=True).stdout
    subprocess.run(["tar", "--extract", "--directory", str(directory)], input=files, check=True)
    (directory / ".commit").write_text(commit)
    return directory


def commit_of(tree: Path, name: str = "HEAD") -> str | None:
    """The whole id of a checkout's commit; None if it is not known."""
    if name == "HEAD" and (written := tree / ".commit").is_file():
        return written.read_text()
    words = ["git", "-C", str(tree), "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:  # git
        return None
    return done.stdout.strip() if done.returncode == 0 else None
