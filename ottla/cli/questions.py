"""A question before something is deleted that cannot be restored."""

from __future__ import annotations

import sys

import click

from ottla.cli.failures import Failure


def ask(question: str, *, otherwise: str) -> None:
    """Return if the answer is yes. Raises SystemExit if it is no, and Failure, which begins with `otherwise`, where
    there is no terminal.
    """
    if not is_terminal():
        raise Failure(f"{otherwise}: there is no terminal to ask at; --yes does it without a question")
    if not click.confirm(question, err=True):
        raise SystemExit(1)


def is_terminal() -> bool:
    """Whether a person can answer."""
    return sys.stdin.isatty()
