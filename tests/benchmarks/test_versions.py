"""What `--against` takes: a checkout, or a commit."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]


def test_a_checkout_is_taken_as_it_is() -> None:
    from versions import version

    assert version(str(TOP)) == TOP.resolve()


def test_a_folder_without_ottla_is_refused(tmp_path: Path) -> None:
    from versions import version

    with pytest.raises(ArgumentTypeError, match="there is no Ottla"):
        version(str(tmp_path))


def test_what_is_neither_a_folder_nor_a_commit_is_refused() -> None:
    from versions import version

    with pytest.raises(ArgumentTypeError, match="no-such-version: neither a directory nor a commit"):
        version("no-such-version")


def test_files_that_were_written_for_a_commit_say_which_one(tmp_path: Path) -> None:
    from versions import commit_of

    (tmp_path / ".commit").write_text("a1df8c6" * 5)
    assert commit_of(tmp_path) == "a1df8c6" * 5
