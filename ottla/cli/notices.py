"""What a command waits for, said on standard error where somebody watches, and nowhere else."""

from __future__ import annotations

import sys

import click


def notice(line: str) -> bool:
    """Say it on a terminal; what is piped or logged stays as it is. Whether it was said."""
    if not sys.stderr.isatty():
        return False
    click.secho(line, err=True, dim=True)
    return True
