"""How the demo's steps look: what is under way, how far it is, a tick when it is done, and the one way to fail."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

T = TypeVar("T")


class DemoFailed(Exception):
    """The demo cannot go on, or its check failed; the message says why."""


def step(name: str, work: Callable[[], T]) -> T:
    """Do one step; on a terminal its name stands there meanwhile."""
    if sys.stdout.isatty():
        click.echo(f"  … {name:<9}", nl=False)
        try:
            return work()
        finally:
            click.echo("\r\033[K", nl=False)
    return work()


@contextmanager
def progress(name: str, length: int) -> Iterator[Any]:
    """Show a progress bar on a terminal, and take it away at the end: the step's result follows in its place."""
    is_shown = sys.stdout.isatty()
    with open(os.devnull, "w") as nowhere:
        target = sys.stdout if is_shown else nowhere
        with click.progressbar(length=length, label=f"  … {name:<9}", show_eta=False, width=40, file=target) as bar:
            yield bar
    if is_shown:
        click.echo("\033[A\r\033[K", nl=False)


def step_done(name: str, what: str) -> None:
    """Tick a step off."""
    click.echo(f"  {click.style('✓', fg='green', bold=True)} {click.style(f'{name:<9}', bold=True)} {what}")
