"""Notices about waiting, on standard error, if that is a terminal."""

from __future__ import annotations

import sys

import click


def notice(line: str) -> bool:
    """Write the line if standard error is a terminal, and return whether it is."""
    if not sys.stderr.isatty():
        return False
    click.secho(line, err=True, dim=True)
    return True
