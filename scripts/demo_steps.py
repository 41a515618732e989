"""The output of the demo's steps: the current step, its progress, a tick when it is done, and the failure."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

T = TypeVar("T")


class DemoFailed(Exception):
    """The demo cannot continue, or its check failed; the message has the reason."""


def step(name: str, work: Callable[[], T]) -> T:
    """Do one step; a terminal shows its name meanwhile."""
    if sys.stdout.isatty():
        click.echo(f"  … {name:<9}", nl=False)
        try:
            return work()
        finally:
            click.echo("\r\033[K", nl=False)
    return work()


@contextmanager
def progress(name: str, length: int) -> Iterator[Any]:
    """Show a progress bar on a terminal, and remove it at the end: the step's result follows in its place."""
    is_shown = sys.stdout.isatty()
    with open(os.devnull, "w") as nowhere:
        target = sys.stdout if is_shown else nowhere
        with click.progressbar(length=length, label=f"  … {name:<9}", show_eta=False, width=40, file=target) as bar:
            yield bar
    if is_shown:
        click.echo("\033[A\r\033[K", nl=False)


def step_done(name: str, what: str) -> None:
    """Mark a step as done."""
    click.echo(f"  {click.style('✓', fg='green', bold=True)} {click.style(f'{name:<9}', bold=True)} {what}")
