"""A question before something is deleted that cannot be restored."""

from __future__ import annotations

import sys

import click

from ottla.cli.failures import Failure


def ask(question: str, *, otherwise: str, takes_input: bool = False) -> None:
    """Return if the answer is yes. Raises SystemExit if it is no, and Failure, which begins with `otherwise`, where
    there is no terminal. `takes_input`: the answer may come from other standard input, as kafka-acls reads it.
    """
    nobody = Failure(f"{otherwise}: there is no terminal to ask at; --yes does it without a question")
    if not is_terminal() and not takes_input:
        raise nobody
    try:
        is_agreed = click.confirm(question, err=True)
    except click.Abort:
        if is_terminal():
            raise
        click.echo(err=True)
        raise nobody from None
    if not is_agreed:
        raise SystemExit(1)


def is_terminal() -> bool:
    """Whether a person can answer."""
    return sys.stdin.isatty()
