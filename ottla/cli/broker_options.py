"""The option of commands that configure a broker: `--override`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ottla.cli import suggestions

F = TypeVar("F", bound=Callable[..., Any])


def override_option(text: str) -> Callable[[F], F]:
    """`--override KEY=VALUE`, which may be repeated; `text` says what it does in this command."""
    return click.option(
        "--override",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        shell_complete=suggestions.broker_pairs,
        help=f"{text} May be repeated.",
    )
